#!/usr/bin/env bash
# Everything that needs a GPU, from a finished build: tests, repeats, sanitizers, examples, benchmarks.
#
#   tests/gpu/run_all.sh BUILD_FOLDER OUT_FOLDER [tests|params|repeats|sanitizers|examples|bench]...
#
# GDN_COMMIT names the commit where the tree has no git. Without a part named, all but the sanitizers. Exit status 0 when
# nothing failed. Results: OUT_FOLDER/*.tsv, *.jsonl, *.log.
# shellcheck disable=SC2317 # the parts are called by name
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
shift 2
[ $# -gt 0 ] || set -- tests params repeats examples bench
source=$(cd "$(dirname "$0")/../.." && pwd)
commit=${GDN_COMMIT:-$(git -C "$source" rev-parse --short HEAD 2>/dev/null || echo unknown)}
export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
GDN_JIT_CACHE_DIR=$(mktemp -d)
export GDN_JIT_CACHE_DIR
trap 'rm -rf "$GDN_JIT_CACHE_DIR"' EXIT
bounds=$source/tests/data/bounds.tsv
failed=0

# Runs a command with its output in a log; prints its failures and its last line.
step() {
    local name=$1 status=0
    shift
    "$@" > "$out/$name.log" 2>&1 || status=$?
    grep -a '^FAIL' "$out/$name.log" | head -20
    echo "== $name: $(tail -1 "$out/$name.log") (exit $status)"
    [ "$status" -eq 0 ] || failed=1
}

tests() {
    step test_host "$build/tests/gpu/test_host" --out "$out"
    step test_conv1d "$build/tests/gpu/test_conv1d" --out "$out"
    step test_contract "$build/tests/gpu/test_contract" --out "$out"
    step test_serving "$build/tests/gpu/test_serving"
    step test_chunked "$build/tests/gpu/test_chunked" --out "$out" --bounds "$bounds"
    step test_prefill "$build/tests/gpu/test_prefill" --out "$out" --bounds "$bounds"
    # The kernel of few sequences is the plan's choice for most small cases: as if there were few SMs; the generic kernel too.
    step test_prefill_few_sms "$build/tests/gpu/test_prefill" --num-sms 4 --bounds "$bounds"
    step test_contract_few_sms "$build/tests/gpu/test_contract" --num-sms 4
    step test_prefill_generic "$build/tests/gpu/test_prefill" --num-sms 4 --generic --filter "d=128" --bounds "$bounds"
    step test_contract_generic "$build/tests/gpu/test_contract" --num-sms 4 --generic --filter "d=128"
    # And as if there were SMs without end: then every call is one of few sequences.
    step test_prefill_split "$build/tests/gpu/test_prefill" --num-sms 1000000 --bounds "$bounds"
    step test_contract_split "$build/tests/gpu/test_contract" --num-sms 1000000
    step test_serving_split "$build/tests/gpu/test_serving" --num-sms 1000000
    step test_serving_generic "$build/tests/gpu/test_serving" --num-sms 4 --generic
}

# Every value of the parameter space (src/codegen/params.def) that the steps above do not choose by themselves.
params() {
    local values name
    for values in cta_threads=64 cta_threads=256 tile_tokens=4 tile_tokens=8 tile_tokens=16 tile_tokens=16,cta_threads=64; do
        name=${values//[=,]/_}
        step "params_conv1d_$name" "$build/tests/gpu/test_conv1d" --params "$values"
    done
    for values in stages=2 stages=4; do
        step "params_prefill_generic_$values" "$build/tests/gpu/test_prefill" --generic --num-sms 4 --params "cta_kinds=1,$values" \
            --bounds "$bounds"
        step "params_contract_generic_$values" "$build/tests/gpu/test_contract" --generic --num-sms 4 --params "cta_kinds=1,$values"
    done
    for values in block_dv=16,stages=2 block_dv=16,stages=4,ctas_per_producer=2 block_dv=32,stages=4,ctas_per_producer=8 \
        block_dv=32,stages=2; do
        name=${values//[=,]/_}
        step "params_prefill_split_$name" "$build/tests/gpu/test_prefill" --num-sms 1000000 --params "cta_kinds=2,$values" \
            --bounds "$bounds"
        step "params_contract_split_$name" "$build/tests/gpu/test_contract" --num-sms 1000000 --params "cta_kinds=2,$values"
    done
    for values in deal_chunks=16 deal_chunks=64; do
        step "params_contract_hopper_$values" "$build/tests/gpu/test_contract" --num-sms 4 --params "$values"
    done
}

repeats() {
    for dtype in bf16 fp16; do
        step "repeat_prefill_$dtype" "$build/tests/gpu/test_prefill" --repeat 1000 --filter "random $dtype d=128" \
            --bounds "$bounds"
        step "repeat_contract_$dtype" "$build/tests/gpu/test_contract" --repeat 300 --filter "$dtype d=128"
        step "repeat_conv1d_$dtype" "$build/tests/gpu/test_conv1d" --repeat 10000 --filter "conv1d halo $dtype"
    done
}

sanitizers() {
    local tool check=${COMPUTE_SANITIZER:-/usr/local/cuda/bin/compute-sanitizer}
    for tool in memcheck racecheck initcheck synccheck; do
        step "${tool}_prefill" "$check" --tool "$tool" --error-exitcode 9 --target-processes all \
            "$build/tests/gpu/test_prefill" --small --jobs 2 --bounds "$bounds"
        step "${tool}_contract" "$check" --tool "$tool" --error-exitcode 9 --target-processes all \
            "$build/tests/gpu/test_contract" --small --jobs 2
        step "${tool}_conv1d" "$check" --tool "$tool" --error-exitcode 9 --target-processes all \
            "$build/tests/gpu/test_conv1d" --small --jobs 2
    done
}

examples() {
    local name
    for name in minimal varlen_state cuda_graph; do step "example_$name" "$build/examples/$name"; done
    step example_prewarmed_strict "$build/examples/prewarmed_strict" "$GDN_JIT_CACHE_DIR/strict" # a shape that nobody warmed must miss
    step demo_layer "$build/examples/demo_layer"
    step demo_layer_again "$build/examples/demo_layer"
    grep -aq ': 0 compiles' "$out/demo_layer_again.log" || { echo "FAIL the second demo compiled something"; failed=1; }
}

bench() {
    step execute_overhead "$build/bench/execute_overhead" --out "$out/bench.jsonl" --commit "$commit"
    step gdn_bench "$build/bench/gdn_bench" --out "$out/bench.jsonl" --commit "$commit"
    step prefill_features "$build/bench/prefill_features" --out "$out/bench.jsonl" --commit "$commit"
}

for part; do
    case $part in
    tests | params | repeats | sanitizers | examples | bench) "$part" ;;
    *) echo "no such part: $part" >&2; exit 2 ;;
    esac
done
exit $failed
