/*
 * clocks.h - the clocks that a GPU runs at just now, as NVML tells them. Best effort: without libnvidia-ml they are unknown.
 */
#ifndef GDNI_CLOCKS_H
#define GDNI_CLOCKS_H

#include "runtime/driver.h"

struct gdni_clocks;

/*
 * driver_path: gdn_config.driver_path. libnvidia-ml.so.1 is taken from the folder that it names, if it names one. Opens nothing
 * yet. NULL when out of memory.
 */
struct gdni_clocks *gdni_clocks_create(const char *driver_path);
void gdni_clocks_destroy(struct gdni_clocks *clocks);

/* MHz of the SMs and of the memory; 0: unknown. */
struct gdni_mhz {
    int32_t sm, mem;
};

/* Of a device of an opened driver. A few microseconds to milliseconds; waits for no kernel. Any thread. */
struct gdni_mhz gdni_clocks_now(struct gdni_clocks *clocks, const struct gdni_cuda *cuda, gdni_cudevice device);

#endif
