/*
 * fakecuda.h - controls of libfakecuda.so, a libcuda that executes nothing: it keeps count, checks what a driver would check,
 * records launches, and fails where it is told to. Tests open the library by dlopen and take one symbol, `fake_controls`.
 *
 * State is per process and guarded by one lock; the stack of current contexts is per thread, as CUDA's is.
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_MAX_DEVICES = 80, FAKE_PARAM_BYTES = 1280 };

struct fake_device {
    char name[64];
    int major, minor;
    int num_sms, smem_optin, l2_bytes;
    int memory_clock_khz, bus_bits;
};

struct fake_launch {
    char kernel[64];
    const unsigned char *image; /* that the kernel is of */
    int device; /* ordinal */
    unsigned grid[3], block[3], smem;
    void *stream;
    bool programmatic; /* cuLaunchKernelEx with programmatic stream serialization */
    _Alignas(64) unsigned char params[FAKE_PARAM_BYTES]; /* the first kernel parameter, params_size bytes of it */
    size_t params_size;
};

/* The last cuMemsetD32Async that succeeded. */
struct fake_memset {
    int count; /* of them since reset */
    unsigned long long address;
    unsigned value;
    size_t words;
    void *stream;
    int launches_before;
};

/* What must be zero when everything was given back. */
struct fake_balance {
    int retained_contexts, loaded_libraries, pushed_contexts; /* the last one of the calling thread */
    int allocations, streams, events, graphs;                 /* instantiated ones too */
};

/*
 * What a test plays the device with. Device memory is host memory: an address of cuMemAlloc may be read and written. Time is
 * the test's own: a launch takes as long as duration() says, on its stream; nobody waits for it.
 */
enum { FAKE_HANGS = -1, FAKE_FAULTS = -2 }; /* as durations: it never ends; it fails, and every later call with it (700) */
struct fake_device_code {
    int64_t (*duration)(void *user, const struct fake_launch *launch); /* ns; NULL: 10 us each */
    void (*execute)(void *user, const struct fake_launch *launch);     /* of launches outside graphs; NULL: nothing */
    void *user;
};

/* What cuMemAlloc was asked for. */
struct fake_memory {
    size_t bytes, most_bytes; /* now, and the most at a time */
    int outside;              /* copies and fills that were not within one allocation: refused, and counted */
};

struct fake_controls {
    /* One H200, nothing current, nothing failing, nothing recorded. */
    void (*reset)(void);
    void (*set_devices)(int count); /* copies of the H200 */
    struct fake_device *(*device)(int ordinal);

    /* The nth call of `call` from now on (1 is the next; 0: every one) returns `result`. Calls that give something back
     * (unload, release, pop) fail after they did it, as CUDA reports earlier errors there. */
    void (*fail)(const char *call, int nth, int result);
    /* The same by place: of all calls from now on, the nth and so many after it (times 0: all) return `result`; nth 0: none. */
    void (*fail_nth)(int nth, int times, int result);
    int (*total_calls)(void);     /* since reset or fail_nth() */
    const char *(*struck)(void);  /* the first call that fail_nth() made fail; "" for none */
    void (*hide)(const char *symbol); /* cuGetProcAddress does not find it; NULL hides nothing */
    void (*set_capture)(int status);  /* what cuStreamIsCapturing says */
    void (*set_version)(int version); /* what cuDriverGetVersion says; 13000 at first */
    /* hook is called at the beginning of each call, in its thread, and may wait for others that call; NULL: none. */
    void (*set_hook)(void (*hook)(const char *call));

    /* Current context of the calling thread: a device's primary one, one that is not primary, or none (ordinal < 0). */
    void (*make_current)(int ordinal);
    void (*make_other_current)(int ordinal);

    int (*calls)(const char *call); /* since reset */
    struct fake_memset (*last_memset)(void);
    int (*num_launches)(void);
    struct fake_launch (*launch)(int index);
    struct fake_balance (*balance)(void);

    void (*set_code)(const struct fake_device_code *code); /* NULL: none */
    bool (*faulted)(void);                                 /* a launch took FAKE_FAULTS */
    void (*set_free_memory)(size_t bytes);                 /* what is left of it to cuMemAlloc; 4 GiB at first */
    struct fake_memory (*memory)(void);
    int (*graph_kernels)(void);           /* kernels that ran in graphs */
    size_t (*graph_nodes)(const void *graph); /* of one that was captured */

    /* What the library, opened as libnvidia-ml, says of the first device; 1980 and 3201 at first. 0: it knows none. Each
     * further device's SMs are 15 MHz slower. */
    void (*set_clocks)(unsigned sm_mhz, unsigned mem_mhz);
};

#endif
