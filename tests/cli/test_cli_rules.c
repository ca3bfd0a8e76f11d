/*
 * test_cli_rules.c - rules of the library that the tool knows by itself, since it sees the public header only, are the
 * library's: which entry of a tuning file is a job's, which folders of a cache directory are believed, and what a recorded
 * plan says of its descriptor.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/cache_folders.h"
#include "cli/diagnose.h"
#include "cli/json.h"
#include "cli/tune_jobs.h"
#include "codegen/arch.h"
#include "codegen/params.h"
#include "codegen/shape.h"
#include "codegen/spec.h"
#include "runtime/cache_dir.h"
#include "runtime/tuning_db.h"

/* ---- Entries of a tuning file ---- */

static const gdn_target *target_of(const struct gdni_arch *arch)
{
    static gdn_target target;
    target = (gdn_target)GDN_TARGET_INIT;
    cr_assert_eq(gdni_target_from_name(arch->name, &target), GDN_OK, "%s", gdn_last_error());
    return &target;
}

/* As gdn_tuning_list() tells of it. */
static gdn_tuning_entry entry_of(const struct gdni_tuning_key *key, const gdn_target *target)
{
    return (gdn_tuning_entry){ .struct_size = sizeof(gdn_tuning_entry),
                               .arch = target->arch,
                               .gpu_name = target->gpu_name,
                               .kernel = gdni_kernel_info((enum gdni_kernel)key->kernel)->name,
                               .num_sms = target->num_sms,
                               .io_type = (gdn_dtype)key->io_type,
                               .head_dim_qk = key->head_dim_qk,
                               .head_dim_v = key->head_dim_v,
                               .num_q_heads = key->num_q_heads,
                               .num_k_heads = key->num_k_heads,
                               .num_v_heads = key->num_v_heads,
                               .l2norm = key->l2norm,
                               .width = key->width,
                               .tokens = gdni_tuning_tokens(key->slot.bucket),
                               .seqs = gdni_tuning_seqs(key->slot.seq_class) };
}

static struct cli_shape prefill_shape(int dk, int dv, uint32_t flags, uint32_t plan_flags)
{
    struct cli_shape s = { .op = CLI_PREFILL, .plan_flags = plan_flags, .desc.prefill = GDN_PREFILL_DESC_INIT };
    gdn_prefill_desc *d = &s.desc.prefill;
    d->num_q_heads = d->num_k_heads = 4;
    d->num_v_heads = 8;
    d->head_dim_qk = dk;
    d->head_dim_v = dv;
    d->flags = flags;
    d->max_tokens = INT32_MAX;
    d->max_seqs = 1024;
    return s;
}

static struct cli_shape conv_shape(int width, uint32_t flags)
{
    struct cli_shape s = { .op = CLI_CONV1D, .desc.conv1d = GDN_CONV1D_DESC_INIT };
    gdn_conv1d_desc *d = &s.desc.conv1d;
    d->num_q_heads = d->num_k_heads = 4;
    d->num_v_heads = 8;
    d->head_dim_qk = d->head_dim_v = 128;
    d->width = width;
    d->flags = flags;
    d->max_tokens = INT32_MAX;
    d->max_seqs = 1024;
    return s;
}

static struct gdni_problem problem_of(const struct cli_shape *s)
{
    struct gdni_problem p;
    const gdn_status status = s->op == CLI_PREFILL ? gdni_problem_from_prefill(&p, &s->desc.prefill)
                                                   : gdni_problem_from_conv1d(&p, &s->desc.conv1d);
    cr_assert_eq(status, GDN_OK, "%s", gdn_last_error());
    p.generic = (s->plan_flags & GDN_PLAN_GENERIC) != 0;
    return p;
}

