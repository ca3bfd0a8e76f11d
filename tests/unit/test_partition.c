/* Partitions: what the model cuts sequences into, what a parameter forces, and that every cut fits into the workspace. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "codegen/partition.h"
#include "codegen/workspace.h"
#include "specs.h"

enum { CHUNK = 64, STATE_BYTES = 128 * 128 * 4, H200_SMS = 132 };
enum { TRANSITION_BYTES = 129 * 128 * 4 }; /* two fp16 numbers for each entry, and a factor for each column */
enum { KEPT_BYTES = 64 * 64 * 64 * 2 };       /* T of 64 chunks */

static struct gdni_problem problem_of(int32_t heads)
{
    struct gdni_problem p;
    gdn_prefill_desc d = test_prefill_desc();
    d.num_q_heads = d.num_k_heads = d.num_v_heads = heads;
    d.max_tokens = 1 << 20;
    d.max_seqs = 64;
    cr_assert_eq(gdni_problem_from_prefill(&p, &d), GDN_OK, "%s", gdni_error_text());
    return p;
}

/* Of a kernel on sm_90a, at its defaults but for how sequences are cut. */
static struct gdni_spec spec_of(int32_t kernel, int32_t partition_chunks, int32_t block_dv)
{
    struct gdni_problem p = problem_of(16);
    struct gdni_params params;
    struct gdni_spec spec;
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_initial(&params, kernel);
    if (kernel == GDNI_KERNEL_PREFILL_HOPPER) {
        params.partition_chunks = partition_chunks;
        params.carry = block_dv || partition_chunks == GDNI_PARTITION_NEVER ? GDNI_CARRY_NOTHING : GDNI_CARRY_STATES;
    }
    if (block_dv) params.block_dv = block_dv;
    p.generic = !gdni_kernel_info((enum gdni_kernel)kernel)->has_maps;
    cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(spec.kernel, kernel);
    return spec;
}

static struct gdni_spec hopper(int32_t partition_chunks)
{
    return spec_of(GDNI_KERNEL_PREFILL_HOPPER, partition_chunks, 0);
}

/* ---- Carrying ---- */

/* Three runs of everything must fit where one CTA for each (sequence, head) would run once. */
Test(partition, states_are_carried_where_idle_sms_pay_for_it)
{
    static const struct {
        int32_t heads, num_sms;
        int64_t seqs, items;
        bool invariant;
        enum gdni_carry carry;
    } wanted[] = {
        { 16, 132, 1, 1, false, GDNI_CARRY_BY_GATES },
        { 16, 132, 1, 264, false, GDNI_CARRY_BY_GATES },
        { 16, 132, 1, 265, false, GDNI_CARRY_NEVER },
        { 16, 132, 2, 1, false, GDNI_CARRY_BY_GATES },
        { 16, 132, 4, 1, false, GDNI_CARRY_BY_GATES },
        { 16, 132, 5, 1, false, GDNI_CARRY_NEVER }, /* there are words for 64 pairs */
        { 64, 132, 1, 1, false, GDNI_CARRY_BY_GATES },
        { 64, 127, 1, 1, false, GDNI_CARRY_NEVER }, /* some would have one SM alone */
        { 16, 32, 1, 1, false, GDNI_CARRY_BY_GATES },
        { 16, 31, 1, 1, false, GDNI_CARRY_NEVER },
        { 11, 200, 6, 1, false, GDNI_CARRY_EQUAL }, /* by gates there would be 265 partitions */
        { 16, 238, 1, 1, false, GDNI_CARRY_BY_GATES }, /* 254 numbers of partitions in 8 bits */
        { 16, 239, 1, 1, false, GDNI_CARRY_EQUAL },
        { 16, 47, 30, 5000, true, GDNI_CARRY_EQUAL },
        { 48, 132, 1, 1, true, GDNI_CARRY_EQUAL },
    };
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        struct gdni_problem p = problem_of(wanted[i].heads);
        struct gdni_params params;
        struct gdni_spec spec;
        p.batch_invariant = wanted[i].invariant;
        gdni_params_initial(&params, GDNI_KERNEL_PREFILL_HOPPER);
        for (params.carry = GDNI_CARRY_NOTHING; params.carry <= GDNI_CARRY_STATES; ++params.carry) {
            const bool may = params.carry == GDNI_CARRY_STATES;
            cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK, "%s", gdni_error_text());
            const enum gdni_carry carry =
                gdni_partition_carry(&spec, &p, wanted[i].num_sms, wanted[i].seqs, wanted[i].items);
            cr_expect_eq((int)carry, may ? (int)wanted[i].carry : (int)GDNI_CARRY_NEVER,
                         "row %zu: %d heads, %lld sequences: %d", i, wanted[i].heads, (long long)wanted[i].seqs, (int)carry);
        }
    }
}

