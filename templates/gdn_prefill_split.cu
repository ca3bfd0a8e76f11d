/*
 * gdn_prefill_split.cu - chunked gated delta rule, forward, exact, for few heads: what does not depend on the state is made by
 * CTAs of its own. The formulas are those of gdn_prefill_generic.cu, and so are the bits of the results.
 *
 * One launch, two kinds of CTAs, by ticket:
 *
 *     producers      the first num_producers tickets. Two groups of six warps each (two feeding, two for T, two for P); a group
 *                    makes the images of chunks: T, P, the gates e, d, beta of one chunk and head, written to the workspace,
 *                    then announced by a flag. Items are dealt round robin, early chunks of every sequence first. A producer
 *                    waits for no other CTA.
 *     recurrence     one (sequence, head, BLOCK_DV value columns) each
 *
 * A CTA waits for flags of producers only, and those hold lower tickets: they run or have run, whatever the number of CTAs that
 * the device holds at a time. The grid is a bound; the sequences are read on the device.
 *
 * Recurrence, bound by the time from one state to the next:
 *     4 state warps    all BLOCK_DV value columns each, a quarter of the chunk's tokens (columns of X = S^T K^T and V') and a
 *                      quarter of the keys (of S, in fp32 registers)
 *     4 output warps   O, a quarter of the tokens each
 *     4 load warps     cp.async of k, v and the image, STAGES - 1 chunks ahead, and of q
 * Three times a chunk A operands are exchanged through shared memory, packed, in fragment order: S's 16-bit copy, W, and V'
 * with d V'. Row scales (gdn_range.cuh) are agreed upon from all state warps' maxima.
 *
 * Image: T and P as ten 16 x 16 blocks each, (I, J) at I (I + 1) / 2 + J, fp16 Tile<16>; e, d, beta fp32. Copied as it is.
 */
#include "gdn_spec.cuh"

#include "gdn_flags.cuh"
#include "gdn_params.cuh"
#include "gdn_sequence.cuh"
#include "gdn_split_producer.cuh"
#include "gdn_split_recurrence.cuh"
#include "gdn_split_shared.cuh"

namespace {

static_assert(spec::SMEM_BYTES == (RECURRENCE_BYTES > PRODUCER_BYTES ? RECURRENCE_BYTES : PRODUCER_BYTES),
              "host and device agree on shared memory");

/* number: of sequence, head and columns, columns fastest. */
__device__ __forceinline__ void recurrence(const prefill_params &p, const Shared &sm, int number, int warp, int lane)
{
    constexpr int BLOCKS = DV / BV;
    const int column0 = number % BLOCKS * BV, head = number / BLOCKS % p.num_heads, seq = number / BLOCKS / p.num_heads;
    if constexpr (spec::ZERO_PADDING) zero_padding<BV>(p, seq, head, column0, threadIdx.x, spec::THREADS);
    if (seq >= p.num_seqs) return; /* there was nothing but padding */
    const Work w = make_work(p, seq, head);
    if (w.inert) return;
    if (warp < WARPS)
        state_role(p, w, sm, column0, warp, lane);
    else if (warp < 2 * WARPS)
        output_role(p, w, sm, column0, warp - WARPS, lane);
    else
        load_role(p, w, sm, column0, warp - 2 * WARPS, lane);
}

} // namespace

extern "C" __global__ void __launch_bounds__(spec::THREADS, 1)
    gdn_prefill_split(const __grid_constant__ prefill_params p)
{
    extern __shared__ __align__(128) u8 shared[];
    const Shared sm = { smem_address(shared) };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    wait_for_previous_kernel();
    if (threadIdx.x == 0)
        *(int *)shared = (int)take_ticket(p.control); /* where a first operand goes, once all have read it */
    __syncthreads();
    const int ticket = *(volatile int *)shared;
    const bool produces = ticket < p.num_producers;
    if (threadIdx.x == 0) {
        if (produces)
            init_producer(sm.base);
        else
            init_recurrence(sm);
    }
    __syncthreads();
    if (produces)
        producer(p, sm.base, ticket, warp, lane);
    else
        recurrence(p, sm, ticket - p.num_producers, warp, lane);
}