/* Of all slots the job's is the one that a tuning of its call decides. */
static void check_slots(const struct cli_shape *shape, const struct gdni_arch *arch, int64_t tokens, int64_t seqs)
{
    const struct cli_tune_job job = { .shape = shape, .tokens = tokens, .seqs = seqs };
    const struct gdni_problem problem = problem_of(shape);
    const gdn_target *target = target_of(arch);
    const int seq_class = gdni_seq_class_of(seqs);
    const bool few = shape->op == CLI_PREFILL && seq_class < GDNI_NUM_SEQ_CLASSES;
    const struct gdni_slot own = { gdni_bucket_of(tokens), few ? seq_class : GDNI_ANY_SEQS };
    for (struct gdni_slot slot = { 0, 0 }; slot.bucket < GDNI_NUM_BUCKETS; ++slot.bucket)
        for (slot.seq_class = GDNI_ANY_SEQS; slot.seq_class < GDNI_NUM_SEQ_CLASSES; ++slot.seq_class) {
            struct gdni_tuning_key key;
            gdni_tuning_key_of(&key, &problem, arch, slot);
            const gdn_tuning_entry entry = entry_of(&key, target);
            cr_expect_eq(cli_tune_matches(&job, target, &entry),
                         slot.bucket == own.bucket && slot.seq_class == own.seq_class,
                         "%lld tokens of %lld sequences, an entry of up to %lld and %lld", (long long)tokens,
                         (long long)seqs, (long long)entry.tokens, (long long)entry.seqs);
        }
}

Test(cli_rules, a_call_has_the_slot_that_the_library_gives_it)
{
    const struct cli_shape shapes[] = { prefill_shape(128, 128, 0, 0), conv_shape(4, 0) };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
        for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket) {
            const int64_t edge = gdni_bucket_edge(bucket);
            check_slots(&shapes[i], gdni_arch_at(0), edge < INT32_MAX ? edge : INT32_MAX, 1);
            if (edge < INT32_MAX) check_slots(&shapes[i], gdni_arch_at(0), edge + 1, 1);
        }
        for (int64_t seqs = 1; seqs <= 2 * gdni_seq_class_edge(GDNI_NUM_SEQ_CLASSES - 1) + 1; ++seqs)
            check_slots(&shapes[i], gdni_arch_at(0), 65536, seqs);
    }
}

/* Of the kernels that an entry may name the job's is the one that the library chooses. */
static void check_kernel(const struct cli_shape *shape, const struct gdni_arch *arch)
{
    static const enum gdni_kernel kernels[] = { GDNI_KERNEL_PREFILL_GENERIC, GDNI_KERNEL_PREFILL_HOPPER,
                                                GDNI_KERNEL_CONV1D_QKV };
    const struct cli_tune_job job = { .shape = shape, .tokens = 4096, .seqs = 1 };
    const struct gdni_problem problem = problem_of(shape);
    const gdn_target *target = target_of(arch);
    struct gdni_tuning_key key;
    gdni_tuning_key_of(&key, &problem, arch,
                       (struct gdni_slot){ gdni_bucket_of(4096), shape->op == CLI_PREFILL ? 0 : GDNI_ANY_SEQS });
    const int32_t own = key.kernel;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; ++i) {
        key.kernel = (int32_t)kernels[i];
        const gdn_tuning_entry entry = entry_of(&key, target);
        cr_expect_eq(cli_tune_matches(&job, target, &entry), key.kernel == own, "%s on %s, dims %d/%d, plan flags %u",
                     entry.kernel, arch->name, key.head_dim_qk, key.head_dim_v, shape->plan_flags);
    }
}

Test(cli_rules, a_job_has_the_kernel_that_the_library_chooses)
{
    static const int dims[] = { 16, 64, 128, 256 };
    static const uint32_t plan_flags[] = { 0, GDN_PLAN_GENERIC };
    int hopper = 0;
    for (int i = 0; gdni_arch_at(i); ++i) {
        const struct gdni_arch *arch = gdni_arch_at(i);
        for (size_t d = 0; d < 4 * 16; ++d) {
            const struct cli_shape shape =
                prefill_shape(dims[d / 4 / 4], dims[d / 4 % 4], d & 2 ? GDN_PREFILL_QK_L2NORM : 0, plan_flags[d & 1]);
            struct gdni_problem p;
            if (gdni_problem_from_prefill(&p, &shape.desc.prefill) != GDN_OK) continue; /* dims that no kernel has */
            check_kernel(&shape, arch);
            hopper += arch->wgmma && !shape.plan_flags && p.head_dim_qk == 128 && p.head_dim_v == 128;
        }
        for (int width = 2; width <= 4; ++width) {
            const struct cli_shape plain = conv_shape(width, 0), norm = conv_shape(width, GDN_CONV_L2_NORM);
            check_kernel(&plain, arch);
            check_kernel(&norm, arch);
        }
    }
    cr_expect_gt(hopper, 0, "no case of the Hopper kernel was met");
}