/* A replay of one partition at most, in a byte; the same for a sequence whatever batch it is in, where that is asked for. */
Test(partition, keys_are_asked_where_a_partition_is_long_enough_and_the_batch_may_decide)
{
    static const struct {
        int32_t heads, partition;
        int64_t seqs, tokens;
        bool invariant;
        enum gdni_carry carry;
        int32_t most;
    } wanted[] = {
        { 16, 0, 1, 8192, false, GDNI_CARRY_NEVER, 0 },
        { 16, 32, 1, 8192, false, GDNI_CARRY_NEVER, 0 },
        { 16, 33, 1, 8192, false, GDNI_CARRY_NEVER, 33 },
        { 16, 33, 1, 64 * 66, false, GDNI_CARRY_EQUAL, 33 },
        { 16, 64, 8, 65536, false, GDNI_CARRY_EQUAL, 64 },
        { 16, 255, 1, 65536, false, GDNI_CARRY_NEVER, 255 },
        { 16, 300, 1, 65536, false, GDNI_CARRY_NEVER, 255 },
        { 16, 64, 9, 65536, false, GDNI_CARRY_NEVER, 0 },
        { 128, 256, 1, 65536, false, GDNI_CARRY_NEVER, 255 },
        { 129, 256, 1, 65536, false, GDNI_CARRY_NEVER, 0 },
        { 16, 64, 1, 8192, true, GDNI_CARRY_EQUAL, 0 },
        { 128, 128, 1, 65536, true, GDNI_CARRY_NEVER, 0 },
        { 16, 64, 1, 8192, false, GDNI_CARRY_BY_GATES, 0 },
        /* Two partitions, all there is: going on through them is not twice as long. */
        { 64, 32, 1, 4096, false, GDNI_CARRY_NEVER, 0 },
        { 64, 48, 1, 64 * 96, false, GDNI_CARRY_NEVER, 42 },
        { 64, 64, 1, 8192, false, GDNI_CARRY_NEVER, 56 },
        { 64, 128, 1, 16384, false, GDNI_CARRY_NEVER, 112 },
        { 64, 100, 1, 64 * 120, false, GDNI_CARRY_NEVER, 0 },
        { 64, 128, 2, 16384, false, GDNI_CARRY_NEVER, 112 },
        { 64, 64, 2, 65536, false, GDNI_CARRY_NEVER, 64 },
        { 64, 64, 2, 64 * 320, false, GDNI_CARRY_NEVER, 64 },
    };
    const struct gdni_spec spec = hopper(GDNI_PARTITION_MODEL);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        struct gdni_problem p = problem_of(wanted[i].heads);
        p.batch_invariant = wanted[i].invariant;
        cr_expect_eq(gdni_partition_most_forgetting(&spec, &p, wanted[i].carry, wanted[i].partition, wanted[i].tokens,
                                                    wanted[i].seqs),
                     wanted[i].most, "row %zu: %d heads, partitions of %d chunks, %lld sequences", i, wanted[i].heads,
                     wanted[i].partition, (long long)wanted[i].seqs);
    }
}

static struct gdni_params usual_of(const struct gdni_problem *p)
{
    const struct gdni_arch *arch = NULL;
    struct gdni_params params;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_heuristic(&params, p, arch, H200_SMS, 3);
    return params;
}

/* Calls of any number of sequences do not carry, unless all calls have to run one kernel, and that cuts them. */
Test(partition, the_kernel_of_all_calls_carries_states_only_in_batch_invariant_plans)
{
    static const struct {
        int32_t heads;
        bool invariant, whole;
        int32_t carry;
    } wanted[] = {
        { 16, false, false, GDNI_CARRY_NOTHING },
        { 16, true, false, GDNI_CARRY_STATES },
        { 48, true, false, GDNI_CARRY_STATES },
        { 49, true, false, GDNI_CARRY_NOTHING },
        { 16, true, true, GDNI_CARRY_NOTHING },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        struct gdni_problem p = problem_of(wanted[i].heads);
        p.batch_invariant = wanted[i].invariant;
        p.whole_sequences = wanted[i].whole ? GDNI_WHOLE_BY_FLAG : 0;
        cr_expect_eq(usual_of(&p).carry, wanted[i].carry, "row %zu", i);
    }
}

Test(partition, states_of_halves_and_of_many_heads_are_not_carried)
{
    static const struct {
        int32_t heads, block_dv;
        const char *says;
    } wanted[] = {
        { 16, 64, "carry is 2 with block_dv 64, partition_chunks 1 and 16 state heads" },
        { 65, 128, "carry is 2 with block_dv 128, partition_chunks 1 and 65 state heads" },
    };
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        const struct gdni_problem p = problem_of(wanted[i].heads);
        struct gdni_params params = usual_of(&p);
        struct gdni_spec spec;
        params.block_dv = wanted[i].block_dv;
        params.carry = GDNI_CARRY_STATES;
        cr_expect_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_E_UNSUPPORTED);
        cr_expect(strstr(gdni_error_text(), wanted[i].says), "%s", gdni_error_text());
    }
}

/*
 * As the kernel numbers partitions by gates: one an SM, and one more for each (sequence, head). Each has a state and a
 * transition at its link, and an SM has room for T of 64 chunks. What equal partitions need is there too.
 */
Test(partition, a_call_cut_by_gates_has_room_for_as_many_partitions_as_they_may_ask_for)
{
    const struct gdni_spec spec = hopper(GDNI_PARTITION_MODEL);
    for (int32_t heads = 1; heads <= 32; ++heads)
        for (int64_t tokens = 512; tokens <= 1 << 20; tokens *= 4) {
            const struct gdni_problem p = problem_of(heads);
            struct gdni_workspace w;
            gdni_workspace_of(&w, &spec, &p, H200_SMS, tokens, 1, 0);
            if (w.carry != GDNI_CARRY_BY_GATES) continue;
            const int64_t links = gdni_partition_links(&spec, &p, w.partition, tokens), most = H200_SMS + heads;
            const size_t link = STATE_BYTES + TRANSITION_BYTES;
            cr_expect_geq(w.control_words, (size_t)(64 + 4 * heads + 8 * most), "%d heads", heads);
            cr_expect_geq(w.t_offset, w.images_offset + link * (size_t)(links > most ? links : most));
            cr_expect_geq(w.size, w.t_offset + H200_SMS * KEPT_BYTES);
            cr_expect_leq(w.size, (size_t)100 << 20, "%zu bytes", w.size);
        }
}

