#!/usr/bin/env bash
# The Rust crate: sys.rs is what the header says, sizes, offsets, numbers and initial values are what a C compiler makes of it,
# the crate's own tests pass, with a call on the host GPU where there is one, and it builds by pkg-config from what is installed.
#
#   run.sh SOURCE_DIR BUILD_DIR CMAKE CARGO CC PYTHON
set -euo pipefail
source=$1 build=$2 cmake=$3 cargo=$4 cc=$5 python=$6
# shellcheck source=tests/install/common.sh
. "$source/tests/install/common.sh"

"$python" -B "$source/rust/make_sys.py" --check || fail "sys.rs is old"

mkdir "$room/crate"
cp -r "$source/rust/"{Cargo.toml,build.rs,src,tests,examples} "$room/crate/"
"$python" -B "$source/rust/make_sys.py" --layout >"$room/crate/examples/layout.rs"
cd "$room/crate"
export CARGO_HOME=$room/home CARGO_TARGET_DIR=$room/target CARGO_NET_OFFLINE=true LD_LIBRARY_PATH=$build
export RUSTFLAGS="-D warnings"

gpu=$build/tests/host_gpu
[ ! -e "$gpu/libcuda.so.1" ] || export GDN_TEST_DRIVER=$gpu/libcuda.so.1 GDN_TEST_NVRTC=$gpu/libhost_gpu_nvrtc.so
GDN_JIT_LIB_DIR=$build quiet tests "$cargo" test --lib --tests
GDN_JIT_LIB_DIR=$build quiet doc "$cargo" test --doc
grep -q 'a_plan_is_made_loaded_and_computes_what_the_reference_does ... ok' "$room/tests.log" || fail "tests did not run"
GDN_JIT_LIB_DIR=$build "$cargo" run --quiet --example layout | sort >"$room/rust.txt"
"$python" -B "$source/tests/python/abi_layout.py" --c "$cc" "$source/include" | sort >"$room/c.txt"
[ "$(wc -l <"$room/c.txt")" -gt 300 ] || fail "C tells $(wc -l <"$room/c.txt") sizes, offsets and numbers"
diff "$room/c.txt" "$room/rust.txt" >"$room/diff.txt" || fail "C and Rust differ: $(cat "$room/diff.txt")"

DESTDIR=$room/dest quiet install "$cmake" --install "$build"
pc=$(find "$room/dest" -name gdn-jit.pc)
prefix=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc") quiet build "$cargo" build --example plan
export GDN_JIT_CACHE_DIR=
LD_LIBRARY_PATH=$prefix "$room/target/debug/examples/plan" "NVIDIA Nothing" >"$room/said.txt" 2>&1 && fail "planned for no GPU"
grep -q 'NVIDIA Nothing' "$room/said.txt" || fail "no sentence: $(cat "$room/said.txt")"

# ---- a library of another version is refused before it is used ----
echo 'unsigned gdn_version(void); unsigned gdn_version(void) { return 200; }' >"$room/other.c"
"$cc" -shared -fPIC "$room/other.c" -o "$room/other.so"
LD_PRELOAD=$room/other.so LD_LIBRARY_PATH=$prefix "$room/target/debug/examples/plan" >"$room/said.txt" 2>&1 && fail "used version 0.2"
grep -q 'libgdnjit is version 0.2.0, this crate is written for 0.1' "$room/said.txt" || fail "no sentence: $(cat "$room/said.txt")"
echo "$(wc -l <"$room/c.txt") sizes, offsets, numbers and initial values agree; $(grep -c '\.\.\. ok' "$room/tests.log") tests passed"
