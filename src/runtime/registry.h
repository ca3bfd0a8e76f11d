/*
 * registry.h - the programs that this context has in memory, by key text, and single flight per key; and, by spec, those that
 * were made of it before, for whom no key has to be built again.
 */
#ifndef GDNI_REGISTRY_H
#define GDNI_REGISTRY_H

#include <stdbool.h>

#include "codegen/key.h"
#include "runtime/program.h"

struct gdni_registry;
struct gdni_flight;

struct gdni_registry *gdni_registry_create(void); /* NULL when out of memory */
void gdni_registry_destroy(struct gdni_registry *registry);

enum { GDNI_ENTER_STRICT = 1u }; /* this caller will not compile */
/*
 * Exactly one of three: *program (one reference for the caller) when the key is there or another thread just built it;
 * *flight when it is the caller who must build it, and then call gdni_registry_settle(); or the failure of the thread that
 * tried, with its sentence. A caller that may compile is not given the failure of one that may not: it takes its turn.
 * refused (may be NULL): a program that does not count when it is there, since it is of no use.
 */
gdn_status gdni_registry_enter(struct gdni_registry *registry, const struct gdni_key *key, unsigned flags,
                               const struct gdni_program *refused, struct gdni_program **program,
                               struct gdni_flight **flight);

/*
 * Ends the caller's turn and wakes who waits. program: what was built, of which the registry takes a reference of its own;
 * NULL: failed with status, and this thread's sentence is everybody's. Returns status.
 */
gdn_status gdni_registry_settle(struct gdni_registry *registry, struct gdni_flight *flight, gdn_status status,
                                struct gdni_program *program);

/* From now on the spec's program is the key's. Out of memory nothing is learnt, which costs time and nothing else. */
void gdni_registry_learn(struct gdni_registry *registry, const struct gdni_spec *spec, const struct gdni_key *key);

/* The program that the spec's key has by now, with a reference for the caller. NULL: the spec was not learnt, or has none. */
struct gdni_program *gdni_registry_recall(struct gdni_registry *registry, const struct gdni_spec *spec);

#endif