/* ---- The model ---- */

Test(partition, the_model_fills_the_gpu_with_partitions_and_leaves_whole_what_fills_it)
{
    static const struct {
        int32_t heads;
        int64_t tokens, seqs;
        int32_t chunks;
    } wanted[] = {
        { 16, 32768, 1, 64 }, { 16, 65536, 1, 128 },   { 16, 131072, 1, 256 }, { 32, 131072, 1, 512 },
        { 16, 4096, 1, 8 },   { 48, 4 * 8192, 4, 64 }, { 64, 32768, 32, 0 },   { 16, 512, 1, 0 },
        { 16, 1, 1, 0 },      { 16, 0, 0, 0 },         { 1, 4 * 2048, 4, 8 },  { 8, 4 * 2048, 4, 10 },
        { 2, 4 * 8192, 4, 9 }, { 2, 16 * 2048, 16, 11 }, { 8, 4 * 8192, 4, 32 }, { 16, 960, 1, 4 },
        { 16, 32768, 0, 0 },
    };
    const struct gdni_spec spec = hopper(GDNI_PARTITION_MODEL);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        const struct gdni_problem p = problem_of(wanted[i].heads);
        const int32_t chunks = gdni_partition_cut(&spec, &p, H200_SMS, wanted[i].tokens, wanted[i].seqs, 0).chunks;
        cr_expect_eq(chunks, wanted[i].chunks, "%lld x %lld tokens, %d heads: %d", (long long)wanted[i].seqs,
                     (long long)wanted[i].tokens, wanted[i].heads, chunks);
    }
}

/* 256 (sequence, head) pairs on 132 SMs. One sequence that is longer than the others may still be cut, equal ones may not. */
Test(partition, sequences_that_keep_all_sms_busy_are_cut_only_where_one_is_much_longer)
{
    const struct gdni_spec spec = hopper(GDNI_PARTITION_MODEL);
    const struct gdni_problem p = problem_of(64);
    const int32_t chunks = gdni_partition_cut(&spec, &p, H200_SMS, 4 * 8192, 4, 0).chunks;
    cr_expect(chunks == 0 || chunks >= 8192 / CHUNK, "%d", chunks);
}

/* However uneven they are: a sequence more is a row more at most. */
Test(partition, few_chunks_of_several_sequences_are_a_partition_only_where_all_find_an_sm)
{
    int short_ones = 0;
    const struct gdni_spec spec = hopper(GDNI_PARTITION_MODEL);
    for (int32_t heads = 1; heads <= 64; heads *= 2)
        for (int64_t seqs = 2; seqs <= 8; ++seqs) {
            const struct gdni_problem p = problem_of(heads);
            const int32_t chunks = gdni_partition_cut(&spec, &p, H200_SMS, seqs * 2048, seqs, 0).chunks;
            const int64_t items = gdni_partition_items(&spec, &p, chunks, seqs * 2048, seqs);
            cr_expect(chunks == 0 || chunks >= 16 || (chunks >= 8 && items <= H200_SMS),
                      "%lld x 2048 tokens, %d heads: %d, %lld items", (long long)seqs, heads, chunks, (long long)items);
            short_ones += chunks && chunks < 16;
        }
    cr_expect_eq(short_ones, 26, "%d", short_ones); /* of 49 */
}

/* Uneven calls of more pairs than gates may cut: of kernels that carry, up to two pairs an SM, lengths known. */
Test(partition, of_more_pairs_than_gates_may_cut_the_longest_sequences_are)
{
    static const struct {
        int32_t heads, num_sms;
        int64_t seqs, told;
        bool ranked;
    } wanted[] = {
        { 4, 132, 64, 4000, true },   { 4, 132, 66, 4000, true },    { 4, 132, 67, 4000, false },
        { 4, 132, 17, 4000, true },   { 4, 132, 16, 4000, false }, /* all may be cut */
        { 4, 132, 64, 0, false },     { 4, 132, 17, 4 * 4096 / 17, false }, /* much alike */
        { 64, 132, 2, 16000, true },  { 64, 132, 5, 16000, false }, { 1, 132, 256, 4000, true },
        { 1, 190, 256, 4000, true },  { 1, 191, 256, 4000, false }, /* numbers of 8 bits */
        { 16, 40, 5, 8000, true },    { 21, 40, 2, 12000, false }, /* not even one sequence may be cut */
    };
    const struct gdni_spec carries = hopper(GDNI_PARTITION_MODEL);
    const struct gdni_spec not = spec_of(GDNI_KERNEL_PREFILL_HOPPER, GDNI_PARTITION_MODEL, 128);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        enum { TOKENS = 16384 };
        struct gdni_problem p = problem_of(wanted[i].heads);
        const int sms = wanted[i].num_sms;
        const struct gdni_cut cut = gdni_partition_cut(&carries, &p, sms, TOKENS, wanted[i].seqs, wanted[i].told);
        cr_expect_eq(cut.ranked, wanted[i].ranked, "row %zu", i);
        cr_expect_not(gdni_partition_cut(&not, &p, sms, TOKENS, wanted[i].seqs, wanted[i].told).ranked, "row %zu", i);
        p.batch_invariant = 1;
        cr_expect_not(gdni_partition_cut(&carries, &p, sms, TOKENS, wanted[i].seqs, wanted[i].told).ranked, "row %zu", i);
        if (!cut.ranked) continue;
        p.batch_invariant = 0;
        struct gdni_workspace w;
        gdni_workspace_of(&w, &carries, &p, sms, TOKENS, wanted[i].seqs, wanted[i].told);
        const size_t pairs = (size_t)(wanted[i].seqs * wanted[i].heads), cuts = (size_t)sms + 64;
        cr_expect(w.ranked && w.carry == GDNI_CARRY_BY_GATES && w.partition == cut.chunks && !w.gang, "row %zu", i);
        cr_expect_eq(w.control_words, 64 + 4 * pairs + 8 * (cuts + pairs), "row %zu: %zu", i, w.control_words);
        cr_expect_geq(w.t_offset, w.images_offset + cuts * (STATE_BYTES + TRANSITION_BYTES), "row %zu", i);
        cr_expect_geq(w.size, w.t_offset + (size_t)sms * KEPT_BYTES, "row %zu", i);
    }
}

