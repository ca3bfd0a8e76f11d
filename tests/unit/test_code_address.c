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
    wanted.constants[1].r_addend = wanted.code[1].r_addend = (int64_t)CODE_LINES << GDNI_CODE_ADDRESS_BITS;
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

/* ---- Plans ---- */

static gdn_plan *plan_of(struct fake_host *host)
{
    const gdn_target target = fake_h200(host->ctx);
    const gdn_prefill_desc desc = fake_prefill_desc();
    gdn_plan *plan = NULL;
    cr_assert_eq(gdn_plan_prefill(host->ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
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

/* Whichever call says it: with lazy loading a library is looked at when its function is asked for. */
Test(code_address, a_driver_that_refuses_it_loads_what_was_compiled)
{
    static const char *const calls[] = { "cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction" };
    static const int results[] = { INVALID_IMAGE, NO_BINARY, INVALID_IMAGE };
    for (int i = 0; i < 3; ++i) {
        struct fake_host host;
        fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, "", GDN_FAKE_NVRTC_PATH, 0);
        gdn_plan *plan = plan_of(&host);
        const uint64_t compiles = fake_compiles(host.ctx);
        host.cuda->fail(calls[i], 1, results[i]);
        cr_expect_eq(gdn_plan_load(plan, 0), GDN_OK, "%s: %s", calls[i], gdn_last_error());
        cr_expect_eq(fake_compiles(host.ctx), compiles, "%s: it is not the cubin's fault", calls[i]);
        cr_expect(host.warnings == 1 && strstr(host.warning, "gdn_prefill_hopper") && strstr(host.warning, "address told"),
                  "%s: %s", calls[i], host.warning);
        gdn_plan_destroy(plan);
        cr_expect(fake_balanced(host.cuda), "%s", calls[i]);
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
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
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
