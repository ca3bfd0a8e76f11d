#!/usr/bin/env bash
# Fuzzes each target of tests/fuzz for a number of executions, one target after the other, from the committed corpus on, and appends
# one line of JSON a target to bench/results/abuse/<date>_fuzz.jsonl: executions asked for and done, seconds, coverage, findings. A
# finding is left in build/fuzz/tests/fuzz/found/<target>/ and makes the exit status 1. Needs clang with libFuzzer.
#
#   scripts/fuzz.sh [EXECUTIONS [SECONDS [TARGET...]]]     default 10000000 of each, no limit in time (0), every target
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-10000000} seconds=${2:-0}
shift $(($# < 2 ? $# : 2))
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        name=$(basename "$source" .c)
        targets+=("${name#fuzz_}")
    done
fi
build_log=build/fuzz.log
mkdir -p build
: >"$build_log"

# logged COMMAND... : silent unless it fails, which ends the script with the errors of the log
logged() {
    if "$@" >>"$build_log" 2>&1; then return 0; fi
    echo "failed: $*" >&2
    grep -E 'error|FAILED|CMake Error' -A 2 "$build_log" | head -n 30 >&2 || true
    echo "whole log: $build_log" >&2
    exit 1
}

logged cmake --preset fuzz
for name in "${targets[@]}"; do
    logged cmake --build --preset fuzz -j "$(nproc)" --target "fuzz_$name"
done

results=bench/results/abuse/$(date -u +%F)_fuzz.jsonl
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- src tests || commit+=' and changes'
bad=0

# last FILE PATTERN: of the last line of a log that has it, the number behind PATTERN; 0 without one
last() {
    { grep -oE "$2 *[0-9]+" "$1" || echo 0; } | tail -n 1 | grep -oE '[0-9]+$'
}

for name in "${targets[@]}"; do
    found=build/fuzz/tests/fuzz/found/$name log=build/fuzz/fuzz-$name.log status=0
    mkdir -p "$found"
    findings_before=$(find "$found" -type f -name '*-*' | wc -l)
    corpus=$(mktemp -d) # grows here; tests/fuzz/corpus is read
    nice -n 19 "build/fuzz/tests/fuzz/fuzz_$name" -runs="$runs" -max_total_time="$seconds" -print_final_stats=1 \
        -artifact_prefix="$found/" -rss_limit_mb=4096 "$corpus" "tests/fuzz/corpus/$name" >"$log" 2>&1 || status=$?
    findings=$(($(find "$found" -type f -name '*-*' | wc -l) - findings_before))
    [ "$status" = 0 ] && [ "$findings" = 0 ] || bad=1
    printf '{"date": "%s", "commit": "%s", "what": "fuzz", "target": "%s", "clang": "%s", "executions_asked": %s, "executions": %s, "seconds_limit": %s, "executions_per_second": %s, "coverage_edges": %s, "corpus_grown_to": %s, "peak_rss_mb": %s, "exit_status": %d, "findings": %d}\n' \
        "$(date -u +%FT%TZ)" "$commit" "$name" "$(clang --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p')" "$runs" \
        "$(last "$log" 'stat::number_of_executed_units:')" "$seconds" "$(last "$log" 'stat::average_exec_per_sec:')" \
        "$(last "$log" 'cov:')" "$(find "$corpus" -type f | wc -l)" "$(last "$log" 'stat::peak_rss_mb:')" "$status" "$findings" |
        tee -a "$results"
    rm -rf "$corpus"
done
exit $bad
