/*
 * test_cache_entry.c - bytes on disk are believed only when every one of them is as it was written.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache_entry.h"
#include "support/fake_host.h"
#include "support/store.h"

struct fixture {
    struct gdni_unit unit;
    struct gdni_key key;
    void *cubin;
    struct gdni_entry entry;
    uint8_t *bytes;
    size_t size;
};

enum { CUBIN = 300 };

static struct fixture make(void)
{
    struct fixture f = { .unit = store_unit("sm_90a", "a"), .cubin = store_cubin("sm_90a", CUBIN, 1) };
    f.key = store_key(&f.unit);
    f.entry = store_entry("sm_90a", &f.key, f.cubin, CUBIN);
    void *bytes = NULL;
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &f.size), GDN_OK, "%s", gdni_error_text());
    f.bytes = bytes;
    return f;
}

static void drop(struct fixture *f)
{
    gdni_key_free(&f->key);
    free(f->cubin);
    gdni_free(f->bytes);
}

Test(cache_entry, gives_back_every_part_that_was_put_in)
{
    struct fixture f = make();
    struct gdni_entry e;
    cr_assert_null(gdni_entry_parse(&e, f.bytes, f.size, &f.key));
    cr_assert_eq(e.cubin_size, (size_t)CUBIN);
    cr_assert_arr_eq(e.cubin, f.cubin, CUBIN);
    cr_assert_eq(e.key_len, f.key.len);
    cr_assert_arr_eq(e.key_text, f.key.text, f.key.len);
    cr_assert_eq(e.log_len, strlen(FAKE_NVRTC_LOG));
    cr_assert_arr_eq(e.build_log, FAKE_NVRTC_LOG, e.log_len);
    cr_assert_eq(e.options_len, strlen(STORE_OPTIONS));
    cr_assert_arr_eq(e.options, STORE_OPTIONS, e.options_len);
    cr_assert_str_eq(e.arch, "sm_90a");
    cr_assert_str_eq(e.entry, "tiny");
    cr_assert_str_eq(e.facts.compiler, f.entry.facts.compiler);
    cr_assert_eq(e.facts.registers, 42);
    cr_assert_eq(e.facts.spill_bytes, 12);
    cr_assert_eq(e.facts.local_bytes, 16);
    cr_assert_eq(e.facts.static_smem, 1024);
    cr_assert_eq(e.facts.compile_ms, 7);
    drop(&f);
}

Test(cache_entry, begins_with_the_cubin_so_that_other_tools_read_it)
{
    struct fixture f = make();
    cr_assert_arr_eq(f.bytes, f.cubin, CUBIN);
    drop(&f);
}

Test(cache_entry, refuses_every_flip_of_every_bit)
{
    struct fixture f = make();
    struct gdni_entry e;
    for (size_t at = 0; at < f.size; ++at)
        for (int bit = 0; bit < 8; ++bit) {
            f.bytes[at] ^= (uint8_t)(1 << bit);
            cr_assert_not_null(gdni_entry_parse(&e, f.bytes, f.size, &f.key), "byte %zu bit %d", at, bit);
            cr_assert_null(e.cubin, "byte %zu bit %d: a refused entry gave a cubin", at, bit);
            f.bytes[at] ^= (uint8_t)(1 << bit);
        }
    cr_assert_null(gdni_entry_parse(&e, f.bytes, f.size, &f.key));
    drop(&f);
}

/* In a block of exactly that size: AddressSanitizer sees a read past the end. */
static const char *parse_copy(const uint8_t *bytes, size_t size, const struct gdni_key *key)
{
    struct gdni_entry e;
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    const char *wrong = gdni_entry_parse(&e, copy, size, key);
    free(copy);
    return wrong;
}

Test(cache_entry, refuses_every_truncation_at_either_end)
{
    struct fixture f = make();
    for (size_t size = 0; size < f.size; ++size) {
        cr_assert_not_null(parse_copy(f.bytes, size, &f.key), "first %zu of %zu bytes", size, f.size);
        cr_assert_not_null(parse_copy(f.bytes + (f.size - size), size, &f.key), "last %zu of %zu bytes", size, f.size);
    }
    drop(&f);
}

Test(cache_entry, refuses_bytes_added_at_either_end)
{
    struct fixture f = make();
    uint8_t *longer = calloc(1, f.size + 2);
    memcpy(longer + 1, f.bytes, f.size);
    cr_assert_not_null(parse_copy(longer, f.size + 1, &f.key));
    cr_assert_not_null(parse_copy(longer + 1, f.size + 1, &f.key));
    cr_assert_null(parse_copy(longer + 1, f.size, &f.key));
    free(longer);
    drop(&f);
}

