/*
 * compile.c - owns one run of NVRTC: the thread that it runs in, its options, what it gives back, what its log says.
 * Must not know: keys, files, who asked. No lock but the compiler's slots (nvrtc.c).
 *
 * NVRTC needs more stack than an embedder's thread may have, and would raise the process's limit otherwise: the compile alone
 * runs in a thread of ours. All else, errors and allocations included, happens in the caller's, which may start some.
 */
#include "runtime/compile.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "codegen/options.h"
#include "runtime/clock.h"
#include "runtime/fsutil.h"

enum { STACK = 16 << 20, LOG_TAIL = 3000 };

struct gdni_compiling {
    struct gdni_nvrtc *nvrtc;
    const struct gdni_nvrtc_api *api;
    const struct gdni_unit *unit;
    struct gdni_options options;
    gdni_nvrtcprog program;
    pthread_t thread;
    gdni_nvrtcresult result; /* of the compile; both are written by its thread */
    uint64_t usec;
};

/* ---- the thread ---- */

/* Waits for the compiler's slot too, so that who starts some compiles waits for none. */
static void *compile_thread(void *data)
{
    struct gdni_compiling *run = data;
    const char *options[GDNI_MAX_OPTIONS];
    for (int i = 0; i < run->options.count; ++i)
        options[i] = run->options.text[i];
    gdni_nvrtc_enter(run->nvrtc);
    const int64_t start = gdni_now_us();
    run->result = run->api->nvrtcCompileProgram(run->program, run->options.count, options);
    run->usec = (uint64_t)(gdni_now_us() - start);
    gdni_nvrtc_leave(run->nvrtc);
    return NULL;
}

/* Returns 0 or what pthread said. Signals stay with the embedder's threads: his handlers expect no thread of ours. */
static int start_thread(struct gdni_compiling *run)
{
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);
    if (err) return err;
    err = pthread_attr_setstacksize(&attr, STACK);
    /* Signals of a fault of its own still reach the embedder's handlers. */
    static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; ++i)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (!err) err = pthread_create(&run->thread, &attr, compile_thread, run);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return err;
}

/* ---- talking to NVRTC ---- */

static gdn_status status_of(gdni_nvrtcresult result)
{
    static const gdni_nvrtcresult out_of_memory = 1; /* NVRTC_ERROR_OUT_OF_MEMORY */
    return result == out_of_memory ? GDN_E_NOMEM : GDN_E_COMPILE;
}

static gdn_status nvrtc_fail(const struct gdni_compiling *run, const char *call, gdni_nvrtcresult result)
{
    return GDN_FAIL(status_of(result), "%s of %s failed with %s (%s at %s)", call, run->unit->entry,
                    run->api->nvrtcGetErrorString(result), run->api->identity, run->api->path);
}

static gdn_status create_program(struct gdni_compiling *run)
{
    const struct gdni_unit *unit = run->unit;
    const char *texts[GDNI_UNIT_MAX_FILES], *names[GDNI_UNIT_MAX_FILES];
    for (int i = 0; i < unit->num_files; ++i) {
        texts[i] = unit->files[i].text;
        names[i] = unit->files[i].name;
    }
    const gdni_nvrtcresult result =
        run->api->nvrtcCreateProgram(&run->program, unit->main_text, unit->main_name, unit->num_files, texts, names);
    return result ? nvrtc_fail(run, "nvrtcCreateProgram", result) : GDN_OK;
}

/* The log, trimmed of the newlines and NULs at its end; "" when there is none. */
static gdn_status take_log(const struct gdni_compiling *run, char **out)
{
    size_t size = 0;
    gdni_nvrtcresult result = run->api->nvrtcGetProgramLogSize(run->program, &size);
    if (result) return nvrtc_fail(run, "nvrtcGetProgramLogSize", result);
    char *log = size < SIZE_MAX ? gdni_calloc(size + 1, 1) : NULL;
    if (!log) return GDN_FAIL(GDN_E_NOMEM, "out of memory: build log of %zu bytes", size);
    result = size ? run->api->nvrtcGetProgramLog(run->program, log) : 0;
    if (result) {
        gdni_free(log);
        return nvrtc_fail(run, "nvrtcGetProgramLog", result);
    }
    for (size_t len = strlen(log); len && log[len - 1] == '\n'; --len)
        log[len - 1] = '\0';
    *out = log;
    return GDN_OK;
}

