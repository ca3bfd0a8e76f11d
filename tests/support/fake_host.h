/*
 * fake_host.h - a context of the library on the fake driver (tests/fakecuda), and calls that are right in every member, for
 * tests to spoil one at a time.
 */
#ifndef TEST_FAKE_HOST_H
#define TEST_FAKE_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "fakecuda/fakecuda.h"
#include "gdn_jit/gdn_jit.h"

struct fake_host {
    const struct fake_controls *cuda;
    gdn_ctx *ctx;
    int warnings;       /* and errors, logged so far, but for shipped_is_stale_warning() */
    char warning[1024]; /* the last one */
};

/* The fake driver, reset: one H200 whose primary context is current. Ends the program when the library cannot be opened. */
const struct fake_controls *fake_open(const char *driver_path);

/* A context on it. cache_dir NULL: one that test programs share (XDG_CACHE_HOME), else memory only. */
void fake_host_open(struct fake_host *host, const char *driver_path, const char *cache_dir, uint32_t flags);
/* The same with an NVRTC of one's own; else it is GDN_JIT_NVRTC's. */
void fake_host_open_with(struct fake_host *host, const char *driver_path, const char *cache_dir, const char *nvrtc_path,
                         uint32_t flags);
void fake_host_close(struct fake_host *host);

/* A new empty directory; ends the program when it cannot be made. Removed by fake_remove_dir(). */
void fake_make_dir(char path[64]);
void fake_remove_dir(const char *path);

gdn_target fake_h200(gdn_ctx *ctx);
gdn_prefill_desc fake_prefill_desc(void); /* 4 q/k heads, 8 v heads, 128: up to 1000 tokens of 8 sequences */
gdn_prefill_args fake_prefill_args(void); /* 96 tokens of 3 sequences, cu_seqlens given */
gdn_conv1d_desc fake_conv1d_desc(void);   /* 2, 2, 4 heads of 128: up to 1000 tokens of 8 sequences */
gdn_conv1d_args fake_conv1d_args(void);

/* A plan of fake_conv1d_desc() with another bound. Ends the program when there is none. */
gdn_plan *fake_plan_conv(gdn_ctx *ctx, int64_t max_tokens, const char *target_name);
/* A new directory that holds the one entry of fake_plan_conv(ctx, 200, "NVIDIA H200"). */
void fake_warm(char dir[64], const char *driver_path);

/* The last error has these words in it. */
bool fake_error_says(const char *words);

/* The whole of a dump, NUL-terminated, for free(); NULL when the dump fails. */
char *fake_dump(const gdn_plan *plan, gdn_dump_kind kind);

uint64_t fake_compiles(gdn_ctx *ctx);

/* Everything that was taken from the driver was given back. */
bool fake_balanced(const struct fake_controls *cuda);

/* No memory was lost so far, as LeakSanitizer sees it: at a test's end it reports without failing the test. True without it. */
bool fake_no_leaks(void);

#endif