Test(cache_entry, refuses_the_entry_of_another_key)
{
    struct fixture f = make();
    struct gdni_unit unit = store_unit("sm_90a", "b"); /* as long as the other */
    struct gdni_key other = store_key(&unit);
    struct gdni_entry e;
    cr_assert_eq(other.len, f.key.len);
    cr_assert_str_eq(gdni_entry_parse(&e, f.bytes, f.size, &other), "entry of another key");
    struct gdni_key prefix = f.key;
    --prefix.len;
    cr_assert_str_eq(gdni_entry_parse(&e, f.bytes, f.size, &prefix), "entry of another key");
    cr_assert_null(gdni_entry_parse(&e, f.bytes, f.size, NULL), "without a key any entry is good");
    gdni_key_free(&other);
    drop(&f);
}

/* The footer from its end: offsets as cache_entry.c has them. */
enum {
    FOOTER = 232,
    AT_FORMAT = 8,
    AT_FLAGS = 12,
    AT_CUBIN_SIZE = 16,
    AT_KEY_LEN = 24,
    AT_OPTIONS_LEN = 28,
    AT_LOG_LEN = 32,
    AT_FACTS = 36,
    AT_ARCH = 56,
    AT_ENTRY = 72
};

/* A file whose sums are right is not a file that is right: the sums are no secret. */
Test(cache_entry, refuses_nonsense_even_with_right_checksums)
{
    static const struct {
        size_t at, bytes;
        uint8_t value;
        const char *words;
    } cases[] = {
        { AT_FORMAT, 1, 3, "format of another version" },
        { AT_FLAGS, 1, 1, "format of another version" },
        { AT_CUBIN_SIZE + 7, 1, 0x80, "a size is over its limit" },
        { AT_CUBIN_SIZE, 1, 0, "sizes do not add up" },
        { AT_FACTS + 3, 1, 0x80, "a fact is out of range" },
        { AT_FACTS + 19, 1, 0x80, "a fact is out of range" },
        { AT_KEY_LEN + 2, 1, 2, "a size is over its limit" },
        { AT_OPTIONS_LEN + 1, 1, 0x80, "a size is over its limit" },
        { AT_OPTIONS_LEN, 1, 0, "sizes do not add up" },
        { AT_LOG_LEN + 3, 1, 1, "a size is over its limit" },
        { AT_ARCH, 16, 'x', "a name is no text" },
        { AT_ARCH, 1, '\n', "a name is no text" },
        { AT_ENTRY + 63, 1, 'x', "a name is no text" },
        { AT_ARCH + 4, 1, '1', "cubin is for another arch" },
        { AT_ARCH + 2, 1, '9', "arch is no sm_ name" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct fixture f = make();
        memset(f.bytes + f.size - FOOTER + cases[i].at, cases[i].value, cases[i].bytes);
        gdni_entry_seal(f.bytes, f.size);
        struct gdni_entry e;
        const char *wrong = gdni_entry_parse(&e, f.bytes, f.size, NULL);
        cr_assert_not_null(wrong, "case %zu: %s", i, cases[i].words);
        cr_assert_str_eq(wrong, cases[i].words, "case %zu", i);
        drop(&f);
    }
}

Test(cache_entry, refuses_a_nul_inside_key_text_options_or_log)
{
    struct fixture f = make();
    struct gdni_entry e;
    const size_t places[] = { CUBIN, CUBIN + f.key.len, CUBIN + f.key.len + strlen(STORE_OPTIONS), f.size - FOOTER - 1 };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; ++i) {
        const uint8_t was = f.bytes[places[i]];
        f.bytes[places[i]] = '\0';
        gdni_entry_seal(f.bytes, f.size);
        cr_assert_str_eq(gdni_entry_parse(&e, f.bytes, f.size, NULL), "text with a NUL", "byte %zu", places[i]);
        f.bytes[places[i]] = was;
    }
    drop(&f);
}

