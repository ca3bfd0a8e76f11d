#!/usr/bin/env bash
# Help that helps, and for each wrong command line exit status 2 and a sentence with option, value and remedy.
. "$(dirname "$0")/lib.sh"

run 0 --version
has "$out" "gdn-jit-cache 0."
has "$out" "libgdnjit 0."
run 0 --help
for word in warm list show verify prune pack tune doctor "Exit status" "--model qwen3-next-80b-a3b"; do has "$out" "$word"; done
for command in warm list show verify prune pack tune doctor; do
    run 0 $command --help
    has "$out" "Usage: gdn-jit-cache $command"
    has "$out" "--cache-dir"
    has "$out" "xit status"
done
# What a command does where an option is not given, and no option that it would pass over.
run 0 show --help
out=$(tr -s ' \n' ' ' <<<"$out")
for words in "show: 1)" "all three; show: fused" "and a; show: 16)" "activations; show: fp32)"; do has "$out" "$words"; done
run 0 pack --help
has "$(tr -s ' \n' ' ' <<<"$out")" "Without any shape warm, show and tune list the presets"
for command in warm show pack tune prune doctor; do
    run 0 $command --help
    has "$out" "--nvrtc=FILE"
done
for command in list verify; do
    run 0 $command --help
    lacks "$out" "nvrtc="
done

# Whatever is printed, a full disk under it is no success.
for words in --help --version --usage "list --help" "pack --usage"; do
    what="gdn-jit-cache $words >/dev/full" out='' got=0
    # shellcheck disable=SC2086 # words
    "$GDN_JIT_CACHE_TOOL" $words >/dev/full 2>"$room/err" || got=$?
    err=$(cat "$room/err")
    [ "$got" = 1 ] || fail "exit status $got, not 1"
    [ "$err" = "gdn-jit-cache: cannot write standard output" ] || fail "does not say so once"
done

# Nor is a closed one.
what="gdn-jit-cache list >&-" out='' got=0
"$GDN_JIT_CACHE_TOOL" list --cache-dir "$room" >&- 2>"$room/err" || got=$?
err=$(cat "$room/err")
[ "$got" = 1 ] || fail "exit status $got, not 1"
has "$err" "cannot write standard output"

# Under its number the next file that is opened would be written to: something else has it.
what="gdn-jit-cache warm --from - >&- 2>&-" out='' err=''
mkfifo "$room/lines"
"$GDN_JIT_CACHE_TOOL" warm --from - -d "$room/none" <"$room/lines" >&- 2>&- &
waiting=$!
exec 9>"$room/lines"
for _ in $(seq 200); do
    has_number=$(readlink "/proc/$waiting/fd/1" "/proc/$waiting/fd/2" || true)
    [ "$has_number" = $'/dev/null\n/dev/null' ] && break
    sleep 0.05
done
[ "$has_number" = $'/dev/null\n/dev/null' ] || fail "descriptors 1 and 2 are $has_number"
exec 9>&-
wait "$waiting" || true

# usage WORDS ARGS...
usage() {
    local words=$1
    shift
    run 2 "$@"
    has "$err" "$words"
    [ -z "$out" ] || fail "prints on standard output"
    [ ! -e "$XDG_CACHE_HOME/gdn-jit/v2" ] || fail "touched the cache"
}

