/*
 * gdn_prefill_hopper_split.cu - chunked gated delta rule, forward, exact; Hopper (sm_90a), for few heads: what does not
 * depend on the state is made by CTAs of its own. The formulas are those of gdn_prefill_hopper.cu, whose parts it shares, but
 * for where T stands, and with that what is rounded.
 *
 * One launch, two kinds of CTAs of three warpgroups, in clusters of two, by the cluster's ticket:
 *
 *     producers      the first num_producers tickets: K and Q by TMA, gate tables, L, P and T, as in the other kernel; of these
 *                    X = T^T diag(d) K and P T, which with the table are a chunk's and head's image in the workspace, announced
 *                    by a flag. Chunks are dealt round robin, early ones of every sequence first. A producer waits for no
 *                    other CTA.
 *     recurrence     a cluster for each (sequence, head, half of its value columns): K, Q and V by TMA, images by bulk copies,
 *                    S^T in registers. One CTA has the chain of products,
 *                        W = V - e K S        S <- e_63 S + X^T W
 *                    and hands W to the other, which does the same to an S of its own: O = scale (e Q S + (P T) W)
 *
 * A CTA waits for flags of producers only, and those hold lower tickets: they run or have run, whatever the number of CTAs that
 * the device holds at a time. The grid is a bound; the sequences are read on the device.
 *
 * gdn_hopper_producer.cuh and gdn_hopper_recurrence.cuh have the two; docs/prefill_split.md
 */
#include "gdn_spec.cuh"

#include "gdn_flags.cuh"
#include "gdn_launch.cuh"
#include "gdn_params.cuh"
#include "gdn_sequence.cuh"

#include "gdn_hopper_shared.cuh"

#include "gdn_hopper_inverse.cuh"
#include "gdn_hopper_producer.cuh"
#include "gdn_hopper_recurrence.cuh"

/* The producer warps of a CTA that makes images. */
__device__ __forceinline__ void produce(const prefill_params &p, int ticket, int warp, int lane)
{
    if (warp == 0)
        operand_role(p, ticket, lane);
    else if (warp == 1)
        image_table_role(p, ticket, lane);
    else if (warp == 2)
        inverse_role(p);
    else
        export_role(p, lane);
}

/* Of the CTA that has S, and of the one that makes O. */
__device__ __forceinline__ void feed_chain(const prefill_params &p, const Strip &w, int warp, int lane)
{
    if (warp == 0)
        chain_load_role(p, w, lane);
    else if (warp == 1)
        chain_image_role(p, w, lane);
    else if (warp == 2)
        hand_over_role(w, lane);
    else
        chain_ready_role(w, lane);
}

__device__ __forceinline__ void feed_readout(const prefill_params &p, const Strip &w, int warp, int lane)
{
    if (warp == 0)
        readout_load_role(p, w, lane);
    else if (warp == 1)
        readout_image_role(p, w, lane);
    else if (warp == 2)
        readout_ready_role(w, lane);
    else
        store_role(p, w, lane);
}

/* Sets barriers up; returns the cluster's ticket, the same to all. */
__device__ __forceinline__ int begin(const prefill_params &p, u32 rank)
{
    if (threadIdx.x == 0 && rank == 0) store_shared(at(0), take_ticket(p.control)); /* where no barrier is */
    if (threadIdx.x == 32) prefetch_maps(p);
    cluster_sync();
    const int ticket = (int)load_cluster(address_in(at(0), 0)); /* no store there: that CTA might not have begun */
    if (threadIdx.x == 0) {
        if (2 * ticket < p.num_producers)
            init_barriers();
        else if (rank == CHAIN_RANK)
            init_chain_barriers();
        else
            init_readout_barriers();
    }
    async_proxy_fence();
    cluster_sync();
    return ticket;
}

/* By the CTA that has no S, whose last warp has nothing to do before there is an image, or an O. */
__device__ __forceinline__ void zero_padding_of(const prefill_params &p, u32 rank, int lane)
{
    if (rank != CHAIN_RANK) zero_share(p, blockIdx.x / 2, gridDim.x / 2, lane);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(spec::THREADS, 1)
    gdn_prefill_hopper_split(const __grid_constant__ prefill_params p)
{
    if (clears_control<true>(p)) return;
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), group = warp / 4, lane = threadIdx.x % 32;
    const u32 rank = cluster_rank();
    wait_for_previous_kernel();
    const int ticket = begin(p, rank), number = ticket - p.num_producers / 2;
    const bool produces = number < 0, has_state = rank == CHAIN_RANK;
    Strip w; /* of the recurrence; halves of a head are beside each other */
    w.half = number % PARTS;
    bool idle = produces ? p.num_seqs == 0 : number / PARTS / p.num_heads >= p.num_seqs; /* there is nothing but padding */
    if (!produces && !idle) {
        (Work &)w = make_work(p, number / PARTS / p.num_heads, number / PARTS % p.num_heads);
        idle = w.inert;
    }
    if (idle) {
        if (warp == 3) zero_padding_of(p, rank, lane);
        return;
    }
    if (produces) {
        if (group == 0) {
            give_registers<spec::PRODUCER_REGISTERS>();
            if (warp == 3) zero_padding_of(p, rank, lane);
            produce(p, 2 * ticket + (int)rank, warp, lane);
        } else {
            take_registers<spec::AUX_REGISTERS>();
            factor_role(p, group - 1, warp % 4);
        }
    } else if (group == 0) {
        give_registers<spec::PRODUCER_REGISTERS>();
        if (warp == 3) zero_padding_of(p, rank, lane);
        if (has_state)
            feed_chain(p, w, warp, lane);
        else
            feed_readout(p, w, warp, lane);
    } else if (group == 1) {
        take_registers<spec::STATE_REGISTERS>();
        if (has_state)
            chain_role(p, w, warp % 4);
        else
            readout_role(p, w, warp % 4);
    }
}
