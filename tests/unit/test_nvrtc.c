/*
 * test_nvrtc.c - which compiler is used, what is said when there is none, and that it can be known without being loaded.
 */
#include <criterion/criterion.h>

#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/nvrtc.h"
#include "support/fake_host.h"
#include "support/store.h"

#define EXPECT_SENTENCE(words) cr_assert(strstr(gdni_error_text(), words), "\"%s\" expected in: %s", words, gdni_error_text())

/* The compiler at path is refused with these words, the second time too, and has no tag. */
static void expect_refused(const char *path, const char *words)
{
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(path, 0);
    const struct gdni_nvrtc_api *api = NULL;
    for (int i = 0; i < 2; ++i) {
        gdni_fail(GDN_E_INVALID, "nothing yet");
        cr_assert_eq(gdni_nvrtc_get(nvrtc, &api), GDN_E_NO_NVRTC);
        EXPECT_SENTENCE(words);
        EXPECT_SENTENCE("GDN_JIT_NVRTC");
        cr_assert_null(api);
    }
    char tag[GDNI_COMPILER_TAG];
    cr_assert(!gdni_nvrtc_tag(nvrtc, tag));
    gdni_nvrtc_destroy(nvrtc);
}

Test(nvrtc, a_configured_library_that_is_not_there_is_a_sentence)
{
    expect_refused("/nonexistent/libnvrtc.so.13", "/nonexistent/libnvrtc.so.13");
    expect_refused("libnvrtc-that-nobody-has.so.1", "libnvrtc-that-nobody-has.so.1");
}

Test(nvrtc, a_file_that_is_no_library_is_a_sentence)
{
    char *dir = store_scratch();
    const char *path = store_path(dir, "libnvrtc.so.13");
    store_write(path, "not a library at all, but long enough to hold an ELF header, if it were one", 75);
    expect_refused(path, path);
    store_write(path, "", 0);
    expect_refused(path, path);
    expect_refused(dir, dir);
    store_remove(dir);
}

Test(nvrtc, another_library_under_that_name_is_a_sentence)
{
    expect_refused("libm.so.6", "nvrtcVersion");
}

Test(nvrtc, a_compiler_before_12_8_is_refused_with_its_version)
{
    struct fake_nvrtc *fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    fake->major = 12;
    fake->minor = 6;
    expect_refused(GDN_FAKE_NVRTC_PATH, "is NVRTC 12.6");
    expect_refused(GDN_FAKE_NVRTC_PATH, "12.8 or newer");
    fake->minor = 8;
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    const struct gdni_nvrtc_api *api;
    cr_assert_eq(gdni_nvrtc_get(nvrtc, &api), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(api->version, 1208);
    gdni_nvrtc_destroy(nvrtc);
}

Test(nvrtc, an_arch_newer_than_the_compiler_is_refused_with_both_versions)
{
    const struct gdni_nvrtc_api api = { .version = 1208, .path = "/some/libnvrtc.so.12" };
    struct gdni_arch arch = { .name = "sm_121a", .cc = 121, .min_nvrtc = 1209 };
    cr_assert_eq(gdni_nvrtc_check_arch(&api, &arch), GDN_E_NO_NVRTC);
    EXPECT_SENTENCE("sm_121a needs NVRTC 12.9");
    EXPECT_SENTENCE("/some/libnvrtc.so.12 is 12.8");
    arch.min_nvrtc = 1208;
    cr_assert_eq(gdni_nvrtc_check_arch(&api, &arch), GDN_OK);
}

Test(nvrtc, nothing_is_opened_before_it_is_needed)
{
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    char tag[GDNI_COMPILER_TAG];
    cr_assert(gdni_nvrtc_tag(nvrtc, tag));
    cr_assert_null(dlopen(GDN_FAKE_NVRTC_PATH, RTLD_LAZY | RTLD_NOLOAD), "the library was loaded for its tag");
    gdni_nvrtc_destroy(nvrtc);
}

Test(nvrtc, the_tag_is_the_same_loaded_or_not)
{
    struct gdni_nvrtc *peeking = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0),
                      *loading = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    const struct gdni_nvrtc_api *api;
    char before[GDNI_COMPILER_TAG] = "", after[GDNI_COMPILER_TAG] = "";
    cr_assert(gdni_nvrtc_tag(peeking, before));
    cr_assert_eq(gdni_nvrtc_get(loading, &api), GDN_OK, "%s", gdni_error_text());
    cr_assert(gdni_nvrtc_tag(loading, after));
    cr_assert_eq(strlen(before), 8u);
    cr_assert_str_eq(before, after);
    cr_assert_str_eq(before, api->tag);
    cr_assert(strstr(api->identity, "nvrtc 13.0 "), "%s", api->identity);
    gdni_nvrtc_destroy(peeking);
    gdni_nvrtc_destroy(loading);
}