m="-m qwen3.5-27b"
usage "no command given"
usage "\"frob\" is no command: use one of warm, list, show, verify, prune, pack, tune, doctor" frob
usage "unrecognized option" list --frob
usage "unrecognized option '--nvrtc'" list --nvrtc x
usage "unrecognized option '--nvrtc'" verify --nvrtc x
usage "\"extra\" is no option" list extra
usage "no shape given: name a model with --model (qwen3-next-80b-a3b, " warm -a sm_90a
usage "), a file with --shapes, or a recorded list with --from" warm -a sm_90a
usage "), or a file with --shapes" show -a sm_90a
lacks "$err" "--from"
usage "--model \"gpt\" is not known: use one of qwen3-next-80b-a3b" warm -m gpt -a sm_90a
usage "cannot open ./gpt.json" warm -m ./gpt.json -a sm_90a
usage "no presets found in /nowhere: name their folder with --presets" warm -m gpt --presets /nowhere -a sm_90a
usage "--model has an empty name" warm -m a,,b -a sm_90a
usage "--tp is 3: it must divide the 16 key heads and 48 value heads of qwen3.5-27b: use one of 1, 2, 4, 8, 16" warm $m --tp 1,3
usage "--tp is 32: qwen3.5-27b has 16 key heads" warm $m --tp 32
usage "--tp has \"0\": must be a number from 1 to 4096" warm $m --tp 0
usage "--tp has \"2x\"" warm $m --tp 1,2x
usage "--tp has \"\"" warm $m --tp 1,
usage "--tp has \"99999999999999999999\"" warm $m --tp 99999999999999999999
usage "--dtype has \"fp8\": must be bf16 or fp16" warm $m --dtype bf16,fp8
usage "--state-layout has \"cw\": must be kv or vk" warm $m --state-layout cw
usage "--conv-state-layout has \"kv\": must be cw, wc or cw_strided" warm $m --conv-state-layout kv
usage "--x-alignment has \"32\": must be 16, 8, 4 or 2" warm $m --x-alignment 32
usage "--prologue has \"both\": must be fused, conv or logits" warm $m --prologue both
usage "--dt-bias-type has \"int8\": must be fp32, bf16 or fp16" warm $m --dt-bias-type int8
usage "--with has \"speed\": must be checkpoints, zero_padding or programmatic_launch" warm $m --with speed
usage "--op is \"conv\": must be gdn_prefill or conv1d_qkv" warm $m --op conv
usage "--max-tokens is \"0\": must be a number from 1 to 2147483647" warm $m --max-tokens 0
usage "--max-tokens is \"2147483648\"" warm $m --max-tokens 2147483648
usage "--max-seqs is \"-1\"" warm $m --max-seqs=-1
usage "--jobs is \"0\": must be a number from 1 to 256" warm $m -j 0
usage "--arch has an empty name" warm $m -a ""
usage "one of sm_80, sm_86, sm_89, sm_90a" warm $m -a sm_75
usage "--arch \"h200\" is a GPU: use --gpu \"NVIDIA H200\"" warm $m -a h200
usage "--gpu \"sm_90a\" is an arch: use --arch sm_90a" warm $m -g sm_90a
usage "\"NVIDIA H100 80GB HBM3\"" warm $m -g "NVIDIA H100"
usage "--gpu is empty" warm $m -g ""
usage "--cache-dir is empty" warm $m -d ""
usage "--nvrtc is empty" warm $m --nvrtc ""
usage "--tp changes what --model expands to, and no --model is given: say it in the list" warm --shapes x.json --tp 2
usage "--generic changes what --model expands to, and no --model is given" warm --shapes x.json --generic
usage "--model \"all\": no presets found in /nowhere" warm -m all --presets /nowhere -a sm_90a
usage "cannot open x.json: No such file" warm --shapes x.json -a sm_90a
usage "--shapes is given twice (a, b)" warm --shapes a --shapes b
usage "no GPU here" warm $m

usage "--what is \"sass\": must be summary, json, spec, source, ptx, log, key or cubin" show $m -w sass
usage "--what source shows one shape, and 2 are named" show $m -a sm_90a -w source
usage "show is for one target, and there are 2 (sm_90a, sm_80)" show $m -a sm_90a,sm_80
usage "--json and --what source" show $m -a sm_90a -w source --json
usage "--seqs is given without --tokens" show $m -a sm_90a --seqs 2
usage "--tokens adds to summary and json only: leave out --what spec" show $m -a sm_90a -w spec --tokens 8
usage "--key is \"12\": must be 4 to 32 hex digits" show --key 12
usage "--key is \"wxyz\"" show --key wxyz
usage "--key names an entry, and the other options a shape or a target" show --key 1234 $m
usage "--what ptx needs a shape" show --key 1234 -w ptx

