/*
 * presets.c - owns the JSON format of presets, where they lie, and their expansion. Must not know: targets, commands.
 */
#include "cli/presets.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef GDN_JIT_PRESET_DIR
#error "GDN_JIT_PRESET_DIR is the folder of the presets, set by the build"
#endif

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int check_max_tp(const char *name, const struct cli_preset *p)
{
    if (p->num_k_heads % p->max_tp == 0 && p->num_v_heads % p->max_tp == 0) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s: \"max_tp\" is %lld: must divide num_k_heads %lld and num_v_heads %lld", name,
                    (long long)p->max_tp, (long long)p->num_k_heads, (long long)p->num_v_heads);
}

int cli_preset_from_json(struct cli_preset *out, const char *name, const cJSON *root)
{
    struct cli_preset p = { .dtype = GDN_BF16 };
    int64_t schema = 0;
    const char *model = NULL;
    const cJSON *layer = NULL;
    const struct cli_json_field top[] = {
        { "schema", CLI_JSON_INT, true, &schema, 1, 1, NULL },
        { "model", CLI_JSON_STRING, true, &model, 0, 0, NULL },
        { "linear_attention", CLI_JSON_OBJECT, true, &layer, 0, 0, NULL },
        { "dtype", CLI_JSON_WORD, true, &p.dtype, 0, 0, cli_io_type_words },
        { "max_tp", CLI_JSON_INT, true, &p.max_tp, 1, 4096, NULL },
    };
    const struct cli_json_field inner[] = {
        { "num_k_heads", CLI_JSON_INT, true, &p.num_k_heads, 1, 4096, NULL },
        { "num_v_heads", CLI_JSON_INT, true, &p.num_v_heads, 1, 4096, NULL },
        { "head_dim_k", CLI_JSON_INT, true, &p.head_dim_k, 1, 4096, NULL },
        { "head_dim_v", CLI_JSON_INT, true, &p.head_dim_v, 1, 4096, NULL },
        { "conv_width", CLI_JSON_INT, true, &p.conv_width, 1, 64, NULL },
        { "conv_bias", CLI_JSON_BOOL, true, &p.conv_bias, 0, 0, NULL },
    };
    CLI_TRY(cli_json_object(name, root, top, COUNT(top)));
    char where[320];
    snprintf(where, sizeof where, "%.256s, linear_attention", name);
    CLI_TRY(cli_json_object(where, layer, inner, COUNT(inner)));
    CLI_TRY(check_max_tp(name, &p));
    if (!model[0] || strlen(model) >= sizeof p.model)
        return cli_fail(CLI_USAGE, "%s: \"model\" has %zu characters: must have from 1 to %zu", name, strlen(model),
                        sizeof p.model - 1);
    strcpy(p.model, model);
    *out = p;
    return CLI_OK;
}

/* dir/../share/gdn-jit/presets for a tool in dir, so that an installed tree may be moved. */
static void add_installed_dir(struct cli_names *out)
{
    char exe[4096];
    const ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len <= 0) return;
    exe[len] = '\0';
    char *slash = strrchr(exe, '/');
    if (!slash) return;
    *slash = '\0';
    char dir[sizeof exe + 32];
    const int n = snprintf(dir, sizeof dir, "%s/../share/gdn-jit/presets", exe);
    if (access(dir, R_OK | X_OK) == 0) cli_names_add(out, dir, (size_t)n);
}

void cli_preset_dirs(struct cli_names *out, const char *given)
{
    if (given) {
        cli_names_add(out, given, strlen(given));
        return;
    }
    add_installed_dir(out);
    cli_names_add(out, GDN_JIT_PRESET_DIR, strlen(GDN_JIT_PRESET_DIR));
}

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

static bool contains(const struct cli_names *list, const char *name, size_t len)
{
    for (size_t i = 0; i < list->count; ++i)
        if (strlen(list->items[i]) == len && memcmp(list->items[i], name, len) == 0) return true;
    return false;
}

void cli_preset_names(struct cli_names *out, const struct cli_names *dirs)
{
    for (size_t i = 0; i < dirs->count; ++i) {
        DIR *dir = opendir(dirs->items[i]);
        if (!dir) continue;
        for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
            const size_t len = strlen(e->d_name) - strlen(".json");
            if (has_suffix(e->d_name, ".json") && !contains(out, e->d_name, len)) cli_names_add(out, e->d_name, len);
        }
        closedir(dir);
    }
    cli_names_sort(out);
}

static int unknown_model(const struct cli_names *dirs, const char *model)
{
    struct cli_names known = { 0 };
    cli_preset_names(&known, dirs);
    char *list = cli_names_join(&known), *where = cli_names_join(dirs);
    const int code =
        known.count
            ? cli_fail(CLI_USAGE,
                       "--model \"%.64s\" is not known: use one of %s, or a preset file of your own (./name.json)",
                       model, list)
            : cli_fail(CLI_USAGE, "--model \"%.64s\": no presets found in %s: name their folder with --presets", model,
                       where);
    cli_free(where);
    cli_free(list);
    cli_names_free(&known);
    return code;
}

static int read_preset(struct cli_preset *out, const char *path)
{
    cJSON *root = NULL;
    CLI_TRY(cli_json_read(path, &root));
    const int code = cli_preset_from_json(out, path, root);
    cJSON_Delete(root);
    return code;
}

int cli_preset_find(struct cli_preset *out, const struct cli_names *dirs, const char *model)
{
    if (strchr(model, '/') || has_suffix(model, ".json")) return read_preset(out, model);
    for (size_t i = 0; i < dirs->count; ++i) {
        char path[4400];
        const int n = snprintf(path, sizeof path, "%s/%s.json", dirs->items[i], model);
        if (n < (int)sizeof path && access(path, F_OK) == 0) return read_preset(out, path);
    }
    return unknown_model(dirs, model);
}