/* Jobs of one shape for calls of so many tokens and sequences. */
static size_t jobs_for(int64_t tokens, int64_t seqs)
{
    struct cli_options o = { .ops = 1u << CLI_PREFILL, .how = { .max_tokens = 1 << 20, .max_seqs = 1024 } };
    struct cli_tune_jobs jobs = { 0 };
    o.how.tp = (struct cli_ints){ 1, { 1 } };
    o.how.prologues = (struct cli_ints){ 1, { CLI_PROLOGUE_FUSED } };
    o.tune_tokens = (struct cli_sizes){ 1, { tokens } };
    o.tune_seqs = (struct cli_sizes){ 1, { seqs } };
    cli_names_add(&o.models, "qwen3-next-80b-a3b", strlen("qwen3-next-80b-a3b"));
    const int code = cli_tune_jobs_find(&o, &jobs);
    const size_t count = jobs.count;
    cr_assert_eq(code, count ? CLI_OK : CLI_USAGE, "%s", cli_error());
    cli_tune_jobs_free(&jobs);
    cli_options_free(&o);
    return count;
}

Test(cli_rules, a_call_that_is_tuned_has_a_chunk_a_sequence_or_one_sequence)
{
    cr_expect_eq(jobs_for(1024, 16), 1u);
    cr_expect_eq(jobs_for(1023, 16), 0u);
    cr_expect_eq(jobs_for(1, 1), 1u);
    cr_expect_eq(jobs_for(1 << 20, 1024), 1u);
    cr_expect_eq(jobs_for((1 << 20) + 1, 1), 0u);
    cr_expect_eq(jobs_for(1 << 20, 1025), 0u);
}

Test(cli_rules, a_table_serves_the_gpus_that_the_library_says)
{
    enum { MOST = 300 };
    for (int32_t a = 1; a <= MOST; ++a)
        for (int32_t b = 1; b <= MOST; ++b)
            cr_expect_eq(cli_sms_alike(a, b), gdni_tuning_sms_alike(a, b), "%d and %d SMs", a, b);
}

/* ---- Folders of a cache directory ---- */

static void check_folder(const char *root, const char *folder, bool any_owner)
{
    const struct gdni_cache_dir dir = { .any_owner = any_owner };
    struct cli_cache_folders found;
    struct stat st;
    cr_assert_eq(lstat(folder, &st), 0, "%s: %m", folder);
    cli_try_cache_folders(root, any_owner, &found);
    cr_expect_str_eq(found.untrusted, gdni_cache_dir_trusts(&dir, &st) ? "" : folder,
                     "mode %04o, owner %u, any owner %d", (unsigned)st.st_mode & 07777, (unsigned)st.st_uid, any_owner);
}

Test(cli_rules, a_folder_is_believed_where_the_library_believes_it)
{
    char root[] = "/tmp/gdn-rules-XXXXXX", folder[64];
    cr_assert_not_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/" GDNI_CACHE_FOLDER, root);
    cr_assert_eq(mkdir(folder, 0700), 0);
    for (int stranger = 0; stranger <= (geteuid() == 0); ++stranger) {
        if (stranger) cr_assert_eq(chown(folder, 1234, 1234), 0);
        for (unsigned mode = 0700; mode <= 03777; mode = mode % 01000 == 0777 ? mode + 0701 : mode + 1) {
            cr_assert_eq(chmod(folder, mode), 0);
            check_folder(root, folder, false);
            check_folder(root, folder, true);
        }
    }
    if (geteuid() == 0) { /* root's, to another user */
        cr_assert(chmod(root, 0755) == 0 && chown(folder, 0, 0) == 0 && chmod(folder, 0755) == 0);
        cr_assert_eq(seteuid(65534), 0);
        check_folder(root, folder, false);
        cr_assert_eq(seteuid(0), 0);
    }
    rmdir(folder);
    rmdir(root);
}

