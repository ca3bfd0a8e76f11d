/*
 * cuts.cu - cuts calls as the Hopper kernel does, from samples that are made up: gdn_hopper_cuts.cuh is the template's own. The
 * grid is the SMs that are dealt out, the first CTA's one warp does all. test_cuts.c looks at the cuts.
 */
#include "gdn_spec.cuh"

#include "gdn_hopper_cuts.cuh"
#include "gdn_params.cuh"
#include "host_gpu/cuts.h"

static_assert(PARTS == 1 && CUT_LANES == LANES, "the test runs the kernel's code");
static_assert(CUT_MOST == spec::CUT_PAIRS && CUT_NUMBERS > (int)NO_PAIR, "and has room for what comes out");

__device__ void put_sample(const cut_case &c, int lane)
{
    for (int n = lane; n < c.num_pairs; n += LANES) {
        const auto &s = c.sampled[n];
        store_shared(sampled(n), __float_as_uint(s.chunks), __float_as_uint(s.by_gates), __float_as_uint(s.by_keys), 0u);
    }
    for (int n = lane; n < c.num_pairs + c.num_whole; n += LANES) {
        shared[RANKED_AT + n] = shared[RANK_AT + n] = (u8)n;
        store_shared(ranked_len(n), (u32)c.whole_tokens); /* nobody asks for those of a pair that is sampled */
    }
    if (lane == 0) store_shared(at(LISTS_AT) + BY_GATES, 0u);
    __syncwarp();
}

__device__ void take_cuts(const prefill_params &p, cut_case &c, int lane)
{
    const int partitions = worded_items();
    c.num_partitions = partitions;
    if (partitions == 0) return;
    c.num_items = items_of(p, true);
    for (int n = lane; n < c.num_pairs; n += LANES) {
        const u32 word = cut_word(n);
        c.pair[n].base = cut_base(word);
        c.pair[n].count = cut_count(word);
        for (int i = 0; i <= cut_count(word); ++i)
            c.begin[cut_base(word) + n + i] = cut_begin(word, i, (int)c.sampled[n].chunks);
    }
    for (int i = 0; i < min(c.num_items, CUT_ITEMS); ++i)
        c.owner[i] = place_of(p, i, lane);
}

extern "C" __global__ void cuts(const __grid_constant__ cuts_params cases)
{
    const int lane = threadIdx.x;
    if (blockIdx.x > 0) return;
    prefill_params p = {};
    p.num_heads = 1;
    p.parts_magic = cases.one_magic, p.parts_shift = cases.one_shift;
    p.carry = spec::CARRY_BY_GATES;
    for (int i = 0; i < cases.num_cases; ++i) {
        cut_case &c = cases.cases[i];
        p.num_seqs = c.num_pairs + c.num_whole;
        put_sample(c, lane);
        cut_by_gates(p, lane);
        take_cuts(p, c, lane);
        __syncwarp();
    }
}