Test(nvrtc, the_machines_compiler_has_the_same_tag_loaded_or_not)
{
    const char *path = getenv("GDN_JIT_NVRTC");
    struct gdni_nvrtc *peeking = gdni_nvrtc_create(path, 0), *loading = gdni_nvrtc_create(path, 0);
    const struct gdni_nvrtc_api *api;
    char tag[GDNI_COMPILER_TAG];
    const bool known = gdni_nvrtc_tag(peeking, tag);
    if (gdni_nvrtc_get(loading, &api) != GDN_OK) cr_skip_test("no NVRTC here: %s", gdni_error_text());
    cr_assert(known);
    cr_assert_str_eq(tag, api->tag);
    gdni_nvrtc_destroy(peeking);
    gdni_nvrtc_destroy(loading);
}

Test(nvrtc, a_loaded_library_is_not_peeked_at)
{
    cr_assert_not_null(dlopen(GDN_FAKE_NVRTC_PATH, RTLD_NOW));
    fake_nvrtc_open(GDN_FAKE_NVRTC_PATH)->minor = 5;
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    const struct gdni_nvrtc_api *api;
    char tag[GDNI_COMPILER_TAG];
    cr_assert(gdni_nvrtc_tag(nvrtc, tag));
    cr_assert_eq(gdni_nvrtc_get(nvrtc, &api), GDN_OK);
    cr_assert_str_eq(tag, api->tag);
    gdni_nvrtc_destroy(nvrtc);
}

Test(nvrtc, creation_survives_running_out_of_memory)
{
    for (int allowed = 0; allowed < 2; ++allowed) {
        gdni_mem_fail_after(allowed);
        cr_assert_null(gdni_nvrtc_create("libnvrtc.so.13", 0));
        gdni_mem_fail_after(-1);
    }
    cr_assert(fake_no_leaks());
}

/* ---- peeking ---- */

static size_t add_note(uint8_t *at, uint32_t type, const char *name, const void *bytes, uint32_t size)
{
    const Elf64_Nhdr note = { (uint32_t)strlen(name) + 1, size, type };
    memcpy(at, &note, sizeof note);
    memcpy(at + sizeof note, name, note.n_namesz);
    memcpy(at + sizeof note + ((note.n_namesz + 3) & ~3u), bytes, size);
    return sizeof note + ((note.n_namesz + 3) & ~3u) + ((size + 3) & ~3u);
}

