/*
 * test_cli_diagnose.c - what doctor makes of what it finds, for facts that no script can set up.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/diagnose.h"

/* A machine on which nothing is wrong: an H200 with its table. */
static struct cli_facts *healthy(void)
{
    struct cli_facts *f = calloc(1, sizeof *f);
    f->doctor = (gdn_doctor)GDN_DOCTOR_INIT;
    snprintf(f->doctor.driver, sizeof f->doctor.driver, "CUDA 13.0, 1 device: NVIDIA H200 (sm_90a)");
    snprintf(f->doctor.nvrtc, sizeof f->doctor.nvrtc, "nvrtc 13.0 65be0db342ad51a0");
    snprintf(f->doctor.cache, sizeof f->doctor.cache, "/c");
    f->num_devices = f->num_probes = f->num_gpus = f->num_tuned = 1;
    f->devices[0].target = (gdn_target)GDN_TARGET_INIT;
    snprintf(f->devices[0].target.gpu_name, 64, "NVIDIA H200");
    snprintf(f->devices[0].target.arch, 16, "sm_90a");
    f->devices[0].target.num_sms = 132;
    f->probes[0] = (struct cli_probe){ .arch = "sm_90a", .compiles = true };
    snprintf(f->gpus[0].name, 64, "NVIDIA H200");
    f->tuned[0] = (struct cli_tuned_gpu){ .gpu = "NVIDIA H200", .arch = "sm_90a", .num_sms = 132, .entries = 9 };
    return f;
}

static void expect_one(const struct cli_facts *facts, enum cli_part part, bool stops_warm, const char *words)
{
    struct cli_findings *found = calloc(1, sizeof *found);
    cli_diagnose(facts, found);
    cr_expect_eq(found->count, 1, "\"%s\": %zu findings, the first \"%s\"", words, found->count, found->items[0].text);
    cr_expect_eq(found->items[0].part, part, "\"%s\"", found->items[0].text);
    cr_expect_eq(found->items[0].stops_warm, stops_warm, "\"%s\"", found->items[0].text);
    cr_expect_eq(cli_stops_warm(found), stops_warm);
    cr_expect(strstr(found->items[0].text, words), "\"%s\" lacks \"%s\"", found->items[0].text, words);
    free(found);
}

Test(cli_diagnose, nothing_is_found_where_nothing_is_wrong)
{
    struct cli_facts *f = healthy();
    struct cli_findings *found = calloc(1, sizeof *found);
    cli_diagnose(f, found);
    cr_expect_eq(found->count, 0, "%s", found->items[0].text);
    cr_expect_not(cli_stops_warm(found));
    free(found);
    free(f);
}

