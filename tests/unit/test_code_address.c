/*
 * test_code_address.c - a kernel that asks where its code lies gets told, and no other relocation is touched; damaged files
 * are no harm; a driver that refuses such a cubin loads the one that the compiler made.
 */
#include <criterion/criterion.h>

#include <elf.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "codegen/spec.h"
#include "fakenvrtc/fake_cubin.h"
#include "runtime/code_address.h"
#include "support/fake_host.h"
#include "support/rng.h"

enum { R_CUDA_64 = 2, R_CUDA_OTHER = 35, INVALID_IMAGE = 200, NO_BINARY = 209 };

/* ---- One cubin ---- */

enum { NOTHING, OWN_CODE, KERNEL, VARIABLE, OTHER, LONGER, NUM_SYMBOLS };
enum { NO_SECTION, STRINGS, SYMBOLS, CONSTANTS, CODE, NUM_SECTIONS };
enum { CODE_BYTES = 1153, CODE_LINES = 10 }; /* a last line of one byte */

/* A cubin with relocations of every kind, in two sections. */
struct cubin {
    Elf64_Ehdr header;
    char strings[64];
    Elf64_Sym symbols[NUM_SYMBOLS];
    Elf64_Rela constants[5], code[2];
    Elf64_Shdr sections[NUM_SECTIONS];
};

static const unsigned of_constants[][2] = { { VARIABLE, R_CUDA_64 }, { OWN_CODE, R_CUDA_64 }, { KERNEL, R_CUDA_64 },
                                            { LONGER, R_CUDA_64 }, { OWN_CODE, R_CUDA_OTHER } };
static const unsigned of_code[][2] = { { OTHER, R_CUDA_OTHER }, { OWN_CODE, R_CUDA_64 } };

static void put_section(struct cubin *c, int i, unsigned type, size_t offset, size_t size, unsigned link)
{
    c->sections[i] = (Elf64_Shdr){ .sh_type = type, .sh_offset = offset, .sh_size = size, .sh_link = link };
}

static struct cubin make_cubin(void)
{
    static const char strings[] = "\0gdn_own_code\0kernel\0variable\0other\0gdn_own_code_2";
    static const unsigned names[NUM_SYMBOLS] = { 0, 1, 14, 21, 30, 36 };
    struct cubin c;
    memset(&c, 0, sizeof c);
    memcpy(c.header.e_ident, ELFMAG, SELFMAG);
    c.header.e_ident[EI_CLASS] = ELFCLASS64;
    c.header.e_shoff = offsetof(struct cubin, sections);
    c.header.e_shentsize = sizeof(Elf64_Shdr);
    c.header.e_shnum = NUM_SECTIONS;
    memcpy(c.strings, strings, sizeof strings);
    for (int i = 1; i < NUM_SYMBOLS; ++i)
        c.symbols[i] = (Elf64_Sym){ .st_name = names[i], .st_info = i == KERNEL || i == OTHER ? STT_FUNC : STT_OBJECT };
    c.symbols[KERNEL].st_size = CODE_BYTES;
    for (int i = 0; i < 5; ++i)
        c.constants[i] = (Elf64_Rela){ (unsigned)i * 8, ELF64_R_INFO((uint64_t)of_constants[i][0], of_constants[i][1]), 0 };
    for (int i = 0; i < 2; ++i)
        c.code[i] = (Elf64_Rela){ (unsigned)i * 16, ELF64_R_INFO((uint64_t)of_code[i][0], of_code[i][1]), 0 };
    put_section(&c, STRINGS, SHT_STRTAB, offsetof(struct cubin, strings), sizeof c.strings, 0);
    put_section(&c, SYMBOLS, SHT_SYMTAB, offsetof(struct cubin, symbols), sizeof c.symbols, STRINGS);
    put_section(&c, CONSTANTS, SHT_RELA, offsetof(struct cubin, constants), sizeof c.constants, SYMBOLS);
    put_section(&c, CODE, SHT_RELA, offsetof(struct cubin, code), sizeof c.code, SYMBOLS);
    return c;
}

Test(code_address, is_told_to_the_kernel_and_nothing_else_changes)
{
    const struct cubin before = make_cubin();
    struct cubin wanted = before;
    wanted.constants[1].r_info = wanted.code[1].r_info = ELF64_R_INFO((uint64_t)KERNEL, R_CUDA_64);
    wanted.constants[1].r_addend = wanted.code[1].r_addend = (int64_t)CODE_LINES << GDNI_ADDRESS_BITS;
    void *told = gdni_tell_code_address(&before, sizeof before, "kernel");
    cr_assert_not_null(told);
    cr_expect_arr_eq(told, &wanted, sizeof wanted);
    gdni_free(told);
}

