/*
 * dump.c - what a plan consists of, as text: gdn_plan_dump(), and what a call costs: gdn_plan_cost().
 *
 * Must not know: devices. JSON is printed by strbuf: integers and strings only, so no locale and no rounding. No lock of its
 * own: programs are read through references that module.c hands out.
 */
#include <string.h>

#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "codegen/partition.h"
#include "codegen/unit.h"
#include "runtime/compile.h"
#include "runtime/context.h"
#include "runtime/known_code.h"
#include "runtime/plan.h"

/* One variant while it is printed. */
struct view {
    const gdn_plan *plan;
    int index;
    const struct gdni_spec *spec;
    const struct gdni_program *program;
    enum gdni_origin origin;
};

/* ---- JSON ---- */

static void json_target(struct gdni_strbuf *sb, const gdn_target *target)
{
    gdni_sb_str(sb, ", \"target\": {\"gpu_name\": ");
    gdni_sb_json_str(sb, target->gpu_name);
    gdni_sb_json_text(sb, "arch", target->arch);
    gdni_sb_json_int(sb, "num_sms", target->num_sms);
    gdni_sb_json_int(sb, "smem_per_block", target->smem_per_block);
    gdni_sb_json_int(sb, "l2_bytes", target->l2_bytes);
    gdni_sb_json_int(sb, "dram_gbps", target->dram_gbps);
    gdni_sb_json_int(sb, "tensor_tflops", target->tensor_tflops);
    gdni_sb_str(sb, "}");
}

enum { SERVES_NONE = -1, ANY_NUMBER = 0 };

/* Whether calls whose variant is `variant` run on this one: it is that, or what those of them take that are not cut. */
static bool serves(const struct view *v, int variant)
{
    return variant >= 0 && (variant == v->index || v->plan->whole_of_variant[variant] == v->index);
}

/* The most sequences of the calls that the variant serves in a bucket. */
static int64_t most_seqs(const struct view *v, int bucket)
{
    int64_t most = SERVES_NONE;
    if (serves(v, v->plan->variant_of_bucket[bucket])) return ANY_NUMBER;
    for (int c = 0; c < GDNI_NUM_SEQ_CLASSES; ++c)
        if (serves(v, v->plan->variant_of_few[bucket][c])) most = gdni_seq_class_edge(c);
    const int64_t uneven = gdni_partition_most_ranked(&v->plan->problem, gdni_plan_num_sms(v->plan));
    return serves(v, v->plan->variant_of_uneven[bucket]) && most < uneven ? uneven : most;
}

/*
 * Of each bucket that the variant serves, the most tokens that a call of this plan can have there, and then the most sequences,
 * 0 for any number.
 */
static void json_buckets(struct gdni_strbuf *sb, const struct view *v)
{
    struct gdni_strbuf seqs = { 0 };
    gdni_sb_str(sb, ", \"buckets\": [");
    for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket) {
        const int64_t edge = gdni_bucket_edge(bucket), bound = v->plan->problem.max_tokens, most = most_seqs(v, bucket);
        if (most == SERVES_NONE) continue;
        const char *const comma = seqs.len ? ", " : "";
        gdni_sb_str(sb, comma);
        gdni_sb_int(sb, edge < bound ? edge : bound);
        gdni_sb_str(&seqs, comma);
        gdni_sb_int(&seqs, most);
    }
    gdni_sb_fmt(sb, "], \"bucket_seqs\": [%s]", seqs.text ? seqs.text : "");
    sb->failed |= seqs.failed;
    gdni_sb_free(&seqs);
}

/* 10^9 bytes/s are 10^3 bytes/us; 10^12 FLOP/s are 10^6 FLOP/us. 0 when a peak is unknown. */
static double floor_us(const gdn_target *target, double bytes, double flops)
{
    if (target->dram_gbps <= 0 || target->tensor_tflops <= 0) return 0;
    const double moving = bytes / (target->dram_gbps * 1e3), computing = flops / (target->tensor_tflops * 1e6);
    return moving > computing ? moving : computing;
}

