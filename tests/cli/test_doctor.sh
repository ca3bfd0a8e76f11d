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

# What is wrong here, in plain words, with what to do about it. The fakes need no compiler and no GPU.
fake=${GDN_FAKE_NVRTC:?is the path of the fake libnvrtc}
driver=${GDN_FAKE_DRIVER_DIR:?is the folder of the fake libcuda.so.1}
# finds RC PART STOPS_WARM WORDS [ARGS...]: doctor has one finding of the part with the words
finds() {
    local rc=$1 part=$2 stops=$3 words=$4
    shift 4
    run "$rc" doctor -d "$room/cache" --nvrtc "$fake" --json "$@"
    json "[f['stops_warm'] for f in d['findings'] if f['part'] == '$part' and \"$words\" in f['text']]" "[$stops]"
    run "$rc" doctor -d "$room/cache" --nvrtc "$fake" "$@"
    has "$out" "$words"
}
finds 0 driver False "could not be opened"
finds 0 driver False "install the NVIDIA driver, and in a container pass the GPUs in"
run 0 doctor -d "$room/cache" --nvrtc "$fake" --json
# no driver: nothing else is wrong, and warm works; built-in entries may be older than their kernels
json '[f["part"] for f in d["findings"] if "were measured before their kernel changed" not in f["text"]]' "['driver']"
FAKE_NVRTC_VERSION=12.4 finds 1 nvrtc True "is NVRTC 12.4"
FAKE_NVRTC_VERSION=12.8 finds 0 nvrtc False "sm_103a needs NVRTC 12.9 or newer"
FAKE_NVRTC_RESULT=7 finds 1 nvrtc True "libnvrtc-builtins.so.13.0 must lie beside libnvrtc.so.13"
FAKE_NVRTC_RESULT=6 finds 1 nvrtc True "NVRTC compiles for no arch"
finds 1 cache True "/proc cannot be written" -d /proc
run 1 doctor -d /proc --nvrtc "$fake"
has "$out" "cache   unusable /proc"
run 1 doctor -d /proc --nvrtc "$fake" --json
json '(d["cache"]["ok"], "/proc cannot be written" in d["cache"]["problem"])' "(False, True)"
finds 1 cache True "or name another directory with --cache-dir or GDN_JIT_CACHE_DIR" -d /proc
GDN_JIT_DISABLE_CACHE=1 run 1 doctor --nvrtc "$fake" --json
json '[(f["part"], f["stops_warm"]) for f in d["findings"] if f["part"] == "cache"]' "[('cache', True)]"
json '[f["text"] for f in d["findings"] if f["part"] == "cache"]' "['GDN_JIT_DISABLE_CACHE=1 keeps cubins in memory only, so that \
each process compiles anew: unset it, or name a directory in gdn_config.cache_dir (gdn-jit-cache: --cache-dir)']"

mkdir -p "$XDG_CACHE_HOME/gdn-jit"
chmod 770 "$XDG_CACHE_HOME/gdn-jit"
run 1 doctor --nvrtc "$fake"
has "$out" "problem  $XDG_CACHE_HOME/gdn-jit is owned by user $(id -u) with mode 0770"
has "$out" "chmod 700"
if [ "$(id -u)" = 0 ]; then
    mkdir "$room/foreign"
    chown 12345 "$room/foreign"
    run 1 doctor --nvrtc "$fake" -d "$room/foreign"
    has "$out" "problem  $room/foreign is owned by user 12345"
    has "$out" "set GDN_CTX_SHARED_CACHE (gdn-jit-cache: --shared-cache) to share it on purpose"
    run 0 doctor --nvrtc "$fake" -d "$room/foreign" --shared-cache
fi

