/*
 * shapes.h - a shape is one operator's descriptor with a label for people; lists of them come from presets
 * (presets.h) or from a JSON file (here).
 */
#ifndef GDN_CLI_SHAPES_H
#define GDN_CLI_SHAPES_H

#include "cli/json.h"

enum cli_op { CLI_PREFILL, CLI_CONV1D, CLI_NUM_OPS };

struct cli_shape {
    enum cli_op op;
    char label[96];      /* "qwen3-next-80b-a3b tp4", "shapes.json #2" */
    uint32_t plan_flags; /* GDN_PLAN_* */
    union {
        gdn_prefill_desc prefill;
        gdn_conv1d_desc conv1d;
    } desc;
};

struct cli_shapes {
    struct cli_shape *items;
    size_t count;
};

extern const struct gdni_json_word cli_op_words[], cli_io_type_words[], cli_float_words[], cli_state_layout_words[],
    cli_conv_layout_words[], cli_x_layout_words[];

/* What a shape that says nothing about its calls is built for: every bucket of the library. */
enum { CLI_DEFAULT_MAX_TOKENS = INT32_MAX, CLI_DEFAULT_MAX_SEQS = 1024 };

void cli_shapes_add(struct cli_shapes *list, const struct cli_shape *shape);
void cli_shapes_free(struct cli_shapes *list);

/* Appends the shapes of a JSON file (format: gdn-jit-cache(1)); "-" is standard input. */
int cli_shapes_read(struct cli_shapes *list, const char *path);
int cli_shapes_from_json(struct cli_shapes *list, const char *name, const cJSON *root);
/* One shape; the label is left to the caller. */
int cli_shape_from_json(struct cli_shape *out, const char *where, const cJSON *object);

enum { CLI_SHAPE_TEXT = 256 };
/* "gdn_prefill bf16 heads 16/16/32 dims 128/128 state kv" */
const char *cli_shape_text(char out[CLI_SHAPE_TEXT], const struct cli_shape *shape);

gdn_status cli_shape_plan(gdn_ctx *ctx, const gdn_target *target, const struct cli_shape *shape, gdn_plan **out);

#endif
