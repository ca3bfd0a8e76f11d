/*
 * env_nvrtc.c - the fake libnvrtc for scripts, which have no other way to its controls than the environment:
 *
 *   FAKE_NVRTC_VERSION=12.8      what it says it is
 *   FAKE_NVRTC_RESULT=7          what every compile returns
 */
#include <stdio.h>
#include <stdlib.h>

#include "fakenvrtc/fakenvrtc.h"

struct fake_nvrtc *fake_nvrtc_controls(void);

__attribute__((constructor)) static void plug_in(void)
{
    struct fake_nvrtc *controls = fake_nvrtc_controls();
    const char *version = getenv("FAKE_NVRTC_VERSION"), *result = getenv("FAKE_NVRTC_RESULT");
    int major, minor;
    if (version && sscanf(version, "%d.%d", &major, &minor) == 2) {
        controls->major = major;
        controls->minor = minor;
    }
    if (result) controls->result = atoi(result);
}