# Entries that are not believed: damaged ones do not stop warm, a folder that others may write does.
run 0 warm --nvrtc "$fake" -m qwen3.5-2b --tp 1 --op conv1d_qkv --prologue conv -g h200 -d "$room/bad"
one=$(find "$room/bad" -name '*.gdnk' | head -n 1)
printf x | dd of="$one" bs=1 seek=70 conv=notrunc 2>/dev/null
finds 0 cache False "1 entry cannot be used ($one: " -d "$room/bad"
finds 0 cache False "gdn-jit-cache verify --remove takes them away" -d "$room/bad"
chmod g+w "$room/bad/v2/sm_90a"
finds 1 cache True "chown them and chmod go-w" -d "$room/bad"
finds 1 cache True "in a folder that others may write to (v2/sm_90a, mode 0720)" -d "$room/bad"
chmod g-w "$room/bad/v2/sm_90a"
chmod g+w "$one"
finds 0 cache False "writable for others (mode 0620)): folders and entries below the cache directory must" -d "$room/bad"
# An entry in the folder of other keys is a damaged entry, and no folder that cannot be used.
rm "$one"
other=$(find "$room/bad" -name '*.gdnk' | head -n 1)
wrong=$room/bad/v2/sm_90a/00
[ "$(dirname "$other")" != "$wrong" ] || wrong=$room/bad/v2/sm_90a/ff # keys of its own begin so
mkdir -p "$wrong"
mv "$other" "$wrong/"
finds 0 cache False "in the folder of other keys): they are ignored" -d "$room/bad"

# Folders without entries count too, each on the way to one: nothing is kept below one that others may write to.
for folder in v2 v2/sm_90a v2/sm_90a/ab; do
    rm -rf "$room/open"
    mkdir -p "$room/open/v2/sm_90a/ab"
    finds 0 driver False "could not be opened" -d "$room/open"
    chmod g+w "$room/open/$folder"
    finds 1 cache True "$room/open/$folder is not this user's alone" -d "$room/open"
    run 0 doctor --nvrtc "$fake" -d "$room/open" --shared-cache
    chmod g-w "$room/open/$folder"
    if [ "$(id -u)" = 0 ]; then
        chown 12345 "$room/open/$folder"
        finds 1 cache True "$room/open/$folder is not this user's alone" -d "$room/open"
    else
        chmod a-w "$room/open/$folder"
        finds 1 cache True "$room/open/$folder cannot be written" -d "$room/open"
        chmod u+w "$room/open/$folder"
    fi
done
rm -rf "$room/open/v2"
touch "$room/open/v2"
finds 1 cache True "$room/open/v2 cannot be written (Not a directory)" -d "$room/open"

# Bundles: each is told of with what it holds, a directory that is none once, as a finding and as the library's warning.
run 0 doctor -d "$room/cache" --nvrtc "$fake"
has "$out" "bundle  none     GDN_JIT_BUNDLE_PATH names no directory"
run 0 warm --nvrtc "$fake" -m qwen3.5-2b --tp 1 --op conv1d_qkv --prologue conv -g h200 -d "$room/filled"
run 0 pack --nvrtc "$fake" -d "$room/filled" -o "$room/bundle"
kernels=$(find "$room/bundle" -name '*.gdnk' | wc -l)
export GDN_JIT_BUNDLE_PATH="$room/bundle::/nowhere/bundle:$room/filled"
finds 0 bundle False "bundle /nowhere/bundle cannot be opened: No such file or directory: correct its name in GDN_JIT_BUNDLE_PATH"
has "$out" "bundle  ok       $room/bundle: $kernels kernels, "
has "$out" "unusable /nowhere/bundle"
has "$out" "ok       $room/filled: $kernels kernels, "
[ "$(grep -c /nowhere/bundle "$room/err")" = 1 ] || fail "warns more than once"
run 0 doctor -d "$room/cache" --nvrtc "$fake" --json
json '[(b["path"], b["ok"], b["entries"]) for b in d["bundles"]]' \
    "[('$room/bundle', True, $kernels), ('/nowhere/bundle', False, 0), ('$room/filled', True, $kernels)]"
