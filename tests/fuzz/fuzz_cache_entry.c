/*
 * fuzz_cache_entry.c - gdni_entry_parse() on any bytes: no crash, nothing outside them, and what it believes can be written
 * again and believed again; its cubin can be looked through for its kernel.
 *
 * Two checksums stand between random bytes and the code behind them, so each input is tried twice: as it is, and with the
 * sums made right, which is what an attacker would do.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/cache_entry.h"
#include "runtime/code_address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static void check_view(const struct gdni_entry *e, const uint8_t *bytes, size_t size)
{
    const uint8_t *key = (const uint8_t *)e->key_text, *options = (const uint8_t *)e->options,
                  *log = (const uint8_t *)e->build_log;
    require(e->cubin == bytes && key == bytes + e->cubin_size);
    require(options == key + e->key_len && log == options + e->options_len);
    require(e->cubin_size + e->key_len + e->options_len + e->log_len < size);
    require(strnlen(e->arch, sizeof e->arch) < sizeof e->arch && strnlen(e->entry, sizeof e->entry) < sizeof e->entry);
    require(strnlen(e->facts.compiler, sizeof e->facts.compiler) < sizeof e->facts.compiler);
    require(e->facts.registers >= 0 && e->facts.spill_bytes >= 0 && e->facts.compile_ms >= 0);
}

static void parse(const uint8_t *bytes, size_t size)
{
    struct gdni_entry e, again;
    if (gdni_entry_parse(&e, bytes, size, NULL)) {
        require(!e.cubin && !e.key_text);
        return;
    }
    check_view(&e, bytes, size);
    struct gdni_key key = { .text = (char *)(uintptr_t)e.key_text, .len = e.key_len };
    require(!gdni_entry_parse(&again, bytes, size, &key));
    void *copy = NULL;
    size_t copy_size = 0;
    require(gdni_entry_encode(&e, &copy, &copy_size) == GDN_OK);
    require(copy_size == size && memcmp(copy, bytes, size) == 0);
    gdni_free(copy);
    gdni_free(gdni_tell_code_address(e.cubin, e.cubin_size, e.entry)); /* reads tables of a file that only a sum has held */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { FOOTER = 232 };
    parse(data, size);
    if (size < FOOTER) return 0;
    uint8_t *sealed = malloc(size);
    if (!sealed) return 0;
    memcpy(sealed, data, size);
    gdni_entry_seal(sealed, size);
    parse(sealed, size);
    free(sealed);
    return 0;
}
