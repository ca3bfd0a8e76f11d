/*
 * test_cuts.c - how the Hopper kernel cuts a call's (sequence, head) pairs by what a sample says of their gates and keys:
 * gdn_hopper_cuts.cuh itself, compiled for the host with the kernel's other headers (cuts.cu), over calls that are drawn and
 * calls at the edges.
 *
 * An item without chunks is passed over and tells nobody anything, and what waits at the link behind it waits for ever: so no
 * partition may be empty. There are as many words for partitions as workspace.c counts, and their numbers have 8 bits.
 *
 * Divisions and roots are exact here, and approximate on a device.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "codegen/division.h"
#include "codegen/partition.h"
#include "cuts.h"
#include "host_gpu.h"
#include "rng.h"
#include "runtime/compile.h"
#include "specs.h"

enum { TEXT = 1 << 14 };

/* ---- The kernel ------------------------------------------------------------------------------------------------------ */

struct cutter {
    host_gpu_run run;
    unsigned shared_bytes;
};

static struct gdni_spec hopper_that_carries(void)
{
    struct gdni_problem problem;
    struct gdni_params params;
    struct gdni_spec spec;
    const struct gdni_arch *arch = NULL;
    gdn_prefill_desc desc = test_prefill_desc();
    desc.max_tokens = 1 << 20;
    cr_assert_eq(gdni_problem_from_prefill(&problem, &desc), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_initial(&params, GDNI_KERNEL_PREFILL_HOPPER);
    params.carry = GDNI_CARRY_STATES;
    cr_assert_eq(gdni_spec_build(&spec, &problem, arch, &params), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(spec.kernel, GDNI_KERNEL_PREFILL_HOPPER);
    return spec;
}

static void read_source(char text[TEXT])
{
    FILE *in = fopen(GDN_SOURCE_DIR "/tests/host_gpu/cuts.cu", "r");
    cr_assert(in);
    text[fread(text, 1, TEXT - 1, in)] = '\0';
    cr_assert(feof(in));
    fclose(in);
}

/* cuts.cu in the place of the kernel's own template, among the same headers. */
static struct cutter compiled(void)
{
    char text[TEXT];
    struct gdni_unit unit;
    struct gdni_compiled cubin;
    const struct gdni_spec spec = hopper_that_carries();
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(HOST_GPU_NVRTC, 0);
    read_source(text);
    cr_assert_eq(gdni_unit_build(&unit, &spec), GDN_OK, "%s", gdni_error_text());
    unit.entry = "cuts", unit.main_name = "cuts.cu", unit.main_text = text;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &cubin), GDN_OK, "%s", gdni_error_text());
    const struct cutter cutter = { host_gpu_open(cubin.cubin), (unsigned)spec.smem_bytes };
    cr_assert(cutter.run);
    gdni_compiled_free(&cubin);
    gdni_unit_free(&unit);
    gdni_nvrtc_destroy(nvrtc);
    return cutter;
}

/* ---- What every cut has to be ---------------------------------------------------------------------------------------- */

static void check_pair(const struct cut_case *c, int n, int num_sms)
{
    const int first = c->pair[n].base, count = c->pair[n].count, *begin = &c->begin[first + n];
    const int chunks = (int)c->sampled[n].chunks;
    cr_assert_geq(count, 1, "pair %d of %d, %d SMs: no partition", n, c->num_pairs, num_sms);
    cr_assert_eq(begin[0], 0);
    cr_assert_eq(begin[count], chunks, "pair %d of %d, %d SMs: %d partitions end at %d of %d chunks", n, c->num_pairs,
                 num_sms, count, begin[count], chunks);
    for (int i = 0; i < count; ++i) {
        cr_assert(begin[i] < begin[i + 1] || (chunks == 0 && count == 1),
                  "pair %d of %d, %d SMs, of %d chunks, by gates %g, by keys %g: partition %d of %d is %d to %d", n,
                  c->num_pairs, num_sms, chunks, (double)c->sampled[n].by_gates, (double)c->sampled[n].by_keys, i, count,
                  begin[i], begin[i + 1]);
        cr_assert_eq(c->owner[first + i], n, "%d SMs: number %d is of pair %d, and is taken for one of %d", num_sms,
                     first + i, n, c->owner[first + i]);
    }
}

