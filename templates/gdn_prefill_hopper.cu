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
 * Three or four warpgroups, joined by mbarriers:
 *     producer   warp 0: K, Q, V tiles by TMA; warps 1, 2: gate tables, and the 16 x 16 diagonal blocks of the inverse; warp 3:
 *                O tiles to memory
 *     1, 2 state 64 value columns each: S^T (64 x 128, fp32) stays in registers for the whole item; packed accumulators are the
 *                A operands of every product
 *     aux        T and P, one to two chunks ahead of the state warpgroups
 *
 * All of them count the chunks of all items of the CTA in one sequence, so that loads, gates, T and P of the next item are made
 * while the state warpgroups finish the last one. The tile warp takes the items and announces them; what a chunk is (its
 * item's last, the end) stands in its gate table.
 *
 * In-kernel norms (spec::QK_L2NORM) are factors of rows, as gdn_prefill_generic.cu has them: see Norms.
 *
 * Rounding: as gdn_prefill_generic.cu, but for bf16 I/O beta stands in T (a rounding of its own), and gate factors of blocks
 * off the diagonal are fp16. Tokens past the end of a tail chunk are zeros with g = 0 and beta = 0.
 * docs/prefill_hopper.md: budgets, barriers, what was measured and tried.
 */
#include "gdn_spec.cuh"

#include "gdn_hopper_aux.cuh"
#include "gdn_hopper_gates.cuh"
#include "gdn_hopper_links.cuh"
#include "gdn_hopper_output.cuh"
#include "gdn_hopper_queue.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_hopper_tiles.cuh"
#include "gdn_hopper_transitions.cuh"
#include "gdn_params.cuh"
#include "gdn_sequence.cuh"

namespace {

/* ---- From item to item --------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void begin_item(float (&S)[64], const prefill_params &p, u32 entry, const Place &place)
{
    const int start = (int)load_shared_u32(entry + ITEM_START), part = (int)load_shared_u32(entry + ITEM_PART);
    if (start == START_KEPT) return;
    clear(S);
    if (start >= 0) load_state(S, initial_state(p, start, part / PARTS), place.row(part));
    if (rarely(start <= START_LINK)) {
        const int index = (int)load_shared_u32(entry + ITEM_INDEX), n = (int)load_shared_u32(entry + ITEM_N);
        if (start == START_LINK) load_link(S, link_state(link_at(p, index, n), place));
        if (spec::CARRIES && start == START_IDENTITY) begin_transition(S, link_at(p, index, n), place);
        if (spec::CARRIES && start == START_CARRIED) carry_state(S, p, index, n, place);
    }
    if (p.partition && load_shared_u32(entry + ITEM_MAIN) == 0) announce_start(p, entry, place);
}

/* After an item's last chunk, or the last one that it replays. */
__device__ __forceinline__ void hand_over(const float (&S)[64], const prefill_params &p, u32 entry, bool last,
                                          const Place &place)
{
    const int to = (int)load_shared_u32(entry + ITEM_AFTER);
    if (!last || to == END_LINK) {
        meet_at_link(S, p, entry, last, place);
    } else if (spec::CARRIES && (to == END_STATE || to == END_ADDEND)) {
        leave_at_link(S, p, entry, to == END_STATE ? (u32)LINK_STATE : (u32)LINK_ADDEND, place);
    } else if (spec::CARRIES && to == END_TRANSITION) {
        const int index = (int)load_shared_u32(entry + ITEM_INDEX);
        leave_transition(S, link_at(p, index, (int)load_shared_u32(entry + ITEM_N)),
                         item_word(p, index, WORD_TRANSITION + place.group), place);
    } else if (to >= 0 && p.final_state) {
        if (p.partition) await_start(p, entry);
        const int part = (int)load_shared_u32(entry + ITEM_PART);
        save_state(S, final_state(p, to, part / PARTS), place.row(part));
    }
}

/* After a chunk that is not like the others. A transition is left with all rows of one size. */
__device__ __forceinline__ void between_chunks(float (&S)[64], const prefill_params &p, u32 flags, const Place &place)
{
    const u32 entry = entry_of(flags >> ITEM_SHIFT);
    if (spec::CHECKPOINTS && (flags & CHUNK_CHECKPOINT)) {
        const int part = (int)load_shared_u32(entry + ITEM_PART);
        save_checkpoints(S, p, (int)load_shared_u32(kept(place) + KEPT_CHECKPOINT), part / PARTS, place.row(part));
    }
    if (spec::CARRIES && flags & CHUNK_TRANSITION)
        keep_size(S, link_at(p, (int)load_shared_u32(entry + ITEM_INDEX), (int)load_shared_u32(entry + ITEM_N)),
                  flags & CHUNK_LAST ? 3e38f : 0.5f, place);
    if (flags & (CHUNK_LAST | CHUNK_REPLAYED)) hand_over(S, p, entry, flags & CHUNK_LAST, place);
}

__device__ __forceinline__ void state_role(const prefill_params &p, const Place &place)
{
    constexpr u32 UNLIKE = CHUNK_LAST | CHUNK_REPLAYED | (spec::CARRIES ? CHUNK_TRANSITION : 0) |
                           (spec::CHECKPOINTS ? CHUNK_CHECKPOINT : 0);
    State st;
    Clock c = { 0, 0, 0 };
    if (place.group == 1) pass_turn(1);
    for (u32 number = 0;;) {
        mbar_wait(bar(ITEM_FULL + number % ITEM_SLOTS), number / ITEM_SLOTS & 1);
        if ((int)load_shared_u32(entry_of(number) + ITEM_N) < 0) break;
        begin_item(st.S, p, entry_of(number), place); /* a CTA's first one while its table and tiles are on their way */
        mbar_wait(bar(CHUNK_FULL + (c.n & 3)), c.parity4());
        u32 now;
        do {
            __syncwarp(); /* else the compiler makes one loop of the two; so the code of usual chunks lies in one piece */
            do {
                now = state_chunk(st, p, c, place);
                c.advance();
            } while (!rarely(now & UNLIKE));
            between_chunks(st.S, p, now, place);
        } while (!(now & CHUNK_LAST));
        if (p.partition) {
            release(); /* what hand_over() stored: the output warp counts the item */
            arrive_warp(ITEM_DONE + (now >> ITEM_SHIFT & 1));
        }
        number = (now >> ITEM_SHIFT) + 1;
    }
    if (place.group == 0) take_turn(0); /* that the other has passed: no arrival is left over */
}

} // namespace

extern "C" __global__ void __launch_bounds__(spec::THREADS, 1)
    gdn_prefill_hopper(const __grid_constant__ prefill_params p)
{
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), group = warp / 4;
    if (threadIdx.x == 0) {
        init_barriers();
        store_shared(at(LISTS_AT), 0u, 0u, 0u, 0u);
    }
    if (threadIdx.x == 32 && p.num_tokens > 0) prefetch_maps(p);
    wait_for_previous_kernel();
    sort_sequences(p);
    sample_pairs(p);
    async_proxy_fence();
    __syncthreads();
    if (group == 0) {
        give_registers<spec::PRODUCER_REGISTERS>();
        const int lane = threadIdx.x % 32;
        if (warp == 0)
            tile_role(p, lane);
        else if (warp < 1 + GATE_WARPS)
            gate_role(p, warp - 1);
        else
            output_role(p, lane);
    } else if (group < 1 + STATE_GROUPS) {
        take_registers<spec::STATE_REGISTERS>();
        state_role(p, { group - 1, warp % 4 });
    } else {
        give_registers<spec::AUX_REGISTERS>();
        aux_role(p, warp % 4);
    }
}