/* What the largest call of each bucket must move and compute, as one sequence; integers, so that no locale shows. */
static void json_calls(struct gdni_strbuf *sb, const struct view *v)
{
    const int64_t bound = v->plan->problem.max_tokens;
    const char *comma = "";
    gdni_sb_str(sb, ", \"calls\": [");
    for (int bucket = 0; bucket <= gdni_bucket_of(bound); ++bucket) {
        const int64_t edge = gdni_bucket_edge(bucket);
        const int64_t tokens = edge < bound ? edge : bound;
        const int few = gdni_plan_variant_of_few(v->plan, tokens, 1);
        if ((few >= 0 ? few : v->plan->variant_of_bucket[bucket]) != v->index) continue;
        double bytes = 0, flops = 0;
        gdni_problem_cost(&v->plan->problem, tokens, 1, &bytes, &flops);
        gdni_sb_str(sb, comma);
        gdni_sb_str(sb, "{\"tokens\": ");
        gdni_sb_int(sb, tokens);
        gdni_sb_json_int(sb, "num_seqs", 1);
        gdni_sb_json_int(sb, "bytes", (int64_t)bytes);
        gdni_sb_json_int(sb, "flops", (int64_t)flops);
        gdni_sb_json_int(sb, "floor_ns", (int64_t)(1e3 * floor_us(&v->plan->target, bytes, flops)));
        gdni_sb_str(sb, "}");
        comma = ", ";
    }
    gdni_sb_str(sb, "]");
}

/* kernel: which the choice runs on. */
static void print_choice(struct gdni_strbuf *sb, const struct gdni_choice *choice, struct gdni_slot slot,
                         enum gdni_kernel kernel)
{
    gdni_sb_str(sb, "{\"tokens\": ");
    gdni_sb_int(sb, gdni_tuning_tokens(slot.bucket));
    gdni_sb_json_int(sb, "seqs", gdni_tuning_seqs(slot.seq_class));
    gdni_sb_json_text(sb, "by", gdni_chosen_name(choice->by));
    if (choice->by != GDNI_CHOSEN_HEURISTIC) {
        gdni_sb_json_text(sb, "gpu", choice->gpu_name);
        gdni_sb_json_int(sb, "measured_tokens", gdni_tuning_tokens(choice->measured.bucket));
        gdni_sb_json_int(sb, "measured_seqs", gdni_tuning_seqs(choice->measured.seq_class));
        gdni_sb_str(sb, gdni_kernel_code_is(kernel, choice->code) ? ", \"stale\": false" : ", \"stale\": true");
    }
    gdni_sb_str(sb, "}");
}

/* The slot's choice when this variant serves it; else NULL. */
static const struct gdni_choice *choice_of(const struct view *v, struct gdni_slot slot)
{
    const gdn_plan *plan = v->plan;
    const bool any = slot.seq_class == GDNI_ANY_SEQS;
    const int variant =
        any ? plan->variant_of_bucket[slot.bucket] : plan->variant_of_few[slot.bucket][slot.seq_class];
    const bool follows = any && serves(v, plan->variant_of_uneven[slot.bucket]); /* from the bucket's */
    if (!serves(v, variant) && !follows) return NULL;
    return any ? &plan->choice_of_bucket[slot.bucket] : &plan->choice_of_few[slot.bucket][slot.seq_class];
}

/* What answered, by slots as tuning files have them; and, for people, each of those words once. */
static void json_chosen_by(struct gdni_strbuf *sb, const struct view *v)
{
    unsigned seen = 0;
    struct gdni_strbuf list = { 0 };
    for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket)
        for (int c = GDNI_ANY_SEQS; c < GDNI_NUM_SEQ_CLASSES; ++c) {
            const struct gdni_slot slot = { bucket, c };
            const struct gdni_choice *choice = choice_of(v, slot);
            if (!choice) continue;
            if (list.len) gdni_sb_str(&list, ", ");
            print_choice(&list, choice, slot, (enum gdni_kernel)v->spec->kernel);
            seen |= 1u << choice->by;
        }
    const char *comma = "";
    gdni_sb_str(sb, ", \"params_origin\": \"");
    for (int by = 0; by < GDNI_CHOSEN_NONE; ++by)
        if (seen & 1u << by) {
            gdni_sb_fmt(sb, "%s%s", comma, gdni_chosen_name((enum gdni_chosen_by)by));
            comma = ", ";
        }
    gdni_sb_fmt(sb, "\", \"chosen_by\": [%s]", list.text ? list.text : "");
    sb->failed |= list.failed;
    gdni_sb_free(&list);
}

static const char *origin_name(enum gdni_origin origin)
{
    static const char *const names[] = {
        [GDNI_FROM_MEMORY] = "memory",
        [GDNI_FROM_BUNDLE] = "bundle",
        [GDNI_FROM_DISK] = "disk",
        [GDNI_FROM_COMPILER] = "compiler",
    };
    return names[origin];
}

