/*
 * record.h - the list of plans that a process asked for, for gdn-jit-cache warm --from; and one plan as a line of it.
 */
#ifndef GDNI_RECORD_H
#define GDNI_RECORD_H

#include "base/strbuf.h"
#include "gdn_jit/gdn_jit.h"
#include "runtime/log.h"

struct gdni_record;

/* path NULL or "": nothing is recorded. A file that cannot be opened is one warning. NULL when out of memory. */
struct gdni_record *gdni_record_create(const char *path, const struct gdni_log *log);
void gdni_record_destroy(struct gdni_record *record);

/* Appends the line of a plan whose variants are chosen. Best effort: what fails is one warning, and no failure of the plan. */
void gdni_record_plan(struct gdni_record *record, const gdn_plan *plan, uint32_t flags);

/* The shell command that adds what the plan needs to its context's cache; GDN_E_NOMEM. */
gdn_status gdni_record_print_command(struct gdni_strbuf *sb, const gdn_plan *plan, uint32_t flags);

#endif