Test(nvrtc, the_build_id_is_found_behind_other_notes)
{
    static const uint8_t id[20] = { 0x65, 0xbe, 0x0d, 0xb3, 0x42, 0xad, 0x51, 0xa0, 0x68, 0x76,
                                    0xe7, 0x1e, 0x21, 0x0b, 0xcc, 0xc5, 0xaa, 0x83, 0x22, 0xcf };
    uint8_t notes[256] = { 0 };
    char hex[GDNI_BUILD_ID];
    size_t size = add_note(notes, 1, "GNU", "abi!", 4);
    size += add_note(notes + size, NT_GNU_BUILD_ID, "Other", id, 20);
    cr_assert(!gdni_note_build_id(notes, size, hex));
    size += add_note(notes + size, NT_GNU_BUILD_ID, "GNU", id, 20);
    cr_assert(gdni_note_build_id(notes, size, hex));
    cr_assert_str_eq(hex, "65be0db342ad51a06876e71e210bccc5aa8322cf");
    for (size_t cut = 0; cut < size; ++cut) { /* in a block of that size: AddressSanitizer watches */
        uint8_t *copy = malloc(cut ? cut : 1);
        memcpy(copy, notes, cut);
        cr_assert(!gdni_note_build_id(copy, cut, hex), "%zu of %zu bytes", cut, size);
        free(copy);
    }
}

Test(nvrtc, notes_with_absurd_sizes_are_not_followed)
{
    char hex[GDNI_BUILD_ID];
    const Elf64_Nhdr absurd[] = { { UINT32_MAX, 4, NT_GNU_BUILD_ID }, { 4, UINT32_MAX, NT_GNU_BUILD_ID },
                                  { UINT32_MAX - 3, UINT32_MAX - 3, 1 } };
    for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; ++i)
        cr_assert(!gdni_note_build_id(&absurd[i], sizeof absurd[i], hex), "case %zu", i);
}

Test(nvrtc, what_is_no_elf_file_has_no_build_id)
{
    char id[GDNI_BUILD_ID];
    char *dir = store_scratch();
    const char *path = store_path(dir, "file");
    Elf64_Ehdr header = { .e_ident = ELFMAG, .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 60, .e_phoff = UINT64_MAX };
    store_write(path, &header, sizeof header);
    cr_assert(!gdni_peek_build_id(path, id));
    header.e_phoff = sizeof header;
    store_write(path, &header, sizeof header);
    cr_assert(!gdni_peek_build_id(path, id));
    cr_assert(!gdni_peek_build_id(dir, id));
    cr_assert(!gdni_peek_build_id(store_path(dir, "nothing"), id));
    store_remove(dir);
}

/* The fake library in memory, as a file; free(). Its parts, which are in bounds: the linker made them. */
struct library {
    uint8_t *bytes;
    size_t size;
    Elf64_Ehdr *elf;
    Elf64_Phdr *segments;
    Elf64_Shdr *sections;
};

static struct library read_library(void)
{
    struct library l = { 0 };
    l.bytes = store_read(GDN_FAKE_NVRTC_PATH, &l.size);
    l.elf = (Elf64_Ehdr *)(void *)l.bytes;
    l.segments = (Elf64_Phdr *)(void *)(l.bytes + l.elf->e_phoff);
    l.sections = (Elf64_Shdr *)(void *)(l.bytes + l.elf->e_shoff);
    return l;
}

/* As NVIDIA's wheels of 12.8 are: PT_NOTE points at bytes that are no note, and the sections alone know where the id is. */
static struct library edited_library(void)
{
    struct library l = read_library();
    for (int i = 0; i < l.elf->e_phnum; ++i)
        if (l.segments[i].p_type == PT_NOTE) l.segments[i].p_vaddr = l.segments[i].p_paddr = l.segments[i].p_offset = 0;
    return l;
}

/* The build id's last byte, where the sections say it is. */
static uint8_t *last_of_id(const struct library *l)
{
    char id[GDNI_BUILD_ID];
    for (int i = 0; i < l->elf->e_shnum; ++i) {
        const Elf64_Shdr *s = &l->sections[i];
        if (s->sh_type == SHT_NOTE && gdni_note_build_id(l->bytes + s->sh_offset, s->sh_size, id))
            return l->bytes + s->sh_offset + s->sh_size - 1;
    }
    cr_assert_fail("the fake library has no build id");
    return NULL;
}

