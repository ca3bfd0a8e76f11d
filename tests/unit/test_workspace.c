/*
 * A plan's workspace is enough for each of its calls: gdn_plan_workspace_size() looks at the largest call of each bucket, and
 * execute does not look again. Plans of drawn heads, bounds, flags and SM counts; calls of drawn sizes and of those beside
 * every bucket's edge, in each variant that may run them.
 */
#include <criterion/criterion.h>

#include "codegen/workspace.h"
#include "runtime/plan.h"
#include "support/fake_host.h"
#include "support/rng.h"

enum { PLANS = 400, CALLS = 300, SEED = 1 };

static struct fake_host host;

/* A number up to `most`, of any size. */
static int64_t draw(struct rng *rng, int64_t most)
{
    int64_t limit = most;
    for (int halve = rng_below(rng, 12); halve > 0 && limit > 1; --halve)
        limit /= 2;
    return 1 + (int64_t)(rng_uniform(rng) * (double)limit);
}

static gdn_plan *draw_plan(struct rng *rng)
{
    static const int32_t heads[][2] = { { 1, 1 },   { 2, 4 },   { 4, 8 },   { 8, 8 },   { 4, 16 },
                                        { 16, 16 }, { 7, 21 },  { 16, 32 }, { 8, 40 },  { 16, 48 },
                                        { 16, 64 }, { 33, 33 }, { 64, 64 }, { 20, 40 }, { 128, 128 } };
    static const uint32_t flags[] = { 0, 0, 0, GDN_PLAN_WHOLE_SEQUENCES, GDN_PLAN_GENERIC, GDN_PLAN_BATCH_INVARIANT };
    static const int32_t sms[] = { 132, 132, 114, 78, 144, 3 };
    const int pick = rng_below(rng, (int)(sizeof heads / sizeof heads[0]));
    gdn_prefill_desc d = fake_prefill_desc();
    gdn_target target = fake_h200(host.ctx);
    gdn_plan *plan = NULL;
    d.num_q_heads = d.num_k_heads = heads[pick][0], d.num_v_heads = heads[pick][1];
    d.io_type = rng_below(rng, 2) ? GDN_F16 : GDN_BF16;
    if (rng_below(rng, 4) == 0) d.head_dim_qk = d.head_dim_v = 64;
    if (rng_below(rng, 4) == 0) d.state_type = d.io_type;
    d.max_tokens = draw(rng, 1 << 18), d.max_seqs = draw(rng, 4096);
    target.num_sms = sms[rng_below(rng, (int)(sizeof sms / sizeof sms[0]))];
    const uint32_t of_plan = flags[rng_below(rng, (int)(sizeof flags / sizeof flags[0]))];
    const gdn_status status = gdn_plan_prefill(host.ctx, &target, &d, of_plan, &plan);
    cr_assert(status == GDN_OK || status == GDN_E_UNSUPPORTED, "%s", gdn_last_error()); /* of bounds that need too much */
    return plan;
}

static void expect_room(const gdn_plan *plan, int variant, int64_t tokens, int64_t seqs)
{
    struct gdni_workspace needs;
    const struct gdni_problem *p = &plan->problem;
    gdni_workspace_of(&needs, &plan->specs[variant], p, gdni_plan_num_sms(plan), tokens, seqs, 0);
    cr_expect_leq(needs.size, plan->workspace_size,
                  "seed %d: %d heads, dims %d, %d SMs, whole %d, invariant %d, generic %d, bounds %lld and %lld: a call of "
                  "%lld tokens and %lld sequences needs %zu bytes in variant %d, and %zu are asked for",
                  SEED, p->num_heads, p->head_dim_v, gdni_plan_num_sms(plan), p->whole_sequences, p->batch_invariant,
                  p->generic, (long long)p->max_tokens, (long long)p->max_seqs, (long long)tokens, (long long)seqs,
                  needs.size, variant, plan->workspace_size);
}

/* Of what may run it: by its bucket, by its number of sequences, and either without the code that cuts. */
static void expect_room_for(const gdn_plan *plan, int64_t tokens, int64_t seqs)
{
    if (tokens < 1 || tokens > plan->problem.max_tokens || seqs < 1 || seqs > plan->problem.max_seqs) return;
    const int few = gdni_plan_variant_of_few(plan, tokens, seqs);
    const int usual = plan->variant_of_bucket[gdni_bucket_of(tokens)];
    const int variant = few >= 0 ? few : usual;
    expect_room(plan, variant, tokens, seqs);
    expect_room(plan, plan->whole_of_variant[variant], tokens, seqs);
}

Test(workspace, every_call_of_a_plan_has_room_in_what_the_plan_asks_for)
{
    struct rng rng;
    int plans = 0;
    rng_seed(&rng, SEED);
    fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, NULL, GDN_FAKE_NVRTC_PATH, 0);
    for (int i = 0; i < PLANS; ++i) {
        gdn_plan *plan = draw_plan(&rng);
        if (!plan) continue;
        ++plans;
        for (int j = 0; j < CALLS; ++j)
            expect_room_for(plan, draw(&rng, plan->problem.max_tokens), draw(&rng, plan->problem.max_seqs));
        for (int bucket = 0; gdni_bucket_edge(bucket) < plan->problem.max_tokens; ++bucket) /* the last one has no edge */
            for (int64_t off = -1; off <= 1; ++off)
                expect_room_for(plan, gdni_bucket_edge(bucket) + off, draw(&rng, plan->problem.max_seqs));
        gdn_plan_destroy(plan);
    }
    cr_expect_geq(plans, PLANS / 2, "of %d bounds %d were plans'", PLANS, plans);
    fake_host_close(&host);
    cr_expect(fake_no_leaks());
}
