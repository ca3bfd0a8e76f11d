/*
 * tuning_json.c - owns the file format of measured tables: bytes <-> struct gdni_tuning_table. Pure: no files, no contexts
 * (it is a fuzz target). Everything in a file is a stranger's until gdni_tuning_parse() has said otherwise.
 *
 *   {"schema": 1, "space": "<hash>", "arch": "sm_90a", "gpu": "NVIDIA H200", "num_sms": 132, "runs": [
 *     {"id": 1, "driver": "..", ..}],                                       where the numbers came from
 *   "problems": [
 *     {"kernel": "..", "io_type": "..", .., "slots": [                      what entries share is said once
 *       {"tokens": 4096, "seqs": 1, "params": {..}, .., "run": 1},          an entry: one a line
 *       ..]},
 *     ..]}
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "codegen/spec.h"
#include "runtime/target.h"
#include "runtime/tuning.h"
#include "text/printable.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The kernels that a problem can have by itself. */
static const int32_t own_kernels[] = { GDNI_KERNEL_CONV1D_QKV, GDNI_KERNEL_PREFILL_GENERIC,
                                       GDNI_KERNEL_PREFILL_HOPPER };

static const struct gdni_json_word dtypes[] = {
    { "bf16", GDN_BF16 }, { "fp16", GDN_F16 }, { "fp32", GDN_F32 }, { NULL, 0 }
};

int64_t gdni_tuning_tokens(int bucket)
{
    enum { BEYOND = 1 << 22 }; /* the name of what is above all edges */
    return bucket < GDNI_NUM_BUCKETS - 1 ? gdni_bucket_edge(bucket) : BEYOND;
}

int64_t gdni_tuning_seqs(int seq_class)
{
    return seq_class == GDNI_ANY_SEQS ? 0 : gdni_seq_class_edge(seq_class);
}

/* ---- Reading ---- */

static gdn_status bucket_from(const char *where, int64_t tokens, int *out)
{
    for (*out = 0; *out < GDNI_NUM_BUCKETS; ++*out)
        if (gdni_tuning_tokens(*out) == tokens) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID,
                    "%s: \"tokens\" is %lld: must be the edge of a bucket, 256, 1024, 2048, 4096 and so on up to %lld", where,
                    (long long)tokens, (long long)gdni_tuning_tokens(GDNI_NUM_BUCKETS - 1));
}

static gdn_status class_from(const char *where, int64_t seqs, int *out)
{
    for (*out = GDNI_ANY_SEQS; *out < GDNI_NUM_SEQ_CLASSES; ++*out)
        if (gdni_tuning_seqs(*out) == seqs) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID, "%s: \"seqs\" is %lld: must be 0, or 1, 2, 4 and so on up to %lld", where,
                    (long long)seqs, (long long)gdni_tuning_seqs(GDNI_NUM_SEQ_CLASSES - 1));
}

