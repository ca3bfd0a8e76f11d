/*
 * gdn_prefill_hopper.cu - chunked gated delta rule, forward, exact; Hopper (sm_90a): wgmma, TMA, warp-specialised, persistent.
 *
 * A CTA walks items (sequence, state head; or half of its value columns), each in chunks of C = 64 tokens. With c_i the
 * cumulated log2 decay inside the chunk, e_i = 2^c_i, d_i = 2^(c_63 - c_i), G_ij = 2^(c_i - c_j) for i >= j:
 *
 *     T  = (I + tril(beta_i G_ij (K K^T)_ij, -1))^-1 diag(beta)        P  = tril(G_ij (Q K^T)_ij)
 *     W  = V - e K S                                                   V' = T W       (fp16 I/O: beta in W, not in T)
 *     O  = scale (e Q S + P V')                                        S <- e_63 S + K^T (d V')
 *
 * V' comes in two halves of 32 tokens: what stands left of T's lower half is multiplied by the upper half of V', not of W, and
 * is another matrix for that (gdn_hopper_inverse.cuh, make_t()).
 *
 * Three or four warpgroups, joined by mbarriers:
 *     producer   warp 0: K, Q, V tiles and states by TMA; warp 1: gate tables; warp 2: T; warp 3: O tiles to memory
 *     1, 2 state 64 value columns each: S^T (64 x 128, fp32) stays in registers for the whole item; packed accumulators are the
 *                A operands of every product
 *     aux        P, and L = tril(beta_i G_ij (K K^T)_ij, -1), with D, of which T is made, one to two chunks ahead of these
 *
 * All of them count the chunks of all items of the CTA in one sequence, so that loads, gates, T and P of the next item are made
 * while the state warpgroups finish the last one. The tile warp takes the items and announces them; what a chunk is (its
 * item's last, the end) stands in its gate table.
 *
 * In-kernel norms (spec::QK_L2NORM) are factors of rows, as gdn_prefill_generic.cu has them: see Norms in gdn_hopper_aux.cuh.
 *
 * Rounding: as gdn_prefill_generic.cu, but for bf16 I/O beta stands in T (a rounding of its own), and gate factors of blocks
 * off the diagonal are fp16. Tokens past the end of a tail chunk are zeros with g = 0 and beta = 0; of chunks of few tokens,
 * which are made token by token in fp32 (gdn_hopper_few.cuh), nobody looks at them.
 * Here is the entry. Each other part is a header gdn_hopper_*.cuh: docs/prefill_hopper.md, with budgets and barriers. What was
 * tried: docs/notebook/prefill_hopper.md.
 */
#include "gdn_spec.cuh"

#include "gdn_code.cuh"
#include "gdn_launch.cuh"
#include "gdn_params.cuh"
#include "gdn_sequence.cuh"

#include "gdn_hopper_shared.cuh"

#include "gdn_hopper_cuts.cuh"
#include "gdn_hopper_queue.cuh"

#include "gdn_hopper_aux.cuh"
#include "gdn_hopper_gates.cuh"
#include "gdn_hopper_inverse.cuh"
#include "gdn_hopper_output.cuh"
#include "gdn_hopper_tiles.cuh"
#include "gdn_hopper_twins.cuh"
#include "gdn_hopper_walk.cuh"

enum { TILES, TABLES, INVERSES, OUTPUT };

template <int WARP> __device__ __forceinline__ void role_of(const prefill_params &p, int lane)
{
    if constexpr (WARP == TILES) {
        take_even_share(p, lane);
        if (spec::CUTS) bar_arrive(BAR_SAMPLED, spec::THREADS); /* it finds its first item meanwhile: see tell_cuts() */
        tile_role(p, lane);
    } else if constexpr (WARP == OUTPUT) {
        tell_cuts(p, lane);
        output_role(p, lane);
    } else if constexpr (WARP == INVERSES) {
        inverse_role(p);
    } else {
        table_role(p);
    }
}

/*
 * What a warp of the producer does. ptxas lays the roles' code out in the reverse of this order, and so it decides how evenly
 * their loops fill the sets of the instruction cache: docs/notebook/lessons.md, "Which role lies where".
 */
__device__ __forceinline__ void producer_role(const prefill_params &p, int warp, int lane)
{
    constexpr int FIRST = spec::CUTS ? OUTPUT : TILES, SECOND = spec::CUTS ? TILES : OUTPUT;
    if (warp == FIRST)
        role_of<FIRST>(p, lane);
    else if (warp == SECOND)
        role_of<SECOND>(p, lane);
    else if (warp == INVERSES)
        role_of<INVERSES>(p, lane);
    else
        role_of<TABLES>(p, lane);
}

extern "C" __global__ void CLUSTER __launch_bounds__(spec::THREADS, 1)
    gdn_prefill_hopper(const __grid_constant__ prefill_params p)
{
    if (clears_control<false>(p)) return; /* twins have no such words */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), group = warp / 4;
    if (threadIdx.x == 0) {
        init_barriers();
        if constexpr (spec::CUTS) clear_lists();
    }
    if (threadIdx.x == 32) prefetch_maps(p);
    if (warp == OUTPUT) prefetch_code(lane_id());
    wait_for_previous_kernel();
    order_items(p);
    if (threadIdx.x == 0) take_first_ticket(p);
    if constexpr (spec::CUTS) {
        __syncwarp(); /* its warp goes on before it meets any other */
        if (warp != TILES) sample_pairs(p, warp - 1, spec::THREADS / 32 - 1);
    }
    async_proxy_fence();
    if (!spec::CUTS)
        meet_twin();
    else if (warp != TILES)
        bar_sync(BAR_SAMPLED, spec::THREADS);
    if (group == 0) {
        give_registers<spec::PRODUCER_REGISTERS>();
        producer_role(p, warp, threadIdx.x % 32);
    } else if (group < 1 + STATE_GROUPS) {
        take_registers<spec::STATE_REGISTERS>();
        state_role(p, { group - 1, warp % 4, 0 });
    } else {
        give_registers<spec::AUX_REGISTERS>();
        aux_role(p, warp % 4);
    }
    if constexpr (spec::TWINS) meet_twin(); /* until then the other one may have something to say here */
}
