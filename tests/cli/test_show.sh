#!/usr/bin/env bash
# show and list: facts that agree with each other, with the files, and with the formulas of the cost.
. "$(dirname "$0")/lib.sh"
need_nvrtc
d=$room/cache
conv="-m qwen3-next-80b-a3b --op conv1d_qkv --max-tokens 256 -d $d"
pre="-m qwen3-next-80b-a3b --op gdn_prefill --max-tokens 65536 -d $d"

run 0 show $conv -g "NVIDIA H200" --tokens 256
has "$out" "qwen3-next-80b-a3b tp1: conv1d_qkv bf16 heads 16/16/32 dims 128/128 width 4 state cw silu l2_norm interleaved, 32 gate heads, x"
has "$out" "for NVIDIA H200 (sm_90a)"
for word in "registers each" "spills         0 bytes, local memory 0 bytes" "parameters     tile_tokens=" \
    ", compiled in " "found in: compiler" "a call of 256 tokens in 1 sequence moves" "floor: " "(4800 GB/s, 989 TFLOP/s)"; do
    has "$out" "$word"
done
# Where parameters come from: a table's own slot, the slot beside it.
"${GDN_MAKE_TUNING:?is the path of make_tuning}" "$room/h200.json" || exit 1
tuned="-m qwen3.5-27b --tp 1 --op conv1d_qkv --prologue conv --max-tokens 1024 -d $d -g h200"
run 0 show $tuned --tuning "$room/h200.json"
has "$out" "parameters     tile_tokens=16 cta_threads=128 (exact, bucket)"
run 0 show $conv -g "NVIDIA H200"
has "$out" "found in: disk"
lacks "$out" "a call of"
lacks "$out" "partitions "
run 0 show $pre -g "NVIDIA H200"
has "$out" "partitions     by tokens, sequences, heads and SMs, in calls that have a workspace"
has "$out" " tokens in up to "
run 0 show $pre -g "NVIDIA H200" --json
of='d["shapes"][0]["plan"]["variants"]' # each slot's seqs, 0 any, below what its bucket says
json "any(any(v['bucket_seqs']) for v in $of) and any(0 in v['bucket_seqs'] for v in $of)" True
json "all(len(v['buckets']) == len(v['bucket_seqs']) == len({c['tokens'] for c in v['chosen_by']}) for v in $of)" True
most='0 if 0 in seqs else max(seqs)'
json "all(v['bucket_seqs'] == [(lambda seqs: $most)([c['seqs'] for c in v['chosen_by'] if c['tokens'] == t]) for t in sorted({c['tokens'] for c in v['chosen_by']})] for v in $of if v['params']['carry'] == 1)" True
# Uneven calls of up to two pairs an SM, 8 sequences of the 32 heads, follow from the bucket's choice.
json "{s for v in $of if v['params']['carry'] == 2 for s in v['bucket_seqs']}" "{8}"
GDN_JIT_WHOLE_SEQUENCES=1 run 0 show $pre -g "NVIDIA H200"
has "$out" "partitions     whole sequences: GDN_JIT_WHOLE_SEQUENCES=1 in the environment asks for it"
run 0 show $conv -a sm_90a --tokens 256
has "$out" "floor: unknown for sm_90a: name a GPU with --gpu"

# The cost, from the shapes: x read and q, k, v written once, weights, the state of each sequence read and written; a and b
# read in 16 bits, g and beta written in 32.
run 0 show $conv -g h200 --tokens 256 --seqs 4 --json
c="16 * 128 * 2 + 32 * 128"
json "d['shapes'][0]['cost']['bytes'] == 2 * ($c) * (2 * 256 + 4 + 2 * 4 * 3) + 256 * 32 * (2 * 2 + 2 * 4)" True
json "d['shapes'][0]['cost']['flops'] == 2 * ($c) * 256 * 4" True
json 'd["shapes"][0]["cost"]["floor_ns"] == round(d["shapes"][0]["cost"]["bytes"] / 4800)' True
json 'd["shapes"][0]["plan"]["variants"][0]["spill_bytes"]' 0
json 'd["shapes"][0]["plan"]["target"]["arch"]' sm_90a
key=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["shapes"][0]["plan"]["variants"][0]["key"])' "$room/out")

# Both operators of a model, in one run; a prologue of another kind where it is asked for.
run 0 show $conv -g h200 --prologue conv --json
json 'd["shapes"][0]["shape"]' "conv1d_qkv bf16 heads 16/16/32 dims 128/128 width 4 state cw silu, x aligned to 16"
run 0 show -m qwen3-next-80b-a3b --max-tokens 256 -g h200 -d "$d" --json
json '[s["plan"]["op"] for s in d["shapes"]]' "['conv1d_qkv', 'gdn_prefill']"

