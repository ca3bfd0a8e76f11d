/*
 * cache_entry.c - owns the bytes of one cache entry.
 *
 * Pure: no files, no environment, no CUDA, no lock. Everything on disk is hostile until gdni_entry_parse() has said
 * otherwise, and this is the one function that says so (it is also a fuzz target).
 *
 *   +-------------+----------+---------+-----------+------------------------------------------------------------------+
 *   | cubin (ELF) | key text | options | build log | footer: magic, sizes, facts, XXH128 of cubin, XXH128 of the rest |
 *   +-------------+----------+---------+-----------+------------------------------------------------------------------+
 *   ^ offset 0: tools that read cubins still can                                                  end of file ^
 *
 * docs/cache.md has the footer byte by byte.
 *
 * There is no byte that neither sum covers: the first sum covers the cubin; the second all that follows the cubin but itself.
 * Numbers are little-endian, whatever the host.
 */
#include "runtime/cache_entry.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "text/printable.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { SUM = 16, MAGIC = 8, FORMAT = 2 };
static const char magic[MAGIC + 1] = "GDNKENT2";

/* Offsets into the footer. */
enum {
    AT_MAGIC = 0,
    AT_FORMAT = 8,
    AT_FLAGS = 12, /* none are defined: 0 */
    AT_CUBIN_SIZE = 16,
    AT_KEY_LEN = 24,
    AT_OPTIONS_LEN = 28,
    AT_LOG_LEN = 32,
    AT_FACTS = 36, /* five int32 in the order of fact_offsets */
    AT_ARCH = 56,
    AT_ENTRY = 72,
    AT_COMPILER = 136,
    AT_CUBIN_SUM = 200,
    AT_TRAILER_SUM = 216, /* last: it covers everything between the cubin and itself */
    FOOTER = 232
};

static const size_t fact_offsets[] = {
    offsetof(struct gdni_facts, registers),   offsetof(struct gdni_facts, spill_bytes),
    offsetof(struct gdni_facts, local_bytes), offsetof(struct gdni_facts, static_smem),
    offsetof(struct gdni_facts, compile_ms),
};
enum { NUM_FACTS = sizeof fact_offsets / sizeof fact_offsets[0] };

static void put(uint8_t *at, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; ++i)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void sum_into(uint8_t *at, const void *bytes, size_t size)
{
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, size));
    memcpy(at, sum.digest, SUM);
}

static bool sum_is(const uint8_t *at, const void *bytes, size_t size)
{
    uint8_t sum[SUM];
    sum_into(sum, bytes, size);
    return memcmp(at, sum, SUM) == 0;
}

/* ---- ELF ---- */

enum { ELF_HEADER = 64, EM_CUDA = 190 };

/* Whether a table of count rows of row bytes at offset lies inside the file. */
static bool table_fits(uint64_t offset, uint64_t count, uint64_t row, size_t size)
{
    return offset <= size && count * row <= size - offset; /* both are 16-bit numbers: no overflow */
}

/* The compute capability that e_flags names, by ELF ABI version (7; 8 for Blackwell and from CUDA 13 on); 0: not known here. */
static int flags_cc(const uint8_t *elf)
{
    const uint64_t flags = get(elf + 48, 4);
    const int abi = elf[8];
    return abi == 7 ? (int)(flags & 0xff) : abi == 8 ? (int)(flags >> 8 & 0xff) : 0;
}

/* 90 of "sm_90a"; 0 when it is no such name. */
static int arch_cc(const char *arch)
{
    if (strncmp(arch, "sm_", 3) != 0) return 0;
    int cc = 0;
    const char *p = arch + 3;
    for (; *p >= '0' && *p <= '9' && cc < 1000; ++p)
        cc = cc * 10 + (*p - '0');
    const bool ends = *p == '\0' || (*p >= 'a' && *p <= 'z' && p[1] == '\0');
    return ends ? cc : 0;
}

const char *gdni_cubin_check(const void *cubin, size_t size, const char *arch)
{
    const uint8_t *elf = cubin;
    if (size < ELF_HEADER) return "cubin is shorter than an ELF header";
    if (memcmp(elf, "\177ELF\2\1\1", 7) != 0) return "cubin is no 64-bit little-endian ELF file";
    if (get(elf + 18, 2) != EM_CUDA) return "ELF file is not for CUDA";
    if (get(elf + 52, 2) != ELF_HEADER) return "ELF header has the wrong size";
    if (!table_fits(get(elf + 32, 8), get(elf + 56, 2), get(elf + 54, 2), size)) return "program headers pass the end";
    if (!table_fits(get(elf + 40, 8), get(elf + 60, 2), get(elf + 58, 2), size)) return "section headers pass the end";
    const int cc = arch_cc(arch);
    if (cc == 0) return "arch is no sm_ name";
    const int has = flags_cc(elf);
    return has == 0 || has == cc ? NULL : "cubin is for another arch"; /* an unknown ABI is the driver's to judge */
}