/* ---- The parameter ---- */

Test(partition, a_parameter_forces_a_length_or_none)
{
    const struct gdni_problem p = problem_of(16), many = problem_of(64);
    const struct gdni_spec never = hopper(GDNI_PARTITION_NEVER);
    cr_expect_eq(gdni_partition_cut(&never, &p, H200_SMS, 32768, 1, 0).chunks, 0);
    cr_expect_not(gdni_partition_possible(&never, &p, 1 << 20));
    for (int32_t forced = 4; forced <= 128; forced *= 2) {
        const struct gdni_spec spec = hopper(forced);
        /* 41 rows of 16 heads are 656 items, and 5 for each of 132 SMs are 660. */
        cr_expect_eq(gdni_partition_cut(&spec, &p, H200_SMS, (int64_t)40 * forced * CHUNK, 1, 0).chunks, forced, "%d",
                     forced);
        cr_expect_eq(gdni_partition_cut(&spec, &p, H200_SMS, (int64_t)41 * forced * CHUNK, 1, 0).chunks, 0,
                     "more items than fit: %d", forced);
        cr_expect_eq(gdni_partition_cut(&spec, &p, H200_SMS, (int64_t)forced * CHUNK, 1, 0).chunks, 0,
                     "all of it is one: %d", forced);
        cr_expect_eq(gdni_partition_cut(&spec, &p, H200_SMS, (int64_t)forced * CHUNK + 1, 1, 0).chunks, forced, "%d",
                     forced);
        cr_expect_eq(gdni_partition_cut(&spec, &many, H200_SMS, (int64_t)2 * forced * CHUNK, 11, 0).chunks, 0,
                     "832 items: %d", forced);
    }
}

Test(partition, whole_sequences_are_never_cut_and_need_no_room_for_it)
{
    const struct gdni_spec spec = hopper(GDNI_PARTITION_MODEL);
    struct gdni_problem p = problem_of(16);
    struct gdni_workspace w;
    cr_expect_gt(gdni_partition_cut(&spec, &p, H200_SMS, 32768, 1, 0).chunks, 0);
    p.whole_sequences = 1;
    cr_expect_eq(gdni_partition_cut(&spec, &p, H200_SMS, 32768, 1, 0).chunks, 0);
    gdni_workspace_of(&w, &spec, &p, H200_SMS, 32768, 1, 0);
    cr_expect(w.partition == 0 && w.size == 0 && w.control_words == 0, "%d, %zu bytes", w.partition, w.size);
}

/* execute.c works a call's needs out for the kernel that cuts, and takes them for the other one where the call is not cut. */
Test(partition, a_call_that_is_not_cut_has_the_same_needs_in_either_kernel)
{
    const struct gdni_spec cuts = hopper(GDNI_PARTITION_MODEL), never = hopper(GDNI_PARTITION_NEVER);
    int same = 0;
    for (int32_t heads = 1; heads <= 64; heads *= 2)
        for (int64_t seqs = 1; seqs <= 256; seqs *= 2)
            for (int64_t tokens = seqs; tokens <= 1 << 17; tokens *= 3) {
                const struct gdni_problem p = problem_of(heads);
                struct gdni_workspace w, whole;
                gdni_workspace_of(&w, &cuts, &p, H200_SMS, tokens, seqs, 0);
                gdni_workspace_of(&whole, &never, &p, H200_SMS, tokens, seqs, 0);
                w.size = whole.size; /* what the plan asks for is not what a call uses */
                if (w.partition) continue;
                cr_expect_eq(memcmp(&w, &whole, sizeof w), 0, "%lld tokens of %lld, %d heads", (long long)tokens,
                             (long long)seqs, heads);
                ++same;
            }
    cr_expect_gt(same, 100);
}

Test(partition, other_kernels_cut_nothing)
{
    static const int32_t kernels[] = { GDNI_KERNEL_PREFILL_GENERIC, GDNI_KERNEL_PREFILL_SPLIT,
                                       GDNI_KERNEL_PREFILL_HOPPER_SPLIT };
    const struct gdni_problem p = problem_of(16);
    for (int i = 0; i < 3; ++i) {
        const struct gdni_spec spec = spec_of(kernels[i], 0, 0);
        struct gdni_workspace w;
        cr_expect_not(gdni_partition_possible(&spec, &p, 1 << 20));
        gdni_workspace_of(&w, &spec, &p, H200_SMS, 32768, 1, 0);
        cr_expect(w.partition == 0 && w.num_items == 0, "kernel %d", kernels[i]);
    }
}

/* ---- Even shares ---- */

/*
 * Of a kernel that carries nothing. told: tokens of the longest sequence. Whole ones take as long as the longest of them, or as
 * all of them on all SMs; partitions of one length take no longer where sequences are equal and all of these find an SM. What
 * takes the same time whatever the gates is left for two thirds of that where states are carried if gates do not decay, of up
 * to 32 pairs, and of up to 64 if they are uneven, and for four sevenths where they are not.
 */
