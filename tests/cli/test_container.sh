#!/usr/bin/env bash
# examples/container/Dockerfile, without docker: what it installs is what the build needs and, in the last stage, what the tool
# and the library are linked with; its commands make the bundle, and in the environment of its last stage an engine finds every
# kernel, with no compiler, no HOME and nothing to write to.
. "$(dirname "$0")/lib.sh"
: "${GDN_FAKE_NVRTC:?is the path of the fake libnvrtc}"
top=$(cd "$(dirname "$0")/../.." && pwd)
file=$top/examples/container/Dockerfile

# instructions NAME [FROM]: those of the file, or of the stage that begins with this FROM, without the name, a line each
instructions() {
    sed -e '/^#/d' -e ':more' -e '/\\$/{N;s/\\\n *//;bmore' -e '}' "$file" |
        awk -v stage="${2:-}" '/^FROM / { of = $0 } stage == "" || of == "FROM " stage' | sed -n "s/^$1 //p"
}
build=$(instructions FROM | grep ' AS build$')
last=$(instructions FROM | tail -n 1)

what=$file out='' err=''
# ---- the build: its options and packages are the ones that there are ----
for option in $(grep -o 'GDN_BUILD_[A-Z]*' "$file" | sort -u); do
    grep -q "^option($option " "$top/CMakeLists.txt" || fail "$option is no option of the build"
done
for need in xxhash cjson smartcols archive pkg-config ninja cmake; do
    package=$(sed -n "s/^    \"$need|[^|]*|\([^|]*\)|.*/\1/p" "$top/scripts/setup.sh")
    instructions RUN "$build" | grep -q "apt-get install .*[ ]$package" ||
        fail "the build stage installs no $package, which setup.sh says is needed"
done

# ---- the bundle: the commands themselves, in a room of their own ----
mkdir -p "$room/opt/nvrtc/lib" "$room/opt/gdn-jit/bin"
cp "$GDN_FAKE_NVRTC" "$room/opt/nvrtc/lib/libnvrtc.so.13"
ln -s "$GDN_JIT_CACHE_TOOL" "$room/opt/gdn-jit/bin/gdn-jit-cache"
instructions ARG | sed 's/^/export /' >"$room/script"
instructions ENV | sed -n 's/^PATH=/export PATH=/p' >>"$room/script"
instructions RUN | grep gdn-jit-cache >>"$room/script"
[ "$(grep -c gdn-jit-cache "$room/script")" = 2 ] || fail "has other commands than pack and verify"
sed -i "s|/opt/|$room/opt/|g" "$room/script"
bash -eu "$room/script" >"$room/out" 2>"$room/err" || fail "a command failed"
out=$(cat "$room/out") err=$(cat "$room/err")
has "$out" "kernels, "
has "$out" ": 0 damaged, 0 missing, 0 not in the manifest"

# ---- the image: what is copied and what that is linked with, and nothing else ----
instructions COPY "$last" >"$room/copies"
grep -qx -- '--from=bundle /opt/gdn-bundle /opt/gdn-bundle' "$room/copies" || fail "does not copy the bundle"
library=$(ldd "$GDN_JIT_CACHE_TOOL" | sed -n 's/.*libgdnjit\.so[^ ]* => \([^ ]*\) .*/\1/p')
[ -n "$library" ] || fail "ldd does not find the library that the tool is linked with"
readelf -d "$GDN_JIT_CACHE_TOOL" ${library:+"$library"} | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' | sort -u >"$room/needed"
grep -q '^libc\.' "$room/needed" || fail "readelf names no library that the tool needs"
while read -r needed; do
    case $needed in
        libgdnjit.so* | libc.so* | libm.so* | ld-linux*.so* | ld64.so*) continue ;; # copied, or the image's own
        lib*san.so*) continue ;;                                                     # of a build for tests
        lib*.so.[0-9]*) package=${needed%%.so.*}${needed##*.so.} ;;                  # Debian: libcjson.so.1 is in libcjson1
        *) fail "is linked with $needed, of which this test knows no package" && continue ;;
    esac
    instructions RUN "$last" | grep -Eq "apt-get install .* $package( |$)" || fail "the last stage has no $package, for $needed"
done <"$room/needed"
environment=$(instructions ENV "$last" | tail -n 1 | sed "s|/opt/|$room/opt/|g")
has "$environment" "GDN_JIT_BUNDLE_PATH=$room/opt/gdn-bundle"
chmod -R a-w "$room/opt/gdn-bundle"
. <(instructions ARG)
what="the engine's start in the image"
# shellcheck disable=SC2086 # words
env -i $environment "$GDN_JIT_CACHE_TOOL" show --model "$MODEL" --tp "$TP" --gpu "$GPU" --nvrtc /nowhere/libnvrtc.so \
    --prologue fused,conv,logits --dt-bias-type fp32,bf16 --json >"$room/out" 2>"$room/err" || fail "exit status $?"
out='' err=$(cat "$room/err")
json 'len(d["shapes"])' "$((4 * (2 + 1 + 4)))"
json '{v["origin"] for s in d["shapes"] for v in s["plan"]["variants"]} <= {"bundle", "memory"}' True
# shellcheck disable=SC2086
env -i $environment "$GDN_JIT_CACHE_TOOL" show --model "$MODEL" --dtype fp16 --gpu "$GPU" >"$room/out" 2>"$room/err" &&
    fail "finds what was not packed"
has "$(cat "$room/err")" "add a bundle that has it"

# doctor there: the bundle is whole, and nothing that the image leaves out on purpose is a problem.
what="doctor in the image"
# shellcheck disable=SC2086
env -i $environment "$GDN_JIT_CACHE_TOOL" doctor --json >"$room/out" 2>"$room/err" || fail "exit status $?"
out='' err=$(cat "$room/err")
json '[(b["path"], b["ok"], b["entries"] > 0) for b in d["bundles"]]' "[('$room/opt/gdn-bundle', True, True)]"
json 'd["ready"], d["compile_disabled"], [f["part"] for f in d["findings"] if f["stops_warm"]]' "(True, True, [])"

# README names the file.
grep -q examples/container/Dockerfile "$top/README.md" || fail "README.md does not name it"
finish
