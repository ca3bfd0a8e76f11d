/*
 * resolve.c - owns what options stand for: shapes, a context. Must not know: how options are written, what commands do.
 */
#include "cli/resolve.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/say.h"
#include "env/variables.h"

/* "all" is every preset; without any it stays a name that is not known, and is refused with where they were looked for. */
static void add_models(struct cli_names *out, const struct cli_names *dirs, const char *model)
{
    struct cli_names known = { 0 };
    if (strcmp(model, "all") == 0) cli_preset_names(&known, dirs);
    for (size_t i = 0; i < known.count; ++i)
        cli_names_add(out, known.items[i], strlen(known.items[i]));
    if (!known.count) cli_names_add(out, model, strlen(model));
    cli_names_free(&known);
}

static int expand_models(const struct cli_options *o, struct cli_shapes *out)
{
    struct cli_names dirs = { 0 }, names = { 0 };
    int code = CLI_OK;
    cli_preset_dirs(&dirs, o->presets_dir);
    for (size_t i = 0; i < o->models.count; ++i)
        add_models(&names, &dirs, o->models.items[i]);
    for (size_t i = 0; i < names.count && code == CLI_OK; ++i) {
        struct cli_preset preset;
        code = cli_preset_find(&preset, &dirs, names.items[i]);
        if (code == CLI_OK) code = cli_preset_expand(out, &preset, &o->how);
    }
    cli_names_free(&names);
    cli_names_free(&dirs);
    return code;
}

static int keep_ops(const struct cli_options *o, struct cli_shapes *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; ++i)
        if (!o->ops || o->ops >> list->items[i].op & 1) list->items[kept++] = list->items[i];
    list->count = kept;
    return kept ? CLI_OK
                : cli_fail(CLI_USAGE, "--op leaves no shape: %s holds shapes of the other operator only",
                           o->shapes_file);
}

static int no_shapes(const struct cli_options *o)
{
    struct cli_names dirs = { 0 }, known = { 0 };
    cli_preset_dirs(&dirs, o->presets_dir);
    cli_preset_names(&known, &dirs);
    char *list = cli_names_join(&known), *where = cli_names_join(&dirs);
    const char *files = o->groups & CLI_OPTIONS_BUILD ? "a file with --shapes, or a recorded list with --from"
                                                      : "or a file with --shapes";
    const int code =
        known.count
            ? cli_fail(CLI_USAGE, "no shape given: name a model with --model (%s), %s", list, files)
            : cli_fail(CLI_USAGE,
                       "no shape given, and no presets found in %s: name their folder with --presets and a model of it "
                       "with --model, %s",
                       where, files);
    cli_free(where);
    cli_free(list);
    cli_names_free(&known);
    cli_names_free(&dirs);
    return code;
}

bool cli_resolve_has_shapes(const struct cli_options *o)
{
    return o->models.count || o->shapes_file;
}

int cli_resolve_shapes(const struct cli_options *o, struct cli_shapes *out)
{
    if (!o->models.count && o->model_option)
        return cli_fail(CLI_USAGE, "%s changes what --model expands to, and no --model is given: %s", o->model_option,
                        o->shapes_file ? "say it in the list" : "name one");
    if (!cli_resolve_has_shapes(o)) return o->from ? CLI_OK : no_shapes(o);
    CLI_TRY(expand_models(o, out));
    if (o->shapes_file) CLI_TRY(cli_shapes_read(out, o->shapes_file));
    return keep_ops(o, out);
}

/* A command that needs the cache directory ends with what this warning says, and doctor has it; show goes on. */
static bool is_told_otherwise(const struct cli_options *o, const char *message)
{
    static const char words[] = "cubins are kept in memory only: ";
    return (o->key || !(o->groups & CLI_OPTIONS_SHOW)) && strncmp(message, words, sizeof words - 1) == 0;
}

static void on_log(void *user, int level, const char *message)
{
    if (is_told_otherwise(user, message)) return;
    cli_say("%s%s", level == GDN_LOG_ERROR ? "error: " : level == GDN_LOG_WARN ? "warning: " : "", message);
}

/* A file that is named must be taken in: the kernels would be others. */
static int load_tunings(gdn_ctx *ctx, const struct cli_options *o)
{
    for (size_t i = 0; i < o->tunings.count; ++i)
        if (gdn_tuning_load(ctx, o->tunings.items[i], 0, NULL, NULL, NULL) != GDN_OK)
            return cli_fail(CLI_USAGE, "--tuning %s: %s", o->tunings.items[i], gdn_last_error());
    return CLI_OK;
}

int32_t cli_resolve_jobs(const struct cli_options *o)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int64_t wanted = o->jobs ? o->jobs : processors > 0 ? processors : 1;
    return wanted < GDNI_MAX_COMPILE_JOBS ? (int32_t)wanted : GDNI_MAX_COMPILE_JOBS;
}

static int make_context(const struct cli_options *o, uint32_t flags, gdn_ctx **out)
{
    gdn_config config = GDN_CONFIG_INIT;
    config.cache_dir = o->check ? "" : o->cache_dir; /* tune --check looks at a tuning file, and makes no directory */
    config.nvrtc_path = o->nvrtc;
    config.flags = flags | (o->shared_cache ? (uint32_t)GDN_CTX_SHARED_CACHE : 0);
    config.record_path = ""; /* GDN_JIT_RECORD is for what an engine asks for, and may name the list that --from reads */
    if (o->groups & (CLI_OPTIONS_BUILD | CLI_OPTIONS_TUNE)) config.compile_jobs = cli_resolve_jobs(o); /* has --jobs */
    config.log_fn = on_log;
    config.log_user = (void *)o;
    config.log_level = o->verbose ? GDN_LOG_DEBUG : GDN_LOG_WARN;
    if (gdn_ctx_create(out, &config) != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    const int code = load_tunings(*out, o);
    if (code == CLI_OK) return CLI_OK;
    gdn_ctx_destroy(*out);
    *out = NULL;
    return code;
}

int cli_resolve_context(const struct cli_options *o, gdn_ctx **out)
{
    return make_context(o, 0, out);
}

int cli_resolve_context_to_read(const struct cli_options *o, gdn_ctx **out)
{
    struct stat st;
    if (o->cache_dir && o->cache_dir[0] && stat(o->cache_dir, &st) != 0)
        return cli_fail(CLI_FAILED, "--cache-dir %s cannot be read: %s; %s", o->cache_dir, strerror(errno),
                        errno == ENOENT ? "name a directory that is there, or let gdn-jit-cache warm make it"
                                        : "name a directory that this user may read");
    return make_context(o, GDN_CTX_EXISTING_CACHE, out);
}

int cli_require_cache(gdn_ctx *ctx, const struct cli_options *o)
{
    if (gdn_cache_dir(ctx)) return CLI_OK;
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    const bool told = gdn_examine(ctx, &doctor) == GDN_OK && doctor.cache_problem[0];
    const char *why = told ? doctor.cache_problem : "none is set";
    if (strstr(why, "--cache-dir")) return cli_fail(CLI_FAILED, "no cache directory: %s", why);
    return cli_fail(CLI_FAILED, "no cache directory: %s; or name %s with --cache-dir", why,
                    o->cache_dir ? "another one" : "one");
}