Test(code_address, is_not_told_of_another_kernel_or_to_one_that_does_not_ask)
{
    struct cubin c = make_cubin();
    cr_expect_null(gdni_tell_code_address(&c, sizeof c, "kern"));
    cr_expect_null(gdni_tell_code_address(&c, sizeof c, "kernel_22"));
    cr_expect_null(gdni_tell_code_address(&c, sizeof c, "variable"), "it is no function");
    c.strings[1] = 'G';
    cr_expect_null(gdni_tell_code_address(&c, sizeof c, "kernel"), "no variable is asked for");
    c = make_cubin();
    c.header.e_ident[EI_CLASS] = ELFCLASS32;
    cr_expect_null(gdni_tell_code_address(&c, sizeof c, "kernel"));
}

Test(code_address, out_of_memory_it_is_not_told)
{
    const struct cubin c = make_cubin();
    gdni_mem_fail_after(0);
    void *told = gdni_tell_code_address(&c, sizeof c, "kernel");
    gdni_mem_fail_after(-1);
    cr_expect_null(told);
}

/* Wherever a file ends, and whatever its numbers are: no byte outside of it is read, and none but relocations' are changed. */
Test(code_address, damaged_files_are_no_harm)
{
    enum { SEED = 20261130, TRIES = 50000, MOST_CHANGED = 7 * 16 }; /* r_info and r_addend of each */
    const struct cubin whole = make_cubin();
    struct rng rng;
    rng_seed(&rng, SEED);
    for (int i = 0; i < TRIES; ++i) {
        const size_t size = i % 4 ? sizeof whole : (size_t)rng_below(&rng, sizeof whole + 1);
        unsigned char *damaged = malloc(size + !size); /* ends where the file does, for a sanitizer */
        memcpy(damaged, &whole, size);
        for (int hits = rng_below(&rng, 4); size && hits; --hits) {
            const size_t at = (size_t)rng_below(&rng, (int)size);
            damaged[at] = rng_below(&rng, 2) ? 0xff : (unsigned char)rng_below(&rng, 256);
        }
        unsigned char *told = gdni_tell_code_address(damaged, size, "kernel");
        size_t changed = 0;
        for (size_t at = 0; told && at < size; ++at) changed += told[at] != damaged[at];
        cr_assert(!told || (changed >= 1 && changed <= MOST_CHANGED), "seed %d, try %d: %zu bytes changed", SEED, i, changed);
        gdni_free(told);
        free(damaged);
    }
}

/* ---- A hostile one ---- */

enum { MANY = 1 << 19, MANY_SECTIONS = 60000, NAMES_AT = sizeof(Elf64_Ehdr), NAMES_ROOM = 64 };
enum { MANY_SYMBOLS_AT = NAMES_AT + NAMES_ROOM, MANY_RELOCATIONS_AT = MANY_SYMBOLS_AT + MANY * sizeof(Elf64_Sym) };
enum { MANY_SECTIONS_AT = MANY_RELOCATIONS_AT + MANY * sizeof(Elf64_Rela) };
enum { HOSTILE_BYTES = MANY_SECTIONS_AT + MANY_SECTIONS * sizeof(Elf64_Shdr) };

/* Sections of relocations that all lie above each other; symbols but the last that all have the variable's name. */
static unsigned char *make_hostile(void)
{
    static const char names[] = "\0gdn_own_code\0kernel";
    const Elf64_Shdr first[] = {
        { .sh_type = SHT_NULL },
        { .sh_type = SHT_STRTAB, .sh_offset = NAMES_AT, .sh_size = sizeof names },
        { .sh_type = SHT_SYMTAB, .sh_offset = MANY_SYMBOLS_AT, .sh_size = MANY * sizeof(Elf64_Sym), .sh_link = 1 },
        { .sh_type = SHT_RELA, .sh_offset = MANY_RELOCATIONS_AT, .sh_size = MANY * sizeof(Elf64_Rela), .sh_link = 2 },
    };
    Elf64_Ehdr header = { .e_shoff = MANY_SECTIONS_AT, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = MANY_SECTIONS };
    unsigned char *file = calloc(1, HOSTILE_BYTES);
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    memcpy(file, &header, sizeof header);
    memcpy(file + NAMES_AT, names, sizeof names);
    for (size_t i = 1; i < MANY; ++i) {
        const bool last = i == MANY - 1;
        const Elf64_Sym symbol = { .st_name = last ? 14 : 1, .st_info = last ? STT_FUNC : STT_OBJECT };
        const Elf64_Rela relocation = { .r_info = ELF64_R_INFO((uint64_t)(MANY - 2), (uint64_t)R_CUDA_64) };
        memcpy(file + MANY_SYMBOLS_AT + i * sizeof symbol, &symbol, sizeof symbol);
        memcpy(file + MANY_RELOCATIONS_AT + i * sizeof relocation, &relocation, sizeof relocation);
    }
    for (size_t i = 0; i < MANY_SECTIONS; ++i)
        memcpy(file + MANY_SECTIONS_AT + i * sizeof *first, &first[i < 3 ? i : 3], sizeof *first);
    return file;
}

