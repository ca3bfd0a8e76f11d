#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that this machine can run:
#   release          all tests, warnings are errors; the GPU tests are skipped where there is no device
#   asan             AddressSanitizer and UndefinedBehaviorSanitizer: unit and abuse tests, a fifth of the longest sweeps,
#                    fuzz corpora; kernels that unit tests share are those of release
#   tsan             ThreadSanitizer: the concurrent tests, which are all that is built
#   NVRTC 12.8       a fifth of the compile matrix once more, with the oldest compiler that is supported
#   NVRTC 13.5       and a fifth of Hopper's kernels with the newest that was tried, whose ptxas is another
# The last line is "N passed, N failed", over all of them; a step that could not be built counts as one failure.
#
#   scripts/test.sh [--full] [--fuzz]
#     --full    the whole compile matrix instead of the pairwise set
#     --fuzz    also fuzz each target for half a minute (needs clang)
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
# shellcheck source=scripts/setup.sh
. scripts/setup.sh

fuzz=
for option in "$@"; do
    case $option in
        --full) export GDN_TEST_FULL=1 ;;
        --fuzz) fuzz=1 ;;
        --help | -h) sed -n '2,13s/^# \{0,1\}//p' "$0" && exit 0 ;;
        *) echo "unknown option $option: --full, --fuzz and --help are known" >&2 && exit 2 ;;
    esac
done

# The tests choose their own cache directories and settings; the compiler is the one thing taken from outside.
for variable in $(compgen -e GDN_JIT_ || true); do
    [ "$variable" = GDN_JIT_NVRTC ] || unset "$variable"
done
jobs=$(nproc)
passed=0 failed=0 skipped=0

# build PRESET: false, after the compiler's words, when it does not build
build() {
    local log=build/$1.log
    mkdir -p build
    if cmake --preset "$1" >"$log" 2>&1 && cmake --build --preset "$1" -j "$jobs" >>"$log" 2>&1; then return 0; fi
    echo "---- $1: build failed ----"
    grep -E 'error|FAILED|CMake Error' "$log" | head -n 30 || true
    echo "whole log: $log"
    failed=$((failed + 1))
    return 1
}

# attribute FILE NAME: of the one testsuite element that ctest writes
attribute() {
    sed -nE "s/^[ \t]*$2=\"([0-9]+)\".*/\1/p; s/.*<testsuite .* $2=\"([0-9]+)\".*/\1/p" "$1" | head -n 1
}

# run STEP PRESET CTEST-ARGUMENT... : runs and counts
run() {
    local step=$1 preset=$2 report=$top/build/report-${1// /-}.xml started=$SECONDS status=0
    shift 2
    rm -f "$report"
    "${launcher[@]}" ctest --test-dir "build/$preset" -j "$jobs" --no-tests=error --output-on-failure \
        --output-junit "$report" "$@" >"build/ctest-${step// /-}.log" 2>&1 || status=$?
    local total bad left_out
    total=$(attribute "$report" tests) bad=$(attribute "$report" failures) left_out=$(attribute "$report" skipped)
    if [ -z "$total" ] || { [ "$status" != 0 ] && [ "$bad" = 0 ]; }; then
        cat "build/ctest-${step// /-}.log"
        total=1 bad=1 left_out=0
    elif [ "$bad" != 0 ]; then
        cat "build/ctest-${step// /-}.log"
    fi
    passed=$((passed + total - bad - left_out)) failed=$((failed + bad)) skipped=$((skipped + left_out))
    printf '%-12s %3d passed, %d failed, %d skipped, %d s\n' "$step" $((total - bad - left_out)) "$bad" "$left_out" \
        $((SECONDS - started))
}

# compile_by VERSION WHEEL LIBRARY: the compile matrix by another NVRTC
compile_by() {
    local nvrtc
    if nvrtc=$(wheel "nvrtc-$1" "$2==$1.*" "$3"); then
        GDN_TEST_BRIEF=5 GDN_JIT_NVRTC=$nvrtc run "NVRTC $1" release -L '^nvrtc$'
    else
        failed=$((failed + 1))
    fi
}

require compiler cxx cmake make ninja pkg-config xxhash cjson smartcols archive criterion scdoc python venv rust
find_nvrtc
echo "NVRTC: $GDN_JIT_NVRTC"
launcher=()

if build release; then
    run release release
    compile_by 12.8 'nvidia-cuda-nvrtc-cu12' libnvrtc.so.12
    CRITERION_TEST_PATTERN='matrix/hopper*' compile_by 13.5 'nvidia-cuda-nvrtc' libnvrtc.so.13
fi
if build asan; then
    GDN_TEST_BRIEF=5 run asan asan -L '^(unit|abuse|fuzz)$'
fi
if build tsan; then
    # ThreadSanitizer of gcc 12 does not know the wide address randomisation of newer kernels.
    setarch -R true 2>/dev/null && launcher=(setarch -R)
    run tsan tsan -L '^concurrency$'
    launcher=()
fi
if [ -n "$fuzz" ]; then
    require fuzzer
    if build fuzz; then
        run fuzz fuzz -L '^fuzz$'
    fi
fi

[ "$skipped" = 0 ] || echo "skipped: $skipped (their output says why: build/ctest-*.log; GPU tests need a device)"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
