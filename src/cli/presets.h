/*
 * presets.h - model presets: what a model's linear-attention layers are, as one JSON file per model.
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
    int projection; /* gdn_conv_x_layout: how a row of the in-projection is ordered */
    int dtype;
    int64_t max_tp;
};

/* name: for sentences. */
int cli_preset_from_json(struct cli_preset *out, const char *name, const cJSON *root);

/* model is a file, by a '/' or ".json" in it. */
bool cli_preset_is_file(const char *model);
/* model: a name of `dirs`, or a file. */
int cli_preset_find(struct cli_preset *out, const struct cli_names *dirs, const char *model);

/* Folders that presets are looked for in: `given` alone, or where they are installed. */
void cli_preset_dirs(struct cli_names *out, const char *given);
/* Names of all presets of dirs, sorted. */
void cli_preset_names(struct cli_names *out, const struct cli_names *dirs);

#endif