Test(partition, even_shares_are_for_calls_of_which_one_sequence_may_be_most)
{
    static const struct {
        int32_t heads;
        int64_t tokens, seqs, told;
        bool evenly, beats_halves, beats_two_kinds;
    } wanted[] = {
        { 4, 16384, 32, 4000, true, true, false }, /* prompts of 37 to 4000 tokens */
        { 4, 16384, 32, 0, false, false, false },  /* for all that is known they have 8 chunks each */
        { 4, 16384, 32, 512, false, false, false },
        { 16, 8192, 4, 5120, true, true, false },     { 16, 8192, 4, 0, true, false, false },
        { 16, 8192, 4, 2048, false, false, false },   /* two partitions of each, 128 of 16 chunks; halves, sooner than either */
        { 16, 3 * 4096, 3, 4096, true, false, false }, /* 48 of 64: two partitions of each leave 36 SMs idle */
        { 32, 8192, 2, 7000, true, true, false },      { 33, 8192, 2, 7000, true, false, false },
        { 8, 8192, 2, 7000, true, true, true },       { 8, 6144, 2, 4096, true, true, true },
        { 8, 4000, 2, 3000, true, true, false },      { 16, 4400, 2, 2200, false, false, false },
        { 64, 4 * 8192, 4, 8192, false, false, false }, { 48, 8192, 1, 8192, true, false, false },
        { 48, 32768, 1, 32768, false, false, false }, /* in partitions, several to a CTA, it takes a fifteenth longer */
        { 64, 32768, 1, 32768, false, false, false }, /* two partitions of each, on 128 SMs */
        { 4, 16384, 33, 4000, true, true, false },
        { 4, 16384, 256, 4000, true, false, false },  /* one prompt, and a token each */
        { 4, 16384, 257, 4000, false, false, false }, /* more than there is room for on the line */
        { 8, 16384, 132, 4000, true, false, false },
        { 8, 16384, 133, 4000, false, false, false }, /* more than eight pairs an SM */
        { 16, 1024, 4, 1000, false, false, false },   /* 16 chunks */
    };
    const struct gdni_spec spec = spec_of(GDNI_KERNEL_PREFILL_HOPPER, GDNI_PARTITION_MODEL, 128);
    const struct gdni_spec halves = spec_of(GDNI_KERNEL_PREFILL_HOPPER, GDNI_PARTITION_NEVER, 64);
    const struct gdni_spec two_kinds = spec_of(GDNI_KERNEL_PREFILL_HOPPER_SPLIT, 0, 64);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        const struct gdni_problem p = problem_of(wanted[i].heads);
        const int64_t tokens = wanted[i].tokens, seqs = wanted[i].seqs, told = wanted[i].told;
        cr_expect_eq(gdni_partition_cut(&spec, &p, H200_SMS, tokens, seqs, told).evenly, wanted[i].evenly, "row %zu", i);
        cr_expect_eq(gdni_partition_beats_few(&spec, &halves, &p, H200_SMS, tokens, seqs, told), wanted[i].beats_halves,
                     "row %zu, halves", i);
        cr_expect_eq(gdni_partition_beats_few(&spec, &two_kinds, &p, H200_SMS, tokens, seqs, told), wanted[i].beats_two_kinds,
                     "row %zu, two kinds", i);
    }
}

Test(partition, even_shares_are_not_for_kernels_that_carry_nor_for_batch_invariant_plans_nor_for_halves)
{
    struct gdni_problem p = problem_of(4);
    const struct gdni_spec carries = hopper(GDNI_PARTITION_EVENLY), fixed = spec_of(GDNI_KERNEL_PREFILL_HOPPER, 8, 128);
    const struct gdni_spec halves = spec_of(GDNI_KERNEL_PREFILL_HOPPER, GDNI_PARTITION_EVENLY, 64);
    const struct gdni_spec even = spec_of(GDNI_KERNEL_PREFILL_HOPPER, GDNI_PARTITION_EVENLY, 128);
    cr_expect(gdni_partition_cut(&even, &p, H200_SMS, 16384, 32, 4000).evenly, "as it was asked to");
    cr_expect(gdni_partition_cut(&even, &p, H200_SMS, 16384, 32, 0).evenly, "whatever is known");
    cr_expect_not(gdni_partition_cut(&carries, &p, H200_SMS, 16384, 32, 4000).evenly);
    cr_expect_not(gdni_partition_cut(&halves, &p, H200_SMS, 16384, 32, 4000).evenly);
    cr_expect_not(gdni_partition_cut(&fixed, &p, H200_SMS, 16384, 32, 4000).evenly, "partitions of 8 chunks were asked for");
    p.batch_invariant = 1;
    cr_expect_not(gdni_partition_cut(&even, &p, H200_SMS, 16384, 32, 4000).evenly, "other sequences would decide about bits");
}

/* ---- Which kernel takes calls of few sequences ---- */

