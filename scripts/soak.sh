#!/usr/bin/env bash
# The soak of the cache: crowds of processes on cold keys with random kill -9 (tests/abuse/soak_cache.c says what must hold),
# once on the disk of TMPDIR (or /tmp) and once on the memory file system of /dev/shm where there is one. One line of JSON a run is
# appended to bench/results/abuse/<date>_soak_cache.jsonl, whatever came out.
#
#   scripts/soak.sh [ROUNDS [SECONDS [SEED]]]      default 4000 rounds of 64 processes, at most 300 s a run, seed of the second
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-4000} seconds=${2:-300} seed=${3:-$(($(date +%s) % 2147483647))}
cmake --preset release >/dev/null
cmake --build --preset release -j "$(nproc)" --target soak_cache >/dev/null

results=bench/results/abuse/$(date -u +%F)_soak_cache.jsonl
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- src tests || commit+=' and changes'
bad=0
for folder in "${TMPDIR:-/tmp}" /dev/shm; do
    [ -d "$folder" ] && [ -w "$folder" ] || continue
    line=$(TMPDIR=$folder nice -n 19 build/release/tests/abuse/soak_cache --rounds "$rounds" --seconds "$seconds" --seed "$seed") ||
        bad=1
    printf '{"date": "%s", "commit": "%s", "kernel": "%s", "cores": %d, "file_system": "%s", %s\n' "$(date -u +%FT%TZ)" \
        "$commit" "$(uname -sr | cut -d. -f1,2)" "$(nproc)" "$(stat -f -c %T "$folder")" "${line#\{}" | tee -a "$results"
done
exit $bad
