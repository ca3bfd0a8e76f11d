/*
 * program.h - a compiled kernel in memory: cubin and facts, by key. Where it came from is the business of programs.c
 * (memory, bundle, disk, NVRTC); what it is loaded into is the business of module.c.
 */
#ifndef GDNI_PROGRAM_H
#define GDNI_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "codegen/key.h"
#include "codegen/unit.h"

/* Read off the build log once, kept in the entry's trailer. */
struct gdni_facts {
    int32_t registers, spill_bytes, local_bytes, static_smem;
    int32_t compile_ms; /* 0 in a bundle, whose bytes must not depend on it */
    char compiler[64];  /* "nvrtc 13.0 <build id>" */
};

enum gdni_origin { GDNI_FROM_MEMORY, GDNI_FROM_BUNDLE, GDNI_FROM_DISK, GDNI_FROM_COMPILER };

/* Where a cache has an entry: which directory in the order of search, and its name there. */
struct gdni_place {
    size_t dir;
    char name[64];
};

/* Immutable once made; shared between plans by reference count. */
struct gdni_program {
    char *key_text;
    char key_hex[GDNI_KEY_HEX];
    char arch[16];
    char entry[64];
    void *cubin;
    size_t cubin_size;
    char *options;   /* of the compiler; see cache_entry.h */
    char *build_log; /* "" when it came from a cache without one */
    struct gdni_facts facts;
    enum gdni_origin source; /* bundle, disk or compiler; set, as is place, before anybody else sees the program */
    struct gdni_place place; /* of one from a bundle or disk; cache.c's */
    _Atomic int refs;
};

struct gdn_ctx;

enum { GDNI_NO_COMPILE = 1u };

/* Whether a program that is in no cache would be compiled: nothing of flags, the context and the environment forbids it. */
bool gdni_programs_may_compile(const struct gdn_ctx *ctx, uint32_t flags);

/*
 * The program of a spec that gdni_programs_learn() was told, if this context's memory has it: no unit, no key is built. One
 * reference for the caller; NULL: ask gdni_programs_get().
 */
struct gdni_program *gdni_programs_recall(struct gdn_ctx *ctx, const struct gdni_spec *spec);
void gdni_programs_learn(struct gdn_ctx *ctx, const struct gdni_spec *spec, const struct gdni_key *key);

/*
 * The program of a unit: from this context's memory, a bundle, the disk cache, or NVRTC; single flight per key. begin() looks
 * for it, waiting for another thread or process that compiles it, and starts a compile that is needed; unit and key stay until
 * end(), which waits for it, frees the request, and has to be called where begin() returned GDN_OK. On success the caller owns
 * one reference. *origin tells where it was found. Who begins some before the first end() begins them in the order of their
 * keys' hex, each key once: others wait for what he has begun; and all with the deadline() that he took before, past which no
 * other process is waited for.
 */
struct gdni_request;
int64_t gdni_programs_deadline(const struct gdn_ctx *ctx);
gdn_status gdni_programs_begin(struct gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key,
                               uint32_t flags, int64_t deadline, struct gdni_request **out);
gdn_status gdni_programs_end(struct gdni_request *request, struct gdni_program **out, enum gdni_origin *origin);

/* Both. */
gdn_status gdni_programs_get(struct gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key,
                             uint32_t flags, struct gdni_program **out, enum gdni_origin *origin);

/*
 * As above, for a cubin that the driver refused: another program than that one. What another thread put in its place; for one
 * from a bundle, which nobody here can mend, what is searched next; else a compile, whose entry takes the place of the refused
 * one, or, where none may be, whichever compiler's entry is searched next.
 */
gdn_status gdni_programs_rebuild(struct gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key,
                                 uint32_t flags, const struct gdni_program *refused, struct gdni_program **out,
                                 enum gdni_origin *origin);

void gdni_program_release(struct gdni_program *program);

/* program.c: copies every part of the entry; one reference for the caller. NULL when out of memory. */
struct gdni_entry;
struct gdni_program *gdni_program_create(const struct gdni_entry *entry);
struct gdni_program *gdni_program_retain(struct gdni_program *program); /* the same program */
/* *out leads into program. */
void gdni_program_view(const struct gdni_program *program, struct gdni_entry *out);

#endif