/* What it takes goes by the file's length, not by products of what it says there is, which here would be hours. */
Test(code_address, hostile_files_take_no_longer_than_others, .timeout = 20)
{
    unsigned char *file = make_hostile();
    unsigned char *told = gdni_tell_code_address(file, HOSTILE_BYTES, "kernel");
    const size_t last = HOSTILE_BYTES - MANY_SECTIONS * sizeof(Elf64_Shdr) - sizeof(Elf64_Rela);
    cr_expect(told && memcmp(told + last, file + last, sizeof(Elf64_Rela)) != 0);
    gdni_free(told);
    free(file);
}

/* ---- Plans ---- */

/* Of one kernel, so that what is loaded first is what is launched. */
static gdn_plan *plan_of(struct fake_host *host)
{
    const uint32_t flags = GDN_PLAN_BATCH_INVARIANT | GDN_PLAN_WHOLE_SEQUENCES;
    const gdn_target target = fake_h200(host->ctx);
    const gdn_prefill_desc desc = fake_prefill_desc();
    gdn_plan *plan = NULL;
    cr_assert_eq(gdn_plan_prefill(host->ctx, &target, &desc, flags, &plan), GDN_OK, "%s", gdn_last_error());
    return plan;
}

/* Whose address a call's kernel would get. */
static const char *launched(struct fake_host *host, gdn_plan *plan)
{
    const gdn_prefill_args args = fake_prefill_args();
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_execute_prefill(plan, &args, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    return fake_cubin_address_of(host->cuda->launch(host->cuda->num_launches() - 1).image);
}

Test(code_address, is_told_where_a_plan_is_loaded_and_not_in_what_is_kept)
{
    struct fake_host host;
    fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, "", GDN_FAKE_NVRTC_PATH, 0);
    gdn_plan *plan = plan_of(&host);
    cr_expect_str_eq(launched(&host, plan), "gdn_prefill_hopper");
    char *kept = fake_dump(plan, GDN_DUMP_CUBIN);
    cr_expect_str_eq(fake_cubin_address_of(kept), GDNI_OWN_CODE);
    free(kept);
    cr_expect_eq(host.warnings, 0, "%s", host.warning);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
}

Test(code_address, is_not_told_where_the_environment_says_so)
{
    struct fake_host host;
    setenv("GDN_JIT_DISABLE_CODE_PREFETCH", "1", 1);
    fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, "", GDN_FAKE_NVRTC_PATH, 0);
    unsetenv("GDN_JIT_DISABLE_CODE_PREFETCH"); /* it was read when the context was made */
    gdn_plan *plan = plan_of(&host);
    cr_expect_str_eq(launched(&host, plan), GDNI_OWN_CODE);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}

