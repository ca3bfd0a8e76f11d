/*
 * expand.h - a model preset -> the shapes that an engine plans for one rank of it.
 *
 * Engines put their layers together in three ways, `prologues` here. All three run conv1d-QKV and GDN prefill:
 *   fused    conv1d-QKV reads the in-projection and does everything: SiLU, norm of q and k, g and beta
 *   conv     conv1d-QKV convolves [q | k | v] (causal_conv1d_fn), the engine makes g and beta, prefill normalises q and k
 *   logits   the same, and prefill makes g and beta of the raw a and b
 */
#ifndef GDN_CLI_EXPAND_H
#define GDN_CLI_EXPAND_H

#include "cli/presets.h"
#include "cli/shapes.h"

enum cli_prologue { CLI_PROLOGUE_FUSED, CLI_PROLOGUE_CONV, CLI_PROLOGUE_LOGITS, CLI_NUM_PROLOGUES };
enum cli_feature { CLI_WITH_CHECKPOINTS = 1, CLI_WITH_ZERO_PADDING = 2, CLI_WITH_PROGRAMMATIC_LAUNCH = 3 };
extern const struct gdni_json_word cli_prologue_words[], cli_feature_words[];

enum { CLI_MAX_INTS = 16 };
/* Values of a comma list; count 0: the default. */
struct cli_ints {
    int count;
    int values[CLI_MAX_INTS];
};

/* What an expansion takes besides the model: the cross product of the lists. */
struct cli_expansion {
    struct cli_ints tp;            /* default: powers of two up to the model's max_tp */
    struct cli_ints dtypes;        /* default: the model's */
    struct cli_ints prologues;     /* default: all */
    struct cli_ints state_layouts; /* default: kv */
    struct cli_ints conv_layouts;  /* default: cw */
    struct cli_ints x_alignments;  /* default: what rows of the in-projection have, see cli_row_alignment() */
    struct cli_ints dt_bias_types; /* default: fp32, and that of activations, which is what checkpoints hold */
    struct cli_ints features;      /* that every shape has; default: none */
    bool generic;                   /* every prefill also with GDN_PLAN_GENERIC */
    int64_t max_tokens, max_seqs;
};

/* Heads of one rank of tp; CLI_USAGE with the legal sizes when tp does not divide the model. */
struct cli_rank {
    int32_t k_heads, v_heads; /* q has as many heads as k */
};
int cli_rank_of(struct cli_rank *out, const struct cli_preset *preset, int tp);

/*
 * Bytes, up to 16, that rows of a rank's in-projection are aligned to when b and a stand in the row too, behind q, k, v
 * and z. Rows without them are aligned to 16 wherever head dims are multiples of 8.
 */
int cli_row_alignment(const struct cli_preset *preset, const struct cli_rank *rank);

/* Appends the shapes, in a fixed order. */
int cli_preset_expand(struct cli_shapes *list, const struct cli_preset *preset, const struct cli_expansion *how);

#endif