/* Whatever is cut, the usual one, but with code that carries states where pairs are few. */
Test(partition, few_sequences_have_kernels_of_their_own_where_these_are_faster)
{
    enum { SPLIT = GDNI_KERNEL_PREFILL_HOPPER_SPLIT, HOPPER = GDNI_KERNEL_PREFILL_HOPPER };
    enum { NOTHING = GDNI_CARRY_NOTHING, STATES = GDNI_CARRY_STATES };
    static const struct {
        int32_t heads, tokens, seq_class;
        bool own;
        int32_t kernel, block_dv, carry;
    } wanted[] = {
        { 16, 256, 0, true, HOPPER, 64, NOTHING }, /* 4 chunks */
        { 16, 1024, 0, true, SPLIT, 64, 0 },        /* 16 chunks */
        { 8, 1024, 1, true, HOPPER, 64, NOTHING },  /* 8 chunks of 16 pairs */
        { 7, 1024, 1, true, SPLIT, 64, 0 },         /* of fewer */
        { 2, 1024, 2, true, HOPPER, 64, NOTHING },  /* 4 x 4 chunks */
        { 2, 1024, 1, true, SPLIT, 64, 0 },         /* 2 x 8 chunks */
        { 12, 4096, 0, true, SPLIT, 64, 0 },        /* 64 chunks */
        { 21, 4096, 0, true, SPLIT, 64, 0 },
        { 22, 4096, 0, true, HOPPER, 128, STATES }, /* whose producers would find too few SMs */
        { 24, 2048, 0, true, HOPPER, 64, NOTHING },
        { 24, 1024, 0, true, HOPPER, 64, NOTHING },
        { 11, 4096, 0, true, HOPPER, 128, STATES },
        { 11, 2048, 0, true, SPLIT, 64, 0 },     /* 32 chunks */
        { 4, 2048, 0, true, SPLIT, 64, 0 },
        { 2, 4096, 1, true, SPLIT, 64, 0 },      /* 2 x 32 chunks */
        { 32, 2048, 0, true, HOPPER, 64, NOTHING },
        { 32, 4096, 0, true, HOPPER, 128, STATES },
        { 45, 4096, 0, true, HOPPER, 64, NOTHING }, /* of which two partitions would find an SM */
        { 45, 16384, 0, true, HOPPER, 128, STATES },
        { 58, 16384, 0, true, HOPPER, 128, STATES },
        { 59, 16384, 0, true, HOPPER, 64, NOTHING }, /* with fewer SMs left to deal out */
        { 59, 32768, 0, false, 0, 0, 0 },
        { 24, 8192, 1, true, HOPPER, 64, NOTHING },
        { 24, 32768, 1, true, HOPPER, 128, STATES },
        { 67, 4096, 0, false, 0, 0, 0 },
        { 16, 16384, 0, true, HOPPER, 128, STATES },
        { 8, 16384, 1, true, HOPPER, 128, STATES },
        { 16, 262144, 0, true, HOPPER, 128, STATES },
        { 16, 262144, 1, true, HOPPER, 128, STATES },
        { 32, 262144, 0, true, HOPPER, 128, STATES },
        { 33, 4096, 0, true, HOPPER, 128, STATES },
        { 44, 65536, 0, true, HOPPER, 128, STATES },
        { 44, 262144, 0, true, HOPPER, 128, STATES },
        { 16, 65536, 2, true, HOPPER, 64, NOTHING }, /* 4 x 16384, of many pairs */
        { 16, 262144, 2, true, HOPPER, 64, NOTHING },
        { 14, 262144, 2, true, HOPPER, 128, STATES }, /* 56 pairs */
        { 1, 4096, 2, true, SPLIT, 64, 0 }, /* 4 x 16 chunks */
    };
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        struct gdni_problem p = problem_of(wanted[i].heads);
        struct gdni_params params;
        cr_expect_eq(gdni_params_heuristic_few(&params, &p, arch, H200_SMS, gdni_bucket_of(wanted[i].tokens),
                                               wanted[i].seq_class),
                     wanted[i].own, "row %zu", i);
        if (wanted[i].own) {
            struct gdni_spec spec;
            cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK, "row %zu: %s", i, gdni_error_text());
            cr_expect(spec.kernel == wanted[i].kernel && params.block_dv == wanted[i].block_dv &&
                          params.carry == wanted[i].carry,
                      "row %zu: kernel %d in blocks of %d, carry %d", i, (int)spec.kernel, params.block_dv, params.carry);
        }
        p.generic = 1;
        cr_expect_eq(gdni_params_heuristic_few(&params, &p, arch, H200_SMS, gdni_bucket_of(wanted[i].tokens),
                                               wanted[i].seq_class),
                     wanted[i].tokens < 262144 && wanted[i].heads * gdni_seq_class_edge(wanted[i].seq_class) <= 24,
                     "row %zu: without Hopper's own kernel two kinds while the workspace is small enough and heads are few", i);
    }
}

/* ---- Workspaces ---- */

static const int32_t all_heads[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 34, 38, 48, 63, 64 };
enum { MOST_HEADS_CARRIED = 48 }; /* no kernel of more heads carries states */
static const int all_sms[] = { 1, 3, 78, 132 };
static const int32_t all_partitions[] = { 1, 2, 3, 4, 8, 16, 32, 64, 128 };

enum { MOST_SEQS = 64, MOST_TOKENS = 1 << 20 };

/* 1 to 2^20, each power of two and halfway to the next with its neighbours; ends at 0. */
static int64_t next_tokens(int64_t tokens)
{
    static const int offsets[] = { -1, 0, 1 };
    int64_t next = 0;
    for (int64_t power = 1; power <= MOST_TOKENS; power *= 2)
        for (int i = 0; i < 6; ++i) {
            const int64_t at = power + (i < 3 ? 0 : power / 2) + offsets[i % 3];
            if (at > tokens && at <= MOST_TOKENS && (next == 0 || at < next)) next = at;
        }
    return next;
}

struct sweep {
    const struct gdni_spec *spec;
    const struct gdni_problem *problem;
    int num_sms;
};

static struct gdni_workspace needs_of(const struct sweep *s, int64_t tokens, int64_t seqs)
{
    struct gdni_workspace w;
    gdni_workspace_of(&w, s->spec, s->problem, s->num_sms, tokens, seqs, 0);
    return w;
}