usage "--bundle and --cache-dir: one is verified at a time" verify -b x -d y
usage "--remove with --bundle: a bundle is read-only" verify -b x --remove
usage "--shared-cache with --bundle: it is of the cache directory" verify -b x --shared-cache
usage "--bundle is empty" verify -b ""
usage "--max-bytes is \"12X\": must be a number, of bytes or with k, M or G behind it" prune --max-bytes 12X
usage "--max-bytes is \"1Mi\"" prune --max-bytes 1Mi
usage "--max-bytes is \"\"" prune --max-bytes ""
usage "--max-bytes is \"9223372036854775807G\"" prune --max-bytes 9223372036854775807G
usage "--max-age is \"30\": must be a number, with s, m, h, d or w behind it" prune --max-age 30
usage "--max-age is \"0d\": must be more than 0" prune --max-age 0d
usage "--arch names 2 archs: prune one at a time" prune -a sm_80,sm_86
usage "--arch: arch \"sm_77\" is not known: use one of sm_80" prune -a sm_77 -d "$room"
usage "no place given: name a directory with --output, an archive with --tar" pack $m -a sm_90a
usage "every entry of the cache directory is packed: name what is wanted" pack -a sm_90a -o x
usage "every entry of the cache directory is packed: name what is wanted" pack -j 4 -o x
usage "--output is empty" pack -o ""
usage "--tar is empty" pack --tar ""
usage "--from is given twice (a, b)" warm --from a --from b
usage "cannot open r.jsonl: No such file" warm --from r.jsonl
for command in "warm" "pack -o x"; do
    # shellcheck disable=SC2086 # words
    usage "--shapes and --from are both \"-\": standard input is read once, name a file for one" $command --shapes - --from -
done

usage "--budget with --check: nothing is measured" tune $m -f x.json --check --budget 5m
usage "--jobs with --check: nothing is measured or compiled" tune $m -f x.json --check -j 2
usage "--timeout with --check: no candidate runs" tune $m -f x.json --check --timeout 3s
usage "--timeout with --compile: no candidate runs" tune $m --compile --timeout 3s
usage "--gpu h200 with --device 3: either says which GPU is meant" tune $m -f x.json --check -g h200 --device 3
usage "--check with --compile: one looks at a tuning file" tune $m -f x.json --check --compile
usage "--json with --compile: it has no JSON output" tune $m --compile --json -g h200
usage "--gpu is given 2 times (h200, h100): tune is for one GPU at a time" tune $m --compile -g h200 -g h100
usage "--gpu is given 2 times (h200, h200): tune is for one GPU at a time" tune $m -f x.json --check -g h200 -g h200
for time in 0s 366d 9223372036854775807s 9223372036854776s; do
    usage "--budget is \"$time\": must be more than 0 and at most 365d" tune $m -f x.json --budget $time
done
for time in 0s 86401s 9223372036854775807s 100d; do
    usage "--timeout is \"$time\": must be more than 0 and at most 1d" tune $m -f x.json --timeout $time
done

echo '[{"op":"gdn_prefill"}]' >"$room/s.json"
usage "s.json, shape 1: member \"num_q_heads\" is missing: must be an integer" warm --shapes "$room/s.json" -a sm_90a
echo '[{"op":"conv1d_qkv\u0000garbage"}]' >"$room/n.json"
usage "n.json, line 1: \\u0000 is not taken: it would end the string" show --shapes "$room/n.json" -a sm_90a
echo '[{"op":"conv1d_qkv","\u001b]0;pwned\u0007":1}]' >"$room/e.json"
usage "e.json, shape 1: \"?]0;pwned?\" is no member here: use op, io_type" show --shapes "$room/e.json" -a sm_90a
echo '[{"op":"conv1d_qkv","num_q_heads":1,"num_k_heads":1,"num_v_heads":1,"head_dim_qk":128,"head_dim_v":128}]' >"$room/c.json"
usage "--op leaves no shape" warm --shapes "$room/c.json" --op gdn_prefill -a sm_90a

finish