static gdn_status json_variant(struct gdni_strbuf *sb, const struct view *v)
{
    const struct gdni_facts *facts = &v->program->facts;
    gdni_sb_str(sb, v->index ? ",\n  {\"kernel\": " : "\n  {\"kernel\": ");
    gdni_sb_json_str(sb, v->program->entry);
    gdni_sb_json_text(sb, "arch", v->program->arch);
    const char *reason = "";
    gdni_kernel_choose(&v->plan->problem, v->plan->arch, &reason);
    if (gdni_kernel_info((enum gdni_kernel)v->spec->kernel)->has_producers)
        reason = "few (sequence, head) pairs: what needs no state is made by CTAs of their own, on SMs that had nothing to do";
    gdni_sb_json_text(sb, "kernel_reason", reason);
    if (v->plan->problem.op == GDNI_OP_PREFILL) {
        gdni_sb_json_text(sb, "partition_reason", gdni_partition_reason(v->spec, &v->plan->problem));
        gdni_sb_str(sb, v->spec->cuts ? ", \"cuts\": true" : ", \"cuts\": false");
    }
    gdni_sb_str(sb, ", \"params\": ");
    gdni_params_json(sb, &v->spec->params, v->spec->kernel);
    json_chosen_by(sb, v);
    json_buckets(sb, v);
    json_calls(sb, v);
    gdni_sb_json_int(sb, "registers", facts->registers);
    gdni_sb_json_int(sb, "spill_bytes", facts->spill_bytes);
    gdni_sb_json_int(sb, "local_bytes", facts->local_bytes);
    gdni_sb_json_int(sb, "static_smem", facts->static_smem);
    gdni_sb_json_int(sb, "dynamic_smem", v->spec->smem_bytes);
    gdni_sb_json_int(sb, "threads", v->spec->threads);
    gdni_sb_json_int(sb, "cubin_bytes", (int64_t)v->program->cubin_size);
    gdni_sb_json_text(sb, "origin", origin_name(v->origin));
    gdni_sb_json_int(sb, "compile_ms", facts->compile_ms);
    gdni_sb_json_text(sb, "compiler", facts->compiler);
    gdni_sb_json_text(sb, "options", v->program->options);
    gdni_sb_json_text(sb, "key", v->program->key_hex);
    gdni_sb_str(sb, "}");
    return GDN_OK;
}

/* ---- Texts of one variant ---- */

static void banner(struct gdni_strbuf *sb, const struct view *v)
{
    if (v->plan->num_variants == 1) return;
    gdni_sb_fmt(sb, "// ---- variant %d of %d: %s %s %s ----\n", v->index + 1, v->plan->num_variants, v->program->entry,
                v->program->arch, v->program->key_hex);
}

static gdn_status text_spec(struct gdni_strbuf *sb, const struct view *v)
{
    banner(sb, v);
    gdni_emit_spec(sb, v->spec);
    return GDN_OK;
}

static void source_file(struct gdni_strbuf *sb, const char *name, const char *text)
{
    gdni_sb_fmt(sb, "// ---- %s ----\n", name);
    gdni_sb_str(sb, text);
    gdni_sb_str(sb, "\n");
}

/* A unit's headers stand in the order in which the program includes them. */
static gdn_status text_source(struct gdni_strbuf *sb, const struct view *v)
{
    struct gdni_unit unit = { 0 };
    GDN_TRY(gdni_unit_build(&unit, v->spec));
    banner(sb, v);
    for (int i = 0; i < unit.num_files; ++i)
        source_file(sb, unit.files[i].name, unit.files[i].text);
    source_file(sb, unit.main_name, unit.main_text);
    gdni_unit_free(&unit);
    return GDN_OK;
}

static gdn_status text_key(struct gdni_strbuf *sb, const struct view *v)
{
    banner(sb, v);
    gdni_sb_str(sb, v->program->key_text);
    return GDN_OK;
}

/* What others made may end within a line, and the next banner begins one. */
static void add_lines(struct gdni_strbuf *sb, const char *text)
{
    const size_t len = strlen(text);
    gdni_sb_str(sb, text);
    if (len && text[len - 1] != '\n') gdni_sb_str(sb, "\n");
}

static gdn_status text_build_log(struct gdni_strbuf *sb, const struct view *v)
{
    banner(sb, v);
    add_lines(sb, v->program->build_log);
    return GDN_OK;
}

static gdn_status text_ptx(struct gdni_strbuf *sb, const struct view *v)
{
    struct gdni_unit unit = { 0 };
    char *ptx = NULL;
    GDN_TRY(gdni_unit_build(&unit, v->spec));
    const gdn_status status = gdni_compile_ptx(v->plan->ctx->nvrtc, &unit, &ptx);
    gdni_unit_free(&unit);
    if (status != GDN_OK) return status;
    banner(sb, v);
    add_lines(sb, ptx);
    gdni_free(ptx);
    return GDN_OK;
}

