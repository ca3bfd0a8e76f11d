/*
 * tuning.h - measured choices as values: one entry, the table of one GPU, and their JSON (gdn-jit-tuning(5) is the contract).
 */
#ifndef GDNI_TUNING_H
#define GDNI_TUNING_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "codegen/code.h"
#include "codegen/params.h"

/* What a choice was measured for. Equal keys are equal members; there is no padding. */
struct gdni_tuning_key {
    int32_t kernel; /* enum gdni_kernel: the problem's own, which may choose the one with two kinds of CTAs */
    int32_t io_type;
    int32_t head_dim_qk, head_dim_v, num_q_heads, num_k_heads, num_v_heads;
    int32_t l2norm; /* of q and k, in the kernel */
    int32_t width;  /* conv; prefill 0 */
    struct gdni_slot slot;
};

/* The key of a problem's slot. */
void gdni_tuning_key_of(struct gdni_tuning_key *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                        struct gdni_slot slot);

/* < 0, 0, > 0, in the order of a file: by kernel's name, then by the members in turn. */
int gdni_tuning_key_compare(const struct gdni_tuning_key *a, const struct gdni_tuning_key *b);

/* But for the slot. */
bool gdni_tuning_same_problem(const struct gdni_tuning_key *a, const struct gdni_tuning_key *b);

/* The kernel that params run on, for a key of this kernel. */
int32_t gdni_tuning_kernel(const struct gdni_tuning_key *key, const struct gdni_params *params);

enum { GDNI_TUNING_VERSION_TEXT = 32, GDNI_TUNING_DATE = 11 };

struct gdni_tuning_entry {
    struct gdni_tuning_key key;
    struct gdni_params params;
    /* measured: a call of the bucket, in nanoseconds; heuristic_ns is the model's choice's, 0 where that failed */
    int64_t median_ns, mad_ns, heuristic_ns;
    int32_t samples;
    /* provenance: nothing depends on it but what a merge and a check say */
    int32_t sm_mhz, mem_mhz; /* clocks seen while measuring; 0 unknown */
    char driver[GDNI_TUNING_VERSION_TEXT], nvrtc[GDNI_TUNING_VERSION_TEXT];
    char date[GDNI_TUNING_DATE]; /* "2026-11-22" */
    char code[GDNI_CODE_HEX];    /* gdni_kernel_code_hash() of the kernel that was measured */
};

/* Measured in one run of the tuner: equal clocks, versions, date and code. */
bool gdni_tuning_same_run(const struct gdni_tuning_entry *a, const struct gdni_tuning_entry *b);

/* Measured with another source of its kernel than this library's. */
bool gdni_tuning_is_stale(const struct gdni_tuning_entry *entry);

/* Legal whatever the arch's sizes: else a sentence. What a plan of a problem can use, gdni_params_usable() says. */
gdn_status gdni_tuning_entry_check(const struct gdni_tuning_entry *entry, const struct gdni_arch *arch);

/* Entries of one GPU, sorted by key, no key twice. */
struct gdni_tuning_table {
    const struct gdni_arch *arch;
    char gpu_name[64];
    int32_t num_sms;
    char *source; /* owned: a path, or what else sentences call it */
    size_t count, capacity;
    struct gdni_tuning_entry *entries; /* owned */
};

void gdni_tuning_table_free(struct gdni_tuning_table *table);

/* Room for `count` entries in all. */
gdn_status gdni_tuning_table_reserve(struct gdni_tuning_table *table, size_t count);

/* Sorts what was appended at the end. NULL; else an entry whose key another one has. */
const struct gdni_tuning_entry *gdni_tuning_table_sort(struct gdni_tuning_table *table);

/* First entry whose key is not below key; table->count: none. */
size_t gdni_tuning_table_lower(const struct gdni_tuning_table *table, const struct gdni_tuning_key *key);

/* ---- JSON (tuning_json.c) ---- */

enum { GDNI_TUNING_SCHEMA = 1, GDNI_TUNING_MAX_ENTRIES = 8192, GDNI_TUNING_MAX_RUNS = 1024, GDNI_TUNING_MAX_BYTES = 4 << 20 };

/*
 * All of it or nothing. name: what sentences call the text, and what becomes `source`. GDN_E_VERSION: of another schema or
 * parameter space; GDN_E_INVALID: anything else that is wrong; GDN_E_UNSUPPORTED: an arch that this library does not know.
 */
gdn_status gdni_tuning_parse(struct gdni_tuning_table *out, const char *name, const char *text, size_t len);

/* Sorted, one entry a line, integers only: equal tables are equal bytes. */
void gdni_tuning_print(struct gdni_strbuf *sb, const struct gdni_tuning_table *table);

/* Of a bucket and a class, as a file has them: edges; 4194304 for the last bucket, 0 for any number of sequences. */
int64_t gdni_tuning_tokens(int bucket);
int64_t gdni_tuning_seqs(int seq_class);

#endif
