#!/usr/bin/env bash
# A warm-up is complete: an engine that may not compile finds every kernel of every model, rank, bucket and class of few
# sequences, on the GPU that was named, and on each GPU of an arch that was.
. "$(dirname "$0")/lib.sh"
: "${GDN_PRESET_ENGINE:?is the path of preset_engine}" "${GDN_FAKE_DRIVER_DIR:?is the folder of the fake libcuda.so.1}"
need_nvrtc # the stand-in for it will do, and does where CMake runs this: what kernels do is nothing to it

# engine RC DIR [--largest] [GPU]: runs the engine on a cache directory, on the fake driver's H200 or for another GPU
engine() {
    local want=$1 dir=$2 got=0
    shift 2
    what="preset_engine $* on $dir"
    GDN_JIT_CACHE_DIR=$dir LD_LIBRARY_PATH=$GDN_FAKE_DRIVER_DIR "$GDN_PRESET_ENGINE" "$@" >"$room/out" 2>"$room/err" || got=$?
    out=$(cat "$room/out") err=$(cat "$room/err")
    [ "$got" = "$want" ] || fail "exit status $got, not $want"
}

# ---- one GPU, warmed where there is none ----
run 0 warm -m all --tp 1,2,4,8 -g "NVIDIA H200" -d "$room/h200" --json
json 'd["plans_failed"], d["not_stored"], d["already_there"]' "(0, 0, 0)"
kernels=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["built"])' "$room/out")
engine 0 "$room/h200"
has "$out" "for NVIDIA H200 (sm_90a): 0 compiles, $kernels cubins read" # no more than it needs, too
echo "$out"

# Every single kernel is needed: without it the engine is refused with the key and the command that adds it.
find "$room/h200" -name '*.gdnk' >"$room/files"
while read -r file; do
    key=$(basename "$file" | cut -d. -f1)
    mv "$file" "$room/aside"
    engine 1 "$room/h200" --largest
    has "$err" GDN_E_NOT_CACHED
    has "$err" "key $key"
    case $key in
    [0-1]*) # the command does add it
        command=$(sed -n "s/.*: \(echo '{.*}' | gdn-jit-cache warm --from -\)\$/\1/p" "$room/err")
        PATH=$(dirname "$GDN_JIT_CACHE_TOOL"):$PATH GDN_JIT_CACHE_DIR=$room/h200 bash -c "$command" >"$room/out" 2>&1 ||
            fail "$(cat "$room/out")"
        has "$(cat "$room/out")" "1 kernel built"
        engine 0 "$room/h200" --largest
        ;;
    *)
        has "$err" "gdn-jit-cache warm --from -"
        mv "$room/aside" "$file"
        ;;
    esac
done <"$room/files"
[ "$(wc -l <"$room/files")" = "$kernels" ] || fail "$kernels were built"

# ---- what a trial run recorded is what the next one needs ----
GDN_JIT_RECORD=$room/plans.jsonl engine 0 "$room/h200" --largest
cp -r "$room/h200" "$room/recorded"
find "$room/recorded" -name '[0-3]*.gdnk' -delete -print >"$room/gone"
gone=$(wc -l <"$room/gone")
[ "$gone" -gt 0 ] || fail "none of $kernels keys begins with 0 to 3"
run 0 warm --from "$room/plans.jsonl" -d "$room/recorded" --json
json 'd["plans_failed"], d["plans_changed"], d["built"], d["already_there"]' "(0, 0, $gone, $((kernels - gone)))"
run 0 warm --from "$room/plans.jsonl" -g "NVIDIA H100 PCIe" --op conv1d_qkv -d "$room/recorded" --json
json 'd["plans_failed"], [t["gpu"] for t in d["targets"]]' "(0, ['NVIDIA H100 PCIe'])"
engine 0 "$room/recorded" --largest
printf '{"schema": 1, "lib' >>"$room/plans.jsonl"
run 0 warm --from "$room/plans.jsonl" -d "$room/recorded"
has "$out" "0 kernels built, $kernels already there"
has "$err" "1 line of the recorded list, the first of them line "
sed 's/"keys": \["..../"keys": ["0000/' "$room/plans.jsonl" >"$room/changed.jsonl"
run 0 warm --from "$room/changed.jsonl" -d "$room/recorded" --json
json 'd["built"], d["plans_changed"] > 0 and d["plans_changed"] <= d["plans"]' "(0, True)"
has "$err" "of the recorded plans have other keys here"
head -n 1 "$room/plans.jsonl" | sed 's/"keys": \[/&"00000000000000000000000000000000", /' >"$room/more.jsonl"
run 0 warm --from "$room/more.jsonl" -d "$room/recorded" --json
json 'd["plans"], d["plans_changed"]' "(1, 1)"

# ---- an arch: whatever GPU of it comes ----
cp -r "$room/h200" "$room/arch" # each of its kernels must be wanted again
run 0 warm -m all --tp 1,2,4,8 -a sm_90a -d "$room/arch" --json
json 'd["plans_failed"], d["not_stored"], d["already_there"]' "(0, 0, $kernels)"
targets=$(python3 -c 'import json, sys
for t in json.load(open(sys.argv[1]))["targets"]: print(t["gpu"] or t["arch"])' "$room/out")
engine 0 "$room/arch" --largest
gpus=0
while read -r gpu; do
    engine 0 "$room/arch" "$gpu"
    has "$out" ": 0 compiles, "
    gpus=$((gpus + 1))
done <<<"$targets"
[ "$gpus" -ge 4 ] || fail "only $gpus targets of sm_90a"
echo "$gpus targets of sm_90a: the last one: $out"

finish
