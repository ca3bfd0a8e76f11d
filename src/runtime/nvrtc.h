/*
 * nvrtc.h - libnvrtc by dlopen: the entry points that this library calls, as a table, and who the compiler is.
 */
#ifndef GDNI_NVRTC_H
#define GDNI_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

#include "codegen/arch.h"
#include "gdn_jit/gdn_jit.h"

typedef int gdni_nvrtcresult; /* nvrtcResult; 0 is success */
typedef struct gdni_nvrtcprog_opaque *gdni_nvrtcprog;

enum { GDNI_NVRTC_MIN = 1208, GDNI_NVRTC_PARALLEL = 4, GDNI_COMPILER_TAG = 9 };

/* X(symbol, arguments) of every entry point; all return gdni_nvrtcresult. nvrtc.c resolves exactly these. */
#define GDNI_NVRTC_CALLS(X)                                                                                            \
    X(nvrtcVersion, (int *major, int *minor))                                                                          \
    X(nvrtcCreateProgram, (gdni_nvrtcprog * program, const char *source, const char *name, int num_headers,            \
                           const char *const *headers, const char *const *include_names))                              \
    X(nvrtcCompileProgram, (gdni_nvrtcprog program, int num_options, const char *const *options))                      \
    X(nvrtcDestroyProgram, (gdni_nvrtcprog * program))                                                                 \
    X(nvrtcGetProgramLogSize, (gdni_nvrtcprog program, size_t * size))                                                 \
    X(nvrtcGetProgramLog, (gdni_nvrtcprog program, char *log))                                                         \
    X(nvrtcGetCUBINSize, (gdni_nvrtcprog program, size_t * size))                                                      \
    X(nvrtcGetCUBIN, (gdni_nvrtcprog program, char *cubin))                                                            \
    X(nvrtcGetPTXSize, (gdni_nvrtcprog program, size_t * size))                                                        \
    X(nvrtcGetPTX, (gdni_nvrtcprog program, char *ptx))

struct gdni_nvrtc_api {
#define X(name, arguments) gdni_nvrtcresult(*name) arguments;
    GDNI_NVRTC_CALLS(X)
#undef X
    const char *(*nvrtcGetErrorString)(gdni_nvrtcresult result);
    int version;                 /* major * 100 + minor */
    char identity[64];           /* "nvrtc 13.0 <build id>", "nvrtc 13.0 content <hash>" of a file without one */
    char tag[GDNI_COMPILER_TAG]; /* 8 hex digits: this build of the compiler, in names of cache entries */
    char path[1024];             /* of the library, as the loader has it */
};

struct gdni_nvrtc;

/*
 * path: a library's file or name; NULL: libnvrtc.so.13, else libnvrtc.so.12. jobs: at most so many compiles run at a time, 0:
 * GDNI_NVRTC_PARALLEL. Opens nothing yet. NULL when out of memory.
 */
struct gdni_nvrtc *gdni_nvrtc_create(const char *path, unsigned jobs);
void gdni_nvrtc_destroy(struct gdni_nvrtc *nvrtc);

/*
 * The table, after dlopen, once; GDN_E_NO_NVRTC with what failed and the remedy, also on later calls. Also refused: a
 * compiler older than GDNI_NVRTC_MIN.
 */
gdn_status gdni_nvrtc_get(struct gdni_nvrtc *nvrtc, const struct gdni_nvrtc_api **out);

/* GDN_E_NO_NVRTC, with both versions, when the compiler does not know arch. */
gdn_status gdni_nvrtc_check_arch(const struct gdni_nvrtc_api *api, const struct gdni_arch *arch);

/*
 * The tag of the compiler that gdni_nvrtc_get() gives; false when there is none. Before that call the library is not loaded if
 * its build id can be read off the file: loading takes milliseconds, or hundreds of them from a cold disk, and a warm start
 * needs no more than the tag. It is then a good guess at what the loader will find: who compiles asks again after.
 */
bool gdni_nvrtc_tag(struct gdni_nvrtc *nvrtc, char tag[GDNI_COMPILER_TAG]);

/* As many compiles of one context run at a time as it was made for (each takes up to hundreds of MB); more wait here. */
void gdni_nvrtc_enter(struct gdni_nvrtc *nvrtc);
void gdni_nvrtc_leave(struct gdni_nvrtc *nvrtc);

/* ---- nvrtc_peek.c: what can be told of a library without loading it ---- */

enum { GDNI_BUILD_ID = 41, GDNI_CONTENT = 33, GDNI_PATH = 1024 }; /* 20 and 16 bytes in hex, each with a NUL */

/* The file that dlopen(name) would load, most likely; false when none is found. */
bool gdni_peek_resolve(const char *name, char path[GDNI_PATH]);
/*
 * The build id of the library at path, read off its file: of the program headers' notes, else of the sections'. False when it
 * has none or is no such file.
 */
bool gdni_peek_build_id(const char *path, char id[GDNI_BUILD_ID]);
/* A hash of the whole file; false when it cannot be read. */
bool gdni_peek_content(const char *path, char hex[GDNI_CONTENT]);
/* The build id among the notes of an ELF file or image. */
bool gdni_note_build_id(const void *notes, size_t size, char id[GDNI_BUILD_ID]);
/* The path that ld.so.cache, whose bytes are given, has for name, in this machine's ABI; NULL: none. */
const char *gdni_ld_cache_find(const void *cache, size_t size, const char *name);

#endif