static gdn_status bytes_cubin(struct gdni_strbuf *sb, const struct view *v)
{
    if (v->index == 0) gdni_sb_bytes(sb, v->program->cubin, v->program->cubin_size);
    return GDN_OK;
}

/* ---- The dump ---- */

static const struct {
    gdn_dump_kind kind;
    gdn_status (*print)(struct gdni_strbuf *sb, const struct view *v);
} kinds[] = {
    { GDN_DUMP_JSON, json_variant }, { GDN_DUMP_SPEC, text_spec },           { GDN_DUMP_SOURCE, text_source },
    { GDN_DUMP_KEY, text_key },      { GDN_DUMP_BUILD_LOG, text_build_log }, { GDN_DUMP_PTX, text_ptx },
    { GDN_DUMP_CUBIN, bytes_cubin },
};
enum { NUM_KINDS = sizeof kinds / sizeof kinds[0] };

static int row_of_kind(gdn_dump_kind kind)
{
    for (int i = 0; i < NUM_KINDS; ++i)
        if (kinds[i].kind == kind) return i;
    return -1;
}

static gdn_status print_variants(struct gdni_strbuf *sb, const gdn_plan *plan, int row)
{
    for (int i = 0; i < plan->num_variants; ++i) {
        struct view v = { .plan = plan, .index = i, .spec = &plan->specs[i] };
        struct gdni_program *program = gdni_modules_program(plan->modules, i, &v.origin);
        v.program = program;
        const gdn_status status = kinds[row].print(sb, &v);
        gdni_program_release(program);
        if (status != GDN_OK) return status;
    }
    return GDN_OK;
}

static gdn_status print_plan(struct gdni_strbuf *sb, const gdn_plan *plan, int row)
{
    if (kinds[row].kind != GDN_DUMP_JSON) return print_variants(sb, plan, row);
    gdni_sb_str(sb, "{\"op\": ");
    gdni_sb_json_str(sb, gdni_op_name(plan->problem.op));
    json_target(sb, &plan->target);
    gdni_sb_str(sb, ", \"variants\": [");
    GDN_TRY(print_variants(sb, plan, row));
    gdni_sb_str(sb, "\n]}\n");
    return GDN_OK;
}

static gdn_status hand_over(const struct gdni_strbuf *sb, gdn_write_fn write, void *user)
{
    if (sb->failed) return GDN_FAIL(GDN_E_NOMEM, "out of memory while printing a plan");
    if (sb->len == 0) return GDN_OK;
    const gdn_status status = write(user, sb->text, sb->len);
    if (status == GDN_OK) return GDN_OK;
    return GDN_FAIL(status, "the write function of gdn_plan_dump() stopped it with %s", gdn_status_name(status));
}

gdn_status gdn_plan_dump(const gdn_plan *plan, gdn_dump_kind kind, gdn_write_fn write, void *user)
{
    struct gdni_strbuf sb = { 0 };
    const int row = row_of_kind(kind);
    if (!plan)
        return GDN_FAIL(GDN_E_INVALID, "plan is null: make one with gdn_plan_prefill() or gdn_plan_conv1d_qkv()");
    if (row < 0)
        return GDN_FAIL(GDN_E_INVALID, "kind is %d: must be one of GDN_DUMP_JSON to GDN_DUMP_CUBIN", (int)kind);
    if (!write) return GDN_FAIL(GDN_E_INVALID, "write is null: pass a function that takes the text");
    gdn_status status = print_plan(&sb, plan, row);
    if (status == GDN_OK) status = hand_over(&sb, write, user);
    gdni_sb_free(&sb);
    return status;
}

/* ---- Cost ---- */

gdn_status gdn_plan_cost(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs, gdn_cost *out)
{
    gdn_cost cost = GDN_COST_INIT;
    if (!plan)
        return GDN_FAIL(GDN_E_INVALID, "plan is null: make one with gdn_plan_prefill() or gdn_plan_conv1d_qkv()");
    if (num_tokens < 0 || num_seqs < 0)
        return GDN_FAIL(GDN_E_INVALID, "num_tokens is %lld, num_seqs is %lld: must not be negative",
                        (long long)num_tokens, (long long)num_seqs);
    GDN_TRY(GDNI_CHECK_OUT(gdn_cost, out));
    gdni_problem_cost(&plan->problem, num_tokens, num_seqs, &cost.bytes, &cost.flops);
    cost.floor_us = floor_us(&plan->target, cost.bytes, cost.flops);
    gdni_give_struct(out, &cost, sizeof cost);
    return GDN_OK;
}
