/*
 * tune_jobs.c - owns the list of what is to be tuned. Must not know: processes, journals, printing. What it knows of the
 * library's slots and kernels tests/cli/test_cli_rules.c holds against the library.
 */
#include "cli/tune_jobs.h"

#include <stdio.h>
#include <string.h>

/* The largest call of a slot, and so what entries of a tuning file say of it. */
enum { BEYOND = 1 << 22, MOST_FEW = 64 };

static int64_t bucket_edge(int64_t tokens)
{
    static const int64_t edges[] = { 256, 1024, 2048, 4096, 16384, 65536, 262144, 1048576 };
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; ++i)
        if (tokens <= edges[i]) return edges[i];
    return BEYOND;
}

/* Conv has no classes of sequences; 0 is any number. */
static int64_t class_edge(const struct cli_tune_job *job)
{
    if (job->shape->op == CLI_CONV1D || job->seqs > MOST_FEW) return 0;
    int64_t edge = 1;
    while (edge < job->seqs)
        edge *= 2;
    return edge;
}

/* What a tuning key has of a descriptor. */
struct facts {
    const char *op;
    int io, dk, dv, q, k, v, l2norm, width;
    int hopper, generic; /* where there is a Hopper kernel it serves this; but another one was asked for */
};

static struct facts facts_of(const struct cli_shape *s)
{
    const gdn_prefill_desc *p = &s->desc.prefill;
    const gdn_conv1d_desc *c = &s->desc.conv1d;
    const bool l2norm = p->flags & GDN_PREFILL_QK_L2NORM;
    /* As docs/prefill_hopper.md has it. Where its kernel does not serve, the flag changes nothing. */
    const bool hopper = p->head_dim_qk == 128 && p->head_dim_v == 128;
    const bool generic = hopper && s->plan_flags & GDN_PLAN_GENERIC;
    if (s->op == CLI_PREFILL)
        return (struct facts){ "gdn_prefill",  (int)p->io_type, p->head_dim_qk,
                               p->head_dim_v,  p->num_q_heads,  p->num_k_heads,
                               p->num_v_heads, l2norm,          0,
                               hopper,         generic };
    return (struct facts){ "conv1d_qkv",
                           (int)c->io_type,
                           c->head_dim_qk,
                           c->head_dim_v,
                           c->num_q_heads,
                           c->num_k_heads,
                           c->num_v_heads,
                           (c->flags & GDN_CONV_L2_NORM) != 0,
                           c->width,
                           0,
                           0 };
}

static int divisor(int a, int b)
{
    return b ? divisor(b, a % b) : a;
}

static const char *io_name(int io)
{
    return io == GDN_F32 ? "fp32" : cli_word_name(cli_io_type_words, io);
}

static void write_names(struct cli_tune_job *job)
{
    const struct facts f = facts_of(job->shape);
    const int d = divisor(divisor(f.q, f.k), f.v);
    char features[48];
    snprintf(features, sizeof features, "%s%s", f.l2norm ? " l2norm" : "", f.generic ? " generic" : "");
    if (f.width) snprintf(features + strlen(features), sizeof features - strlen(features), " width %d", f.width);
    snprintf(job->code, sizeof job->code, "%s %s dims %d/%d heads %d/%d/%d%s", f.op, io_name(f.io), f.dk, f.dv,
             f.q / (d ? d : 1), f.k / (d ? d : 1), f.v / (d ? d : 1), features);
    snprintf(job->problem, sizeof job->problem, "%s %s dims %d/%d heads %d/%d/%d%s", f.op, io_name(f.io), f.dk, f.dv, f.q,
             f.k, f.v, features);
    snprintf(job->name, sizeof job->name, "%s, up to %lld tokens, %lld seqs", job->problem,
             (long long)bucket_edge(job->tokens), (long long)class_edge(job));
}

static bool is_known(const struct cli_tune_jobs *jobs, const char *name)
{
    for (size_t i = 0; i < jobs->count; ++i)
        if (strcmp(jobs->items[i].name, name) == 0) return true;
    return false;
}

/* A call has at least a chunk of tokens a sequence, or one sequence: shorter ones are decode, not prefill. */
static bool is_sensible(const struct cli_shape *s, int64_t tokens, int64_t seqs)
{
    enum { CHUNK = 64 };
    const int64_t most_tokens = s->op == CLI_PREFILL ? s->desc.prefill.max_tokens : s->desc.conv1d.max_tokens;
    const int64_t most_seqs = s->op == CLI_PREFILL ? s->desc.prefill.max_seqs : s->desc.conv1d.max_seqs;
    return tokens <= most_tokens && seqs <= most_seqs && (seqs == 1 || tokens >= seqs * CHUNK);
}