GDN_JIT_DISABLE_CACHE=1 run 0 doctor -d "$room/cache" --nvrtc "$fake" --json
json '[b["ok"] for b in d["bundles"]]' "[True, False, True]" # it is of what is written to
# Where nothing is compiled nothing is tried, and what a kernel could come from is what counts.
strict() {
    GDN_JIT_DISABLE_COMPILE=1 finds "$@"
}
export GDN_JIT_BUNDLE_PATH="$room/bundle"
strict 0 nvrtc False "GDN_JIT_DISABLE_COMPILE is set: nothing is compiled; kernels come from bundles and the cache"
lacks "$out" "problem "
lacks "$out" "compiles for no arch"
lacks "$out" "can be compiled"
lacks "$out" " yes "
strict 0 nvrtc False "nothing is compiled" --nvrtc /nowhere/libnvrtc.so
GDN_JIT_DISABLE_COMPILE=1 GDN_JIT_CACHE_DIR=/proc/none run 0 doctor --nvrtc "$fake"
has "$out" "cache   missing"
cp -a "$room/bundle" "$room/hurt"
one=$(find "$room/hurt" -name '*.gdnk' | head -n 1)
printf x | dd of="$one" bs=1 seek=70 conv=notrunc 2>/dev/null
export GDN_JIT_BUNDLE_PATH="$room/hurt"
strict 1 bundle True "$room/hurt is not what was packed: 1 damaged, 0 missing, 0 not in the manifest ($one: "
finds 0 bundle False "pack it again, copy it again, or take it out of GDN_JIT_BUNDLE_PATH"
has "$out" "bundle  damaged  $room/hurt: $kernels kernels, "
rm "$one"
strict 1 bundle True "0 damaged, 1 missing, 0 not in the manifest ($one: missing: "
mkdir "$room/hollow"
GDN_JIT_BUNDLE_PATH=$room/hollow strict 1 bundle True "$room/hollow holds no kernel"
export GDN_JIT_BUNDLE_PATH=''
strict 0 nvrtc False "nothing is compiled"
GDN_JIT_DISABLE_COMPILE=1 GDN_JIT_DISABLE_CACHE=1 run 1 doctor --json
json '[f["stops_warm"] for f in d["findings"] if f["part"] == "bundle" and "neither a bundle nor a cache directory" in f["text"]]' "[True]"
json 'd["compile_disabled"], d["ready"]' "(True, False)"
unset GDN_JIT_BUNDLE_PATH
# A sentence is told whole, however long a path makes it; where the library has less room the path's middle is cut, not the remedy.
long=$room/$(printf 'l%.0s' $(seq 200))
mkdir "$long"
GDN_JIT_BUNDLE_PATH=$long/$(printf 'b%.0s' $(seq 200)) finds 0 bundle False "take it out of GDN_JIT_BUNDLE_PATH"
run 1 doctor -d "$room/cache" --nvrtc "$long/libnvrtc.so" --json
json '"l...l" in d["nvrtc"]["problem"], d["nvrtc"]["problem"].endswith("correct GDN_JIT_NVRTC, gdn_config.nvrtc_path or, of gdn-jit-cache, --nvrtc")' "(True, True)"

# A switch that is misspelt is no switch: whoever sets it is told, of each, and of all else too.
export GDN_JIT_DISABLE_COMPILE=true GDN_JIT_CACHE_MAX_BYTES=1G
finds 1 env True "GDN_JIT_DISABLE_COMPILE of the environment is "
has "$out" 'problem  GDN_JIT_DISABLE_COMPILE of the environment is "true": must be 0 or 1; gdn_ctx_create() refuses it'
has "$out" "env     unusable 2 variables have a value that cannot be"
has "$out" 'problem  GDN_JIT_CACHE_MAX_BYTES of the environment is "1G": must be a number of bytes, 1 or more'
has "$out" "cache   ok       $room/cache"
has "$out" "nvrtc   ok       "
run 1 doctor -d "$room/cache" --nvrtc "$fake" --json
json '[f["part"] for f in d["findings"] if f["stops_warm"]], d["ready"], d["cache"]["ok"]' "(['env', 'env'], False, True)"
run 1 warm --nvrtc "$fake" -m qwen3.5-2b --tp 1 -g h200 -d "$room/cache"
has "$err" 'of the environment is "1G": must be'
unset GDN_JIT_DISABLE_COMPILE GDN_JIT_CACHE_MAX_BYTES
run 0 doctor -d "$room/cache" --nvrtc "$fake"
lacks "$out" "env "

