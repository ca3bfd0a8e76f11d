/*
 * record.c - owns the recorded list: its lines, and how they get into a file that many threads and processes append to.
 * Must not know: who makes plans. No lock: a line is one write() to a file that was opened to append.
 *
 *   {"schema": 1, "library": "0.1.0", "gpu": "NVIDIA H200", "arch": "sm_90a", "num_sms": 132, "plan_flags": 0,
 *    "shape": {as gdn-jit-cache warm --shapes takes it}, "keys": ["<32 hex>", ...]}                        (on one line)
 */
#include "runtime/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "codegen/key.h"
#include "codegen/shape.h"
#include "codegen/unit.h"
#include "runtime/context.h"
#include "runtime/fsutil.h"
#include "runtime/plan.h"

struct gdni_record {
    int fd; /* -1: nothing is recorded */
    const struct gdni_log *log;
    atomic_bool torn; /* the last write was cut short: the next one ends that line first */
    atomic_flag warned;
};

struct gdni_record *gdni_record_create(const char *path, const struct gdni_log *log)
{
    struct gdni_record *r = gdni_calloc(1, sizeof *r);
    if (!r) return NULL;
    r->log = log;
    r->fd = -1;
    if (!path || !*path) return r;
    r->fd = gdni_fs_off_standard(open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
    if (r->fd < 0)
        gdni_log(log, GDN_LOG_WARN, "plans are not recorded: %s cannot be opened: %s", path, gdni_fs_error(errno));
    return r;
}

void gdni_record_destroy(struct gdni_record *record)
{
    if (!record) return;
    if (record->fd >= 0) close(record->fd);
    gdni_free(record);
}

/* ---- a line ---- */

static gdn_status print_key(struct gdni_strbuf *sb, const struct gdni_spec *spec)
{
    struct gdni_unit unit = { 0 };
    struct gdni_key key = { 0 };
    GDN_TRY(gdni_unit_build(&unit, spec));
    const gdn_status status = gdni_key_build(&key, &unit);
    if (status == GDN_OK) gdni_sb_fmt(sb, "\"%s\"", key.hex);
    gdni_key_free(&key);
    gdni_unit_free(&unit);
    return status;
}

/* A quote stands in names only, inside a string, where JSON has another spelling of it. */
static void copy_unquoted(struct gdni_strbuf *to, const struct gdni_strbuf *from)
{
    for (size_t i = 0; i < from->len; ++i)
        if (from->text[i] == '\'')
            gdni_sb_str(to, "\\u0027");
        else
            gdni_sb_bytes(to, from->text + i, 1);
    to->failed |= from->failed;
}

static gdn_status print_line(struct gdni_strbuf *sb, const gdn_plan *plan, uint32_t flags)
{
    gdni_sb_fmt(sb, "{\"schema\": 1, \"library\": \"%d.%d.%d\"", GDN_VERSION_MAJOR, GDN_VERSION_MINOR,
                GDN_VERSION_PATCH);
    gdni_sb_json_text(sb, "gpu", plan->target.gpu_name);
    gdni_sb_json_text(sb, "arch", plan->arch->name);
    gdni_sb_json_int(sb, "num_sms", plan->target.num_sms);
    gdni_sb_json_int(sb, "plan_flags", flags & ~(uint32_t)GDN_PLAN_CACHED_ONLY); /* says nothing about what it needs */
    gdni_sb_str(sb, ", \"shape\": ");
    gdni_shape_print(sb, &plan->problem);
    gdni_sb_str(sb, ", \"keys\": [");
    for (int i = 0; i < plan->num_variants; ++i) {
        gdni_sb_str(sb, i ? ", " : "");
        GDN_TRY(print_key(sb, &plan->specs[i]));
    }
    gdni_sb_str(sb, "]}");
    return GDN_OK;
}

/* The line, without its end. In it stands no single quote: it may be quoted by them in a shell. */
static gdn_status print_quotable(struct gdni_strbuf *sb, const gdn_plan *plan, uint32_t flags)
{
    struct gdni_strbuf line = { 0 };
    const gdn_status status = print_line(&line, plan, flags);
    if (status == GDN_OK) copy_unquoted(sb, &line);
    gdni_sb_free(&line);
    if (status != GDN_OK) return status;
    return sb->failed ? GDN_FAIL(GDN_E_NOMEM, "out of memory: the record of a plan") : GDN_OK;
}

/* ---- a command ---- */

/* One word of a shell, whatever is in it. */
static void quote(struct gdni_strbuf *sb, const char *word)
{
    gdni_sb_str(sb, "'");
    for (; *word; ++word)
        if (*word == '\'')
            gdni_sb_str(sb, "'\\''");
        else
            gdni_sb_bytes(sb, word, 1);
    gdni_sb_str(sb, "'");
}

/*
 * Into the context's cache, named where the tool would not look there by itself; or, where it has none, a bundle for it, by way
 * of a directory that is named, since without a name the tool would have none either.
 */
static void print_tool(struct gdni_strbuf *sb, const gdn_ctx *ctx)
{
    char absolute[PATH_MAX];
    const char *dir = gdn_cache_dir(ctx);
    if (ctx->env.disable_compile) gdni_sb_str(sb, "GDN_JIT_DISABLE_COMPILE=0 ");
    if (!dir) {
        gdni_sb_str(sb, "gdn-jit-cache pack --from - --cache-dir CACHE --output BUNDLE");
        return;
    }
    gdni_sb_str(sb, "gdn-jit-cache warm --from -");
    if (ctx->flags & GDN_CTX_SHARED_CACHE) gdni_sb_str(sb, " --shared-cache");
    if (!ctx->cache_named) return;
    gdni_sb_str(sb, " --cache-dir ");
    quote(sb, realpath(dir, absolute) ? absolute : dir);
}

gdn_status gdni_record_print_command(struct gdni_strbuf *sb, const gdn_plan *plan, uint32_t flags)
{
    gdni_sb_str(sb, "echo '");
    GDN_TRY(print_quotable(sb, plan, flags));
    gdni_sb_str(sb, "' | ");
    print_tool(sb, plan->ctx);
    return sb->failed ? GDN_FAIL(GDN_E_NOMEM, "out of memory: the command that adds a plan") : GDN_OK;
}

/* ---- the file ---- */

static void note(struct gdni_record *r, const char *why)
{
    if (!atomic_flag_test_and_set(&r->warned))
        gdni_log(r->log, GDN_LOG_WARN, "a plan could not be recorded: %s; the recorded list is not complete", why);
}

static void append(struct gdni_record *r, const char *line, size_t len, bool was_torn)
{
    size_t written = 0;
    const int err = gdni_fs_append(r->fd, line, len, &written);
    if (written < len) note(r, err ? gdni_fs_error(err) : "the disk took a part of the line only");
    if (written < len && (written || was_torn)) atomic_store(&r->torn, true);
}

void gdni_record_plan(struct gdni_record *r, const gdn_plan *plan, uint32_t flags)
{
    if (r->fd < 0) return;
    struct gdni_strbuf sb = { 0 };
    const bool was_torn = atomic_exchange(&r->torn, false);
    if (was_torn) gdni_sb_str(&sb, "\n");
    gdn_status status = print_quotable(&sb, plan, flags);
    gdni_sb_str(&sb, "\n");
    if (status == GDN_OK && sb.failed) status = GDN_FAIL(GDN_E_NOMEM, "out of memory");
    if (status == GDN_OK)
        append(r, sb.text, sb.len, was_torn);
    else
        note(r, gdni_error_text());
    gdni_sb_free(&sb);
}