static gdn_status read_problem(const char *where, const gdni_json *json, struct gdni_tuning_key *out,
                               const gdni_json **slots)
{
    enum { MOST_HEADS = 65536, MOST_DIM = 256 };
    struct gdni_json_word kernels[COUNT(own_kernels) + 1] = { { NULL, 0 } };
    int64_t dim_qk = 0, dim_v = 0, heads_q = 0, heads_k = 0, heads_v = 0, width = 0;
    int kernel = 0, io_type = 0;
    bool norm = false;
    for (size_t i = 0; i < COUNT(own_kernels); ++i)
        kernels[i] =
            (struct gdni_json_word){ gdni_kernel_info((enum gdni_kernel)own_kernels[i])->name, own_kernels[i] };
    const struct gdni_json_field fields[] = {
        { "kernel", GDNI_JSON_WORD, true, &kernel, 0, 0, kernels },
        { "io_type", GDNI_JSON_WORD, true, &io_type, 0, 0, dtypes },
        { "head_dim_qk", GDNI_JSON_INT, true, &dim_qk, 0, MOST_DIM, NULL },
        { "head_dim_v", GDNI_JSON_INT, true, &dim_v, 0, MOST_DIM, NULL },
        { "num_q_heads", GDNI_JSON_INT, true, &heads_q, 0, MOST_HEADS, NULL },
        { "num_k_heads", GDNI_JSON_INT, true, &heads_k, 0, MOST_HEADS, NULL },
        { "num_v_heads", GDNI_JSON_INT, true, &heads_v, 0, MOST_HEADS, NULL },
        { "l2norm", GDNI_JSON_BOOL, true, &norm, 0, 0, NULL },
        { "width", GDNI_JSON_INT, true, &width, 0, 4, NULL },
        { "slots", GDNI_JSON_ARRAY, true, slots, 0, 0, NULL },
    };
    GDN_TRY(gdni_json_object(where, json, fields, COUNT(fields)));
    *out = (struct gdni_tuning_key){ kernel,           io_type,          (int32_t)dim_qk,  (int32_t)dim_v,
                                     (int32_t)heads_q, (int32_t)heads_k, (int32_t)heads_v, norm,
                                     (int32_t)width,   { 0, 0 } };
    return GDN_OK;
}

/* Which of them the kernel has, and their values, gdni_tuning_entry_check() judges. */
static gdn_status read_params(const char *where, const gdni_json *json, struct gdni_params *out)
{
    struct {
#define GDNI_PARAM(name, ...) int64_t name;
#include "codegen/params.def"
#undef GDNI_PARAM
    } values = { 0 };
    const struct gdni_json_field fields[] = {
#define GDNI_PARAM(name, ...) { #name, GDNI_JSON_INT, false, &values.name, 1, INT32_MAX, NULL },
#include "codegen/params.def"
#undef GDNI_PARAM
    };
    GDN_TRY(gdni_json_object(where, json, fields, COUNT(fields)));
#define GDNI_PARAM(name, ...) out->name = (int32_t)values.name;
#include "codegen/params.def"
#undef GDNI_PARAM
    return GDN_OK;
}

/* Text of at most size - 1 bytes, printable ASCII: it ends up in terminals. */
static gdn_status take_text(const char *where, const char *name, const char *text, char *out, size_t size)
{
    const size_t len = strlen(text);
    if (len == 0 || len >= size)
        return GDN_FAIL(GDN_E_INVALID, "%s: \"%s\" has %zu characters: must have from 1 to %zu", where, name, len,
                        size - 1);
    if (!gdni_is_plain_line(text, len))
        return GDN_FAIL(GDN_E_INVALID, "%s: \"%s\" must be printable ASCII", where, name);
    memcpy(out, text, len + 1);
    return GDN_OK;
}

/* Each character of `pattern` is itself, or '0' for a digit, or 'x' for a lower-case hex digit. */
static gdn_status take_pattern(const char *where, const char *name, const char *text, const char *pattern, char *out)
{
    const size_t len = strlen(pattern);
    bool fits = strlen(text) == len;
    for (size_t i = 0; fits && i < len; ++i) {
        const bool digit = text[i] >= '0' && text[i] <= '9', hex = digit || (text[i] >= 'a' && text[i] <= 'f');
        fits = pattern[i] == '0' ? digit : pattern[i] == 'x' ? hex : text[i] == pattern[i];
    }
    if (!fits) return GDN_FAIL(GDN_E_INVALID, "%s: \"%s\" is \"%.32s\": must look like %s", where, name, text, pattern);
    memcpy(out, text, len + 1);
    return GDN_OK;
}

#define DATE_PATTERN "0000-00-00"
#define HASH_PATTERN "xxxxxxxxxxxxxxxx"

/* A run is the provenance of the entries that name it: an entry of which only that part is set. */
struct run {
    int64_t id;
    struct gdni_tuning_entry env;
};

