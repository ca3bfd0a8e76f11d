/*
 * fakenvrtc.h - a libnvrtc for tests: compiles anything at once into a small ELF file that depends on source, headers, arch
 * and its own version alone, counts, waits, and fails when told to.
 *
 * A program without headers becomes a header of 64 bytes and its source. One with headers, as the library's own units are,
 * becomes an ELF file with a section .text.<main file's stem>, which the fake driver loads and finds the kernel in.
 *
 * For a program that is run from a script, the environment: GDN_FAKE_NVRTC_DELAY_MS, of a compile, and
 * GDN_FAKE_NVRTC_RUNNING, a file to which every compile appends a line with how many run when it begins, itself included.
 *
 * Built twice: libfakenvrtc.so is 13.0, libfakenvrtc_next.so is 13.1, with another build id.
 */
#ifndef FAKENVRTC_H
#define FAKENVRTC_H

#include <stdatomic.h>

/* Of the process. A test program runs each test in a process of its own. */
struct fake_nvrtc {
    atomic_int major, minor; /* 13, and 0 or 1 */
    atomic_int delay_ms;     /* of a compile */
    atomic_int result;       /* of a compile: an nvrtcResult, 6 is a compile error */
    atomic_int fail_log, fail_cubin; /* results of nvrtcGetProgramLog and nvrtcGetCUBIN */
    atomic_int compiles;     /* that were asked for */
    atomic_int running, most_running;
    atomic_int noise;        /* lines of a failed compile's log before the error */
    atomic_int stack_kib;    /* of the thread of the last compile, as are the next two */
    atomic_int takes_term, takes_fault; /* whether SIGTERM and SIGSEGV may be delivered to it */
    atomic_int programs; /* created and not destroyed */
};

/* Opens the library at path (GDN_FAKE_NVRTC_PATH); ends the test when it cannot. In support/store.c. */
struct fake_nvrtc *fake_nvrtc_open(const char *path);

#define FAKE_NVRTC_LOG                                                                                                  \
    "ptxas info    : 0 bytes gmem\n"                                                                                    \
    "ptxas info    : Compiling entry function 'tiny' for 'sm_90a'\n"                                                    \
    "ptxas info    : Function properties for tiny\n"                                                                    \
    "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"                             \
    "ptxas info    : Used 42 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem\n"

#endif