Test(cli_diagnose, a_cache_that_cannot_be_written_has_the_remedy_of_its_cause)
{
    static const struct {
        int error;
        const char *words;
    } rows[] = {
        { EROFS,
          "read-only: mount it writable, name another directory with --cache-dir or GDN_JIT_CACHE_DIR, or ship the "
          "kernels as a bundle" },
        { ENOSPC, "free space there; gdn-jit-cache prune" },
        { EDQUOT, "quota is used up" },
        { EACCES, "give it to this user with chown" },
        { EPERM, "give it to this user with chown" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        struct cli_facts *f = healthy();
        f->folders.error = rows[i].error;
        expect_one(f, CLI_PART_CACHE, true, rows[i].words);
        expect_one(f, CLI_PART_CACHE, true, strerror(rows[i].error));
        free(f);
    }
}

Test(cli_diagnose, a_driver_of_an_older_major_version_than_nvrtc_is_told)
{
    static const struct {
        const char *driver, *nvrtc;
        bool told;
    } rows[] = {
        { "CUDA 12.4, 1 device", "nvrtc 13.0 x", true },
        { "CUDA 12.9, 1 device", "nvrtc 12.8 x", false },
        { "CUDA 12.2, 1 device", "nvrtc 12.9 x", false },
        { "CUDA 13.0, 1 device", "nvrtc 12.8 x", false },
        { "", "nvrtc 13.0 x", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        struct cli_facts *f = healthy();
        struct cli_findings *found = calloc(1, sizeof *found);
        snprintf(f->doctor.driver, sizeof f->doctor.driver, "%s", rows[i].driver);
        snprintf(f->doctor.nvrtc, sizeof f->doctor.nvrtc, "%s", rows[i].nvrtc);
        cli_diagnose(f, found);
        cr_expect_eq(found->count, rows[i].told, "%s, %s", rows[i].driver, rows[i].nvrtc);
        if (rows[i].told) expect_one(f, CLI_PART_DRIVER, false, "update the driver, or name an NVRTC 12 with --nvrtc");
        free(found);
        free(f);
    }
}

Test(cli_diagnose, one_cause_for_all_archs_is_told_once)
{
    struct cli_facts *f = healthy();
    f->num_probes = 8;
    for (size_t i = 0; i < f->num_probes; ++i)
        f->probes[i] = (struct cli_probe){ .arch = "sm_x", .problem = "the disk is gone" };
    f->num_devices = 0;
    expect_one(f, CLI_PART_NVRTC, true, "NVRTC compiles for no arch: the disk is gone");
    free(f);
}

Test(cli_diagnose, of_several_tables_the_one_that_fits_best_counts)
{
    struct cli_facts *f = healthy();
    f->num_tuned = 3;
    f->tuned[1] = (struct cli_tuned_gpu){ .gpu = "NVIDIA H200", .arch = "sm_90a", .num_sms = 120, .entries = 1 };
    f->tuned[2] = (struct cli_tuned_gpu){ .gpu = "NVIDIA H100 PCIe", .arch = "sm_90a", .num_sms = 114, .entries = 1 };
    struct cli_findings *found = calloc(1, sizeof *found);
    cli_diagnose(f, found);
    cr_expect_eq(found->count, 0);
    free(found);
    f->tuned[0].num_sms = 110;
    expect_one(f, CLI_PART_TABLES, false, "has 132 SMs, and its tables were measured with 110");
    f->devices[0].target.num_sms = 16; /* a slice: none of these serves it */
    expect_one(f, CLI_PART_TABLES, false, "has no table for 16 SMs, nor has another GPU of sm_90a with about as many");
    f->devices[0].target.num_sms = 132;
    f->num_tuned = 0;
    expect_one(f, CLI_PART_TABLES, false, "parameters come from the library's model");
    free(f);
}

Test(cli_diagnose, what_was_left_behind_and_what_is_stale_is_told)
{
    struct cli_facts *f = healthy();
    f->temporaries = 3;
    expect_one(f, CLI_PART_CACHE, false, "3 temporary files");
    f->temporaries = 0;
    f->tuned[0].stale = 4;
    expect_one(f, CLI_PART_TABLES, false, "4 of 9 entries were measured before their kernel changed");
    free(f);
}

/* Neither a compiler nor a place for what it makes is missed where nothing is to be made. */
Test(cli_diagnose, where_nothing_is_compiled_only_what_kernels_come_from_counts)
{
    struct cli_facts *f = healthy();
    f->compile_disabled = true;
    f->probes[0].compiles = false;
    expect_one(f, CLI_PART_NVRTC, false,
               "GDN_JIT_DISABLE_COMPILE is set: nothing is compiled; kernels come from bundles and the cache");
    snprintf(f->doctor.driver, sizeof f->doctor.driver, "CUDA 12.4, 1 device");
    f->doctor.nvrtc[0] = '\0';
    snprintf(f->doctor.nvrtc_problem, sizeof f->doctor.nvrtc_problem, "NVRTC was not found");
    expect_one(f, CLI_PART_NVRTC, false, "nothing is compiled");
    f->folders.error = EROFS;
    struct cli_findings *found = calloc(1, sizeof *found);
    cli_diagnose(f, found);
    cr_expect(found->count == 2 && !cli_stops_warm(found), "%zu findings", found->count);
    free(found);
    free(f);
}

/* With a path as long as a path may be. */
Test(cli_diagnose, no_sentence_is_cut_off)
{
    static const char end[] = "take it out of GDN_JIT_BUNDLE_PATH";
    struct cli_facts *f = healthy();
    struct cli_findings *found = calloc(1, sizeof *found);
    struct cli_bundle *b = &f->bundles[0];
    f->num_bundles = 1;
    *b = (struct cli_bundle){ .readable = true, .report = { .entries = 1, .damaged = 1 } };
    memset(b->path, 'p', sizeof b->path - 1);
    memset(b->problem, 'q', sizeof b->problem - 1);
    cli_diagnose(f, found);
    cr_assert_eq(found->count, 1);
    const char *text = found->items[0].text;
    cr_expect_str_eq(text + strlen(text) - strlen(end), end);
    free(found);
    free(f);
}

/* More GPUs and findings than there is room for are left out, not written past. */
Test(cli_diagnose, room_is_never_exceeded)
{
    struct cli_facts *f = healthy();
    struct cli_findings *found = calloc(1, sizeof *found);
    f->num_devices = CLI_MAX_DEVICES;
    f->num_probes = CLI_MAX_PROBES;
    f->num_tuned = CLI_MAX_TUNED;
    for (size_t i = 0; i < f->num_devices; ++i) {
        f->devices[i] = f->devices[0];
        memset(f->devices[i].target.gpu_name, 'g', 63);
    }
    for (size_t i = 1; i < f->num_probes; ++i) {
        memset(f->probes[i].arch, 'a', 15);
        memset(f->probes[i].problem, 'p', sizeof f->probes[i].problem - 1);
    }
    for (size_t i = 0; i < f->num_tuned; ++i)
        f->tuned[i] = (struct cli_tuned_gpu){ .gpu = "x", .arch = "y", .entries = 1, .stale = 1 };
    cli_diagnose(f, found);
    cr_expect_eq(found->count, CLI_MAX_FINDINGS);
    free(found);
    free(f);
}