static gdn_status compile_fail(const struct gdni_compiling *run)
{
    char *log;
    GDN_TRY(take_log(run, &log));
    const size_t len = strlen(log);
    const gdn_status status =
        GDN_FAIL(status_of(run->result), "%s could not compile %s for %s: %s%s%s", run->api->identity, run->unit->entry,
                 run->unit->spec.arch->name, run->api->nvrtcGetErrorString(run->result), len ? ": " : "",
                 len > LOG_TAIL ? log + (len - LOG_TAIL) : log);
    gdni_free(log);
    return status;
}

static gdn_status start_compile(struct gdni_compiling *run)
{
    const int err = start_thread(run);
    if (!err) return GDN_OK;
    run->api->nvrtcDestroyProgram(&run->program);
    return GDN_FAIL(GDN_E_NOMEM, "the compile thread with its stack of %d bytes cannot be started: %s", STACK,
                    gdni_fs_error(err));
}

static gdn_status begin_run(struct gdni_compiling *run)
{
    GDN_TRY(gdni_nvrtc_get(run->nvrtc, &run->api));
    GDN_TRY(gdni_nvrtc_check_arch(run->api, run->unit->spec.arch));
    gdni_options_build(&run->options, run->unit->spec.arch, run->api->version);
    GDN_TRY(create_program(run));
    return start_compile(run);
}

gdn_status gdni_compile_start(struct gdni_nvrtc *nvrtc, const struct gdni_unit *unit, struct gdni_compiling **out)
{
    struct gdni_compiling *run = gdni_calloc(1, sizeof *run);
    if (!run) return GDN_FAIL(GDN_E_NOMEM, "out of memory for a compile (%zu bytes)", sizeof *run);
    run->nvrtc = nvrtc;
    run->unit = unit;
    const gdn_status status = begin_run(run);
    if (status == GDN_OK)
        *out = run;
    else
        gdni_free(run);
    return status;
}

/* The compiler's result; what it made is still in it. Then end_run(). */
static gdn_status await(struct gdni_compiling *run)
{
    pthread_join(run->thread, NULL); /* cannot fail: a thread of ours that nobody else joins */
    return run->result ? compile_fail(run) : GDN_OK;
}

static void end_run(struct gdni_compiling *run)
{
    run->api->nvrtcDestroyProgram(&run->program);
    gdni_free(run);
}

/* Size, then bytes, into memory of ours with a NUL behind. */
static gdn_status take_output(const struct gdni_compiling *run, gdni_nvrtcresult (*get_size)(gdni_nvrtcprog, size_t *),
                              gdni_nvrtcresult (*get)(gdni_nvrtcprog, char *), const char *what, void **out,
                              size_t *out_size)
{
    size_t size = 0;
    gdni_nvrtcresult result = get_size(run->program, &size);
    if (result) return nvrtc_fail(run, what, result);
    char *bytes = size < SIZE_MAX ? gdni_alloc(size + 1) : NULL;
    if (!bytes) return GDN_FAIL(GDN_E_NOMEM, "out of memory: %zu bytes for the output of %s", size, what);
    result = get(run->program, bytes);
    if (result) {
        gdni_free(bytes);
        return nvrtc_fail(run, what, result);
    }
    bytes[size] = '\0';
    *out = bytes;
    *out_size = size;
    return GDN_OK;
}

/* ptxas says how long it took: two compiles of one unit would leave different logs, and bundles of different bytes. */
static void drop_times(char *log)
{
    static const char words[] = ": Compile time = ";
    char *to = log;
    for (const char *line = log; *line;) {
        const char *end = strchrnul(line, '\n'), *next = *end ? end + 1 : end;
        if (strncmp(line, "ptxas", 5) != 0 || !memmem(line, (size_t)(end - line), words, sizeof words - 1)) {
            memmove(to, line, (size_t)(next - line));
            to += next - line;
        }
        line = next;
    }
    while (to > log && to[-1] == '\n')
        --to;
    *to = '\0';
}

static gdn_status take_options(const struct gdni_compiling *run, char **out)
{
    struct gdni_strbuf sb = { 0 };
    for (int i = 0; i < run->options.count; ++i)
        gdni_sb_fmt(&sb, "%s%s", i ? " " : "", run->options.text[i]);
    *out = gdni_sb_take(&sb);
    return *out ? GDN_OK : GDN_FAIL(GDN_E_NOMEM, "out of memory: the options of a compile");
}