# GPUs, played by the fake driver.
export LD_LIBRARY_PATH=$driver
FAKE_CUDA_HIDE=cuLibraryLoadData finds 0 driver False "install driver 525 or newer"
FAKE_CUDA_INIT=803 finds 0 driver False "reboot, or reinstall the driver"
FAKE_NVRTC_VERSION=14.0 finds 0 driver False "this driver cannot load what this NVRTC makes; update the driver, or name an NVRTC 13"
FAKE_GPU_CC=7.5 finds 0 gpu False "GPU 0: compute capability 7.5 has no arch here"
FAKE_GPU_NAME="NVIDIA H800" finds 0 gpu False "GPU 0, NVIDIA H800: not a GPU that --gpu can name elsewhere"
FAKE_NVRTC_VERSION=12.8 FAKE_GPU_CC=10.3 FAKE_GPU_NAME="NVIDIA B300" finds 0 gpu False \
    "its arch sm_103a is one that this NVRTC cannot compile for"
"${GDN_MAKE_TUNING:?is the path of make_tuning}" "$room/h200.json" || exit 1
export GDN_JIT_TUNING_PATH=$room/h200.json
run 0 doctor -d "$room/cache" --nvrtc "$fake" --json
json '[f for f in d["findings"] if f["part"] != "tables"], [(t["gpu"], t["num_sms"]) for t in d["tables"]][-1:]' "([], [('NVIDIA H200', 132)])"
json '[f for f in d["findings"] if "H200, has" in f["text"]]' "[]"
FAKE_GPU_SMS=120 finds 0 tables False "has 120 SMs, and its tables were measured with 132"
FAKE_GPU_NAME="NVIDIA H100 PCIe" FAKE_GPU_SMS=114 finds 0 tables False \
    "GPU 0, NVIDIA H100 PCIe, has no table of its own, and that of NVIDIA H200 stands in for it"
FAKE_GPU_NAME="NVIDIA L4" FAKE_GPU_CC=8.9 FAKE_GPU_SMS=58 finds 0 tables False \
    "GPU 0, NVIDIA L4, has no table for 58 SMs, nor has another GPU of sm_89"
unset GDN_JIT_TUNING_PATH LD_LIBRARY_PATH

# What it prints is the same whatever compiles its probes, which takes NVRTC seconds: one run has the real one.
run 0 doctor -d "$room/cache" --nvrtc "$fake"
has "$out" "nvrtc   ok       "
has "$out" "cache   ok       $room/cache"
for word in sm_80 sm_90a "NVIDIA H200" "NVIDIA GeForce RTX 4090"; do has "$out" "$word"; done
has "$out" "yes"
GDN_JIT_DISABLE_CACHE=1 run 1 doctor --nvrtc "$fake" --json
json 'd["ready"], d["cache"]["ok"], d["cache"]["problem"] != ""' "(False, False, True)"
need_nvrtc
run 0 doctor -d "$room/cache" --json
[ -z "$(find "$room/cache" -name '*.gdnk')" ] || fail "its probes went into the cache"
json 'd["ready"], d["cache"]["text"]' "(True, '$room/cache')"
json 'all(a["compiles"] for a in d["archs"] if a["arch"] in ("sm_80", "sm_86", "sm_89", "sm_90a"))' True
json '{"gpu": "NVIDIA H200", "arch": "sm_90a"} in d["known_gpus"]' True

if [ -n "${GDN_FAKE_DRIVER_DIR:-}" ]; then
    export LD_LIBRARY_PATH=$GDN_FAKE_DRIVER_DIR
    run 0 doctor -d "$room/cache" --nvrtc "$fake"
    has "$out" "driver  ok       CUDA "
    has "$out" "gpu     0        NVIDIA H200 (sm_90a), 132 SMs"
    lacks "$out" "No GPU here"
    run 0 doctor -d "$room/cache" --nvrtc "$fake" --json
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