static gdn_status read_run(const char *where, const gdni_json *json, struct run *out)
{
    enum { MOST_MHZ = 100000 };
    const char *driver = "", *nvrtc = "", *date = "", *code = "";
    int64_t sm_mhz = 0, mem_mhz = 0;
    struct gdni_tuning_entry *env = &out->env;
    const struct gdni_json_field fields[] = {
        { "id", GDNI_JSON_INT, true, &out->id, 1, INT32_MAX, NULL },
        { "driver", GDNI_JSON_STRING, true, &driver, 0, 0, NULL },
        { "nvrtc", GDNI_JSON_STRING, true, &nvrtc, 0, 0, NULL },
        { "sm_mhz", GDNI_JSON_INT, true, &sm_mhz, 0, MOST_MHZ, NULL },
        { "mem_mhz", GDNI_JSON_INT, true, &mem_mhz, 0, MOST_MHZ, NULL },
        { "date", GDNI_JSON_STRING, true, &date, 0, 0, NULL },
        { "code", GDNI_JSON_STRING, true, &code, 0, 0, NULL },
    };
    GDN_TRY(gdni_json_object(where, json, fields, COUNT(fields)));
    env->sm_mhz = (int32_t)sm_mhz;
    env->mem_mhz = (int32_t)mem_mhz;
    GDN_TRY(take_text(where, "driver", driver, env->driver, sizeof env->driver));
    GDN_TRY(take_text(where, "nvrtc", nvrtc, env->nvrtc, sizeof env->nvrtc));
    GDN_TRY(take_pattern(where, "date", date, DATE_PATTERN, env->date));
    return take_pattern(where, "code", code, HASH_PATTERN, env->code);
}

struct runs {
    size_t count;
    struct run *list; /* owned */
};

static const struct run *find_run(const struct runs *runs, int64_t id)
{
    for (size_t i = 0; i < runs->count; ++i)
        if (runs->list[i].id == id) return &runs->list[i];
    return NULL;
}

static size_t count_items(const gdni_json *array)
{
    size_t count = 0;
    for (const gdni_json *item = gdni_json_first(array); item; item = gdni_json_next(item))
        ++count;
    return count;
}

static gdn_status read_runs(const char *name, const gdni_json *array, struct runs *out)
{
    const size_t count = count_items(array);
    if (count > GDNI_TUNING_MAX_RUNS)
        return GDN_FAIL(GDN_E_INVALID, "%s: \"runs\" has %zu runs: at most %d", name, count, GDNI_TUNING_MAX_RUNS);
    out->list = gdni_calloc(count ? count : 1, sizeof *out->list);
    if (!out->list) return GDN_FAIL(GDN_E_NOMEM, "out of memory for the %zu runs of %s", count, name);
    for (const gdni_json *item = gdni_json_first(array); item; item = gdni_json_next(item)) {
        char where[160];
        struct run *run = &out->list[out->count];
        snprintf(where, sizeof where, "%.120s, run %zu", name, out->count + 1);
        GDN_TRY(read_run(where, item, run));
        if (find_run(out, run->id))
            return GDN_FAIL(GDN_E_INVALID, "%s: \"id\" is %lld, as another run's", where, (long long)run->id);
        ++out->count;
    }
    return GDN_OK;
}

