/*
 * fuzz_tuning.c - gdni_tuning_parse() on any bytes: no crash, nothing outside them, nothing kept of what is refused; and what
 * it believes is legal, sorted, and is written and believed again, the same.
 *
 * A random text has no right space hash, behind which all entries lie: each input is tried as it is, and with the hash of this
 * version in place of the word SPACE.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/tuning.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static void check_table(const struct gdni_tuning_table *table)
{
    require(table->arch && table->gpu_name[0] && memchr(table->gpu_name, '\0', sizeof table->gpu_name) && table->source);
    require(table->num_sms > 0 && table->count <= GDNI_TUNING_MAX_ENTRIES);
    for (size_t i = 0; i < table->count; ++i) {
        const struct gdni_tuning_entry *e = &table->entries[i];
        require(gdni_tuning_entry_check(e, table->arch) == GDN_OK);
        require(i == 0 || gdni_tuning_key_compare(&table->entries[i - 1].key, &e->key) < 0);
        require(e->key.slot.bucket >= 0 && e->key.slot.bucket < GDNI_NUM_BUCKETS);
        require(e->key.slot.seq_class >= GDNI_ANY_SEQS && e->key.slot.seq_class < GDNI_NUM_SEQ_CLASSES);
        require(e->median_ns > 0 && e->mad_ns >= 0 && e->heuristic_ns >= 0 && e->samples > 0);
        require(strlen(e->date) == 10 && strlen(e->code) == 16);
        require(memchr(e->driver, '\0', sizeof e->driver) && memchr(e->nvrtc, '\0', sizeof e->nvrtc));
        require(gdni_tuning_table_lower(table, &e->key) == i);
    }
}

/* Written, read and written again: the same bytes. */
static void check_round_trip(const struct gdni_tuning_table *table)
{
    struct gdni_strbuf once = { 0 }, twice = { 0 };
    struct gdni_tuning_table again;
    gdni_tuning_print(&once, table);
    require(!once.failed);
    if (once.len <= GDNI_TUNING_MAX_BYTES) {
        require(gdni_tuning_parse(&again, "again", once.text, once.len) == GDN_OK);
        gdni_tuning_print(&twice, &again);
        require(!twice.failed && twice.len == once.len && memcmp(twice.text, once.text, once.len) == 0);
        gdni_tuning_table_free(&again);
    }
    gdni_sb_free(&once);
    gdni_sb_free(&twice);
}

static void parse(const char *text, size_t size)
{
    struct gdni_tuning_table table;
    if (gdni_tuning_parse(&table, "input", text, size) == GDN_OK) {
        check_table(&table);
        check_round_trip(&table);
    } else {
        require(!table.entries && !table.source && table.count == 0 && strstr(gdni_error_text(), "input"));
    }
    gdni_tuning_table_free(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { WORD = 5 };
    const char *text = (const char *)data;
    const char *at = size >= WORD ? memmem(text, size, "SPACE", WORD) : NULL;
    parse(text, size);
    if (!at) return 0;
    const size_t before = (size_t)(at - text), after = size - before - WORD;
    char *sealed = malloc(size + GDNI_SPACE_HEX);
    if (!sealed) return 0;
    memcpy(sealed, text, before);
    gdni_space_hash(sealed + before);
    memcpy(sealed + before + GDNI_SPACE_HEX - 1, at + WORD, after);
    parse(sealed, before + GDNI_SPACE_HEX - 1 + after);
    free(sealed);
    return 0;
}