/* ---- Recorded plans ---- */

/* As the library writes it, and as the tool reads it. */
static void expect_read_back(const struct cli_shape *shape)
{
    const struct gdni_problem wanted = problem_of(shape);
    struct gdni_strbuf sb = { 0 };
    struct cli_shape again = { 0 };
    cJSON *root = NULL;
    gdni_shape_print(&sb, &wanted);
    cr_assert_eq(cli_json_parse("shape", sb.text, sb.len, &root), CLI_OK, "%s", cli_error());
    cr_assert_eq(cli_shape_from_json(&again, "shape", root), CLI_OK, "%s: %s", cli_error(), sb.text);
    const struct gdni_problem read = problem_of(&again);
    cr_expect_eq(memcmp(&read, &wanted, sizeof read), 0, "%s", sb.text);
    cJSON_Delete(root);
    gdni_sb_free(&sb);
}

Test(cli_rules, a_recorded_shape_is_the_prefill_that_was_planned)
{
    enum { WAYS = 12, FLAGS = 5 };
    for (int way = 0; way < WAYS + FLAGS; ++way) {
        struct cli_shape s = prefill_shape(128, 128, way < WAYS ? 0 : 1u << (way - WAYS), 0);
        gdn_prefill_desc *d = &s.desc.prefill;
        d->max_tokens = 1000 + way;
        if (way == 1) d->io_type = GDN_F16;
        if (way == 2) d->state_type = GDN_BF16;
        if (way == 3) d->state_layout = GDN_STATE_VK;
        if (way == 4) d->num_q_heads = 2, d->num_k_heads = 1;
        if (way == 5) d->head_dim_qk = d->head_dim_v = 64;
        if (way == 6) d->head_map = GDN_HEADS_TILED;
        if (way == 7) d->gate = GDN_GATE_LOGITS, d->gate_type = GDN_BF16;
        if (way == 8) d->gate = GDN_GATE_LINEAR;
        if (way == 9) d->beta = GDN_BETA_LOGITS, d->beta_type = GDN_F16;
        if (way == 10) d->cu_seqlens_type = GDN_INDEX_I64;
        if (way == 11) d->slot_type = GDN_INDEX_I64, d->max_seqs = 7;
        expect_read_back(&s);
    }
}

Test(cli_rules, a_recorded_shape_is_the_conv_that_was_planned)
{
    enum { WAYS = 13, FLAGS = 10 };
    for (int way = 0; way < WAYS + FLAGS; ++way) {
        struct cli_shape s = { .op = CLI_CONV1D, .desc.conv1d = GDN_CONV1D_DESC_INIT };
        gdn_conv1d_desc *d = &s.desc.conv1d;
        d->num_q_heads = d->num_k_heads = 2;
        d->num_v_heads = d->num_gate_heads = 4;
        d->head_dim_qk = d->head_dim_v = 128;
        d->flags = GDN_CONV_SILU | GDN_CONV_L2_NORM;
        d->max_tokens = 1000 + way;
        d->max_seqs = 9;
        if (way == 1) d->io_type = GDN_F16;
        if (way == 2) d->state_type = GDN_F32;
        if (way == 3) d->state_layout = GDN_CONV_STATE_WC;
        if (way == 4) d->state_layout = GDN_CONV_STATE_CW_STRIDED;
        if (way == 5) d->x_layout = GDN_CONV_X_INTERLEAVED;
        if (way == 6) d->width = 3;
        if (way == 7) d->x_alignment = 8;
        if (way == 8) d->num_gate_heads = 0;
        if (way == 9) d->gate_type = GDN_F16;
        if (way == 10) d->a_log_type = GDN_BF16;
        if (way == 11) d->dt_bias_type = GDN_F16;
        if (way == 12) d->cu_seqlens_type = d->slot_type = GDN_INDEX_I64, d->head_dim_v = 64;
        if (way >= WAYS) d->flags ^= 1u << (way - WAYS);
        expect_read_back(&s);
    }
}
