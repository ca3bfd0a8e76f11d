#!/usr/bin/env bash
# warm: builds what is missing, finds what is there, survives kill -9, and says so when kernels cannot be built or kept.
. "$(dirname "$0")/lib.sh"
need_nvrtc
d=$room/cache
conv="--op conv1d_qkv --prologue conv -m qwen3-next-80b-a3b --tp 1 --max-tokens 4096"

run 0 warm $conv -g "NVIDIA H200" -d "$d" --json -j 2
json 'd["cache_dir"]' "$d"
json 'd["plans"], d["plans_failed"], d["already_there"], d["not_stored"], d["failures"]' "(1, 0, 0, 0, [])"
json 'd["built"] == len(d["kernels"]) == 2 and all(k["built"] for k in d["kernels"])' True
json 'all(k["kernel"] == "conv1d_qkv" and k["arch"] == "sm_90a" and k["registers"] > 0 for k in d["kernels"])' True
json 'd["cubin_bytes"] == sum(k["cubin_bytes"] for k in d["kernels"]) > 0' True
json '[(t["gpu"], t["arch"]) for t in d["targets"]]' "[('NVIDIA H200', 'sm_90a')]"
keys=$(python3 -c 'import json, sys; print(*sorted(k["key"] for k in json.load(open(sys.argv[1]))["kernels"]))' "$room/out")
files=$(find "$d" -name '*.gdnk' -printf '%f\n' | cut -d. -f1 | sort | xargs)
[ "$keys" = "$files" ] || fail "keys $keys, files $files"

# The GPU's own spelling, another way to write it, another number of threads: the same kernels.
run 0 warm $conv -g h200 -d "$d" --json -j 1
json 'd["built"], d["already_there"]' "(0, 2)"
run 0 warm $conv -g h200 -d "$d"
has "$out" "0 kernels built, 2 already there; 0 of 1 plans failed;"
has "$out" "for $d"

# What an arch needs contains what each of its GPUs needs.
run 0 warm $conv -a sm_90a -d "$room/arch" --json
json '"NVIDIA H200" in [t["gpu"] for t in d["targets"]] and len(d["targets"]) > 2' True
for gpu in "NVIDIA H200" "NVIDIA H100 80GB HBM3" "NVIDIA H100 PCIe"; do
    GDN_JIT_DISABLE_COMPILE=1 run 0 warm $conv -g "$gpu" -d "$room/arch" --json
    json 'd["built"], d["plans_failed"]' "(0, 0)"
done

# Every way that engines put a layer together, unless one is named; features are in every shape; the generic kernel
# in the place of Hopper's when asked for.
run 0 warm -m qwen3.5-2b --tp 1 --with checkpoints --max-tokens 256 --max-seqs 256 -g h200 -d "$room/ways" --nvrtc "$GDN_FAKE_NVRTC" --json
json 'd["plans"], d["plans_failed"]' "(7, 0)"
plain=$(find "$room/ways" -name '*.gdnk' | wc -l)
run 0 warm -m qwen3.5-2b --tp 1 --max-tokens 256 --max-seqs 256 -g h200 -d "$room/ways" --nvrtc "$GDN_FAKE_NVRTC" --json
json 'd["already_there"], d["built"]' "(0, $plain)"
run 0 warm -m qwen3.5-2b --tp 1 --max-tokens 256 --max-seqs 256 --generic -g h200 -d "$room/ways" --nvrtc "$GDN_FAKE_NVRTC" --json
json 'd["already_there"], d["built"], sorted({k["kernel"] for k in d["kernels"] if k["built"]})' "($plain, 8, ['gdn_prefill_generic', 'gdn_prefill_split'])"
run 0 warm -m qwen3.5-2b,qwen3.5-0.8b --tp 1 --max-tokens 256 --max-seqs 256 -g h200 -d "$room/ways" --nvrtc "$GDN_FAKE_NVRTC" --json
json 'd["plans"], d["built"]' "(14, 0)"

# As many compiles at a time as --jobs says, of one plan or of several, and no more, whatever the variable says.
export GDN_FAKE_NVRTC_DELAY_MS=200 GDN_JIT_COMPILE_JOBS=3
for jobs in 1 2 12; do
    GDN_FAKE_NVRTC_RUNNING=$room/running.$jobs run 0 warm -m qwen3.5-2b --tp 1 -g h200 -d "$room/jobs.$jobs" --nvrtc "$GDN_FAKE_NVRTC" \
        -j $jobs -v --json
    json 'd["built"] > 12' True
    most=$(sort -n "$room/running.$jobs" | tail -n 1)
    [ "$most" -le $jobs ] || fail "$most compiles at a time"
    [ $jobs != 12 ] || [ "$most" -gt 4 ] || fail "no more than an engine has" # a busy machine may not get to 12
    [ "$(grep -c ': asked for$' <<<"$err")" = "$(wc -l <"$room/running.$jobs")" ] || fail "not one \"asked for\" for each compile"