/* Whether it is cut at all. */
static bool check_case(const struct cut_case *c, int num_sms)
{
    int sum = 0;
    cr_assert(c->num_partitions > 0 || c->num_whole == 0, "%d SMs: those that stay whole are nobody's", num_sms);
    if (c->num_partitions == 0) return false;
    for (int n = 0; n < c->num_pairs; ++n) {
        cr_assert_eq(c->pair[n].base, sum, "pair %d begins at %d, and %d are before it", n, c->pair[n].base, sum);
        sum += c->pair[n].count;
        cr_assert_leq(sum, num_sms + c->num_pairs, "%d pairs, %d SMs: more partitions than words for them", c->num_pairs,
                      num_sms);
        check_pair(c, n, num_sms);
    }
    cr_assert_eq(c->num_partitions, sum);
    cr_assert_eq(c->num_items, sum + c->num_whole);
    for (int i = sum; i < c->num_items; ++i)
        cr_assert_eq(c->owner[i] - c->num_pairs, i - sum, "%d SMs: item %d behind %d is taken for pair %d", num_sms, i, sum,
                     c->owner[i]);
    return true;
}

/* How many of the cases are cut. */
static int check_cases(const struct cutter *cutter, struct cut_case *cases, int count, int num_sms)
{
    int num_cut = 0;
    const struct gdni_division one = gdni_division(1);
    const struct cuts_params params = { count, one.magic, one.shift, cases };
    const struct host_gpu_launch launch = { (unsigned)num_sms, CUT_LANES, cutter->shared_bytes, 2, 1, &params, 0 };
    cr_assert_str_eq(cutter->run(&launch), "");
    for (int i = 0; i < count; ++i) num_cut += check_case(&cases[i], num_sms);
    return num_cut;
}

/* ---- Calls ----------------------------------------------------------------------------------------------------------- */

/* The fewest SMs are those of a small part of a GPU; the most are as many as partitions may have numbers. */
static const int sms[] = { 20, 48, 78, 108, 114, 132, 144, GDNI_CUT_PARTITIONS - GDNI_CUT_PAIRS };
enum { NUM_SMS = sizeof sms / sizeof sms[0] };

enum kind { CARRIED, DECAYS, FORGETS, NUM_KINDS };

static int most_pairs(int num_sms)
{
    const struct gdni_problem one_head = { .num_heads = 1 };
    return (int)gdni_partition_most_by_gates(&one_head, num_sms);
}

/* A pair of so many chunks, of which it replays `replayed` if it is not carried; to forget it must have more. */
static void set_pair(struct cut_case *c, int n, int chunks, enum kind kind, float replayed)
{
    c->sampled[n].chunks = (float)chunks;
    c->sampled[n].by_gates = kind == DECAYS ? replayed : -1.0f;
    c->sampled[n].by_keys = kind == FORGETS && (float)chunks > replayed ? replayed : 0.0f;
}

static int draw_chunks(struct rng *rng, int longest)
{
    if (rng_below(rng, 8) == 0) return 0;
    return 1 + rng_below(rng, longest) + (rng_below(rng, 3) ? longest : 0);
}

/* Half of the calls have pairs of one length, as heads of a sequence have; where no word is left others stay whole. */
static void draw_case(struct cut_case *c, struct rng *rng, int num_sms)
{
    const int longest = 1 << rng_below(rng, 15), alike = rng_below(rng, 2) ? 1 + draw_chunks(rng, longest) : 0;
    memset(c, 0, sizeof *c);
    c->num_pairs = rng_below(rng, 3) ? 1 + rng_below(rng, most_pairs(num_sms)) : most_pairs(num_sms);
    if (c->num_pairs == most_pairs(num_sms)) c->num_whole = rng_below(rng, 1 + CUT_SEQUENCES - c->num_pairs);
    c->whole_tokens = rng_below(rng, 4096);
    for (int n = 0; n < c->num_pairs; ++n) {
        const int chunks = alike ? alike : draw_chunks(rng, longest);
        const double most = rng_below(rng, 2) ? 8 : 2.0 * (1 + rng_below(rng, chunks > 0 ? chunks : 1));
        const enum kind kind = (enum kind)rng_below(rng, NUM_KINDS);
        set_pair(c, n, chunks, kind, (float)(0.8 * (kind == FORGETS ? 13 + rng_below(rng, 60) : rng_between(rng, 0, most))));
    }
}

static struct cut_case *must_alloc(int count)
{
    struct cut_case *cases = calloc((size_t)count, sizeof *cases);
    cr_assert(cases);
    return cases;
}

Test(cuts, partitions_of_any_call_are_not_empty_and_cover_it_in_order, .timeout = 60)
{
    enum { CASES = 400 };
    const struct cutter cutter = compiled();
    struct cut_case *cases = must_alloc(CASES);
    struct rng rng;
    int num_cut = 0;
    rng_seed(&rng, 20261128);
    for (int i = 0; i < NUM_SMS; ++i) {
        for (int j = 0; j < CASES; ++j) draw_case(&cases[j], &rng, sms[i]);
        num_cut += check_cases(&cutter, cases, CASES, sms[i]);
    }
    cr_assert_gt(num_cut, NUM_SMS * CASES / 2);
    free(cases);
}

