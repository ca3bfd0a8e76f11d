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
 *
 * gdn_split_producer.cuh and gdn_split_recurrence.cuh have the two; docs/prefill_split.md
 */
#include "gdn_spec.cuh"

#include "gdn_flags.cuh"
#include "gdn_launch.cuh"
#include "gdn_params.cuh"
#include "gdn_sequence.cuh"

#include "gdn_split_producer.cuh"
#include "gdn_split_recurrence.cuh"

static_assert(spec::SMEM_BYTES == (RECURRENCE_BYTES > PRODUCER_BYTES ? RECURRENCE_BYTES : PRODUCER_BYTES),
              "host and device agree on shared memory");

extern "C" __global__ void __launch_bounds__(spec::THREADS, 1)
    gdn_prefill_split(const __grid_constant__ prefill_params p)
{
    if (clears_control<false>(p)) return;
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
