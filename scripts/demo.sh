#!/usr/bin/env bash
# One Qwen3-Next-80B-A3B linear-attention layer, from an empty cache and then again from a full one. Installs what is
# missing and builds first. Runs on a GPU where there is one; elsewhere compiles the same kernels and computes on the host.
#
#   scripts/demo.sh [OPTION OF THE DEMO...]
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
# shellcheck source=scripts/setup.sh
. scripts/setup.sh

require compiler cmake ninja pkg-config xxhash cjson
find_nvrtc
logged cmake -S . -B build/demo -G Ninja -D CMAKE_BUILD_TYPE=Release -D GDN_BUILD_TESTS=OFF -D GDN_BUILD_TOOLS=OFF
logged cmake --build build/demo --target demo_layer -j "$(nproc)"
demo=$(find build/demo/examples build/demo/bench -name demo_layer -type f -print -quit)

GDN_JIT_CACHE_DIR=$(mktemp -d)
export GDN_JIT_CACHE_DIR
trap 'rm -rf "$GDN_JIT_CACHE_DIR"' EXIT

echo "==== first run: empty cache ===="
"$demo" "$@"
echo
echo "==== second run: the cache that the first one filled ===="
"$demo" "$@" | tee build/demo/second-run.log
grep -q ': 0 compiles ' build/demo/second-run.log ||
    die "the second run compiled something: its cache was filled by the first"
