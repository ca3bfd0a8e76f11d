/*
 * test_cache_dir.c - cubins are code: they are kept where nobody else can put one, or not at all.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "runtime/cache_dir.h"
#include "support/fake_host.h"
#include "support/store.h"

static char *scratch;

static void set_up(void)
{
    scratch = store_scratch();
    umask(022);
}

static void tear_down(void)
{
    if (seteuid(0) == 0 && setegid(0) != 0) abort();
    store_remove(scratch);
}

TestSuite(cache_dir, .init = set_up, .fini = tear_down);

static struct gdni_cache_dir choose(const char *configured, const struct gdni_env *env, uint32_t flags)
{
    struct gdni_cache_dir dir;
    cr_assert_eq(gdni_cache_dir_choose(&dir, configured, env, flags), GDN_OK, "%s", gdni_error_text());
    return dir;
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0, "%s: %m", path);
    return (unsigned)st.st_mode & 07777;
}

#define EXPECT_DIR(configured, env, expected)                                                          \
    do {                                                                                               \
        struct gdni_cache_dir dir_ = choose(configured, env, 0);                                       \
        cr_assert_not_null(dir_.path, "%s expected, memory only chosen: %s", expected, dir_.problem); \
        cr_assert_str_eq(dir_.path, expected);                                                         \
        cr_assert(dir_.fd >= 0 && !*dir_.problem);                                                     \
        gdni_cache_dir_close(&dir_);                                                                   \
    } while (0)

#define EXPECT_MEMORY(configured, env, flags, words)                                               \
    do {                                                                                           \
        struct gdni_cache_dir dir_ = choose(configured, env, flags);                               \
        cr_assert_null(dir_.path, "memory only expected, %s chosen", dir_.path);                   \
        cr_assert_eq(dir_.fd, -1);                                                                 \
        cr_assert(strstr(dir_.problem, words), "\"%s\" expected in: %s", words, dir_.problem);     \
        gdni_cache_dir_close(&dir_);                                                               \
    } while (0)

Test(cache_dir, what_only_reads_makes_none_and_says_who_named_it)
{
    char missing[1024], words[1200];
    strcpy(missing, store_path(scratch, "a/b"));
    struct gdni_env env = { 0 };
    snprintf(words, sizeof words, "gdn_config.cache_dir names %s, which is not there: correct it", missing);
    EXPECT_MEMORY(missing, &env, GDN_CTX_EXISTING_CACHE, words);
    env.cache_dir = missing;
    snprintf(words, sizeof words, "GDN_JIT_CACHE_DIR names %s, which is not there: correct it", missing);
    EXPECT_MEMORY(NULL, &env, GDN_CTX_EXISTING_CACHE, words);
    env = (struct gdni_env){ .xdg_cache_home = missing };
    snprintf(words, sizeof words, "XDG_CACHE_HOME has it at %s/gdn-jit, and there is none yet: gdn-jit-cache warm",
             missing);
    EXPECT_MEMORY(NULL, &env, GDN_CTX_EXISTING_CACHE, words);
    env = (struct gdni_env){ .home = scratch };
    snprintf(words, sizeof words, "HOME has it at %s/.cache/gdn-jit, and there is none yet: gdn-jit-cache warm",
             scratch);
    EXPECT_MEMORY(NULL, &env, GDN_CTX_EXISTING_CACHE, words);
    cr_expect_eq(store_count_files(scratch), 0);
    cr_expect(access(store_path(scratch, "a"), F_OK) != 0 && access(store_path(scratch, ".cache"), F_OK) != 0);
    struct gdni_cache_dir there = choose(scratch, &env, GDN_CTX_EXISTING_CACHE);
    cr_expect(there.path && there.fd >= 0 && !there.missing && !*there.problem);
    gdni_cache_dir_close(&there);
}

Test(cache_dir, config_then_variable_then_xdg_then_home)
{
    char config[1024], variable[1024], xdg[1024], home[1024];
    strcpy(config, store_path(scratch, "config"));
    strcpy(variable, store_path(scratch, "variable"));
    strcpy(xdg, store_path(scratch, "xdg"));
    strcpy(home, store_path(scratch, "home"));
    mkdir(home, 0755);
    struct gdni_env env = { .cache_dir = variable, .xdg_cache_home = xdg, .home = home };
    EXPECT_DIR(config, &env, config);
    EXPECT_DIR(NULL, &env, variable);
    env.cache_dir = NULL;
    EXPECT_DIR(NULL, &env, store_path(xdg, "gdn-jit"));
    env.xdg_cache_home = NULL;
    EXPECT_DIR(NULL, &env, store_path(home, ".cache/gdn-jit"));
}

Test(cache_dir, a_relative_xdg_path_is_ignored_as_the_specification_says)
{
    char relative[] = "relative";
    struct gdni_env env = { .xdg_cache_home = relative, .home = scratch };
    EXPECT_DIR(NULL, &env, store_path(scratch, ".cache/gdn-jit"));
}

Test(cache_dir, nothing_named_is_memory_only_with_the_remedy)
{
    const struct gdni_env env = { 0 };
    EXPECT_MEMORY(NULL, &env, 0, "GDN_JIT_CACHE_DIR");
    char relative[] = "home";
    const struct gdni_env odd = { .home = relative };
    EXPECT_MEMORY(NULL, &odd, 0, "HOME names a directory");
}

Test(cache_dir, memory_only_on_request_is_no_problem)
{
    struct gdni_env env = { .home = scratch };
    struct gdni_cache_dir dir = choose("", &env, 0);
    cr_assert_null(dir.path);
    cr_assert_str_eq(dir.problem, "");
    cr_assert(strstr(dir.asked, "gdn_config.cache_dir is \"\""), "%s", dir.asked);
    env.disable_cache = true;
    dir = choose(NULL, &env, 0);
    cr_assert_null(dir.path);
    cr_assert_str_eq(dir.problem, "");
    cr_assert(strstr(dir.asked, "GDN_JIT_DISABLE_CACHE=1 "), "%s", dir.asked);
    dir = choose("", &env, 0);
    cr_assert(strstr(dir.asked, "gdn_config.cache_dir is"), "to unset the variable would not help: %s", dir.asked);
    cr_assert_eq(store_count_files(scratch), 0);
}

Test(cache_dir, the_environment_does_not_disable_what_the_embedder_named)
{
    const struct gdni_env env = { .disable_cache = true };
    struct gdni_cache_dir dir = choose(scratch, &env, 0);
    cr_assert_str_eq(dir.path, scratch);
    gdni_cache_dir_close(&dir);
}

Test(cache_dir, a_home_that_does_not_exist_is_not_made)
{
    char home[1024];
    strcpy(home, store_path(scratch, "nonexistent"));
    const struct gdni_env env = { .home = home };
    EXPECT_MEMORY(NULL, &env, 0, home);
    cr_assert_neq(access(home, F_OK), 0);
}

Test(cache_dir, what_is_made_is_for_this_user_alone)
{
    const struct gdni_env env = { .home = scratch };
    umask(0);
    EXPECT_DIR(NULL, &env, store_path(scratch, ".cache/gdn-jit"));
    cr_assert_eq(mode_of(store_path(scratch, ".cache")), 0700u);
    cr_assert_eq(mode_of(store_path(scratch, ".cache/gdn-jit")), 0700u);
    EXPECT_DIR(store_path(scratch, "a/b/c"), &env, store_path(scratch, "a/b/c"));
    cr_assert_eq(mode_of(store_path(scratch, "a/b/c")), 0700u);
}

/* A umask may take of the owner what is his; what is made must not stay shut, for this process or for any after it. */
Test(cache_dir, what_is_made_is_open_to_its_owner_whatever_the_umask)
{
    static const mode_t masks[] = { 0177, 0277, 0377, 0477, 0777 };
    static const char *const made[] = { ".cache", ".cache/gdn-jit", ".cache/gdn-jit/v2/sm_90a/ab" };
    store_drop_root(scratch);
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; ++i) {
        char name[8], home[1024];
        int folder = -1;
        snprintf(name, sizeof name, "%03o", (unsigned)masks[i]);
        strcpy(home, store_path(scratch, name));
        cr_assert_eq(mkdir(home, 0700), 0);
        const struct gdni_env env = { .home = home };
        umask(masks[i]);
        struct gdni_cache_dir dir = choose(NULL, &env, 0);
        cr_assert_eq(gdni_cache_dir_open(&dir, "sm_90a", "abcdef", true, &folder), 0, "umask %s: %s", name, dir.problem);
        close(folder);
        gdni_cache_dir_close(&dir);
        umask(022);
        for (size_t k = 0; k < sizeof made / sizeof made[0]; ++k)
            cr_expect_eq(mode_of(store_path(home, made[k])), 0700u, "umask %s: %s", name, made[k]);
    }
}

