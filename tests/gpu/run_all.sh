#!/usr/bin/env bash
# Everything that needs a GPU, from a finished build: tests, repeats, sanitizers, examples, benchmarks.
#
#   tests/gpu/run_all.sh BUILD_FOLDER OUT_FOLDER [tests|repeats|sanitizers|examples|bench]...
#
# GDN_COMMIT names the commit where the tree has no git. Without a part named, all but the sanitizers. Exit status 0 when
# nothing failed. Results: OUT_FOLDER/*.tsv, *.jsonl, *.log.
# shellcheck disable=SC2317 # the parts are called by name
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
shift 2
[ $# -gt 0 ] || set -- tests repeats examples bench
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
    [ "$status" -eq 0 ] || [ "$status" -eq "${skip_status:-0}" ] || failed=1
}

# What a plan chooses; the kernel of the arch's own, without a workspace; as if there were few SMs, so that CTAs walk items;
# cut, with states carried, and evenly; what it chooses that knows how long the longest sequence is; with half of a head's columns
# in a CTA, whole, walked and cut, and in clusters, whole and walked; the generic kernel; and, as if there were SMs without end, the
# kernel of few sequences. Two kinds of CTAs have block_dv 64 too, but no partition_chunks. Sets `options`.
take_way() {
    case $1 in
    default) options=() ;;
    bare) options=(--no-workspace) ;;
    few_sms) options=(--num-sms 3 --small) ;;
    cut) options=(--params partition_chunks=4) ;;
    halves) options=(--params block_dv=64,partition_chunks=2) ;;
    halves_few_sms) options=(--params block_dv=64 --num-sms 3 --small) ;;
    halves_cut) options=(--params block_dv=64,partition_chunks=4) ;;
    twins) options=(--params block_dv=64,partition_chunks=2,cluster_ctas=2) ;;
    twins_few_sms) options=(--params block_dv=64,partition_chunks=2,cluster_ctas=2 --num-sms 4 --small) ;;
    generic) options=(--generic --no-workspace) ;;
    split) options=(--params cta_kinds=2) ;;
    carried) options=(--params partition_chunks=4,carry=2) ;;
    evenly) options=(--params partition_chunks=3,carry=1,block_dv=128) ;;
    told) options=(--told) ;;
    esac
}

# Of gdn_cases, under a name: what serves them in pieces, in pools, and family by family.
cases() {
    local name=$1
    shift
    step "test_serving_$name" "$build/tests/gpu/test_serving" "$@"
    step "test_chunked_$name" "$build/tests/gpu/test_chunked" "$@" --out "$out" --bounds "$bounds"
    step "test_prefill_$name" "$build/tests/gpu/test_prefill" "$@" --out "$out" --bounds "$bounds"
}

tests() {
    step test_host "$build/tests/gpu/test_host" --out "$out"
    skip_status=77 step test_devices "$build/tests/gpu/test_devices" # wants two GPUs
    step test_conv1d "$build/tests/gpu/test_conv1d" --out "$out"
    local name options
    # q and k that the kernel normalises; first, since files of a name are those of the last that writes them.
    for name in default cut halves halves_cut twins generic split; do
        take_way "$name"
        cases "norms_$name" --qk-l2norm "${options[@]}"
    done
    for name in default bare few_sms cut halves halves_few_sms halves_cut twins twins_few_sms generic split carried evenly told; do
        take_way "$name"
        step "test_contract_$name" "$build/tests/gpu/test_contract" "${options[@]}" --out "$out"
        step "test_programmatic_$name" "$build/tests/gpu/test_programmatic" "${options[@]}"
        cases "$name" "${options[@]}"
    done
    # Partitions of one length, of more pairs than gates could cut on so few SMs: keys are asked of all of them.
    step test_prefill_asked "$build/tests/gpu/test_prefill" --num-sms 2 --filter "no_decay bf16 d=128 1_to_300_chunks kv" \
        --bounds "$bounds"
    # The partitions of plans whose bits do not depend on the batch, beside a kernel that holds SMs, and the other kernels' bits.
    step test_prefill_invariant "$build/tests/gpu/test_prefill" --batch-invariant --out "$out" --bounds "$bounds"
    for name in default bare generic; do
        case $name in
        default) options=() ;;
        bare) options=(--no-workspace) ;;
        generic) options=(--generic) ;;
        esac
        step "test_batch_invariant_$name" "$build/tests/gpu/test_batch_invariant" "${options[@]}"
    done
    step test_shares "$build/tests/gpu/test_shares"
    step test_shares_norms "$build/tests/gpu/test_shares" --qk-l2norm
    step test_stress "$build/tests/gpu/test_stress"
    dropins
}

