/*
 * presets.h - model presets: what a model's linear-attention layers need, as one JSON file per model, and how it
 * expands into the shapes of a rank.
 */
#ifndef GDN_CLI_PRESETS_H
#define GDN_CLI_PRESETS_H

#include "cli/shapes.h"

struct cli_preset {
    char model[64];
    int64_t num_k_heads, num_v_heads; /* of the whole model; q has as many heads as k */
    int64_t head_dim_k, head_dim_v;
    int64_t conv_width;
    bool conv_bias;
    int dtype;
    int64_t max_tp;
};

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
    struct cli_ints state_layouts; /* default: kv */
    struct cli_ints conv_layouts;  /* default: cw */
    struct cli_ints x_alignments;  /* default: 16 */
    int64_t max_tokens, max_seqs;
};

/* name: for sentences. */
int cli_preset_from_json(struct cli_preset *out, const char *name, const cJSON *root);

/* model: a name of `dirs` or, with a '/' or ".json" in it, a file. */
int cli_preset_find(struct cli_preset *out, const struct cli_names *dirs, const char *model);

/* Folders that presets are looked for in: `given` alone, or where they are installed. */
void cli_preset_dirs(struct cli_names *out, const char *given);
/* Names of all presets of dirs, sorted. */
void cli_preset_names(struct cli_names *out, const struct cli_names *dirs);

int cli_preset_expand(struct cli_shapes *list, const struct cli_preset *preset, const struct cli_expansion *how);

#endif
