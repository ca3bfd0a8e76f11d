/*
 * presets.c - owns the JSON format of presets and where they lie. Must not know: shapes of a rank, targets, commands.
 */
#include "cli/presets.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/text.h"

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
    struct cli_preset p = { .dtype = GDN_BF16, .projection = GDN_CONV_X_PACKED };
    int64_t schema = 0;
    const char *model = NULL;
    const cJSON *layer = NULL;
    const struct gdni_json_field top[] = {
        { "schema", GDNI_JSON_INT, true, &schema, 1, 1, NULL },
        { "model", GDNI_JSON_STRING, true, &model, 0, 0, NULL },
        { "linear_attention", GDNI_JSON_OBJECT, true, &layer, 0, 0, NULL },
        { "dtype", GDNI_JSON_WORD, true, &p.dtype, 0, 0, cli_io_type_words },
        { "max_tp", GDNI_JSON_INT, true, &p.max_tp, 1, 4096, NULL },
    };
    const struct gdni_json_field inner[] = {
        { "num_k_heads", GDNI_JSON_INT, true, &p.num_k_heads, 1, 4096, NULL },
        { "num_v_heads", GDNI_JSON_INT, true, &p.num_v_heads, 1, 4096, NULL },
        { "head_dim_k", GDNI_JSON_INT, true, &p.head_dim_k, 1, 4096, NULL },
        { "head_dim_v", GDNI_JSON_INT, true, &p.head_dim_v, 1, 4096, NULL },
        { "conv_width", GDNI_JSON_INT, true, &p.conv_width, 1, 64, NULL },
        { "conv_bias", GDNI_JSON_BOOL, true, &p.conv_bias, 0, 0, NULL },
        { "projection", GDNI_JSON_WORD, false, &p.projection, 0, 0, cli_x_layout_words },
    };
    CLI_TRY(cli_json_object(name, root, top, COUNT(top)));
    char where[320];
    snprintf(where, sizeof where, "%.256s, linear_attention", name);
    CLI_TRY(cli_json_object(where, layer, inner, COUNT(inner)));
    CLI_TRY(check_max_tp(name, &p));
    if (!model[0] || strlen(model) >= sizeof p.model)
        return cli_fail(CLI_USAGE, "%s: \"model\" has %zu characters: must have from 1 to %zu", name, strlen(model),
                        sizeof p.model - 1);
    CLI_TRY(cli_check_name(name, "model", model));
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

bool cli_preset_is_file(const char *model)
{
    return strchr(model, '/') || has_suffix(model, ".json");
}

int cli_preset_find(struct cli_preset *out, const struct cli_names *dirs, const char *model)
{
    if (cli_preset_is_file(model)) return read_preset(out, model);
    for (size_t i = 0; i < dirs->count; ++i) {
        char path[4400];
        const int n = snprintf(path, sizeof path, "%s/%s.json", dirs->items[i], model);
        if (n < (int)sizeof path && access(path, F_OK) == 0) return read_preset(out, path);
    }
    return unknown_model(dirs, model);
}
