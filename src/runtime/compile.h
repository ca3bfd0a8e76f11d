/*
 * compile.h - a unit through NVRTC: cubin or PTX, build log and the facts read off it.
 */
#ifndef GDNI_COMPILE_H
#define GDNI_COMPILE_H

#include <stddef.h>

#include "codegen/unit.h"
#include "runtime/nvrtc.h"
#include "runtime/program.h"

struct gdni_compiled {
    void *cubin;
    size_t cubin_size;
    char *log;     /* never NULL; without what differs from one run to the next */
    char *options; /* what NVRTC was given, a space between two; never NULL */
    uint64_t usec; /* that NVRTC took */
    struct gdni_facts facts;
};

/*
 * Starts NVRTC in a thread of its own with a 16 MiB stack; the unit stays until gdni_compile_finish(), which has to be called,
 * waits, and frees the run, whatever it returns. Who starts some does not wait before the first finish. GDN_E_NO_NVRTC: none,
 * too old, or too old for the unit's arch. GDN_E_COMPILE, of finish: the sentence ends with the log's tail.
 */
struct gdni_compiling;
gdn_status gdni_compile_start(struct gdni_nvrtc *nvrtc, const struct gdni_unit *unit, struct gdni_compiling **out);
gdn_status gdni_compile_finish(struct gdni_compiling *run, struct gdni_compiled *out);

/* Both. */
gdn_status gdni_compile(struct gdni_nvrtc *nvrtc, const struct gdni_unit *unit, struct gdni_compiled *out);
void gdni_compiled_free(struct gdni_compiled *compiled);

/* The PTX of a unit, NUL-terminated, owned by the caller (gdni_free). Errors as above. */
gdn_status gdni_compile_ptx(struct gdni_nvrtc *nvrtc, const struct gdni_unit *unit, char **out);

/*
 * What `ptxas -v` said: registers and shared memory the most, spills and stack frames the sum over the functions of the
 * log. A line that it does not understand is skipped; numbers past INT32_MAX saturate. Sets those four members only.
 */
void gdni_facts_from_log(struct gdni_facts *facts, const char *log);

#endif
