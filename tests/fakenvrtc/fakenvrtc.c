/*
 * fakenvrtc.c - see fakenvrtc.h. Knows of NVRTC what the library uses of it, and no more.
 */
#include "fakenvrtc/fakenvrtc.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/nvrtc.h"

struct fake_nvrtc *fake_nvrtc_controls(void);

static struct fake_nvrtc controls = { .major = 13 };

struct fake_nvrtc *fake_nvrtc_controls(void)
{
    return &controls;
}

enum { HEADER = 64 };

struct gdni_nvrtcprog_opaque {
    char *source;
    unsigned cc;
    int result;
    char log[1024];
};

#define X(name, arguments) gdni_nvrtcresult name arguments;
GDNI_NVRTC_CALLS(X)
#undef X
const char *nvrtcGetErrorString(gdni_nvrtcresult result);

const char *nvrtcGetErrorString(gdni_nvrtcresult result)
{
    return result == 6 ? "NVRTC_ERROR_COMPILATION" : result ? "NVRTC_ERROR_FAKE" : "NVRTC_SUCCESS";
}

gdni_nvrtcresult nvrtcVersion(int *major, int *minor)
{
    *major = controls.major;
    *minor = controls.minor;
    return 0;
}

gdni_nvrtcresult nvrtcCreateProgram(gdni_nvrtcprog *program, const char *source, const char *name, int num_headers,
                                    const char *const *headers, const char *const *include_names)
{
    (void)name, (void)num_headers, (void)headers, (void)include_names;
    *program = calloc(1, sizeof **program);
    (*program)->source = strdup(source);
    ++controls.programs;
    return 0;
}

gdni_nvrtcresult nvrtcDestroyProgram(gdni_nvrtcprog *program)
{
    free((*program)->source);
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
    if (program->result)
        snprintf(program->log, sizeof program->log, "tiny.cu(1): error: the fake was told to fail\n");
    else
        snprintf(program->log, sizeof program->log, FAKE_NVRTC_LOG "ptxas info    : Compile time = %d.125 ms\n",
                 (int)controls.compiles);
}

gdni_nvrtcresult nvrtcCompileProgram(gdni_nvrtcprog program, int num_options, const char *const *options)
{
    ++controls.compiles;
    const int running = ++controls.running;
    int most = controls.most_running;
    while (running > most && !atomic_compare_exchange_weak(&controls.most_running, &most, running)) {}
    sleep_ms(controls.delay_ms);
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

gdni_nvrtcresult nvrtcGetCUBINSize(gdni_nvrtcprog program, size_t *size)
{
    *size = HEADER + strlen(program->source);
    return 0;
}

gdni_nvrtcresult nvrtcGetCUBIN(gdni_nvrtcprog program, char *cubin)
{
    if (controls.fail_cubin) return controls.fail_cubin;
    static const uint8_t ident[] = { 0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8 };
    memset(cubin, 0, HEADER);
    memcpy(cubin, ident, sizeof ident);
    cubin[18] = (char)190; /* EM_CUDA */
    cubin[49] = (char)program->cc;
    cubin[52] = HEADER;
    memcpy(cubin + HEADER, program->source, strlen(program->source));
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