/* Every combination of parameters, heads and SMs. */
static void for_each(void (*check)(const struct sweep *s))
{
    enum { WHOLE_HEADS, HALVES, CARRYING, KINDS };
    static const int32_t block_dv[KINDS] = { 128, 64, 0 };
    for (size_t f = 0; f < KINDS * sizeof all_partitions / sizeof all_partitions[0]; ++f) {
        const struct gdni_spec spec = spec_of(GDNI_KERNEL_PREFILL_HOPPER, all_partitions[f / KINDS], block_dv[f % KINDS]);
        for (size_t h = 0; h < sizeof all_heads / sizeof all_heads[0]; ++h) {
            const struct gdni_problem p = problem_of(all_heads[h]);
            if (f % KINDS == CARRYING && p.num_heads > MOST_HEADS_CARRIED) continue;
            for (size_t m = 0; m < sizeof all_sms / sizeof all_sms[0]; ++m)
                check(&(struct sweep){ &spec, &p, all_sms[m] });
        }
    }
}

static int calls_cut, calls_that_carry, calls_cut_evenly;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* In even shares a partition's index is a CTA's number: a state and words for each. */
static void check_even_cut(const struct sweep *s, const struct gdni_workspace *w, int64_t tokens, int64_t seqs)
{
    const int64_t pairs = seqs * s->problem->num_heads, sms = s->num_sms;
    const bool good = gdni_spec_cuts_evenly(s->spec) && w->carry == GDNI_CARRY_NEVER && w->t_offset == 0 &&
                      seqs <= GDNI_MOST_CUT_EVENLY && pairs <= GDNI_EVEN_PAIRS_PER_SM * sms && sms % w->gang == 0 &&
                      s->problem->num_heads % w->gang == 0 && w->num_items == sms &&
                      w->control_words == (size_t)(64 + 4 * pairs + 8 * sms) && w->images_offset % 256 == 0 &&
                      w->images_offset >= 4 * w->control_words && w->images_offset + (size_t)sms * STATE_BYTES <= w->size;
    cr_expect(good, "%lld tokens of %lld, %d heads, %d SMs, partition_chunks %d: gang %d, %lld items, %zu words, %zu, %zu",
              (long long)tokens, (long long)seqs, s->problem->num_heads, s->num_sms, s->spec->params.partition_chunks, w->gang,
              (long long)w->num_items, w->control_words, w->images_offset, w->size);
}

static void check_cut(const struct sweep *s, int64_t tokens, int64_t seqs)
{
    const struct gdni_workspace w = needs_of(s, tokens, seqs);
    const int64_t block_dv = s->spec->params.block_dv, parts = s->problem->num_heads * (128 / block_dv);
    if (w.partition == 0) {
        cr_expect_eq(w.num_items, seqs * parts);
        const size_t words = 1 + (size_t)s->num_sms, states = (size_t)s->num_sms * 128 * 128 * 4;
        if (w.gang)
            cr_expect(w.control_words == words && w.images_offset % 256 == 0 && w.images_offset >= 4 * words &&
                      w.size >= w.images_offset + states && s->num_sms % w.gang == 0 && s->problem->num_heads % w.gang == 0 &&
                      s->spec->transit && w.num_items > s->num_sms && w.num_items <= 4 * s->num_sms && seqs <= 32);
        else
            cr_expect(w.control_words <= 1 && w.images_offset == 0 && w.size >= 4 * w.control_words);
        return;
    }
    ++calls_cut;
    calls_that_carry += w.carry != GDNI_CARRY_NEVER;
    if (w.gang) {
        ++calls_cut_evenly;
        check_even_cut(s, &w, tokens, seqs);
        return;
    }
    const int64_t most_rows = tokens / ((int64_t)w.partition * CHUNK) + seqs;
    const int64_t by_gates = w.carry == GDNI_CARRY_BY_GATES ? s->num_sms + seqs * parts : 0;
    const int64_t items = larger(w.num_items, by_gates), links = larger((most_rows - seqs) * parts, by_gates);
    const int64_t link_bytes = 128 * block_dv * 4 + (w.carry ? TRANSITION_BYTES : 0);
    const size_t links_end = w.images_offset + (size_t)(links * link_bytes);
    const bool good = w.num_items == most_rows * parts && w.num_items <= (int64_t)GDNI_ITEMS_PER_SM * s->num_sms &&
                      w.control_words == (size_t)(64 + 4 * seqs * parts + 8 * items) &&
                      w.images_offset % 256 == 0 && w.images_offset >= 4 * w.control_words &&
                      w.t_offset == (by_gates ? links_end : 0) && by_gates < 256 &&
                      links_end + (by_gates ? (size_t)s->num_sms * KEPT_BYTES : 0) <= w.size &&
                      w.partition * (int64_t)CHUNK < tokens;
    cr_expect(
        good,
        "%lld tokens of %lld, %lld parts, %d SMs, partition_chunks %d: %d chunks, %lld items, %zu words, %zu, %zu",
        (long long)tokens, (long long)seqs, (long long)parts, s->num_sms, s->spec->params.partition_chunks, w.partition,
        (long long)w.num_items, w.control_words, w.images_offset, w.size);
}

static void check_cuts(const struct sweep *s)
{
    for (int64_t tokens = 1; tokens; tokens = next_tokens(tokens))
        for (int64_t seqs = 1; seqs <= MOST_SEQS; ++seqs)
            check_cut(s, tokens, seqs);
}