static gdn_status take_cubin(const struct gdni_compiling *run, struct gdni_compiled *out)
{
    GDN_TRY(take_log(run, &out->log));
    drop_times(out->log);
    GDN_TRY(take_options(run, &out->options));
    GDN_TRY(take_output(run, run->api->nvrtcGetCUBINSize, run->api->nvrtcGetCUBIN, "nvrtcGetCUBIN", &out->cubin,
                        &out->cubin_size));
    gdni_facts_from_log(&out->facts, out->log);
    out->usec = run->usec;
    out->facts.compile_ms = (int32_t)(run->usec / 1000);
    snprintf(out->facts.compiler, sizeof out->facts.compiler, "%s", run->api->identity);
    return GDN_OK;
}

gdn_status gdni_compile_finish(struct gdni_compiling *run, struct gdni_compiled *out)
{
    *out = (struct gdni_compiled){ 0 };
    gdn_status status = await(run);
    if (status == GDN_OK) status = take_cubin(run, out);
    end_run(run);
    if (status != GDN_OK) gdni_compiled_free(out);
    return status;
}

gdn_status gdni_compile(struct gdni_nvrtc *nvrtc, const struct gdni_unit *unit, struct gdni_compiled *out)
{
    struct gdni_compiling *run = NULL;
    *out = (struct gdni_compiled){ 0 };
    GDN_TRY(gdni_compile_start(nvrtc, unit, &run));
    return gdni_compile_finish(run, out);
}

void gdni_compiled_free(struct gdni_compiled *compiled)
{
    gdni_free(compiled->cubin);
    gdni_free(compiled->log);
    gdni_free(compiled->options);
    *compiled = (struct gdni_compiled){ 0 };
}

gdn_status gdni_compile_ptx(struct gdni_nvrtc *nvrtc, const struct gdni_unit *unit, char **out)
{
    struct gdni_compiling *run = NULL;
    void *ptx = NULL;
    size_t size;
    GDN_TRY(gdni_compile_start(nvrtc, unit, &run));
    gdn_status status = await(run);
    if (status == GDN_OK)
        status = take_output(run, run->api->nvrtcGetPTXSize, run->api->nvrtcGetPTX, "nvrtcGetPTX", &ptx, &size);
    end_run(run);
    *out = ptx;
    return status;
}

/* ---- what ptxas said ---- */

static int32_t saturated(int64_t value)
{
    return value > INT32_MAX ? INT32_MAX : (int32_t)value;
}

static void keep_most(int32_t *fact, int32_t value)
{
    if (value > *fact) *fact = value;
}

static void keep_sum(int32_t *fact, int32_t value)
{
    *fact = saturated((int64_t)*fact + value);
}

/* "<number><words>" in a line of ptxas. */
static const struct {
    const char *words;
    size_t fact;
    void (*keep)(int32_t *fact, int32_t value);
} phrases[] = {
    { " registers", offsetof(struct gdni_facts, registers), keep_most },
    { " bytes smem", offsetof(struct gdni_facts, static_smem), keep_most },
    { " bytes spill stores", offsetof(struct gdni_facts, spill_bytes), keep_sum },
    { " bytes spill loads", offsetof(struct gdni_facts, spill_bytes), keep_sum },
    { " bytes stack frame", offsetof(struct gdni_facts, local_bytes), keep_sum },
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Acts on the phrase behind one number; returns where reading goes on. */
static const char *read_phrase(struct gdni_facts *facts, const char *number)
{
    const char *end = number;
    int64_t value = 0;
    for (; is_digit(*end); ++end)
        if (value <= INT32_MAX) value = value * 10 + (*end - '0');
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; ++i)
        if (strncmp(end, phrases[i].words, strlen(phrases[i].words)) == 0)
            phrases[i].keep((int32_t *)(void *)((char *)facts + phrases[i].fact), saturated(value));
    return end;
}

static void read_line(struct gdni_facts *facts, const char *line, const char *end)
{
    for (const char *p = line; p < end;) {
        if (is_digit(*p) && (p == line || p[-1] == ' '))
            p = read_phrase(facts, p);
        else
            ++p;
    }
}

void gdni_facts_from_log(struct gdni_facts *facts, const char *log)
{
    facts->registers = facts->spill_bytes = facts->local_bytes = facts->static_smem = 0;
    for (const char *line = log; *line;) {
        const char *end = strchrnul(line, '\n');
        if (strncmp(line, "ptxas", 5) == 0) read_line(facts, line, end); /* others quote source: not ptxas's words */
        line = *end ? end + 1 : end;
    }
}