Test(cache_dir, a_default_directory_that_others_can_write_is_refused)
{
    const struct gdni_env env = { .xdg_cache_home = scratch };
    static const unsigned bad[] = { 0777, 0770, 0720, 0702, 01777 }, good[] = { 0755, 0750, 0700 };
    const char *path = store_path(scratch, "gdn-jit");
    mkdir(path, 0700);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        chmod(path, bad[i]);
        EXPECT_MEMORY(NULL, &env, 0, "chmod 700");
        EXPECT_MEMORY(NULL, &env, GDN_CTX_SHARED_CACHE, "chmod 700"); /* sharing is for directories that are named */
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i) {
        chmod(path, good[i]);
        EXPECT_DIR(NULL, &env, path);
    }
}

Test(cache_dir, a_named_directory_is_used_as_it_is)
{
    const struct gdni_env env = { 0 };
    chmod(scratch, 0777);
    EXPECT_DIR(scratch, &env, scratch);
    cr_assert_eq(mode_of(scratch), 0777u);
}

Test(cache_dir, a_strangers_directory_is_used_only_when_shared_on_purpose)
{
    if (geteuid() != 0) cr_skip_test("only root can make a directory of another user");
    const struct gdni_env env = { 0 }, by_default = { .xdg_cache_home = scratch };
    cr_assert_eq(chown(scratch, 1234, 1234), 0);
    EXPECT_MEMORY(scratch, &env, 0, "GDN_CTX_SHARED_CACHE");
    EXPECT_MEMORY(scratch, &env, 0, "user 1234");
    struct gdni_cache_dir dir = choose(scratch, &env, GDN_CTX_SHARED_CACHE);
    cr_assert_str_eq(dir.path, scratch);
    gdni_cache_dir_close(&dir);
    mkdir(store_path(scratch, "gdn-jit"), 0700);
    cr_assert_eq(chown(store_path(scratch, "gdn-jit"), 1234, 1234), 0);
    EXPECT_MEMORY(NULL, &by_default, GDN_CTX_SHARED_CACHE, "user 1234");
}