/* Identity and tag of the compiler at path once it is loaded; the tag that was known before is no other. */
static struct gdni_nvrtc_api load_as(const char *path, const struct library *l)
{
    const struct gdni_nvrtc_api *api;
    char before[GDNI_COMPILER_TAG] = "";
    store_write(path, l->bytes, l->size);
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(path, 0);
    cr_assert(gdni_nvrtc_tag(nvrtc, before), "%s", gdni_error_text());
    cr_assert_eq(gdni_nvrtc_get(nvrtc, &api), GDN_OK, "%s", gdni_error_text());
    cr_assert_str_eq(before, api->tag, "%s", api->identity);
    const struct gdni_nvrtc_api known = *api;
    gdni_nvrtc_destroy(nvrtc);
    return known;
}

/* Of two builds of one version the second must not find the first one's kernels. */
Test(nvrtc, a_build_id_that_only_the_sections_know_tells_builds_apart)
{
    char *dir = store_scratch(), id[GDNI_BUILD_ID] = "", whole[GDNI_BUILD_ID] = "";
    struct library l = edited_library();
    const struct gdni_nvrtc_api one = load_as(store_path(dir, "one.so"), &l);
    cr_assert(gdni_peek_build_id(GDN_FAKE_NVRTC_PATH, whole));
    cr_assert(gdni_peek_build_id(store_path(dir, "one.so"), id));
    cr_assert_str_eq(id, whole);
    cr_assert(strstr(one.identity, id), "%s", one.identity);
    *last_of_id(&l) ^= 1;
    const struct gdni_nvrtc_api two = load_as(store_path(dir, "two.so"), &l);
    cr_assert_str_neq(one.identity, two.identity);
    cr_assert_str_neq(one.tag, two.tag);
    free(l.bytes);
    store_remove(dir);
}

/* The loader does not look whether notes are in what it has loaded. */
Test(nvrtc, notes_that_lie_in_nothing_that_was_loaded_are_not_read)
{
    static const uint64_t places[] = { UINT64_C(0x7fff00000000), UINT64_C(0x4000000), UINT64_MAX - 7, 0 };
    char *dir = store_scratch(), whole[GDNI_BUILD_ID] = "", name[16];
    cr_assert(gdni_peek_build_id(GDN_FAKE_NVRTC_PATH, whole));
    for (size_t at = 0; at < sizeof places / sizeof places[0]; ++at) {
        struct library l = read_library();
        for (int i = 0; i < l.elf->e_phnum; ++i) {
            if (l.segments[i].p_type != PT_NOTE) continue;
            if (places[at]) l.segments[i].p_vaddr = l.segments[i].p_paddr = places[at];
            if (!places[at]) l.segments[i].p_memsz = UINT64_C(0x100000000); /* begins where it should, ends in nothing */
        }
        snprintf(name, sizeof name, "%zu.so", at);
        const struct gdni_nvrtc_api api = load_as(store_path(dir, name), &l);
        cr_expect(strstr(api.identity, whole), "%zu: %s", at, api.identity);
        free(l.bytes);
    }
    store_remove(dir);
}

Test(nvrtc, builds_without_a_build_id_are_told_apart_by_their_bytes)
{
    char *dir = store_scratch();
    struct library l = edited_library();
    l.elf->e_shnum = 0;
    l.elf->e_shoff = 0;
    const struct gdni_nvrtc_api one = load_as(store_path(dir, "one.so"), &l),
                                same = load_as(store_path(dir, "same.so"), &l);
    l.bytes[l.size - 1] ^= 1; /* of the sections' headers, which the loader does not read */
    const struct gdni_nvrtc_api two = load_as(store_path(dir, "two.so"), &l);
    cr_assert(strstr(one.identity, "nvrtc 13.0 content "), "%s", one.identity);
    cr_assert_str_eq(one.identity, same.identity);
    cr_assert_str_neq(one.identity, two.identity);
    cr_assert_str_neq(one.tag, two.tag);
    free(l.bytes);
    store_remove(dir);
}