done
unset GDN_FAKE_NVRTC_DELAY_MS GDN_JIT_COMPILE_JOBS
run 2 warm -m qwen3.5-2b -g h200 -j 257
has "$err" '--jobs is "257": must be a number from 1 to 256'

# A list on standard input, beside a model.
echo '[{"op":"conv1d_qkv","num_q_heads":1,"num_k_heads":1,"num_v_heads":1,"head_dim_qk":64,"head_dim_v":64,"width":2,
        "max_tokens":64}]' >"$room/s.json"
run 0 warm --shapes "$room/s.json" -g h200 -d "$d" --json
json 'd["built"], d["plans"]' "(1, 1)"
run 0 warm $conv --shapes "$room/s.json" -g h200 -d "$d" --json
json 'd["built"], d["already_there"], d["plans"]' "(0, 3, 2)"

# A shape that the library refuses costs itself only.
echo '[{"op":"conv1d_qkv","num_q_heads":1,"num_k_heads":1,"num_v_heads":1,"head_dim_qk":60,"head_dim_v":64},
       {"op":"conv1d_qkv","num_q_heads":1,"num_k_heads":1,"num_v_heads":1,"head_dim_qk":64,"head_dim_v":64,"width":2,
        "max_tokens":64}]' >"$room/bad.json"
run 1 warm --shapes "$room/bad.json" -g h200 -d "$d" --json
json 'd["plans_failed"], d["already_there"], d["failures"][0]["status"]' "(1, 1, 'GDN_E_UNSUPPORTED')"
has "$err" "failed: bad.json #1"
has "$err" "head_dim_qk is 60"

# A compiler that is too old for the arch: one sentence for all plans that it stopped.
FAKE_NVRTC_VERSION=12.8 run 1 warm -m qwen3.5-27b -a sm_103a -d "$room/none" --nvrtc "$GDN_FAKE_NVRTC" --json
json 'd["built"], d["plans_failed"] == d["plans"] == 82, len(d["failures"])' "(0, True, 1)"
json 'd["failures"][0]["status"], d["failures"][0]["count"]' "('GDN_E_NO_NVRTC', 82)"
has "$err" "(and 81 more)"
has "$err" "sm_103a needs NVRTC 12.9 or newer"
# A compiler that is named and is none: nothing of another one passes for what it would have made.
for none in /nowhere/libnvrtc.so /etc/passwd; do
    run 2 warm $conv -g h200 -d "$d" --nvrtc $none
    has "$err" "--nvrtc $none cannot be used: NVRTC cannot be opened as configured ($none"
    [ -z "$out" ] || fail "prints on standard output"
    GDN_JIT_NVRTC=$none run 1 warm $conv -g h200 -d "$d"
    has "$err" "GDN_JIT_NVRTC is $none, which cannot be used: NVRTC cannot be opened as configured ($none"
    [ -z "$out" ] || fail "prints on standard output"
done
FAKE_NVRTC_VERSION=12.4 run 2 warm $conv -g h200 -d "$d" --nvrtc "$GDN_FAKE_NVRTC"
has "$err" "is NVRTC 12.4"
# Where nothing is compiled none is in use, whatever the variable is left at; the option is still wrong.
GDN_JIT_DISABLE_COMPILE=1 GDN_JIT_NVRTC=/nowhere/libnvrtc.so run 0 warm $conv -g h200 -d "$d"
GDN_JIT_DISABLE_COMPILE=1 run 2 warm $conv -g h200 -d "$d" --nvrtc /nowhere/libnvrtc.so
GDN_JIT_DISABLE_COMPILE=1 run 1 warm $conv -g h200 -d "$room/none" --json
json 'd["failures"][0]["status"]' GDN_E_NOT_CACHED

# Nowhere to keep it: refused before anything is compiled.
GDN_JIT_DISABLE_CACHE=1 run 1 warm $conv -g h200
has "$err" "no cache directory: GDN_JIT_DISABLE_CACHE=1 keeps cubins in memory only, so that each process compiles anew: unset it, or"
run 1 warm $conv -g h200 -d /proc/none
has "$err" "no cache directory: /proc/none cannot be used: No such file or directory: make it a directory that this user may write; or"
has "$err" "or name another one with --cache-dir"
[ "$(grep -c /proc/none "$room/err")" = 1 ] || fail "tells it twice"
run 0 show $conv -g h200 -d /proc/none
has "$err" "warning: cubins are kept in memory only: /proc/none cannot be used"