static bool divides(const struct cli_preset *p, int64_t tp)
{
    return p->num_k_heads % tp == 0 && p->num_v_heads % tp == 0;
}

static void legal_tps(const struct cli_preset *p, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (int64_t tp = 1; tp <= p->max_tp && len < size; ++tp)
        if (divides(p, tp)) len += (size_t)snprintf(out + len, size - len, "%s%lld", tp > 1 ? ", " : "", (long long)tp);
}

static int check_tp(const struct cli_preset *p, int tp)
{
    char legal[128];
    legal_tps(p, legal, sizeof legal);
    if (tp > p->num_k_heads)
        return cli_fail(
            CLI_USAGE,
            "--tp is %d: %s has %lld key heads, and ranks beyond that share them by replication: use --tp %lld, or "
            "give a rank's own heads with --shapes",
            tp, p->model, (long long)p->num_k_heads, (long long)p->max_tp);
    if (tp > p->max_tp)
        return cli_fail(CLI_USAGE, "--tp is %d: the preset of %s goes up to max_tp %lld: use one of %s", tp, p->model,
                        (long long)p->max_tp, legal);
    if (!divides(p, tp))
        return cli_fail(CLI_USAGE,
                        "--tp is %d: it must divide the %lld key heads and %lld value heads of %s: use one of %s", tp,
                        (long long)p->num_k_heads, (long long)p->num_v_heads, p->model, legal);
    return CLI_OK;
}

/* One rank's layer, in one choice of everything that has a list. */
struct rank {
    const struct cli_preset *preset;
    const struct cli_expansion *how;
    int tp, dtype;
};

static struct cli_shape new_shape(const struct rank *r, enum cli_op op)
{
    struct cli_shape shape = { .op = op };
    snprintf(shape.label, sizeof shape.label, "%s tp%d", r->preset->model, r->tp);
    return shape;
}

static void add_conv1d(struct cli_shapes *list, const struct rank *r, int layout, int x_alignment)
{
    struct cli_shape shape = new_shape(r, CLI_CONV1D);
    gdn_conv1d_desc *d = &shape.desc.conv1d;
    *d = (gdn_conv1d_desc)GDN_CONV1D_DESC_INIT;
    d->io_type = (gdn_dtype)r->dtype;
    d->state_layout = (gdn_conv_state_layout)layout;
    d->num_q_heads = d->num_k_heads = (int32_t)r->preset->num_k_heads / r->tp;
    d->num_v_heads = (int32_t)r->preset->num_v_heads / r->tp;
    d->head_dim_qk = (int32_t)r->preset->head_dim_k;
    d->head_dim_v = (int32_t)r->preset->head_dim_v;
    d->width = (int32_t)r->preset->conv_width;
    d->flags = GDN_CONV_SILU | (r->preset->conv_bias ? (uint32_t)GDN_CONV_BIAS : 0u);
    d->x_alignment = x_alignment;
    d->max_tokens = r->how->max_tokens;
    d->max_seqs = r->how->max_seqs;
    cli_shapes_add(list, &shape);
}

static void add_prefill(struct cli_shapes *list, const struct rank *r, int layout)
{
    struct cli_shape shape = new_shape(r, CLI_PREFILL);
    gdn_prefill_desc *d = &shape.desc.prefill;
    *d = (gdn_prefill_desc)GDN_PREFILL_DESC_INIT;
    d->io_type = (gdn_dtype)r->dtype;
    d->state_layout = (gdn_state_layout)layout;
    d->num_q_heads = d->num_k_heads = (int32_t)r->preset->num_k_heads / r->tp;
    d->num_v_heads = (int32_t)r->preset->num_v_heads / r->tp;
    d->head_dim_qk = (int32_t)r->preset->head_dim_k;
    d->head_dim_v = (int32_t)r->preset->head_dim_v;
    d->max_tokens = r->how->max_tokens;
    d->max_seqs = r->how->max_seqs;
    cli_shapes_add(list, &shape);
}

static struct cli_ints or_default(const struct cli_ints *given, int value)
{
    return given->count ? *given : (struct cli_ints){ .count = 1, .values = { value } };
}

static void add_rank(struct cli_shapes *list, const struct rank *r)
{
    const struct cli_ints conv = or_default(&r->how->conv_layouts, GDN_CONV_STATE_CW);
    const struct cli_ints align = or_default(&r->how->x_alignments, 16);
    const struct cli_ints state = or_default(&r->how->state_layouts, GDN_STATE_KV);
    for (int i = 0; i < conv.count; ++i)
        for (int j = 0; j < align.count; ++j)
            add_conv1d(list, r, conv.values[i], align.values[j]);
    for (int i = 0; i < state.count; ++i)
        add_prefill(list, r, state.values[i]);
}

static struct cli_ints default_tps(const struct cli_preset *p)
{
    struct cli_ints tps = { 0 };
    for (int tp = 1; tp <= p->max_tp && tps.count < CLI_MAX_INTS; tp *= 2)
        if (divides(p, tp)) tps.values[tps.count++] = tp;
    return tps;
}

int cli_preset_expand(struct cli_shapes *list, const struct cli_preset *preset, const struct cli_expansion *how)
{
    const struct cli_ints tps = how->tp.count ? how->tp : default_tps(preset);
    const struct cli_ints dtypes = or_default(&how->dtypes, preset->dtype);
    for (int i = 0; i < tps.count; ++i) {
        CLI_TRY(check_tp(preset, tps.values[i]));
        for (int j = 0; j < dtypes.count; ++j)
            add_rank(list, &(struct rank){ preset, how, tps.values[i], dtypes.values[j] });
    }
    return CLI_OK;
}