/* ---- parse ---- */

/* A field of printable text, its rest zeros, with at least one NUL. */
static bool take_text(char *out, const uint8_t *field, size_t size)
{
    size_t len = 0;
    while (len < size && field[len] >= 0x20 && field[len] < 0x7f)
        ++len;
    for (size_t i = len; i < size; ++i)
        if (field[i]) return false;
    memcpy(out, field, size);
    return len < size;
}

static bool is_log(const char *text, size_t len)
{
    for (size_t i = 0; i < len; ++i)
        if (!gdni_is_printable(text[i])) return false;
    return true;
}

static bool take_facts(struct gdni_facts *facts, const uint8_t *footer)
{
    for (int i = 0; i < NUM_FACTS; ++i) {
        const uint64_t value = get(footer + AT_FACTS + 4 * i, 4);
        if (value > INT32_MAX) return false;
        *(int32_t *)(void *)((char *)facts + fact_offsets[i]) = (int32_t)value;
    }
    return true;
}

/* Sizes first: nothing else of the footer is believed before the sums agree, and the sums need the sizes. */
static const char *take_sizes(struct gdni_entry *e, const uint8_t *bytes, size_t size)
{
    if (size < FOOTER + ELF_HEADER) return "file is too short";
    if (size > GDNI_ENTRY_MAX_BYTES) return "file is too long";
    const uint8_t *footer = bytes + size - FOOTER;
    if (memcmp(footer + AT_MAGIC, magic, MAGIC) != 0) return "no magic at the end";
    if (get(footer + AT_FORMAT, 4) != FORMAT || get(footer + AT_FLAGS, 4) != 0) return "format of another version";
    const uint64_t cubin = get(footer + AT_CUBIN_SIZE, 8), key = get(footer + AT_KEY_LEN, 4),
                   options = get(footer + AT_OPTIONS_LEN, 4), log = get(footer + AT_LOG_LEN, 4);
    if (cubin > GDNI_ENTRY_MAX_CUBIN || key > GDNI_ENTRY_MAX_KEY || options > GDNI_ENTRY_MAX_OPTIONS ||
        log > GDNI_ENTRY_MAX_LOG)
        return "a size is over its limit";
    if (cubin + key + options + log + FOOTER != size) return "sizes do not add up";
    e->cubin = bytes;
    e->cubin_size = (size_t)cubin;
    e->key_text = (const char *)bytes + cubin;
    e->key_len = (size_t)key;
    e->options = e->key_text + key;
    e->options_len = (size_t)options;
    e->build_log = e->options + options;
    e->log_len = (size_t)log;
    return NULL;
}

static const char *check_content(struct gdni_entry *e, const uint8_t *footer)
{
    const uint8_t *trailer = (const uint8_t *)e->key_text;
    if (!sum_is(footer + AT_TRAILER_SUM, trailer, (size_t)(footer + AT_TRAILER_SUM - trailer)))
        return "trailer's checksum is wrong";
    if (!sum_is(footer + AT_CUBIN_SUM, e->cubin, e->cubin_size)) return "cubin's checksum is wrong";
    if (memchr(trailer, '\0', e->key_len + e->options_len + e->log_len)) return "text with a NUL";
    if (!gdni_is_plain_line(e->options, e->options_len)) return "options are not printable";
    if (!is_log(e->build_log, e->log_len)) return "build log is not printable";
    if (!take_text(e->arch, footer + AT_ARCH, sizeof e->arch) ||
        !take_text(e->entry, footer + AT_ENTRY, sizeof e->entry) ||
        !take_text(e->facts.compiler, footer + AT_COMPILER, sizeof e->facts.compiler))
        return "a name is no text";
    if (!take_facts(&e->facts, footer)) return "a fact is out of range";
    return gdni_cubin_check(e->cubin, e->cubin_size, e->arch);
}

const char *gdni_entry_parse(struct gdni_entry *out, const void *bytes, size_t size, const struct gdni_key *key)
{
    struct gdni_entry e = { 0 };
    *out = e;
    const char *wrong = take_sizes(&e, bytes, size);
    if (!wrong) wrong = check_content(&e, (const uint8_t *)bytes + size - FOOTER);
    if (!wrong && key && (key->len != e.key_len || memcmp(key->text, e.key_text, e.key_len) != 0))
        wrong = "entry of another key";
    if (!wrong) *out = e;
    return wrong;
}

/* ---- encode ---- */