Test(cache_dir, roots_directory_serves_everyone)
{
    if (geteuid() != 0) cr_skip_test("only root can make a directory of root");
    const struct gdni_env env = { 0 };
    chmod(scratch, 0755);
    cr_assert_eq(seteuid(65534), 0);
    EXPECT_DIR(scratch, &env, scratch);
}

Test(cache_dir, roots_directory_is_nobody_elses_default)
{
    if (geteuid() != 0) cr_skip_test("only root can make a directory of root");
    const struct gdni_env env = { .xdg_cache_home = scratch };
    chmod(scratch, 0755);
    mkdir(store_path(scratch, "gdn-jit"), 0755);
    cr_assert_eq(seteuid(65534), 0);
    EXPECT_MEMORY(NULL, &env, 0, "user 0");
}

Test(cache_dir, a_link_to_a_directory_is_followed_and_what_it_leads_to_judged)
{
    const struct gdni_env env = { .xdg_cache_home = scratch };
    const char *real = store_path(scratch, "real"), *link = store_path(scratch, "gdn-jit");
    mkdir(real, 0700);
    cr_assert_eq(symlink(real, link), 0);
    EXPECT_DIR(NULL, &env, link);
    chmod(real, 0777);
    EXPECT_MEMORY(NULL, &env, 0, "0777");
}

Test(cache_dir, what_cannot_be_made_or_opened_says_why)
{
    const struct gdni_env env = { 0 };
    const char *file = store_path(scratch, "file");
    store_write(file, "x", 1);
    EXPECT_MEMORY(file, &env, 0, "Not a directory");
    EXPECT_MEMORY(store_path(file, "below"), &env, 0, "Not a directory");
    chmod(scratch, 0555);
    store_drop_root(scratch);
    EXPECT_MEMORY(store_path(scratch, "new"), &env, 0, "Permission denied");
    EXPECT_MEMORY(store_path(scratch, "new/below"), &env, 0, "Permission denied");
}

Test(cache_dir, folders_inside_a_root_that_anyone_may_write_are_not_for_anyone)
{
    const struct gdni_env env = { 0 };
    chmod(scratch, 01777);
    umask(0);
    struct gdni_cache_dir dir = choose(scratch, &env, 0);
    int folder;
    cr_assert_eq(gdni_cache_dir_open(&dir, "sm_90a", "abcdef", true, &folder), 0);
    close(folder);
    cr_assert_eq(mode_of(store_path(scratch, "v2")), 0755u);
    cr_assert_eq(mode_of(store_path(scratch, "v2/sm_90a/ab")), 0755u);
    gdni_cache_dir_close(&dir);
}