Test(nvrtc, headers_of_sections_that_lie_are_not_followed)
{
    char *dir = store_scratch(), id[GDNI_BUILD_ID];
    const char *path = store_path(dir, "file");
    struct library l = edited_library();
    const Elf64_Ehdr elf = *l.elf;
    const struct {
        uint64_t at;
        uint16_t count, size;
    } lies[] = { { UINT64_MAX, elf.e_shnum, elf.e_shentsize },   { UINT64_MAX - 63, elf.e_shnum, elf.e_shentsize },
                 { INT64_MAX, elf.e_shnum, elf.e_shentsize },    { l.size - 32, elf.e_shnum, elf.e_shentsize },
                 { elf.e_shoff, UINT16_MAX, elf.e_shentsize },   { elf.e_shoff, elf.e_shnum, 1 },
                 { elf.e_shoff, 0, elf.e_shentsize } };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; ++i) {
        l.elf->e_shoff = lies[i].at;
        l.elf->e_shnum = lies[i].count;
        l.elf->e_shentsize = lies[i].size;
        store_write(path, l.bytes, l.size);
        cr_assert(!gdni_peek_build_id(path, id), "case %zu", i);
    }
    *l.elf = elf;
    for (int way = 0; way < 3; ++way) { /* each note is at no place of the file, or longer than any */
        for (int i = 0; i < elf.e_shnum; ++i) {
            Elf64_Shdr *s = &l.sections[i];
            if (s->sh_type != SHT_NOTE) continue;
            s->sh_offset = way == 0 ? UINT64_MAX : way == 1 ? l.size - 1 : s->sh_offset;
            s->sh_size = way == 2 ? UINT64_MAX : s->sh_size;
        }
        store_write(path, l.bytes, l.size);
        cr_assert(!gdni_peek_build_id(path, id), "way %d", way);
    }
    free(l.bytes);
    store_remove(dir);
}

/* All of a library's texts that are `was`, which is no shorter than `becomes`. */
static void rename_all(struct library *l, const char *was, const char *becomes)
{
    const size_t len = strlen(was) + 1;
    for (uint8_t *at = l->bytes; (at = memmem(at, (size_t)(l->bytes + l->size - at), was, len)); at += len)
        memset(at, 0, len), memcpy(at, becomes, strlen(becomes));
}

/* Stands in the place of libc's: a library of this name is not there. */
static const char *missing;
void *dlopen(const char *name, int flags)
{
    void *(*next)(const char *, int);
    void *address = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&next, &address, sizeof next);
    return missing && name && strcmp(name, missing) == 0 ? NULL : next(name, flags);
}

/* Loaded already, it is what the loader finds by that name. */
Test(nvrtc, of_the_default_names_the_one_that_opened_is_told)
{
    char *dir = store_scratch();
    const char *path = store_path(dir, "other.so");
    struct library l = read_library();
    rename_all(&l, "libfakenvrtc.so", "libnvrtc.so.12");
    rename_all(&l, "nvrtcGetCUBIN", "nvrtcGetCubin");
    store_write(path, l.bytes, l.size);
    cr_assert_not_null(dlopen(path, RTLD_NOW), "%s", dlerror());
    missing = "libnvrtc.so.13";
    expect_refused(NULL, "libnvrtc.so.12 has no nvrtcGetCUBIN, ");
    free(l.bytes);
    store_remove(dir);
}

/* A cache file of one library, as ldconfig writes it. */
struct ld_cache {
    char magic[20];
    uint32_t count, len, reserved[5];
    int32_t flags;
    uint32_t name, path, os;
    uint64_t hwcap;
    char strings[64];
};

#if defined(__x86_64__)
enum { FLAGS = 0x0303 };
#elif defined(__aarch64__)
enum { FLAGS = 0x0a03 };
#else
enum { FLAGS = 0x0003 };
#endif

