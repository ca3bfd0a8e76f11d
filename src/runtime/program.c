/*
 * program.c - owns the life of one struct gdni_program. Must not know: where a program came from.
 * No lock: a program is immutable but for its count.
 */
#include "runtime/program.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/cache_entry.h"

static void destroy(struct gdni_program *program)
{
    gdni_free(program->key_text);
    gdni_free(program->cubin);
    gdni_free(program->options);
    gdni_free(program->build_log);
    gdni_free(program);
}

struct gdni_program *gdni_program_create(const struct gdni_entry *entry)
{
    struct gdni_program *program = gdni_calloc(1, sizeof *program);
    if (!program) return NULL;
    program->key_text = gdni_strndup(entry->key_text, entry->key_len);
    program->options = gdni_strndup(entry->options, entry->options_len);
    program->build_log = gdni_strndup(entry->build_log, entry->log_len);
    program->cubin = gdni_memdup(entry->cubin, entry->cubin_size);
    if (!program->key_text || !program->options || !program->build_log || !program->cubin) {
        destroy(program);
        return NULL;
    }
    program->cubin_size = entry->cubin_size;
    gdni_hash_hex(program->key_hex, entry->key_text, entry->key_len);
    memcpy(program->arch, entry->arch, sizeof program->arch);
    memcpy(program->entry, entry->entry, sizeof program->entry);
    program->facts = entry->facts;
    atomic_init(&program->refs, 1);
    return program;
}

struct gdni_program *gdni_program_retain(struct gdni_program *program)
{
    atomic_fetch_add_explicit(&program->refs, 1, memory_order_relaxed); /* the caller has or guards a reference */
    return program;
}

void gdni_program_release(struct gdni_program *program)
{
    /* acq_rel: what other owners read of the program happened before it goes */
    if (program && atomic_fetch_sub_explicit(&program->refs, 1, memory_order_acq_rel) == 1) destroy(program);
}

void gdni_program_view(const struct gdni_program *program, struct gdni_entry *out)
{
    *out = (struct gdni_entry){
        .cubin = program->cubin,
        .cubin_size = program->cubin_size,
        .key_text = program->key_text,
        .key_len = strlen(program->key_text),
        .options = program->options,
        .options_len = strlen(program->options),
        .build_log = program->build_log,
        .log_len = strlen(program->build_log),
        .facts = program->facts,
    };
    memcpy(out->arch, program->arch, sizeof out->arch);
    memcpy(out->entry, program->entry, sizeof out->entry);
}