Test(cache_dir, a_folder_that_others_may_write_is_not_entered)
{
    const struct gdni_env env = { 0 };
    struct gdni_cache_dir dir = choose(scratch, &env, 0);
    int folder = -1;
    mkdir(store_path(scratch, "v2"), 0700);
    chmod(store_path(scratch, "v2"), 0777);
    cr_assert_neq(gdni_cache_dir_open(&dir, "sm_90a", "abcdef", true, &folder), 0);
    cr_assert_eq(folder, -1);
    gdni_cache_dir_close(&dir);
}

Test(cache_dir, folders_inside_a_shared_root_get_its_bits_whatever_the_umask)
{
    const struct gdni_env env = { 0 };
    chmod(scratch, 0775);
    umask(077);
    struct gdni_cache_dir dir = choose(scratch, &env, GDN_CTX_SHARED_CACHE);
    int folder;
    cr_assert_eq(gdni_cache_dir_open(&dir, "sm_90a", "abcdef", true, &folder), 0);
    close(folder);
    cr_assert_eq(mode_of(store_path(scratch, "v2")), 0775u);
    cr_assert_eq(mode_of(store_path(scratch, "v2/sm_90a/ab")), 0775u);
    gdni_cache_dir_close(&dir);
    chmod(scratch, 0575); /* what the root's owner may not, the owner of what is made may */
    dir = choose(scratch, &env, GDN_CTX_SHARED_CACHE);
    cr_assert_eq(gdni_cache_dir_open(&dir, "sm_90a", "cdef", true, &folder), 0);
    close(folder);
    cr_assert_eq(mode_of(store_path(scratch, "v2/sm_90a/cd")), 0775u);
    gdni_cache_dir_close(&dir);
    chmod(scratch, 0700);
}

Test(cache_dir, a_link_in_place_of_a_folder_is_not_followed)
{
    const struct gdni_env env = { 0 };
    struct gdni_cache_dir dir = choose(scratch, &env, 0);
    const char *elsewhere = store_path(scratch, "elsewhere");
    mkdir(elsewhere, 0700);
    cr_assert_eq(symlink(elsewhere, store_path(scratch, "v2")), 0);
    int folder = -1;
    cr_assert_neq(gdni_cache_dir_open(&dir, "sm_90a", "abcdef", true, &folder), 0);
    cr_assert_eq(folder, -1);
    cr_assert_neq(access(store_path(elsewhere, "sm_90a"), F_OK), 0);
    gdni_cache_dir_close(&dir);
}

Test(cache_dir, a_folder_of_a_stranger_is_not_entered)
{
    if (geteuid() != 0) cr_skip_test("only root can make a folder of another user");
    const struct gdni_env env = { 0 };
    struct gdni_cache_dir dir = choose(scratch, &env, 0);
    mkdir(store_path(scratch, "v2"), 0755);
    cr_assert_eq(chown(store_path(scratch, "v2"), 1234, 1234), 0);
    int folder;
    cr_assert_eq(gdni_cache_dir_open(&dir, "sm_90a", "abcdef", true, &folder), EPERM);
    gdni_cache_dir_close(&dir);
}

Test(cache_dir, running_out_of_memory_leaves_no_descriptor)
{
    const struct gdni_env env = { .home = scratch };
    const int next = dup(0);
    close(next);
    for (int allowed = 0; allowed < 8; ++allowed) {
        struct gdni_cache_dir dir;
        gdni_mem_fail_after(allowed);
        const gdn_status status = gdni_cache_dir_choose(&dir, NULL, &env, 0);
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_E_NOMEM || status == GDN_OK, "after %d: %s", allowed, gdn_status_name(status));
        gdni_cache_dir_close(&dir);
        const int now = dup(0);
        close(now);
        cr_assert_eq(now, next, "after %d allocations a descriptor is left open", allowed);
    }
    cr_assert(fake_no_leaks());
}

Test(cache_dir, a_context_says_once_that_it_keeps_in_memory_only)
{
    struct store_log log = { 0 };
    gdn_ctx *ctx = store_ctx(NULL, 0, &log, GDN_FAKE_NVRTC_PATH); /* no environment: no HOME either */
    cr_assert_null(gdn_cache_dir(ctx));
    cr_assert_eq(log.count[GDN_LOG_WARN], 1);
    cr_assert(strstr(log.last[GDN_LOG_WARN], "memory only"), "%s", log.last[GDN_LOG_WARN]);
    gdn_ctx_destroy(ctx);
}