/* `out` begins as its problem's key. */
static gdn_status read_slot(const char *where, const gdni_json *json, const struct runs *runs,
                            const struct gdni_arch *arch, struct gdni_tuning_entry *out)
{
    const int64_t most_ns = (int64_t)1000 * 1000 * 1000 * 1000;
    int64_t tokens = 0, seqs = 0, median = 0, mad = 0, heuristic = 0, samples = 0, id = 0;
    const gdni_json *params = NULL;
    const struct gdni_json_field fields[] = {
        { "tokens", GDNI_JSON_INT, true, &tokens, 0, INT64_MAX, NULL },
        { "seqs", GDNI_JSON_INT, true, &seqs, 0, INT64_MAX, NULL },
        { "params", GDNI_JSON_OBJECT, true, &params, 0, 0, NULL },
        { "median_ns", GDNI_JSON_INT, true, &median, 1, most_ns, NULL },
        { "mad_ns", GDNI_JSON_INT, true, &mad, 0, most_ns, NULL },
        { "heuristic_ns", GDNI_JSON_INT, true, &heuristic, 0, most_ns, NULL },
        { "samples", GDNI_JSON_INT, true, &samples, 1, INT32_MAX, NULL },
        { "run", GDNI_JSON_INT, true, &id, 1, INT32_MAX, NULL },
    };
    GDN_TRY(gdni_json_object(where, json, fields, COUNT(fields)));
    const struct gdni_tuning_key key = out->key;
    const struct run *run = find_run(runs, id);
    if (!run) return GDN_FAIL(GDN_E_INVALID, "%s: \"run\" is %lld: \"runs\" has none of that id", where, (long long)id);
    *out = run->env;
    out->key = key;
    out->median_ns = median;
    out->mad_ns = mad;
    out->heuristic_ns = heuristic;
    out->samples = (int32_t)samples;
    GDN_TRY(bucket_from(where, tokens, &out->key.slot.bucket));
    GDN_TRY(class_from(where, seqs, &out->key.slot.seq_class));
    GDN_TRY(read_params(where, params, &out->params));
    const gdn_status status = gdni_tuning_entry_check(out, arch);
    return status == GDN_OK ? GDN_OK : gdni_fail_in(status, "%s", where);
}

static gdn_status read_slots(const char *where, const gdni_json *slots, const struct runs *runs,
                             const struct gdni_tuning_key *key, struct gdni_tuning_table *out)
{
    const size_t total = out->count + count_items(slots);
    int number = 0;
    if (total > GDNI_TUNING_MAX_ENTRIES)
        return GDN_FAIL(GDN_E_INVALID, "%s: the file has more than %d entries", where, GDNI_TUNING_MAX_ENTRIES);
    GDN_TRY(gdni_tuning_table_reserve(out, total));
    for (const gdni_json *item = gdni_json_first(slots); item; item = gdni_json_next(item)) {
        char at[192];
        snprintf(at, sizeof at, "%s, slot %d", where, ++number);
        out->entries[out->count].key = *key;
        GDN_TRY(read_slot(at, item, runs, out->arch, &out->entries[out->count]));
        ++out->count;
    }
    return GDN_OK;
}

static gdn_status read_problems(const char *name, const gdni_json *problems, const struct runs *runs,
                                struct gdni_tuning_table *out)
{
    int number = 0;
    for (const gdni_json *item = gdni_json_first(problems); item; item = gdni_json_next(item)) {
        char where[160];
        struct gdni_tuning_key key;
        const gdni_json *slots = NULL;
        snprintf(where, sizeof where, "%.120s, problem %d", name, ++number);
        GDN_TRY(read_problem(where, item, &key, &slots));
        GDN_TRY(read_slots(where, slots, runs, &key, out));
    }
    const struct gdni_tuning_entry *twice = gdni_tuning_table_sort(out);
    if (!twice) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID, "%s: two entries have one key (%s, %lld tokens, %lld seqs): keep one", name,
                    gdni_kernel_info((enum gdni_kernel)twice->key.kernel)->name,
                    (long long)gdni_tuning_tokens(twice->key.slot.bucket),
                    (long long)gdni_tuning_seqs(twice->key.slot.seq_class));
}

struct header {
    int64_t schema, num_sms;
    const char *space, *arch, *gpu;
    const gdni_json *runs, *problems;
};