# A directory that a group shares, and the option for it forgotten: space and permission are not what is missing.
run 0 warm $conv -g h200 -d "$room/shared"
find "$room/shared" -name '*.gdnk' -delete
chmod g+w "$room/shared/v2/sm_90a"
run 1 warm $conv -g h200 -d "$room/shared"
has "$err" "2 of 2 kernels are not in $room/shared: $room/shared/v2/sm_90a is not this user's alone: "
has "$err" "chmod go-w, or use --shared-cache"
lacks "$err" "free space"
run 0 warm $conv -g h200 -d "$room/shared" --shared-cache

# What the directory does not hold at the end is no success: kernels of a bundle, kernels that the cap evicted.
run 0 warm $conv -g h200 -d "$room/bundle"
export GDN_JIT_BUNDLE_PATH=$room/bundle
run 1 warm $conv -g h200 -d "$room/image"
has "$err" "found in a bundle"
# Another compiler's entries of the same keys are no stand-in: an engine with this NVRTC passes them over.
GDN_JIT_BUNDLE_PATH='' run 0 warm $conv -g h200 -d "$room/others" --nvrtc "$GDN_FAKE_NVRTC"
run 1 warm $conv -g h200 -d "$room/others" --json
json 'd["not_stored"]' 2
has "$err" "2 of 2 kernels are not in $room/others: they were found in a bundle"
GDN_JIT_BUNDLE_PATH='' run 0 warm $conv -g h200 -d "$room/others"
run 0 warm $conv -g h200 -d "$room/others"
# Nor is a bundle of another compiler's missed where this one's are.
GDN_JIT_BUNDLE_PATH='' run 0 warm $conv -g h200 -d "$room/faked" --nvrtc "$GDN_FAKE_NVRTC"
GDN_JIT_BUNDLE_PATH=$room/faked run 0 warm $conv -g h200 -d "$room/others"
unset GDN_JIT_BUNDLE_PATH
export GDN_JIT_CACHE_MAX_BYTES=30000
run 1 warm $conv -g h200 -d "$room/capped" --json
json 'd["not_stored"] > 0' True
has "$err" "GDN_JIT_CACHE_MAX_BYTES"
unset GDN_JIT_CACHE_MAX_BYTES

# Killed at any moment, it leaves whole entries only; the next run builds the rest.
k=$room/killed
for delay in 0.05 0.2 0.4 0.6; do
    "$GDN_JIT_CACHE_TOOL" warm -m qwen3-next-80b-a3b --tp 1 --op conv1d_qkv --dtype bf16,fp16 -g h200 -d "$k" \
        >/dev/null 2>&1 &
    pid=$!
    sleep $delay
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ ! -d "$k" ] && continue
    run 0 list -d "$k" --json
    json 'all(e["valid"] for e in d["entries"])' True
done
run 0 warm -m qwen3-next-80b-a3b --tp 1 --op conv1d_qkv --dtype bf16,fp16 -g h200 -d "$k" --json
json 'd["plans_failed"], d["built"] + d["already_there"] == len(d["kernels"])' "(0, True)"
run 0 warm -m qwen3-next-80b-a3b --tp 1 --op conv1d_qkv --dtype bf16,fp16 -g h200 -d "$k" --json
json 'd["built"]' 0

# A recorded list is of what engines ask for, not of what is warmed.
GDN_JIT_RECORD=$room/plans.jsonl run 0 warm $conv -g h200 -d "$d"
GDN_JIT_RECORD=$room/plans.jsonl run 0 show $conv -g h200 -d "$d"
[ ! -e "$room/plans.jsonl" ] || fail "records its own plans"

# Progress is for terminals: none in a pipe, one line that is taken away again on a terminal.
run 0 warm $conv -g h200 -d "$room/pipe"
[ -z "$err" ] || fail "writes to a standard error that is no terminal"
if script -qec true /dev/null >/dev/null 2>&1; then # it needs a pseudo-terminal, which not every container has
    what="warm on a terminal" err=
    script -qec "\"$GDN_JIT_CACHE_TOOL\" warm $conv -g h200 -d \"$room/tty\"" /dev/null >"$room/out" </dev/null
    out=$(cat "$room/out")
    has "$out" "[1/1] 2 built, 0 there, 0 failed: qwen3-next-80b-a3b tp1 for NVIDIA H200"
    has "$out" $'\r\033[K2 kernels built'
fi

# A full disk under standard output is no success.
what="warm >/dev/full" out='' err=''
"$GDN_JIT_CACHE_TOOL" warm $conv -g h200 -d "$d" >/dev/full 2>"$room/err" && fail "exit status 0"
has "$(cat "$room/err")" "cannot write standard output"

finish