run 0 show $conv -g h200 -w spec
has "$out" "constexpr bool IO_BF16 = true;"
has "$out" "constexpr int WIDTH = 4;"
run 0 show $conv -g h200 --dtype fp16 -w spec
has "$out" "constexpr bool IO_BF16 = false;"
run 0 show $conv -g h200 -w source
for word in "gdn_spec.cuh" "gdn_params.cuh" "conv1d_qkv.cu" "__global__"; do has "$out" "$word"; done
run 0 show $conv -g h200 -w ptx
has "$out" ".target sm_90a"
has "$out" ".entry conv1d_qkv"
run 0 show $conv -g h200 -w log
has "$out" "registers"
run 0 show $conv -g h200 -w key
has "$out" "arch sm_90a"
lacks "$out" "H200"
run 0 show $conv -g h200 -w cubin
[ "$(head -c 4 "$room/out" | tail -c 3)" = ELF ] || fail "is no ELF file"
run 0 show $pre -g h200 -w spec
has "$out" "namespace spec"

# An entry by its key: the facts of the plan.
run 0 show --key "$key" -d "$d"
has "$out" "key        $key"
has "$out" "kernel     conv1d_qkv"
run 0 show --key "${key:0:8}" -d "$d" --json
json '[(e["key"], e["valid"], e["arch"]) for e in d["entries"]]' "[('$key', True, 'sm_90a')]"
json 'd["entries"][0]["registers"] > 0 and d["entries"][0]["spill_bytes"] == 0' True
run 1 show --key 0000000000000000 -d "$d"
has "$err" "no such entry in $d"

# list: each file is a line, a damaged one says so.
run 0 list -d "$d" --json
json 'd["cache_dir"]' "$d"
json 'len(d["entries"])' "$(find "$d" -name '*.gdnk' | wc -l)"
json 'all(e["valid"] and e["bytes"] > 0 and abs(e["last_use"] - __import__("time").time()) < 3600 for e in d["entries"])' True
run 0 list -d "$d"
has "$out" "ARCH"
has "$out" "$key"
has "$out" "kernels, "
has "$out" "COMPILER"
has "$out" "options 1: --gpu-architecture=sm_90a"
lacks "$out" "options 2"
run 0 list -d "$d" --json
json 'all(e["compiler"].startswith("nvrtc ") and "--gpu-architecture=sm_90a" in e["options"] for e in d["entries"])' True
file=$(find "$d" -name "$key.*.gdnk")
printf 'x' | dd of="$file" bs=1 seek=100 conv=notrunc 2>/dev/null
run 0 list -d "$d"
has "$out" "damaged: $file: "
run 0 list -d "$d" --json
json '[e["key"] for e in d["entries"] if not e["valid"]]' "['$key']"
json 'all(e["problem"] for e in d["entries"] if not e["valid"])' True
run 0 show --key "$key" -d "$d"
has "$out" "damaged"

# Ten thousand entries are listed, and verified, in the time of one breath.
if [ -n "${GDN_MANY_ENTRIES:-}" ]; then
    what="many_entries" out='' err=''
    "$GDN_MANY_ENTRIES" "$room/many" 10000 1024 || fail "exit status $?"
    for command in "list" "list --json" "verify"; do
        TIMEFORMAT='%U %S'
        { time run 0 $command -d "$room/many"; } 2>"$room/time"
        ms=$(awk '{ print int(1000 * ($1 + $2)) }' "$room/time") # of a processor: other tests run beside this one
        case $command in *json) json 'len(d["entries"]), all(e["valid"] for e in d["entries"])' "(10000, True)" ;; esac
        echo "$command of 10000 entries: $ms ms"
        out=''
        [ "$ms" -lt "${GDN_LIST_MS:-1000}" ] || fail "took $ms ms"
    done
fi

# JSON is UTF-8, whatever bytes a directory's name has: what is none is printed as U+FFFD, and what is stays.
odd=$room/$(printf 'odd \377\303 \303\244')
mkdir "$odd"
run 0 list --json -d "$odd"
json 'd["cache_dir"]' "$room/odd $(printf '\357\277\275\357\277\275 \303\244')"

# What cannot be built is a failure with the library's sentence.
run 1 show $conv -g h200 --x-alignment 8 --nvrtc /nowhere/libnvrtc.so -w spec
has "$err" "/nowhere/libnvrtc.so"

finish
