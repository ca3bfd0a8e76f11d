/*
 * fakenvrtc.c - see fakenvrtc.h. Knows of NVRTC what the library uses of it, and no more.
 */
#include "fakenvrtc/fakenvrtc.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fakenvrtc/fake_cubin.h"
#include "runtime/nvrtc.h"

struct fake_nvrtc *fake_nvrtc_controls(void);

#ifndef FAKE_NVRTC_MINOR
#define FAKE_NVRTC_MINOR 0
#endif

static struct fake_nvrtc controls = { .major = 13, .minor = FAKE_NVRTC_MINOR };

struct fake_nvrtc *fake_nvrtc_controls(void)
{
    return &controls;
}

enum { LINE = 128 };

struct gdni_nvrtcprog_opaque {
    char *body;       /* what the cubin has behind its header */
    char kernel[64];  /* "": no section table */
    unsigned cc;
    int result;
    char log[16384];
};

#define X(name, arguments) gdni_nvrtcresult name arguments;
GDNI_NVRTC_CALLS(X)
#undef X
const char *nvrtcGetErrorString(gdni_nvrtcresult result);

const char *nvrtcGetErrorString(gdni_nvrtcresult result)
{
    if (result == 7) return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
    return result == 6 ? "NVRTC_ERROR_COMPILATION" : result ? "NVRTC_ERROR_FAKE" : "NVRTC_SUCCESS";
}

gdni_nvrtcresult nvrtcVersion(int *major, int *minor)
{
    *major = controls.major;
    *minor = controls.minor;
    return 0;
}

static uint64_t hash(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; ++text) h = (h ^ (uint8_t)*text) * 0x100000001b3u;
    return h;
}

/* One line a file, so that units which differ in a generated header differ in their cubins. */
static char *body_of_files(const char *source, int num_headers, const char *const *headers, const char *const *names)
{
    char *body = calloc((size_t)num_headers + 1, LINE);
    int len = snprintf(body, LINE, "main %016llx\n", (unsigned long long)hash(source));
    for (int i = 0; i < num_headers; ++i)
        len += snprintf(body + len, LINE, "%.90s %016llx\n", names[i], (unsigned long long)hash(headers[i]));
    return body;
}

gdni_nvrtcresult nvrtcCreateProgram(gdni_nvrtcprog *program, const char *source, const char *name, int num_headers,
                                    const char *const *headers, const char *const *include_names)
{
    *program = calloc(1, sizeof **program);
    (*program)->body = num_headers ? body_of_files(source, num_headers, headers, include_names) : strdup(source);
    if (num_headers) snprintf((*program)->kernel, sizeof(*program)->kernel, "%.*s", (int)strcspn(name, "."), name);
    ++controls.programs;
    return 0;
}

gdni_nvrtcresult nvrtcDestroyProgram(gdni_nvrtcprog *program)
{
    free((*program)->body);
    free(*program);
    *program = NULL;
    --controls.programs;
    return 0;
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000L }, NULL);
}

/* With a time that is another one each time, as ptxas does. */
static void write_log(gdni_nvrtcprog program)
{
    int len = 0;
    for (int i = 0; program->result && i < controls.noise && len < (int)sizeof program->log / 2; ++i)
        len += snprintf(program->log + len, sizeof program->log / 2, "tiny.cu(1): warning: one of many, number %d\n", i);
    if (program->result)
        snprintf(program->log + len, sizeof program->log / 2, "tiny.cu(1): error: the fake was told to fail\n");
    else
        snprintf(program->log, sizeof program->log, FAKE_NVRTC_LOG "ptxas info    : Compile time = %d.125 ms\n",
                 (int)controls.compiles);
}

static void note_thread(void)
{
    pthread_attr_t attr;
    size_t bytes = 0;
    sigset_t blocked;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstacksize(&attr, &bytes);
        pthread_attr_destroy(&attr);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    controls.stack_kib = (int)(bytes / 1024);
    controls.takes_term = !sigismember(&blocked, SIGTERM);
    controls.takes_fault = !sigismember(&blocked, SIGSEGV);
}

static void append_running(int running)
{
    const char *path = getenv("GDN_FAKE_NVRTC_RUNNING");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%d\n", running);
    fclose(file);
}

gdni_nvrtcresult nvrtcCompileProgram(gdni_nvrtcprog program, int num_options, const char *const *options)
{
    note_thread();
    ++controls.compiles;
    const int running = ++controls.running;
    int most = controls.most_running;
    while (running > most && !atomic_compare_exchange_weak(&controls.most_running, &most, running)) {}
    append_running(running);
    sleep_ms(controls.delay_ms);
    const char *delay = getenv("GDN_FAKE_NVRTC_DELAY_MS");
    if (delay) sleep_ms(atoi(delay));
    for (int i = 0; i < num_options; ++i) sscanf(options[i], "--gpu-architecture=sm_%u", &program->cc);
    program->result = controls.result;
    write_log(program);
    --controls.running;
    return program->result;
}

gdni_nvrtcresult nvrtcGetProgramLogSize(gdni_nvrtcprog program, size_t *size)
{
    *size = strlen(program->log) + 1;
    return 0;
}

gdni_nvrtcresult nvrtcGetProgramLog(gdni_nvrtcprog program, char *log)
{
    if (controls.fail_log) return controls.fail_log;
    strcpy(log, program->log);
    return 0;
}

static struct fake_cubin cubin_of(gdni_nvrtcprog program)
{
    /* another compiler's bytes are other bytes */
    return (struct fake_cubin){ program->body, strlen(program->body), program->kernel, program->cc, (unsigned)controls.minor,
                                .asks_address = strstr(program->body, "gdn_code.cuh") != NULL };
}

gdni_nvrtcresult nvrtcGetCUBINSize(gdni_nvrtcprog program, size_t *size)
{
    const struct fake_cubin cubin = cubin_of(program);
    *size = fake_cubin_size(&cubin);
    return 0;
}

gdni_nvrtcresult nvrtcGetCUBIN(gdni_nvrtcprog program, char *out)
{
    if (controls.fail_cubin) return controls.fail_cubin;
    const struct fake_cubin cubin = cubin_of(program);
    fake_cubin_write(&cubin, out);
    return 0;
}

gdni_nvrtcresult nvrtcGetPTXSize(gdni_nvrtcprog program, size_t *size)
{
    (void)program;
    *size = sizeof "// fake PTX";
    return 0;
}

gdni_nvrtcresult nvrtcGetPTX(gdni_nvrtcprog program, char *ptx)
{
    (void)program;
    strcpy(ptx, "// fake PTX");
    return 0;
}