/* A file of another schema may have any members after "schema", which we write first: that is said, not what they are. */
static gdn_status read_header(const char *name, const gdni_json *root, struct header *out)
{
    const struct gdni_json_field fields[] = {
        { "schema", GDNI_JSON_INT, true, &out->schema, 0, INT32_MAX, NULL },
        { "space", GDNI_JSON_STRING, true, &out->space, 0, 0, NULL },
        { "arch", GDNI_JSON_STRING, true, &out->arch, 0, 0, NULL },
        { "gpu", GDNI_JSON_STRING, true, &out->gpu, 0, 0, NULL },
        { "num_sms", GDNI_JSON_INT, true, &out->num_sms, 1, GDNI_MOST_SMS, NULL },
        { "runs", GDNI_JSON_ARRAY, true, &out->runs, 0, 0, NULL },
        { "problems", GDNI_JSON_ARRAY, true, &out->problems, 0, 0, NULL },
    };
    char space[GDNI_SPACE_HEX];
    *out = (struct header){ .schema = GDNI_TUNING_SCHEMA };
    const gdn_status status = gdni_json_object(name, root, fields, COUNT(fields));
    if (out->schema != GDNI_TUNING_SCHEMA)
        return GDN_FAIL(GDN_E_VERSION, "%s: \"schema\" is %lld: this library reads %d; write the file with its tune",
                        name, (long long)out->schema, GDNI_TUNING_SCHEMA);
    if (status != GDN_OK) return status;
    gdni_space_hash(space);
    if (strcmp(out->space, space) == 0) return GDN_OK;
    return GDN_FAIL(GDN_E_VERSION,
                    "%s: \"space\" is \"%.16s\" and this library's is \"%s\": its winners have not met this "
                    "version's candidates; tune again",
                    name, out->space, space);
}

static gdn_status read_table(const char *name, const gdni_json *root, struct gdni_tuning_table *out)
{
    struct header header;
    GDN_TRY(read_header(name, root, &header));
    const gdn_status status = gdni_arch_find(header.arch, &out->arch);
    if (status != GDN_OK) return gdni_fail_in(status, "%s", name);
    GDN_TRY(take_text(name, "gpu", header.gpu, out->gpu_name, sizeof out->gpu_name));
    out->num_sms = (int32_t)header.num_sms;
    out->source = gdni_strdup(name);
    if (!out->source) return GDN_FAIL(GDN_E_NOMEM, "out of memory for the tuning entries of %s", name);
    struct runs runs = { 0 };
    gdn_status read = read_runs(name, header.runs, &runs);
    if (read == GDN_OK) read = read_problems(name, header.problems, &runs, out);
    gdni_free(runs.list);
    return read;
}

gdn_status gdni_tuning_parse(struct gdni_tuning_table *out, const char *name, const char *text, size_t len)
{
    gdni_json *root = NULL;
    *out = (struct gdni_tuning_table){ 0 };
    if (len > GDNI_TUNING_MAX_BYTES)
        return GDN_FAIL(GDN_E_INVALID, "%s has %zu bytes: a tuning file has at most %d", name, len,
                        GDNI_TUNING_MAX_BYTES);
    GDN_TRY(gdni_json_parse(name, text, len, &root));
    const gdn_status status = read_table(name, root, out);
    gdni_json_free(root);
    if (status != GDN_OK) gdni_tuning_table_free(out);
    return status;
}

/* ---- Writing ---- */

static const char *dtype_word(int32_t dtype)
{
    for (const struct gdni_json_word *w = dtypes; w->name; ++w)
        if (w->value == dtype) return w->name;
    return "";
}