# Of python/gdn_jit, by the python3 or PYTHON that has torch.
dropins() {
    local python=${PYTHON:-python3}
    if "$python" -c 'import torch' 2>/dev/null; then
        GDN_JIT_LIBRARY=$(echo "$build"/libgdnjit.so.?.?) step test_dropins "$python" "$source/tests/gpu/test_dropins.py"
    else
        echo "== test_dropins: skipped, $python has no torch"
    fi
}

repeats() {
    for dtype in bf16 fp16; do
        step "repeat_prefill_$dtype" "$build/tests/gpu/test_prefill" --repeat 1000 --filter "random $dtype d=128" \
            --no-workspace --bounds "$bounds"
        step "repeat_split_$dtype" "$build/tests/gpu/test_prefill" --repeat 1000 --filter "random $dtype d=128" \
            --params cta_kinds=2 --bounds "$bounds"
        step "repeat_twins_$dtype" "$build/tests/gpu/test_prefill" --repeat 1000 --filter "random $dtype d=128" \
            --params block_dv=64,partition_chunks=2,cluster_ctas=2 --bounds "$bounds"
        step "repeat_cut_$dtype" "$build/tests/gpu/test_prefill" --repeat 1000 --filter "$dtype d=128 halves" \
            --batch-invariant --bounds "$bounds"
        step "repeat_contract_$dtype" "$build/tests/gpu/test_contract" --repeat 300 --filter "$dtype d=128"
        step "repeat_conv1d_$dtype" "$build/tests/gpu/test_conv1d" --repeat 10000 --filter "conv1d halo $dtype"
    done
}

# racecheck and synccheck want a build with GDN_CHECKED_KERNELS, whose barriers they can follow: CHECKED_BUILD, else BUILD_FOLDER.
sanitizers() {
    local tool build=$build check=${COMPUTE_SANITIZER:-/usr/local/cuda/bin/compute-sanitizer}
    for tool in memcheck initcheck racecheck synccheck; do
        case $tool in racecheck | synccheck) build=${CHECKED_BUILD:-$build} ;; esac
        local under=("$check" --tool "$tool" --error-exitcode 9 --target-processes all)
        step "${tool}_prefill" "${under[@]}" "$build/tests/gpu/test_prefill" --small --jobs 2 --num-sms 3 --bounds "$bounds"
        step "${tool}_split" "${under[@]}" "$build/tests/gpu/test_prefill" --small --jobs 2 --params cta_kinds=2 --bounds "$bounds"
        step "${tool}_twins" "${under[@]}" "$build/tests/gpu/test_prefill" --small --jobs 2 \
            --params block_dv=64,partition_chunks=2,cluster_ctas=2 --bounds "$bounds"
        step "${tool}_generic" "${under[@]}" "$build/tests/gpu/test_prefill" --small --jobs 2 --generic --no-workspace \
            --bounds "$bounds"
        step "${tool}_norms" "${under[@]}" "$build/tests/gpu/test_prefill" --small --jobs 2 --qk-l2norm \
            --params partition_chunks=4,carry=2 --bounds "$bounds"
        step "${tool}_shares" "${under[@]}" "$build/tests/gpu/test_shares" --small --jobs 2
        step "${tool}_contract" "${under[@]}" "$build/tests/gpu/test_contract" --small --jobs 2
        step "${tool}_conv1d" "${under[@]}" "$build/tests/gpu/test_conv1d" --small --jobs 2
    done
}

examples() {
    local name
    for name in minimal varlen_state cuda_graph fused_prologue; do step "example_$name" "$build/examples/$name"; done
    step example_prewarmed_strict "$build/examples/prewarmed_strict" "$GDN_JIT_CACHE_DIR/strict" # a shape that nobody warmed must miss
    step demo_layer "$build/examples/demo_layer"
    step demo_layer_again "$build/examples/demo_layer"
    grep -aq ': 0 compiles' "$out/demo_layer_again.log" || { echo "FAIL the second demo compiled something"; failed=1; }
}

bench() {
    step execute_overhead "$build/bench/execute_overhead" --out "$out/bench.jsonl" --commit "$commit"
    step gdn_bench "$build/bench/gdn_bench" --out "$out/bench.jsonl" --commit "$commit"
    step prefill_features "$build/bench/prefill_features" --out "$out/bench.jsonl" --commit "$commit"
    step programmatic_launch "$build/bench/programmatic_launch" --out "$out/bench.jsonl" --commit "$commit"
    step tuned_gain "$build/bench/tuned_gain" --out "$out/tuned_gain.jsonl" --commit "$commit"
}

for part; do
    case $part in
    tests | repeats | sanitizers | examples | bench) "$part" ;;
    *) echo "no such part: $part" >&2; exit 2 ;;
    esac
done
exit $failed
