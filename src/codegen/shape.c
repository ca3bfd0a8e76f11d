/*
 * shape.c - owns the words of a shape. Must not know: what they mean to code. The tool reads the same words by a table of its
 * own (src/cli/shapes.c), since it sees the public header only; a test reads back whatever is printed here.
 */
#include "codegen/shape.h"

#include <stddef.h>

struct word {
    int32_t value;
    const char *name;
};

static const struct word ops[] = { { GDNI_OP_PREFILL, "gdn_prefill" },
                                   { GDNI_OP_CONV1D_QKV, "conv1d_qkv" },
                                   { 0, NULL } };
static const struct word types[] = { { GDN_BF16, "bf16" }, { GDN_F16, "fp16" }, { GDN_F32, "fp32" }, { 0, NULL } };
static const struct word indices[] = { { GDN_INDEX_I32, "int32" }, { GDN_INDEX_I64, "int64" }, { 0, NULL } };
static const struct word head_maps[] = { { GDN_HEADS_GROUPED, "grouped" }, { GDN_HEADS_TILED, "tiled" }, { 0, NULL } };
static const struct word gates[] = {
    { GDN_GATE_LOG, "log" }, { GDN_GATE_LINEAR, "linear" }, { GDN_GATE_LOGITS, "logits" }, { 0, NULL }
};
static const struct word betas[] = { { GDN_BETA_PLAIN, "plain" }, { GDN_BETA_LOGITS, "logits" }, { 0, NULL } };
static const struct word state_layouts[] = { { GDN_STATE_KV, "kv" }, { GDN_STATE_VK, "vk" }, { 0, NULL } };
static const struct word conv_layouts[] = {
    { GDN_CONV_STATE_CW, "cw" }, { GDN_CONV_STATE_WC, "wc" }, { GDN_CONV_STATE_CW_STRIDED, "cw_strided" }, { 0, NULL }
};
static const struct word x_layouts[] = { { GDN_CONV_X_PACKED, "packed" },
                                         { GDN_CONV_X_INTERLEAVED, "interleaved" },
                                         { 0, NULL } };
static const struct word prefill_flags[] = { { GDN_PREFILL_QK_L2NORM, "qk_l2norm" },
                                             { GDN_PREFILL_BETA_TIMES_2, "beta_times_2" },
                                             { GDN_PREFILL_CHECKPOINTS, "checkpoints" },
                                             { GDN_PREFILL_ZERO_PADDING, "zero_padding" },
                                             { GDN_PREFILL_PROGRAMMATIC_LAUNCH, "programmatic_launch" },
                                             { 0, NULL } };
static const struct word conv_flags[] = { { GDN_CONV_SILU, "silu" },
                                          { GDN_CONV_BIAS, "bias" },
                                          { GDN_CONV_L2_NORM, "l2_norm" },
                                          { GDN_CONV_EXACT_NORM, "exact_norm" },
                                          { GDN_CONV_ZERO_PADDING, "zero_padding" },
                                          { GDN_CONV_CHECKPOINTS, "checkpoints" },
                                          { GDN_CONV_GATE_EXP, "gate_exp" },
                                          { GDN_CONV_BETA_ROUNDED, "beta_rounded" },
                                          { GDN_CONV_BETA_TIMES_2, "beta_times_2" },
                                          { GDN_CONV_LAUNCH_DEPENDENTS, "launch_dependents" },
                                          { 0, NULL } };

static const char *word_of(const struct word *words, int32_t value)
{
    while (words->name && words->value != value)
        ++words;
    return words->name ? words->name : "?"; /* a problem was checked: it has no such value */
}

static void print_flags(struct gdni_strbuf *sb, const struct word *words, uint32_t flags)
{
    const char *joint = "";
    gdni_sb_str(sb, ", \"flags\": [");
    for (; words->name; ++words)
        if (flags & (uint32_t)words->value) {
            gdni_sb_fmt(sb, "%s\"%s\"", joint, words->name);
            joint = ", ";
        }
    gdni_sb_str(sb, "]");
}

/* Members of either operator, in the order of the descriptors. words NULL: a number. */
struct member {
    const char *name;
    size_t offset; /* of an int32_t in struct gdni_problem */
    const struct word *words;
};

#define NUMBER(member_)                                                                                                \
    {                                                                                                                  \
#member_, offsetof(struct gdni_problem, member_), NULL                                                         \
    }
#define WORD(member_, words_)                                                                                          \
    {                                                                                                                  \
#member_, offsetof(struct gdni_problem, member_), words_                                                       \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, 0, NULL                                                                                                  \
    }
static const struct member common_members[] = {
    WORD(io_type, types),     WORD(state_type, types),
    NUMBER(num_q_heads),      NUMBER(num_k_heads),
    NUMBER(num_v_heads),      NUMBER(head_dim_qk),
    NUMBER(head_dim_v),       WORD(cu_seqlens_type, indices),
    WORD(slot_type, indices), END,
};
static const struct member prefill_members[] = {
    WORD(state_layout, state_layouts),
    WORD(head_map, head_maps),
    WORD(gate, gates),
    WORD(gate_type, types),
    WORD(beta, betas),
    WORD(beta_type, types),
    END,
};
static const struct member conv_members[] = {
    WORD(state_layout, conv_layouts),
    WORD(x_layout, x_layouts),
    NUMBER(width),
    NUMBER(x_alignment),
    NUMBER(num_gate_heads),
    END,
};
static const struct member gate_members[] = { WORD(gate_type, types), WORD(a_log_type, types),
                                              WORD(dt_bias_type, types), END };

static void print_members(struct gdni_strbuf *sb, const struct gdni_problem *p, const struct member *members)
{
    for (; members->name; ++members) {
        const int32_t value = *(const int32_t *)(const void *)((const char *)p + members->offset);
        if (members->words)
            gdni_sb_json_text(sb, members->name, word_of(members->words, value));
        else
            gdni_sb_json_int(sb, members->name, value);
    }
}

void gdni_shape_print(struct gdni_strbuf *sb, const struct gdni_problem *p)
{
    const bool prefill = p->op == GDNI_OP_PREFILL;
    gdni_sb_fmt(sb, "{\"op\": \"%s\"", word_of(ops, p->op));
    print_members(sb, p, common_members);
    print_members(sb, p, prefill ? prefill_members : conv_members);
    if (!prefill && p->num_gate_heads) print_members(sb, p, gate_members);
    print_flags(sb, prefill ? prefill_flags : conv_flags, p->flags);
    gdni_sb_json_int(sb, "max_tokens", p->max_tokens);
    gdni_sb_json_int(sb, "max_seqs", p->max_seqs);
    gdni_sb_str(sb, "}");
}