Test(cache_entry, refuses_options_and_logs_that_could_steer_a_terminal)
{
    static const struct {
        char c;
        bool in_options, in_log; /* good there */
    } cases[] = { { '\033', false, false }, { '\a', false, false }, { '\r', false, false },
                  { 0x7f, false, false },   { '\n', false, true },  { '\t', false, true },
                  { '~', true, true },      { ' ', true, true },    { '\xc3', false, true } };
    struct fixture f = make();
    struct gdni_entry e;
    uint8_t *const options = f.bytes + CUBIN + f.key.len, *const log = options + strlen(STORE_OPTIONS);
    const uint8_t first_option = *options, first_of_log = *log;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        *options = (uint8_t)cases[i].c;
        gdni_entry_seal(f.bytes, f.size);
        const char *wrong = gdni_entry_parse(&e, f.bytes, f.size, NULL);
        cr_expect_str_eq(wrong ? wrong : "good", cases[i].in_options ? "good" : "options are not printable", "case %zu",
                         i);
        *options = first_option;
        *log = (uint8_t)cases[i].c;
        gdni_entry_seal(f.bytes, f.size);
        wrong = gdni_entry_parse(&e, f.bytes, f.size, NULL);
        cr_expect_str_eq(wrong ? wrong : "good", cases[i].in_log ? "good" : "build log is not printable", "case %zu",
                         i);
        *log = first_of_log;
    }
    drop(&f);
}

Test(cache_entry, a_log_is_kept_without_what_could_steer_a_terminal)
{
    static const char log[] = "ptxas\033[2J info\r\n\tused 42";
    struct fixture f = make();
    struct gdni_entry e;
    void *bytes = NULL;
    size_t size = 0;
    f.entry.build_log = log;
    f.entry.log_len = strlen(log);
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &size), GDN_OK, "%s", gdni_error_text());
    cr_assert_null(gdni_entry_parse(&e, bytes, size, &f.key));
    cr_assert_eq(e.log_len, strlen(log));
    cr_assert_arr_eq(e.build_log, "ptxas?[2J info?\n\tused 42", e.log_len);
    gdni_free(bytes);
    drop(&f);
}

Test(cache_entry, knows_the_arch_of_a_cubin_in_both_elf_abis)
{
    static const struct {
        uint8_t abi, flags[4];
        const char *arch;
        bool good;
    } cases[] = {
        /* as compilers write them: 7 up to CUDA 12.x, 8 from Blackwell and CUDA 13.0 on */
        { 7, { 0x50, 0x05, 0x50, 0x00 }, "sm_80", true },   { 7, { 0x5a, 0x0d, 0x5a, 0x00 }, "sm_90a", true },
        { 7, { 0x5a, 0x0d, 0x5a, 0x00 }, "sm_80", false },  { 8, { 0x04, 0x5a, 0x00, 0x06 }, "sm_90a", true },
        { 8, { 0x0a, 0x64, 0x00, 0x06 }, "sm_100a", true }, { 8, { 0x02, 0x79, 0x00, 0x06 }, "sm_121a", true },
        { 8, { 0x02, 0x79, 0x00, 0x06 }, "sm_120a", false }, { 9, { 0, 0, 0, 0 }, "sm_90a", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        uint8_t *elf = store_cubin("sm_90a", 64, 1);
        elf[8] = cases[i].abi;
        memcpy(elf + 48, cases[i].flags, 4);
        const char *wrong = gdni_cubin_check(elf, 64, cases[i].arch);
        cr_assert_eq(!wrong, cases[i].good, "abi %d for %s: %s", cases[i].abi, cases[i].arch, wrong ? wrong : "good");
        free(elf);
    }
}

Test(cache_entry, refuses_what_is_no_cubin)
{
    static const struct {
        size_t at;
        uint8_t value;
        const char *words;
    } cases[] = {
        { 0, 0, "cubin is no 64-bit little-endian ELF file" }, { 4, 1, "cubin is no 64-bit little-endian ELF file" },
        { 5, 2, "cubin is no 64-bit little-endian ELF file" }, { 18, 62, "ELF file is not for CUDA" },
        { 52, 63, "ELF header has the wrong size" },           { 32, 101, "program headers pass the end" },
        { 39, 0x80, "program headers pass the end" },          { 57, 0xff, NULL },
        { 40, 101, "section headers pass the end" },           { 47, 0xff, "section headers pass the end" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        uint8_t *elf = store_cubin("sm_90a", 100, 1);
        elf[cases[i].at] = cases[i].value;
        const char *wrong = gdni_cubin_check(elf, 100, "sm_90a"), *words = cases[i].words;
        cr_assert(words ? wrong && strcmp(wrong, words) == 0 : !wrong, "case %zu: %s", i, wrong ? wrong : "good");
        free(elf);
    }
    cr_assert_str_eq(gdni_cubin_check("\177ELF\2\1\1", 7, "sm_90a"), "cubin is shorter than an ELF header");
}

Test(cache_entry, program_header_count_times_size_is_checked)
{
    uint8_t *elf = store_cubin("sm_90a", 100, 1);
    elf[54] = 56; /* e_phentsize */
    elf[56] = 1;  /* e_phnum */
    elf[32] = 44; /* 44 + 56 = 100 */
    cr_assert_null(gdni_cubin_check(elf, 100, "sm_90a"));
    elf[56] = 2;
    cr_assert_str_eq(gdni_cubin_check(elf, 100, "sm_90a"), "program headers pass the end");
    free(elf);
}

Test(cache_entry, keeps_the_end_of_a_long_build_log)
{
    struct fixture f = make();
    const size_t len = 3 * GDNI_ENTRY_MAX_LOG;
    char *log = malloc(len);
    for (size_t i = 0; i < len; ++i) log[i] = (char)('a' + i / 1000 % 26);
    f.entry.build_log = log;
    f.entry.log_len = len;
    void *bytes = NULL;
    size_t size = 0;
    struct gdni_entry e;
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &size), GDN_OK);
    cr_assert_null(gdni_entry_parse(&e, bytes, size, &f.key));
    cr_assert_eq(e.log_len, (size_t)GDNI_ENTRY_MAX_LOG);
    cr_assert_arr_eq(e.build_log, log + len - GDNI_ENTRY_MAX_LOG, GDNI_ENTRY_MAX_LOG);
    gdni_free(bytes);
    free(log);
    drop(&f);
}