/* CTAs that a call takes: of a pair that is carried the first one has its last partition too. */
static int taken_ctas(const struct cut_case *c)
{
    int taken = 0;
    for (int n = 0; n < c->num_pairs; ++n) {
        const bool carried = c->sampled[n].by_gates < 0 && !(c->sampled[n].by_keys > 0);
        taken += c->pair[n].count - (carried && c->pair[n].count > 1);
    }
    return taken;
}

/* Of long ones each pair is worth as many SMs as there are for it: one less of each does not pay, nor 5 % less of all. */
Test(cuts, long_calls_take_all_sms_and_no_more, .timeout = 60)
{
    enum { LONG = 16384 };
    const struct cutter cutter = compiled();
    struct cut_case *cases = must_alloc(GDNI_CUT_PAIRS * 2);
    for (int i = 0; i < NUM_SMS; ++i) {
        int count = 0;
        for (int pairs = 1; pairs <= most_pairs(sms[i]); ++pairs)
            for (int forgets = 0; forgets < 2; ++forgets, ++count) {
                memset(&cases[count], 0, sizeof cases[count]);
                cases[count].num_pairs = pairs;
                for (int n = 0; n < pairs; ++n) set_pair(&cases[count], n, LONG, forgets ? FORGETS : CARRIED, 0.8f * 13);
            }
        cr_assert_eq(check_cases(&cutter, cases, count, sms[i]), count);
        for (int j = 0; j < count; ++j) {
            const int taken = taken_ctas(&cases[j]), pairs = cases[j].num_pairs;
            cr_expect(taken <= sms[i] && taken > 0.95 * sms[i] - pairs, "%d pairs, %s, take %d of %d SMs", pairs,
                      j % 2 ? "forget" : "carried", taken, sms[i]);
        }
    }
    free(cases);
}

/* Of pairs that all decay SMs are dealt out where some are much longer than others, and these then have the more of them. */
Test(cuts, decaying_pairs_are_dealt_out_where_one_is_much_longer, .timeout = 60)
{
    enum { SHORT = 10, LONG = 100, PAIRS = 8, NUM_SHARES = 4 };
    static const int long_ones[NUM_SHARES] = { 0, 1, 4, PAIRS };
    const struct cutter cutter = compiled();
    for (int i = 0; i < NUM_SMS; ++i) {
        struct cut_case cases[NUM_SHARES] = { 0 };
        if (most_pairs(sms[i]) < PAIRS) continue;
        for (int j = 0; j < NUM_SHARES; ++j) {
            cases[j].num_pairs = PAIRS;
            for (int n = 0; n < PAIRS; ++n) set_pair(&cases[j], n, n < long_ones[j] ? LONG : SHORT, DECAYS, 3.2f);
        }
        check_cases(&cutter, cases, NUM_SHARES, sms[i]);
        cr_expect(cases[0].num_partitions == 0 && cases[3].num_partitions == 0, "%d SMs: alike, of one length", sms[i]);
        for (int j = 1; j < 3; ++j) {
            const int first = cases[j].pair[0].count, last = cases[j].pair[PAIRS - 1].count;
            cr_expect(first > 2 * last && taken_ctas(&cases[j]) <= sms[i], "%d SMs, %d long: %d and %d partitions, %d CTAs",
                      sms[i], long_ones[j], first, last, taken_ctas(&cases[j]));
        }
    }
}

/* Of one kind and length each, alone and as many as there may be, at and beside every length up to which few partitions fit. */
Test(cuts, partitions_of_short_calls_are_not_empty_and_cover_them_in_order, .timeout = 60)
{
    enum { LONGEST = 80, CASES = LONGEST * NUM_KINDS * 2 };
    const struct cutter cutter = compiled();
    struct cut_case *cases = must_alloc(CASES);
    int num_cut = 0;
    for (int i = 0; i < NUM_SMS; ++i) {
        int count = 0;
        for (int chunks = 1; chunks <= LONGEST; ++chunks)
            for (int kind = 0; kind < NUM_KINDS; ++kind)
                for (int many = 0; many < 2; ++many, ++count) {
                    cases[count].num_pairs = many ? most_pairs(sms[i]) : 1;
                    for (int n = 0; n < cases[count].num_pairs; ++n)
                        set_pair(&cases[count], n, chunks, (enum kind)kind, 0.8f * 13);
                }
        num_cut += check_cases(&cutter, cases, count, sms[i]);
    }
    cr_assert_gt(num_cut, NUM_SMS * CASES / 4);
    free(cases);
}
