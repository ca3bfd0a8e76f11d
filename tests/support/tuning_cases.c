/* tuning_cases.c - see tuning_cases.h. */
#include "support/tuning_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "codegen/spec.h"

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "tuning_cases: %s: %s\n", what, gdni_error_text());
    abort();
}

static struct gdni_tuning_entry measured(int32_t kernel)
{
    struct gdni_tuning_entry e = { .median_ns = 100000, .mad_ns = 300, .heuristic_ns = 110000, .samples = 50 };
    e.sm_mhz = 1980;
    e.mem_mhz = 3201;
    strcpy(e.driver, "580.95.05");
    strcpy(e.nvrtc, "13.0");
    strcpy(e.date, "2026-11-22");
    gdni_kernel_code_hash(e.code, (enum gdni_kernel)kernel);
    gdni_params_initial(&e.params, kernel);
    return e;
}

struct gdni_tuning_entry tuning_prefill(int bucket, int seq_class)
{
    const bool few = seq_class != GDNI_ANY_SEQS;
    struct gdni_tuning_entry e = measured(few ? GDNI_KERNEL_PREFILL_SPLIT : GDNI_KERNEL_PREFILL_GENERIC);
    e.key = (struct gdni_tuning_key){ .kernel = GDNI_KERNEL_PREFILL_GENERIC, .io_type = GDN_BF16 };
    e.key.slot = (struct gdni_slot){ bucket, seq_class };
    e.key.head_dim_qk = e.key.head_dim_v = 128;
    e.key.num_q_heads = e.key.num_k_heads = 16;
    e.key.num_v_heads = 32;
    return e;
}

struct gdni_tuning_entry tuning_conv(int bucket)
{
    struct gdni_tuning_entry e = measured(GDNI_KERNEL_CONV1D_QKV);
    e.key = tuning_prefill(bucket, GDNI_ANY_SEQS).key;
    e.key.kernel = GDNI_KERNEL_CONV1D_QKV;
    e.key.width = 4;
    return e;
}

struct gdni_tuning_table tuning_table(const char *gpu_name, int32_t num_sms)
{
    struct gdni_tuning_table table = { .num_sms = num_sms };
    must(gdni_arch_find("sm_90a", &table.arch) == GDN_OK, "arch");
    snprintf(table.gpu_name, sizeof table.gpu_name, "%s", gpu_name);
    must((table.source = gdni_strdup("a test")) != NULL, "memory");
    return table;
}

void tuning_add(struct gdni_tuning_table *table, const struct gdni_tuning_entry *entry)
{
    must(gdni_tuning_table_reserve(table, table->count + 1) == GDN_OK, "memory");
    table->entries[table->count++] = *entry;
}

struct gdni_tuning_table tuning_table_of(const char *gpu_name, int32_t num_sms, const struct gdni_tuning_entry *entries,
                                         size_t count)
{
    struct gdni_tuning_table table = tuning_table(gpu_name, num_sms);
    for (size_t i = 0; i < count; ++i) tuning_add(&table, &entries[i]);
    must(!gdni_tuning_table_sort(&table), "a key twice");
    return table;
}

char *tuning_text(const struct gdni_tuning_table *table)
{
    struct gdni_strbuf sb = { 0 };
    gdni_tuning_print(&sb, table);
    must(!sb.failed, "memory");
    char *text = strdup(sb.text);
    gdni_sb_free(&sb);
    return text;
}

char *tuning_with(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    must(at != NULL, from);
    char *made = malloc(strlen(text) + strlen(to) + 1);
    must(made != NULL, "memory");
    sprintf(made, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return made;
}

struct gdni_tuning_table tuning_large(int shapes)
{
    struct gdni_tuning_table table = tuning_table("NVIDIA H200", 132);
    for (int shape = 0; shape < shapes; ++shape)
        for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket) {
            struct gdni_tuning_entry e = tuning_conv(bucket);
            e.key.num_v_heads = 1 + shape;
            tuning_add(&table, &e);
            for (int c = GDNI_ANY_SEQS; c < GDNI_NUM_SEQ_CLASSES; ++c) {
                e = tuning_prefill(bucket, c);
                e.key.num_v_heads = 16 * (1 + shape);
                tuning_add(&table, &e);
            }
        }
    must(!gdni_tuning_table_sort(&table), "a key twice");
    return table;
}
