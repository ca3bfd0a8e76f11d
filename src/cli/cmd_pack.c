/*
 * cmd_pack.c - owns `pack`: kernels of models, shapes or a recorded list, or of the whole cache, as a bundle that may be moved.
 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/build.h"
#include "cli/commands.h"
#include "cli/compiler.h"
#include "cli/entries.h"
#include "cli/missing.h"
#include "cli/place.h"
#include "cli/plan_facts.h"
#include "cli/resolve.h"
#include "cli/say.h"
#include "cli/tar.h"

static const char doc[] =
    "Makes a bundle: a read-only directory of kernels with a manifest, which may be moved, copied into "
    "an image, and is searched before any cache by a process that GDN_JIT_BUNDLE_PATH names it to; it "
    "then needs no NVRTC, no writable disk and no HOME. With models or shapes what they need, compiled "
    "first where it is in no cache; without, every entry of the cache directory.\v"
    "Examples:\n"
    "  gdn-jit-cache pack -m qwen3-next-80b-a3b --tp 1,4 --gpu \"NVIDIA H200\" -o /opt/gdn-bundle\n"
    "  gdn-jit-cache pack --from recorded.jsonl --tar gdn-bundle.tar\n"
    "  gdn-jit-cache pack -o /opt/gdn-bundle\n"
    "\n"
    "The same kernels give the same bytes, in the directory and in the archive.\n"
    "\n"
    "Exit status: 0 the bundle is there, 1 it could not be made, and is not there, or damaged or refused entries of the "
    "cache directory were left out of it, 2 the command line or a file it names is wrong, or nothing can be put where it "
    "says.";

/* What the bundle is to hold; all of it, when there are no jobs. */
struct pack {
    struct cli_jobs jobs;
    struct cli_build build;
    struct cli_names contents; /* a line for each job, sorted, once */
    bool all, shared_cache;
};

/* ---- what goes in ---- */

static void list_contents(struct pack *p)
{
    struct cli_names lines = { 0 };
    for (size_t i = 0; i < p->jobs.count; ++i) {
        char line[256], where[96];
        const int len = snprintf(line, sizeof line, "%s, %s", p->jobs.items[i].shape->label,
                                 cli_target_text(where, p->jobs.items[i].target));
        cli_names_add(&lines, line, (size_t)len);
    }
    cli_names_sort(&lines);
    for (size_t i = 0; i < lines.count; ++i)
        if (i == 0 || strcmp(lines.items[i], lines.items[i - 1]) != 0)
            cli_names_add(&p->contents, lines.items[i], strlen(lines.items[i]));
    cli_names_free(&lines);
}

static int build_kernels(struct pack *p, gdn_ctx *ctx, const struct cli_options *o)
{
    CLI_TRY(cli_jobs_aim(&p->jobs, ctx, o));
    cli_build_run(&p->build, ctx, &p->jobs, cli_resolve_jobs(o));
    cli_build_say_problems(&p->build);
    if (p->build.failed)
        return cli_fail(CLI_FAILED, "%zu of %zu plans failed: nothing was packed", p->build.failed, p->jobs.count);
    list_contents(p);
    return CLI_OK;
}

/* Of a kernel that was built just now the library knows no more than that it is not there. */
static int fail_pack(const struct pack *p, gdn_ctx *ctx, gdn_status status)
{
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    size_t missing = 0;
    const int code = cli_fail(CLI_FAILED, "%s", gdn_last_error());
    if (p->all || status != GDN_E_NOT_CACHED || gdn_cache_stat(ctx, &stats) != GDN_OK) return code;
    if (!stats.evicted && !stats.publish_failures) return code;
    CLI_TRY(cli_missing_count(&p->build, &missing));
    return missing ? cli_missing_fail(&p->build, missing, &stats, p->shared_cache) : code;
}

static int pack_into(const struct pack *p, gdn_ctx *ctx, const char *dir, gdn_cache_report *report)
{
    const size_t count = p->build.num_kernels;
    const char **keys = cli_alloc((count + 1) * sizeof *keys);
    gdn_pack_options how = GDN_PACK_OPTIONS_INIT;
    for (size_t i = 0; i < count; ++i)
        keys[i] = p->build.kernels[i].key;
    how.dir = dir;
    how.keys = p->all ? NULL : keys;
    how.num_keys = count;
    how.contents = (const char *const *)p->contents.items;
    how.num_contents = p->contents.count;
    const gdn_status status = gdn_cache_pack(ctx, &how, report);
    cli_free(keys);
    return status == GDN_OK ? CLI_OK : fail_pack(p, ctx, status);
}

/* ---- where it goes ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/* What is said of the bundle that is made for it, which nobody named, and which is gone. */
static int fail_tar(int code, const char *tar, const char *dir)
{
    char words[CLI_PLACE_TEMPORARY + 16];
    const size_t len = (size_t)snprintf(words, sizeof words, "bundle %s: ", dir);
    const bool of_bundle = strncmp(cli_error(), words, len) == 0;
    return of_bundle ? cli_fail(code, "--tar %s: the bundle that is made beside it: %s", tar, cli_error() + len) : code;
}

