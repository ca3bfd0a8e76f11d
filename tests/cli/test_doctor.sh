#!/usr/bin/env bash
# doctor: what is missing is named with the remedy; a machine with a GPU, played by the fake driver, warms for that GPU.
. "$(dirname "$0")/lib.sh"

run 1 doctor -d "$room/cache" --nvrtc /nowhere/libnvrtc.so
has "$out" "nvrtc   missing"
has "$out" "/nowhere/libnvrtc.so"
lacks "$out" "yes"
run 1 doctor -d "$room/cache" --nvrtc /nowhere/libnvrtc.so --json
json 'd["ready"], d["nvrtc"]["ok"], d["cache"]["ok"]' "(False, False, True)"
json 'any(a["compiles"] for a in d["archs"])' False

need_nvrtc
run 0 doctor -d "$room/cache"
has "$out" "nvrtc   ok       "
has "$out" "cache   ok       $room/cache"
for word in sm_80 sm_90a "NVIDIA H200" "NVIDIA GeForce RTX 4090"; do has "$out" "$word"; done
has "$out" "yes"
[ -z "$(find "$room/cache" -name '*.gdnk')" ] || fail "its probes went into the cache"
run 0 doctor -d "$room/cache" --json
json 'd["ready"], d["cache"]["text"]' "(True, '$room/cache')"
json 'all(a["compiles"] for a in d["archs"] if a["arch"] in ("sm_80", "sm_86", "sm_89", "sm_90a"))' True
json '{"gpu": "NVIDIA H200", "arch": "sm_90a"} in d["known_gpus"]' True
GDN_JIT_DISABLE_CACHE=1 run 1 doctor --json
json 'd["ready"], d["cache"]["ok"], d["cache"]["problem"] != ""' "(False, False, True)"

if [ -n "${GDN_FAKE_DRIVER_DIR:-}" ]; then
    export LD_LIBRARY_PATH=$GDN_FAKE_DRIVER_DIR
    run 0 doctor -d "$room/cache"
    has "$out" "driver  ok       CUDA "
    has "$out" "gpu     0        NVIDIA H200 (sm_90a), 132 SMs"
    lacks "$out" "No GPU here"
    run 0 doctor -d "$room/cache" --json
    json 'd["driver"]["ok"], d["devices"]' "(True, [{'gpu': 'NVIDIA H200', 'arch': 'sm_90a', 'num_sms': 132}])"

    # Without --gpu the GPU that is here, whose kernels are those of its name.
    conv="-m qwen3-next-80b-a3b --tp 1 --op conv1d_qkv --prologue conv --max-tokens 256 -d $room/cache --json"
    run 0 warm $conv
    json 'd["built"], [(t["gpu"], t["arch"]) for t in d["targets"]]' "(1, [('NVIDIA H200', 'sm_90a')])"
    unset LD_LIBRARY_PATH
    run 0 warm $conv -g "NVIDIA H200"
    json 'd["built"], d["already_there"]' "(0, 1)"
fi

finish