static gdn_status check_limits(const struct gdni_entry *e)
{
    if (e->cubin_size > GDNI_ENTRY_MAX_CUBIN)
        return GDN_FAIL(GDN_E_INVALID, "cubin has %zu bytes: an entry holds up to %d", e->cubin_size,
                        GDNI_ENTRY_MAX_CUBIN);
    if (e->key_len > GDNI_ENTRY_MAX_KEY)
        return GDN_FAIL(GDN_E_INVALID, "key text has %zu bytes: an entry holds up to %d", e->key_len,
                        GDNI_ENTRY_MAX_KEY);
    if (e->options_len > GDNI_ENTRY_MAX_OPTIONS)
        return GDN_FAIL(GDN_E_INVALID, "the compiler's options have %zu bytes: an entry holds up to %d", e->options_len,
                        GDNI_ENTRY_MAX_OPTIONS);
    if (!gdni_is_plain_line(e->options, e->options_len))
        return GDN_FAIL(GDN_E_INVALID, "the compiler's options are no line of printable ASCII, which an entry holds");
    const char *wrong = gdni_cubin_check(e->cubin, e->cubin_size, e->arch);
    return wrong ? GDN_FAIL(GDN_E_INVALID, "cubin of %s cannot be kept: %s", e->entry, wrong) : GDN_OK;
}

/* Zero-padded as parse wants it, whatever lay behind the NUL. */
static void put_text(uint8_t *field, const char *text, size_t size)
{
    memcpy(field, text, strnlen(text, size - 1));
}

static void put_footer(uint8_t *footer, const struct gdni_entry *e, size_t log_len)
{
    memset(footer, 0, FOOTER);
    memcpy(footer + AT_MAGIC, magic, MAGIC);
    put(footer + AT_FORMAT, 4, FORMAT);
    put(footer + AT_CUBIN_SIZE, 8, e->cubin_size);
    put(footer + AT_KEY_LEN, 4, e->key_len);
    put(footer + AT_OPTIONS_LEN, 4, e->options_len);
    put(footer + AT_LOG_LEN, 4, log_len);
    for (int i = 0; i < NUM_FACTS; ++i)
        put(footer + AT_FACTS + 4 * i, 4,
            (uint32_t) * (const int32_t *)(const void *)((const char *)&e->facts + fact_offsets[i]));
    put_text(footer + AT_ARCH, e->arch, sizeof e->arch);
    put_text(footer + AT_ENTRY, e->entry, sizeof e->entry);
    put_text(footer + AT_COMPILER, e->facts.compiler, sizeof e->facts.compiler);
}

void gdni_entry_seal(void *bytes, size_t size)
{
    uint8_t *footer = (uint8_t *)bytes + size - FOOTER;
    const uint64_t said = get(footer + AT_CUBIN_SIZE, 8);
    const size_t cubin = said < size - FOOTER ? (size_t)said : size - FOOTER; /* the fuzz target says anything */
    sum_into(footer + AT_CUBIN_SUM, bytes, cubin);
    sum_into(footer + AT_TRAILER_SUM, (uint8_t *)bytes + cubin, size - cubin - SUM);
}

static uint8_t *append(uint8_t *at, const void *bytes, size_t size)
{
    if (size) memcpy(at, bytes, size);
    return at + size;
}

/* What a compiler says is shown: what of it could steer a terminal is not kept. */
static uint8_t *append_log(uint8_t *at, const char *text, size_t len)
{
    for (size_t i = 0; i < len; ++i)
        *at++ = gdni_is_printable(text[i]) ? (uint8_t)text[i] : '?';
    return at;
}

gdn_status gdni_entry_encode(const struct gdni_entry *e, void **out, size_t *out_size)
{
    GDN_TRY(check_limits(e));
    const size_t log_len = e->log_len < GDNI_ENTRY_MAX_LOG ? e->log_len : GDNI_ENTRY_MAX_LOG;
    const size_t size =
        e->cubin_size + e->key_len + e->options_len + log_len + FOOTER; /* all within their limits: no overflow */
    uint8_t *bytes = gdni_alloc(size);
    if (!bytes) return GDN_FAIL(GDN_E_NOMEM, "out of memory: %zu bytes for a cache entry", size);
    uint8_t *at = append(bytes, e->cubin, e->cubin_size);
    at = append(at, e->key_text, e->key_len);
    at = append(at, e->options, e->options_len);
    if (log_len) at = append_log(at, e->build_log + (e->log_len - log_len), log_len); /* its end: there ptxas speaks */
    put_footer(at, e, log_len);
    gdni_entry_seal(bytes, size);
    *out = bytes;
    *out_size = size;
    return GDN_OK;
}