/* Without --output the bundle is made beside the archive, and taken away again. */
static int pack_for_tar(const struct pack *p, gdn_ctx *ctx, const char *tar, gdn_cache_report *report)
{
    char dir[CLI_PLACE_TEMPORARY];
    CLI_TRY(cli_place_temporary(tar, dir));
    if (!mkdtemp(dir))
        return cli_fail(CLI_FAILED, "--tar %s: cannot make a folder beside it: %s", tar, strerror(errno));
    int code = pack_into(p, ctx, dir, report);
    code = code == CLI_OK ? cli_tar_write(tar, dir) : fail_tar(code, tar, dir);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return code;
}

static int pack_for(const struct pack *p, gdn_ctx *ctx, const struct cli_options *o, gdn_cache_report *report)
{
    if (!o->output) return pack_for_tar(p, ctx, o->tar, report);
    CLI_TRY(pack_into(p, ctx, o->output, report));
    return o->tar ? cli_tar_write(o->tar, o->output) : CLI_OK;
}

/* ---- output ---- */

static void print_text(const struct pack *p, const gdn_cache_report *r, const struct cli_options *o)
{
    char size[CLI_SHORT];
    cli_print("%llu kernel%s, %s, %zu of them built for this, in %s%s%s\n", (unsigned long long)r->entries,
              r->entries == 1 ? "" : "s", cli_format_bytes(size, r->bytes), p->build.built, o->output ? o->output : "",
              o->output && o->tar ? " and " : "", o->tar ? o->tar : "");
}

static void print_json(const struct pack *p, const gdn_cache_report *r, const struct cli_options *o)
{
    cJSON *root = cJSON_CreateObject(), *contents = cJSON_CreateArray();
    cJSON_AddStringToObject(root, "output", o->output ? o->output : "");
    cJSON_AddStringToObject(root, "tar", o->tar ? o->tar : "");
    cJSON_AddNumberToObject(root, "built", (double)p->build.built);
    cli_report_json(root, r);
    for (size_t i = 0; i < p->contents.count; ++i)
        cJSON_AddItemToArray(contents, cJSON_CreateString(p->contents.items[i]));
    cJSON_AddItemToObject(root, "contents", contents);
    cli_print_json(root);
}

/* ---- the command ---- */

static int check_options(const struct cli_options *o, bool all)
{
    if (!o->output && !o->tar)
        return cli_fail(CLI_USAGE, "no place given: name a directory with --output, an archive with --tar, or both");
    if (all && (o->model_option || o->ops || o->archs.count || o->gpus.count || o->tunings.count || o->jobs))
        return cli_fail(CLI_USAGE, "without --model, --shapes and --from every entry of the cache directory is packed: "
                                   "name what is wanted, or leave the other options out");
    if (o->output && o->tar && strcmp(o->output, o->tar) == 0)
        return cli_fail(CLI_USAGE, "--output and --tar are both %s: give the archive a name of its own", o->tar);
    if (o->output) CLI_TRY(cli_place_check_directory("--output", o->output));
    if (o->tar) CLI_TRY(cli_tar_check(o->tar));
    if (!o->output || !o->tar || !cli_place_is_in(o->tar, o->output)) return CLI_OK;
    return cli_fail(CLI_USAGE,
                    "--tar %s is in --output %s, or is that: the archive is no part of the bundle, name another place",
                    o->tar, o->output);
}

/* Of named kernels every one is there, whatever else lies damaged in the cache; of the whole cache these are not. */
static int verdict(const struct pack *p, const gdn_cache_report *r)
{
    if (!p->all || !r->damaged) return CLI_OK;
    return cli_fail(CLI_FAILED, "%llu damaged or refused entr%s left out: gdn-jit-cache verify tells what is wrong",
                    (unsigned long long)r->damaged, r->damaged == 1 ? "y was" : "ies were");
}

static int run(struct pack *p, const struct cli_options *o, gdn_ctx **ctx)
{
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    p->all = !o->from && !cli_resolve_has_shapes(o);
    p->shared_cache = o->shared_cache;
    CLI_TRY(check_options(o, p->all));
    if (!p->all) CLI_TRY(cli_jobs_read(&p->jobs, o));
    CLI_TRY((p->all ? cli_resolve_context_to_read : cli_resolve_context)(o, ctx));
    CLI_TRY(cli_require_compiler(*ctx, o));
    CLI_TRY(cli_require_cache(*ctx, o));
    if (!p->all) CLI_TRY(build_kernels(p, *ctx, o));
    CLI_TRY(pack_for(p, *ctx, o, &report));
    (o->json ? print_json : print_text)(p, &report, o);
    return verdict(p, &report);
}

int cli_cmd_pack(int argc, char **argv)
{
    struct cli_options options;
    struct pack p = { 0 };
    gdn_ctx *ctx = NULL;
    cli_options_parse(&options,
                      CLI_OPTIONS_SHAPES | CLI_OPTIONS_TARGETS | CLI_OPTIONS_BUILD | CLI_OPTIONS_PACK |
                          CLI_OPTIONS_COMPILER,
                      doc, argc, argv);
    const int code = run(&p, &options, &ctx);
    cli_build_free(&p.build);
    cli_jobs_free(&p.jobs);
    cli_names_free(&p.contents);
    gdn_ctx_destroy(ctx);
    cli_options_free(&options);
    return code;
}