/* What a driver without the fake's kindness would say of the copy, whichever call says it. */
Test(code_address, a_driver_that_refuses_it_loads_what_was_compiled)
{
    static const struct {
        const char *call;
        int result;
    } refusals[] = { { "cuLibraryLoadData", 200 },   { "cuLibraryLoadData", 302 },  { "cuLibraryLoadData", 1 },
                     { "cuLibraryGetKernel", 209 }, { "cuKernelGetFunction", 200 }, { "cuKernelGetFunction", 801 } };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; ++i) {
        struct fake_host host;
        fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, "", GDN_FAKE_NVRTC_PATH, 0);
        gdn_plan *plan = plan_of(&host), *next = plan_of(&host);
        const uint64_t compiles = fake_compiles(host.ctx);
        host.cuda->fail(refusals[i].call, 1, refusals[i].result);
        cr_expect_str_eq(launched(&host, plan), GDNI_OWN_CODE, "%s %d", refusals[i].call, refusals[i].result);
        cr_expect_eq(fake_compiles(host.ctx), compiles, "it is not the cubin's fault");
        cr_expect(host.warnings == 1 && strstr(host.warning, "gdn_prefill_hopper") && strstr(host.warning, "address told"),
                  "%s %d: %d warnings, %s", refusals[i].call, refusals[i].result, host.warnings, host.warning);
        cr_expect_str_eq(launched(&host, next), GDNI_OWN_CODE, "no other copy is tried");
        cr_expect_eq(host.warnings, 1, "%s", host.warning);
        gdn_plan_destroy(plan);
        gdn_plan_destroy(next);
        cr_expect(fake_balanced(host.cuda), "%s %d", refusals[i].call, refusals[i].result);
        fake_host_close(&host);
    }
}

Test(code_address, what_is_refused_as_compiled_too_is_no_kernel_of_this_driver)
{
    struct fake_host host;
    fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, "", GDN_FAKE_NVRTC_PATH, 0);
    gdn_plan *plan = plan_of(&host);
    host.cuda->fail("cuLibraryLoadData", 0, INVALID_IMAGE);
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_E_CUDA);
    cr_expect(fake_error_says("gdn_prefill_hopper") && fake_error_says("cuLibraryLoadData failed"), "%s", gdn_last_error());
    cr_expect_eq(host.warnings, 0, "%s", host.warning);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
}

/* A damaged entry of the cache is not the address's fault: what is compiled in its place is told. */
Test(code_address, is_told_to_what_is_compiled_for_a_damaged_entry)
{
    char dir[64];
    struct fake_host host;
    fake_make_dir(dir);
    fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, dir, GDN_FAKE_NVRTC_PATH, 0);
    gdn_plan_destroy(plan_of(&host));
    fake_host_close(&host);
    fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, dir, GDN_FAKE_NVRTC_PATH, 0);
    gdn_plan *plan = plan_of(&host);
    gdn_target target = GDN_TARGET_INIT;
    cr_assert_eq(gdn_target_from_device(host.ctx, 0, &target), GDN_OK, "%s", gdn_last_error()); /* cuInit is asked once */
    cr_assert_eq(fake_compiles(host.ctx), 0, "it is in the cache");
    for (int nth = 1; strcmp(host.cuda->struck(), "cuLibraryLoadData") != 0; ++nth) {
        cr_assert_lt(nth, 10, "no load was made to fail");
        host.cuda->fail_nth(nth, 2, INVALID_IMAGE); /* of the copy, and of the entry itself */
        gdn_plan_load(plan, 0);
    }
    host.cuda->fail_nth(0, 0, 0);
    cr_expect_eq(fake_compiles(host.ctx), 1);
    cr_expect_str_eq(launched(&host, plan), "gdn_prefill_hopper");
    cr_expect(host.warnings == 1 && strstr(host.warning, "is compiled anew"), "%d: %s", host.warnings, host.warning);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
    fake_remove_dir(dir);
}

/* Its library serves the first device, which may be running it. */
Test(code_address, what_another_device_refuses_is_left_as_it_is)
{
    struct fake_host host;
    fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, "", GDN_FAKE_NVRTC_PATH, 0);
    host.cuda->set_devices(2);
    gdn_plan *plan = plan_of(&host);
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    host.cuda->fail("cuKernelGetFunction", 1, NO_BINARY);
    cr_expect_eq(gdn_plan_load(plan, 1), GDN_E_CUDA);
    cr_expect_eq(host.cuda->calls("cuLibraryUnload"), 0);
    cr_expect_str_eq(launched(&host, plan), "gdn_prefill_hopper");
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}

/* What says nothing of the bytes is no reason to load others. */
Test(code_address, another_failure_is_told_as_it_is)
{
    enum { OUT_OF_MEMORY = 2 };
    struct fake_host host;
    fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, "", GDN_FAKE_NVRTC_PATH, 0);
    gdn_plan *plan = plan_of(&host);
    host.cuda->fail("cuLibraryLoadData", 1, OUT_OF_MEMORY);
    cr_expect_neq(gdn_plan_load(plan, 0), GDN_OK);
    cr_expect_eq(host.warnings, 0, "%s", host.warning);
    cr_expect_str_eq(launched(&host, plan), "gdn_prefill_hopper", "the next try is as the first");
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}