static void add_job(struct cli_tune_jobs *jobs, const struct cli_shape *shape, int64_t tokens, int64_t seqs)
{
    struct cli_tune_job job = { .shape = shape, .tokens = tokens, .seqs = seqs, .result = GDN_TUNE_RESULT_INIT };
    if (!is_sensible(shape, tokens, seqs)) return;
    write_names(&job);
    if (is_known(jobs, job.name)) return;
    jobs->items = cli_realloc(jobs->items, (jobs->count + 1) * sizeof *jobs->items);
    jobs->items[jobs->count++] = job;
}

int cli_tune_jobs_find(const struct cli_options *o, struct cli_tune_jobs *out)
{
    static const struct cli_sizes usual_tokens = { 6, { 128, 512, 2048, 4096, 8192, 32768 } };
    static const struct cli_sizes usual_seqs = { 4, { 1, 4, 16, 128 } }, one = { 1, { 1 } };
    const struct cli_sizes *tokens = o->tune_tokens.count ? &o->tune_tokens : &usual_tokens;
    const struct cli_sizes *all = o->tune_seqs.count ? &o->tune_seqs : &usual_seqs;
    CLI_TRY(cli_resolve_shapes(o, &out->shapes));
    for (size_t i = 0; i < out->shapes.count; ++i) {
        const struct cli_shape *s = &out->shapes.items[i];
        const struct cli_sizes *seqs = s->op == CLI_CONV1D ? &one : all;
        for (int t = 0; t < tokens->count; ++t)
            for (int n = 0; n < seqs->count; ++n)
                add_job(out, s, tokens->values[t], seqs->values[n]);
    }
    if (out->count) return CLI_OK;
    return cli_fail(CLI_USAGE, "--tokens and --seqs leave nothing to tune: calls have at least 64 tokens a sequence, "
                               "and no more than the shapes' max_tokens and max_seqs");
}

void cli_tune_jobs_free(struct cli_tune_jobs *jobs)
{
    for (size_t i = 0; i < jobs->count; ++i) {
        cli_free(jobs->items[i].message);
        cli_free(jobs->items[i].candidates);
    }
    cli_free(jobs->items);
    cli_shapes_free(&jobs->shapes);
}

gdn_status cli_tune_run(gdn_ctx *ctx, const struct cli_tune_job *job, const struct cli_options *o,
                        const gdn_tune_options *options, gdn_tune_result *out)
{
    gdn_tune_options full = *options;
    full.device = (int32_t)o->device;
    full.timeout_ms = o->timeout_s * 1000;
    full.plan_flags = job->shape->plan_flags & GDN_PLAN_GENERIC;
    full.num_tokens = job->tokens;
    full.num_seqs = job->seqs;
    *out = (gdn_tune_result)GDN_TUNE_RESULT_INIT;
    if (job->shape->op == CLI_PREFILL) return gdn_tune_prefill(ctx, &job->shape->desc.prefill, &full, out);
    return gdn_tune_conv1d_qkv(ctx, &job->shape->desc.conv1d, &full, out);
}

bool cli_tune_matches(const struct cli_tune_job *job, const gdn_target *target, const gdn_tuning_entry *e)
{
    const struct facts f = facts_of(job->shape);
    const bool conv = strcmp(e->kernel, "conv1d_qkv") == 0, hopper = strcmp(e->kernel, "gdn_prefill_hopper") == 0;
    const bool wants_hopper = f.hopper && !f.generic && strcmp(target->arch, "sm_90a") == 0;
    return strcmp(e->gpu_name, target->gpu_name) == 0 && e->num_sms == target->num_sms &&
           conv == (job->shape->op == CLI_CONV1D) && (conv || hopper == wants_hopper) && (int)e->io_type == f.io &&
           e->head_dim_qk == f.dk && e->head_dim_v == f.dv && e->num_q_heads == f.q && e->num_k_heads == f.k &&
           e->num_v_heads == f.v && e->l2norm == f.l2norm && e->width == f.width &&
           e->tokens == bucket_edge(job->tokens) && e->seqs == class_edge(job);
}

void cli_tune_note_held(struct cli_tune_jobs *jobs, const gdn_target *target, const gdn_tuning_entry *e)
{
    for (size_t i = 0; i < jobs->count; ++i)
        if (cli_tune_matches(&jobs->items[i], target, e)) jobs->items[i].held = e->stale ? CLI_HELD_STALE : CLI_HELD;
}

struct cli_candidate *cli_tune_candidate(struct cli_tune_job *job, const char *params)
{
    for (size_t i = 0; i < job->count; ++i)
        if (strcmp(job->candidates[i].params, params) == 0) return &job->candidates[i];
    return NULL;
}

const char *cli_tune_size(char out[CLI_SHORT], const struct cli_tune_job *job)
{
    snprintf(out, CLI_SHORT, "%lld x %lld", (long long)job->tokens, (long long)job->seqs);
    return out;
}