Test(partition, items_words_and_states_of_every_cut_are_few_enough_and_inside_the_workspace)
{
    for_each(check_cuts);
    printf("%d calls are cut, of which %d carry, %d evenly\n", calls_cut, calls_that_carry, calls_cut_evenly);
    cr_expect(calls_cut > 10000 && calls_that_carry > 1000 && calls_cut_evenly > 1000, "%d, %d, %d", calls_cut,
              calls_that_carry, calls_cut_evenly);
}

/*
 * plan.c asks for the workspace of a bucket's largest call, or of the plan's, with as many sequences as the variant serves:
 * that must do for every call, of whichever bounds the plan was made.
 */
static void check_plans(const struct sweep *s)
{
    static const int64_t most_seqs[] = { 1, 2, 8, MOST_SEQS };
    for (int64_t tokens = 1; tokens; tokens = next_tokens(tokens))
        for (int64_t seqs = 1; seqs <= MOST_SEQS; ++seqs) {
            const size_t size = needs_of(s, tokens, seqs).size;
            const int64_t edge = gdni_bucket_edge(gdni_bucket_of(tokens));
            for (int i = 0; i < 4; ++i) {
                if (seqs > most_seqs[i]) continue;
                const size_t of_bucket = needs_of(s, edge, most_seqs[i]).size;
                const size_t of_bound = needs_of(s, tokens, most_seqs[i]).size;
                cr_assert(size <= of_bound && of_bound <= of_bucket,
                          "%lld tokens of %lld, %d heads, %d SMs, partition_chunks %d: %zu, %zu with the bounds, %zu "
                          "in the bucket",
                          (long long)tokens, (long long)seqs, s->problem->num_heads, s->num_sms,
                          s->spec->params.partition_chunks, size, of_bound, of_bucket);
            }
        }
}

Test(partition, no_call_needs_a_larger_workspace_than_its_plan_says)
{
    for_each(check_plans);
}

/* On so many SMs one sequence may carry, and what that wants is less than what a call that carries nothing does. */
Test(partition, a_plan_has_room_for_calls_that_carry_and_for_those_that_do_not)
{
    const struct gdni_spec spec = hopper(GDNI_PARTITION_MODEL);
    enum { SMS = 239, ITEMS = 5 * SMS, WORDS = 64 + 4 * (ITEMS / 16 * 16) + 8 * ITEMS };
    const struct gdni_problem p = problem_of(16);
    const struct sweep s = { &spec, &p, SMS };
    const struct gdni_workspace w = needs_of(&s, 164920, 1);
    const int64_t links = gdni_partition_links(&spec, &p, w.partition, 164920);
    cr_assert_gt(w.partition, 0);
    cr_expect_eq(w.carry, GDNI_CARRY_EQUAL);
    cr_expect(w.size >= WORDS * 4 + ITEMS * STATE_BYTES && w.size < WORDS * 4 + 1024 + ITEMS * STATE_BYTES, "%zu", w.size);
    cr_expect_leq(w.images_offset + (size_t)links * 128 * 128 * 4, w.size);
}

/*
 * Words; and 5 states of 64 KiB for each SM, or, where states are carried, 2 of them with transitions of 64.5, and T of 64
 * chunks, 8 KiB each, for each SM.
 */
Test(partition, the_workspace_of_cuts_does_not_grow_with_the_call)
{
    const struct gdni_spec spec = hopper(GDNI_PARTITION_MODEL);
    const struct gdni_problem p = problem_of(16);
    const struct sweep s = { &spec, &p, H200_SMS };
    const size_t size = needs_of(&s, 32768, 1).size;
    cr_expect_eq(needs_of(&s, 8 * CHUNK, 1).size, 0u, "nothing so short is cut");
    cr_expect_eq(needs_of(&s, 8 * CHUNK + 1, 1).size, size);
    cr_expect_eq(needs_of(&s, 1 << 20, 64).size, size);
    const size_t carried = 264u * (STATE_BYTES + TRANSITION_BYTES) + 132 * KEPT_BYTES;
    cr_expect(size > carried && size < carried + STATE_BYTES, "%zu", size);
    const struct gdni_problem many = problem_of(67);
    const size_t without = needs_of(&(struct sweep){ &spec, &many, H200_SMS }, 32768, 1).size;
    cr_expect(without > 660u * STATE_BYTES && without < 662u * STATE_BYTES, "%zu", without);
    cr_expect_eq(needs_of(&s, 8 * CHUNK + 1, 1).partition, 0, "it may be needed by another call of this size");
}

/* 2^31 - 1 tokens and sequences are the most that a plan takes; the device counts tokens, rows and items in 32 bits. */
Test(partition, the_largest_calls_overflow_nothing)
{
    enum { HEADS = 16 };
    static const int64_t most_seqs[] = { 1, 2, 64, INT32_MAX };
    static const int32_t partitions[] = { GDNI_PARTITION_MODEL, 128 };
    const struct gdni_problem p = problem_of(HEADS);
    for (int f = 0; f < 2; ++f)
        for (int i = 0; i < 4; ++i) {
            const struct gdni_spec spec = hopper(partitions[f]);
            const struct sweep s = { &spec, &p, H200_SMS };
            const struct gdni_workspace w = needs_of(&s, INT32_MAX, most_seqs[i]);
            const bool cut = partitions[f] == GDNI_PARTITION_MODEL && i < 2;
            cr_assert_eq(w.partition != 0, cut, "%lld sequences: %d chunks", (long long)most_seqs[i], w.partition);
            cr_expect_lt(w.partition, INT32_MAX / CHUNK);
            cr_expect_eq(w.num_items, HEADS * ((cut ? INT32_MAX / ((int64_t)w.partition * CHUNK) : 0) + most_seqs[i]));
        }
}