/* Numbers the runs in the order in which entries come upon them; ids[i] becomes that of entry i. */
static void print_runs(struct gdni_strbuf *sb, const struct gdni_tuning_table *table, uint32_t *ids)
{
    uint32_t count = 0;
    for (size_t i = 0; i < table->count; ++i) {
        const struct gdni_tuning_entry *e = &table->entries[i];
        size_t before = i; /* most likely that of the entry before */
        while (before > 0 && !gdni_tuning_same_run(e, &table->entries[before - 1]))
            --before;
        ids[i] = before > 0 ? ids[before - 1] : ++count;
        if (before > 0) continue;
        gdni_sb_fmt(sb, "%s\n{\"id\": %u, \"driver\": ", count > 1 ? "," : "", count);
        gdni_sb_json_str(sb, e->driver);
        gdni_sb_str(sb, ", \"nvrtc\": ");
        gdni_sb_json_str(sb, e->nvrtc);
        gdni_sb_fmt(sb, ", \"sm_mhz\": %d, \"mem_mhz\": %d, \"date\": \"%s\", \"code\": \"%s\"}", e->sm_mhz, e->mem_mhz,
                    e->date, e->code);
    }
}

static void print_problem(struct gdni_strbuf *sb, const struct gdni_tuning_key *key)
{
    gdni_sb_fmt(sb, "{\"kernel\": \"%s\", \"io_type\": \"%s\", \"head_dim_qk\": %d, \"head_dim_v\": %d, ",
                gdni_kernel_info((enum gdni_kernel)key->kernel)->name, dtype_word(key->io_type), key->head_dim_qk,
                key->head_dim_v);
    gdni_sb_fmt(sb, "\"num_q_heads\": %d, \"num_k_heads\": %d, \"num_v_heads\": %d, \"l2norm\": %s, \"width\": %d, ",
                key->num_q_heads, key->num_k_heads, key->num_v_heads, key->l2norm ? "true" : "false", key->width);
    gdni_sb_str(sb, "\"slots\": [");
}

static void print_slot(struct gdni_strbuf *sb, const struct gdni_tuning_entry *e, uint32_t run)
{
    gdni_sb_fmt(sb, "\n  {\"tokens\": %lld, \"seqs\": %lld, \"params\": ",
                (long long)gdni_tuning_tokens(e->key.slot.bucket), (long long)gdni_tuning_seqs(e->key.slot.seq_class));
    gdni_params_json(sb, &e->params, gdni_tuning_kernel(&e->key, &e->params));
    gdni_sb_fmt(sb, ", \"median_ns\": %lld, \"mad_ns\": %lld, \"heuristic_ns\": %lld, \"samples\": %d, \"run\": %u}",
                (long long)e->median_ns, (long long)e->mad_ns, (long long)e->heuristic_ns, e->samples, run);
}

static void print_problems(struct gdni_strbuf *sb, const struct gdni_tuning_table *table, const uint32_t *ids)
{
    for (size_t i = 0; i < table->count; ++i) {
        const struct gdni_tuning_entry *e = &table->entries[i];
        const bool follows = i > 0 && gdni_tuning_same_problem(&e->key, &table->entries[i - 1].key);
        if (!follows) {
            gdni_sb_str(sb, i ? "]},\n" : "\n");
            print_problem(sb, &e->key);
        }
        if (follows) gdni_sb_str(sb, ",");
        print_slot(sb, e, ids[i]);
    }
    if (table->count) gdni_sb_str(sb, "]}");
}

void gdni_tuning_print(struct gdni_strbuf *sb, const struct gdni_tuning_table *table)
{
    char space[GDNI_SPACE_HEX];
    uint32_t *ids = gdni_calloc(table->count ? table->count : 1, sizeof *ids);
    if (!ids) {
        sb->failed = true;
        return;
    }
    gdni_space_hash(space);
    gdni_sb_fmt(sb, "{\"schema\": %d, \"space\": \"%s\", \"arch\": \"%s\", \"gpu\": ", GDNI_TUNING_SCHEMA, space,
                table->arch->name);
    gdni_sb_json_str(sb, table->gpu_name);
    gdni_sb_fmt(sb, ", \"num_sms\": %d, \"runs\": [", table->num_sms);
    print_runs(sb, table, ids);
    gdni_sb_str(sb, "\n], \"problems\": [");
    print_problems(sb, table, ids);
    gdni_sb_str(sb, "\n]}\n");
    gdni_free(ids);
}
