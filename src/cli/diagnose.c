/*
 * diagnose.c - owns what facts mean and which remedy they have. Must not know: how facts are found, how findings are printed.
 */
#include "cli/diagnose.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const cli_part_names[CLI_NUM_PARTS] = {
    [CLI_PART_ENV] = "env",       [CLI_PART_DRIVER] = "driver", [CLI_PART_NVRTC] = "nvrtc",  [CLI_PART_CACHE] = "cache",
    [CLI_PART_BUNDLE] = "bundle", [CLI_PART_GPU] = "gpu",       [CLI_PART_TABLES] = "tables"
};

__attribute__((format(printf, 4, 5))) static void find(struct cli_findings *out, enum cli_part part, bool stops_warm,
                                                       const char *format, ...)
{
    if (out->count == CLI_MAX_FINDINGS) return;
    struct cli_finding *f = &out->items[out->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    f->part = part;
    f->stops_warm = stops_warm;
}

/* ---- environment ---- */

static void diagnose_environment(const struct cli_facts *f, struct cli_findings *out)
{
    for (size_t i = 0; i < f->refused_variables.count; ++i)
        find(out, CLI_PART_ENV, true, "%s; gdn_ctx_create() refuses it: correct or unset it",
             f->refused_variables.items[i]);
}

/* ---- driver ---- */

/*
 * Cubins of an NVRTC run on drivers of its own major version and newer ones: the form of a cubin changes with the major
 * version. The library's lines begin "CUDA 12.4, ..." and "nvrtc 13.0 ...".
 */
static void diagnose_versions(const gdn_doctor *d, struct cli_findings *out)
{
    int driver = 0, driver_minor = 0, nvrtc = 0, nvrtc_minor = 0;
    if (sscanf(d->driver, "CUDA %d.%d", &driver, &driver_minor) != 2) return;
    if (sscanf(d->nvrtc, "nvrtc %d.%d", &nvrtc, &nvrtc_minor) != 2 || driver >= nvrtc) return;
    find(out, CLI_PART_DRIVER, false,
         "the driver is of CUDA %d.%d and NVRTC of %d.%d: this driver cannot load what this NVRTC makes; update the "
         "driver, or "
         "name an NVRTC %d with --nvrtc or GDN_JIT_NVRTC",
         driver, driver_minor, nvrtc, nvrtc_minor, driver);
}

static void diagnose_driver(const struct cli_facts *f, struct cli_findings *out)
{
    if (f->doctor.driver_problem[0]) find(out, CLI_PART_DRIVER, false, "%s", f->doctor.driver_problem);
    if (!f->compile_disabled) diagnose_versions(&f->doctor, out);
}

/* ---- NVRTC ---- */

static const struct cli_probe *find_probe(const struct cli_facts *f, const char *arch)
{
    for (size_t i = 0; i < f->num_probes; ++i)
        if (strcmp(f->probes[i].arch, arch) == 0) return &f->probes[i];
    return NULL;
}

static size_t num_compiling(const struct cli_facts *f)
{
    size_t count = 0;
    for (size_t i = 0; i < f->num_probes; ++i)
        count += f->probes[i].compiles;
    return count;
}

static void diagnose_builtins(const struct cli_facts *f, struct cli_findings *out)
{
    int major = 0, minor = 0;
    if (sscanf(f->doctor.nvrtc, "nvrtc %d.%d", &major, &minor) != 2) return;
    find(out, CLI_PART_NVRTC, true,
         "NVRTC is here and its builtins are not: libnvrtc-builtins.so.%d.%d must lie beside libnvrtc.so.%d; copy it "
         "there "
         "(it comes with the same package or wheel), or reinstall NVRTC (%s)",
         major, minor, major, f->probes[0].problem);
}

/* One cause may have stopped all archs: it is told once. Where nothing is compiled none of them matters. */
static void diagnose_nvrtc(const struct cli_facts *f, struct cli_findings *out)
{
    if (f->compile_disabled) {
        find(out, CLI_PART_NVRTC, false,
             "GDN_JIT_DISABLE_COMPILE is set: nothing is compiled; kernels come from bundles and the cache");
        return;
    }
    const bool none = f->num_probes && num_compiling(f) == 0;
    if (f->doctor.nvrtc_problem[0]) find(out, CLI_PART_NVRTC, !f->doctor.nvrtc[0], "%s", f->doctor.nvrtc_problem);
    if (!f->doctor.nvrtc[0]) return;
    if (none && (strstr(f->probes[0].problem, "BUILTIN") || strstr(f->probes[0].problem, "builtins")))
        diagnose_builtins(f, out);
    else if (none)
        find(out, CLI_PART_NVRTC, true, "NVRTC compiles for no arch: %s", f->probes[0].problem);
    for (size_t i = 0; i < f->num_probes && !none; ++i)
        if (!f->probes[i].compiles) find(out, CLI_PART_NVRTC, false, "%s: %s", f->probes[i].arch, f->probes[i].problem);
}

/* ---- cache ---- */

static const struct {
    int error;
    const char *remedy;
} write_remedies[] = {
    { EROFS,
      "its file system is read-only: mount it writable, name another directory with --cache-dir or GDN_JIT_CACHE_DIR, "
      "or ship the kernels as a bundle (gdn-jit-cache pack)" },
    { ENOSPC, "free space there; gdn-jit-cache prune removes kernels" },
    { EDQUOT, "this user's quota is used up: free space there; gdn-jit-cache prune removes kernels" },
};

const char *cli_write_remedy(int error)
{
    for (size_t i = 0; i < sizeof write_remedies / sizeof write_remedies[0]; ++i)
        if (write_remedies[i].error == error) return write_remedies[i].remedy;
    return "give it to this user with chown, or name another directory with --cache-dir or GDN_JIT_CACHE_DIR";
}

const char cli_owner_remedy[] =
    "folders and entries below the cache directory must belong to this user or root and be writable for nobody else: "
    "chown them and chmod go-w, or use --shared-cache and GDN_CTX_SHARED_CACHE if a group shares them";

static bool begins(const char *text, const char *words)
{
    return strncmp(text, words, strlen(words)) == 0;
}

static bool is_of_folder(const char *problem)
{
    return begins(problem, "in a folder of another user") || begins(problem, "in a folder that others may write to");
}

bool cli_is_distrusted(const char *problem)
{
    return is_of_folder(problem) || begins(problem, "owned by another user") || begins(problem, "writable for others");
}

const char *cli_problem_word(const char *problem)
{
    return cli_is_distrusted(problem) ? "refused" : "damaged";
}

static void diagnose_folders(const struct cli_facts *f, struct cli_findings *out)
{
    const struct cli_cache_folders *c = &f->folders;
    if (c->error)
        find(out, CLI_PART_CACHE, !f->compile_disabled,
             "%s cannot be written (%s), so that kernels in it are used and new ones are lost with their process: %s",
             c->unwritable, strerror(c->error), cli_write_remedy(c->error));
    if (c->untrusted[0] && !(f->damaged && is_of_folder(f->damage))) /* else its entries tell of it */
        find(out, CLI_PART_CACHE, !f->compile_disabled,
             "%s is not this user's alone, so that the library keeps nothing in it and uses nothing in it: %s",
             c->untrusted, cli_owner_remedy);
}

static void diagnose_entries(const struct cli_facts *f, struct cli_findings *out)
{
    const bool stops = is_of_folder(f->damage) && !f->compile_disabled; /* then nothing can be kept there either */
    const char *remedy =
        cli_is_distrusted(f->damage)
            ? cli_owner_remedy
            : "they are ignored, and replaced when they are needed; gdn-jit-cache verify --remove takes them away";
    if (f->damaged)
        find(out, CLI_PART_CACHE, stops, "%llu entr%s cannot be used (%s: %s): %s", (unsigned long long)f->damaged,
             f->damaged == 1 ? "y" : "ies", f->damaged_path, f->damage, remedy);
    if (f->temporaries)
        find(out, CLI_PART_CACHE, false,
             "%llu temporary files are left of processes that were killed: gdn-jit-cache prune takes them away",
             (unsigned long long)f->temporaries);
}

static void diagnose_cache(const struct cli_facts *f, struct cli_findings *out)
{
    const gdn_doctor *d = &f->doctor;
    if (d->cache[0])
        diagnose_folders(f, out); /* which has tried to write there */
    else if (d->cache_problem[0])
        find(out, CLI_PART_CACHE, !f->compile_disabled, "%s", d->cache_problem);
    diagnose_entries(f, out);
}

/* ---- bundles ---- */

bool cli_bundle_is_whole(const struct cli_bundle *b)
{
    const gdn_cache_report *r = &b->report;
    return b->readable && r->entries && !(r->damaged + r->missing + r->unlisted);
}

/* What is wrong with one is compiled anew, unless nothing is. */
static void diagnose_bundle(const struct cli_facts *f, const struct cli_bundle *b, struct cli_findings *out)
{
    static const char remedy[] = "pack it again, copy it again, or take it out of GDN_JIT_BUNDLE_PATH";
    const gdn_cache_report *r = &b->report;
    const bool stops = f->compile_disabled;
    if (cli_bundle_is_whole(b)) return;
    if (!b->readable)
        find(out, CLI_PART_BUNDLE, stops, "%s: correct its name in GDN_JIT_BUNDLE_PATH, or %s", b->problem, remedy);
    else if (!r->entries && !r->missing)
        find(out, CLI_PART_BUNDLE, stops, "%s holds no kernel: %s", b->path, remedy);
    else
        find(out, CLI_PART_BUNDLE, stops,
             "%s is not what was packed: %llu damaged, %llu missing, %llu not in the manifest (%s): %s", b->path,
             (unsigned long long)r->damaged, (unsigned long long)r->missing, (unsigned long long)r->unlisted,
             b->problem, remedy);
}

static void diagnose_bundles(const struct cli_facts *f, struct cli_findings *out)
{
    for (size_t i = 0; i < f->num_bundles; ++i)
        diagnose_bundle(f, &f->bundles[i], out);
    if (f->compile_disabled && !f->num_bundles && !f->doctor.cache[0])
        find(out, CLI_PART_BUNDLE, true,
             "there is neither a bundle nor a cache directory that a kernel could come from: name a bundle in "
             "GDN_JIT_BUNDLE_PATH");
}

/* ---- GPUs ---- */

static bool can_be_named(const struct cli_facts *f, const char *gpu)
{
    for (size_t i = 0; i < f->num_gpus; ++i)
        if (strcmp(f->gpus[i].name, gpu) == 0) return true;
    return false;
}

static void diagnose_device(const struct cli_facts *f, size_t ordinal, struct cli_findings *out)
{
    const struct cli_device *device = &f->devices[ordinal];
    const gdn_target *t = &device->target;
    const struct cli_probe *probe = find_probe(f, t->arch);
    if (device->problem[0]) {
        find(out, CLI_PART_GPU, false,
             "GPU %zu: %s; the library has no kernels for it, the other GPUs are not affected", ordinal,
             device->problem);
        return;
    }
    if (probe && !probe->compiles && num_compiling(f))
        find(out, CLI_PART_GPU, false, "GPU %zu, %s: its arch %s is one that this NVRTC cannot compile for", ordinal,
             t->gpu_name, t->arch);
    if (!can_be_named(f, t->gpu_name))
        find(out, CLI_PART_GPU, false,
             "GPU %zu, %s: not a GPU that --gpu can name elsewhere: warm for it here, with --arch %s, or with --from a "
             "recorded list",
             ordinal, t->gpu_name, t->arch);
}

/* ---- tables ---- */

enum match { NO_TABLE, SAME_ARCH, OTHER_SMS, EXACT };

bool cli_sms_alike(int32_t a, int32_t b)
{
    const int64_t more = a > b ? a : b, fewer = a > b ? b : a;
    return 4 * fewer >= 3 * more;
}

static enum match match_of(const struct cli_tuned_gpu *tuned, const gdn_target *t)
{
    if (strcmp(tuned->arch, t->arch) != 0 || !cli_sms_alike(tuned->num_sms, t->num_sms)) return NO_TABLE;
    if (strcmp(tuned->gpu, t->gpu_name) != 0) return SAME_ARCH;
    return tuned->num_sms == t->num_sms ? EXACT : OTHER_SMS;
}

static void diagnose_tables_of(const struct cli_facts *f, size_t ordinal, struct cli_findings *out)
{
    static const char advice[] = "a table that was measured on such a GPU can be named in GDN_JIT_TUNING_PATH";
    const gdn_target *t = &f->devices[ordinal].target;
    const struct cli_tuned_gpu *best = NULL;
    enum match match = NO_TABLE;
    for (size_t i = 0; i < f->num_tuned; ++i)
        if (match_of(&f->tuned[i], t) > match) {
            best = &f->tuned[i];
            match = match_of(best, t);
        }
    if (match == OTHER_SMS)
        find(out, CLI_PART_TABLES, false,
             "GPU %zu, %s, has %d SMs, and its tables were measured with %d (another board, or a part of a GPU): they "
             "serve as "
             "those of another GPU would; %s",
             ordinal, t->gpu_name, t->num_sms, best->num_sms, advice);
    else if (match == SAME_ARCH)
        find(out, CLI_PART_TABLES, false, "GPU %zu, %s, has no table of its own, and that of %s stands in for it; %s",
             ordinal, t->gpu_name, best->gpu, advice);
    else if (match == NO_TABLE)
        find(out, CLI_PART_TABLES, false,
             "GPU %zu, %s, has no table for %d SMs, nor has another GPU of %s with about as many: parameters come from the "
             "library's model; %s",
             ordinal, t->gpu_name, t->num_sms, t->arch, advice);
}

static void diagnose_tables(const struct cli_facts *f, struct cli_findings *out)
{
    for (size_t i = 0; i < f->num_devices; ++i)
        if (!f->devices[i].problem[0]) diagnose_tables_of(f, i, out);
    for (size_t i = 0; i < f->num_tuned; ++i)
        if (f->tuned[i].stale)
            find(out, CLI_PART_TABLES, false,
                 "%s: %lld of %lld entries were measured before their kernel changed: they are used, and measuring "
                 "again may gain",
                 f->tuned[i].gpu, (long long)f->tuned[i].stale, (long long)f->tuned[i].entries);
}

/* ---- all of it ---- */

void cli_diagnose(const struct cli_facts *facts, struct cli_findings *out)
{
    out->count = 0;
    diagnose_environment(facts, out);
    diagnose_driver(facts, out);
    diagnose_nvrtc(facts, out);
    diagnose_cache(facts, out);
    diagnose_bundles(facts, out);
    for (size_t i = 0; i < facts->num_devices; ++i)
        diagnose_device(facts, i, out);
    diagnose_tables(facts, out);
}

bool cli_stops_warm(const struct cli_findings *findings)
{
    for (size_t i = 0; i < findings->count; ++i)
        if (findings->items[i].stops_warm) return true;
    return false;
}