static struct ld_cache ld_cache(void)
{
    struct ld_cache c = { .count = 1, .flags = FLAGS, .name = 72, .path = 72 + 15 };
    memcpy(c.magic, "glibc-ld.so.cache1.1", 20);
    strcpy(c.strings, "libnvrtc.so.13");
    strcpy(c.strings + 15, "/opt/cuda/libnvrtc.so.13");
    return c;
}

Test(nvrtc, the_loaders_cache_is_read_as_it_is_written)
{
    cr_assert_eq(offsetof(struct ld_cache, strings), 72u);
    struct ld_cache c = ld_cache();
    cr_assert_str_eq(gdni_ld_cache_find(&c, sizeof c, "libnvrtc.so.13"), "/opt/cuda/libnvrtc.so.13");
    cr_assert_null(gdni_ld_cache_find(&c, sizeof c, "libnvrtc.so.12"));
    c.flags = 0x0803; /* another ABI's library of that name */
    cr_assert_null(gdni_ld_cache_find(&c, sizeof c, "libnvrtc.so.13"));
    c.flags = FLAGS;
    c.hwcap = 1; /* one for some CPUs only */
    cr_assert_null(gdni_ld_cache_find(&c, sizeof c, "libnvrtc.so.13"));
}

Test(nvrtc, a_damaged_loaders_cache_finds_nothing)
{
    const struct ld_cache good = ld_cache();
    for (size_t cut = 0; cut < sizeof good; ++cut) {
        void *copy = malloc(cut ? cut : 1);
        memcpy(copy, &good, cut);
        const char *path = gdni_ld_cache_find(copy, cut, "libnvrtc.so.13");
        cr_assert(!path || strcmp(path, "/opt/cuda/libnvrtc.so.13") == 0, "%zu bytes", cut);
        free(copy);
    }
    struct ld_cache bad = good;
    bad.count = UINT32_MAX;
    cr_assert_null(gdni_ld_cache_find(&bad, sizeof bad, "libnvrtc.so.13"));
    /* Two rows are said, and the file ends behind the first, whose bytes hold the texts of the second. */
    struct ld_cache two = good;
    two.count = 2;
    two.flags = 0;
    memcpy((char *)&two + 52, "libn\0/p", 8);
    const struct {
        int32_t flags;
        uint32_t name, path, os;
        uint64_t hwcap;
    } second = { .flags = FLAGS, .name = 52, .path = 57 };
    memcpy(two.strings, &second, sizeof second);
    cr_assert_str_eq(gdni_ld_cache_find(&two, 96, "libn"), "/p");
    cr_assert_null(gdni_ld_cache_find(&two, 72, "libn"));
    bad = good;
    bad.path = UINT32_MAX;
    cr_assert_null(gdni_ld_cache_find(&bad, sizeof bad, "libnvrtc.so.13"));
    bad = good;
    memset(bad.strings + 15, 'x', sizeof bad.strings - 15); /* no NUL up to the end */
    cr_assert_null(gdni_ld_cache_find(&bad, sizeof bad, "libnvrtc.so.13"));
}

Test(nvrtc, a_bare_name_is_resolved_as_the_loader_does)
{
    char path[GDNI_PATH], real[4096], loaded[4096];
    cr_assert(gdni_peek_resolve("libm.so.6", path));
    Dl_info info;
    void *libm = dlopen("libm.so.6", RTLD_NOW), *address = libm ? dlsym(libm, "cos") : NULL;
    cr_assert(address && dladdr(address, &info));
    cr_assert(realpath(path, real) && realpath(info.dli_fname, loaded));
    cr_assert_str_eq(real, loaded);
    cr_assert(!gdni_peek_resolve("libnvrtc-that-nobody-has.so.1", path));
    cr_assert(!gdni_peek_resolve("/nonexistent/libnvrtc.so", path));
}