Test(cache_entry, does_not_keep_what_it_would_refuse)
{
    struct fixture f = make();
    void *bytes = NULL;
    size_t size = 0;
    snprintf(f.entry.arch, sizeof f.entry.arch, "sm_80");
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &size), GDN_E_INVALID);
    cr_assert(strstr(gdni_error_text(), "another arch"), "%s", gdni_error_text());
    snprintf(f.entry.arch, sizeof f.entry.arch, "sm_90a");
    const char *const options = f.entry.options;
    f.entry.options = "-D\n";
    f.entry.options_len = 3;
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &size), GDN_E_INVALID);
    cr_assert(strstr(gdni_error_text(), "printable ASCII"), "%s", gdni_error_text());
    f.entry.options = options;
    f.entry.options_len = GDNI_ENTRY_MAX_OPTIONS + 1;
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &size), GDN_E_INVALID);
    cr_assert(strstr(gdni_error_text(), "4097"), "%s", gdni_error_text());
    f.entry.key_len = GDNI_ENTRY_MAX_KEY + 1;
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &size), GDN_E_INVALID);
    cr_assert(strstr(gdni_error_text(), "65537"), "%s", gdni_error_text());
    f.entry.cubin_size = (size_t)GDNI_ENTRY_MAX_CUBIN + 1;
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &size), GDN_E_INVALID);
    cr_assert(strstr(gdni_error_text(), "67108865"), "%s", gdni_error_text());
    drop(&f);
}

Test(cache_entry, equal_entries_are_equal_bytes_whatever_lies_behind_a_name)
{
    struct fixture f = make();
    memset(f.entry.entry + 5, 'x', sizeof f.entry.entry - 5); /* behind "tiny" and its NUL */
    void *bytes = NULL;
    size_t size = 0;
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &size), GDN_OK);
    cr_assert_eq(size, f.size);
    cr_assert_arr_eq(bytes, f.bytes, size);
    gdni_free(bytes);
    drop(&f);
}

Test(cache_entry, running_out_of_memory_is_a_status)
{
    struct fixture f = make();
    void *bytes = NULL;
    size_t size = 0;
    gdni_mem_fail_after(0);
    cr_assert_eq(gdni_entry_encode(&f.entry, &bytes, &size), GDN_E_NOMEM);
    gdni_mem_fail_after(-1);
    for (int allowed = 0; allowed < 5; ++allowed) {
        gdni_mem_fail_after(allowed);
        cr_assert_null(gdni_program_create(&f.entry), "after %d allocations", allowed);
    }
    gdni_mem_fail_after(-1);
    struct gdni_program *program = gdni_program_create(&f.entry);
    cr_assert_not_null(program);
    cr_assert_str_eq(program->key_hex, f.key.hex);
    gdni_program_release(program);
    drop(&f);
    cr_assert(fake_no_leaks());
}
