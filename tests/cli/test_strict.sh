#!/usr/bin/env bash
# A warm-up is complete: an engine that may not compile finds every kernel of every model, rank, bucket and class of few
# sequences, on the GPU that was named, and on each GPU of an arch that was.
. "$(dirname "$0")/lib.sh"
: "${GDN_PRESET_ENGINE:?is the path of preset_engine}" "${GDN_FAKE_DRIVER_DIR:?is the folder of the fake libcuda.so.1}"
need_nvrtc

# engine RC DIR [GPU]: runs the engine on a cache directory, on the fake driver's H200 or for another GPU
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
    engine 1 "$room/h200"
    has "$err" GDN_E_NOT_CACHED
    has "$err" "key $key"
    has "$err" "gdn-jit-cache warm"
    mv "$room/aside" "$file"
done <"$room/files"
[ "$(wc -l <"$room/files")" = "$kernels" ] || fail "$kernels were built"

# ---- an arch: whatever GPU of it comes ----
run 0 warm -m all --tp 1,2,4,8 -a sm_90a -d "$room/arch" --json
json 'd["plans_failed"], d["not_stored"]' "(0, 0)"
targets=$(python3 -c 'import json, sys
for t in json.load(open(sys.argv[1]))["targets"]: print(t["gpu"] or t["arch"])' "$room/out")
engine 0 "$room/arch"
gpus=0
while read -r gpu; do
    engine 0 "$room/arch" "$gpu"
    has "$out" ": 0 compiles, "
    gpus=$((gpus + 1))
done <<<"$targets"
[ "$gpus" -ge 4 ] || fail "only $gpus targets of sm_90a"
echo "$gpus targets of sm_90a: the last one: $out"

finish
