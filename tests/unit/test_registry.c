/*
 * test_registry.c - one thread builds, the others wait; each gets the program or the builder's own words.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/registry.h"
#include "support/fake_host.h"
#include "support/store.h"

static struct gdni_key key_of(const char *text)
{
    struct gdni_key key = { .text = gdni_strdup(text), .len = strlen(text) };
    gdni_hash_hex(key.hex, key.text, key.len);
    return key;
}

static struct gdni_program *program_of(const struct gdni_key *key)
{
    static const char cubin[] = "cubin";
    const struct gdni_entry entry = { .cubin = cubin, .cubin_size = sizeof cubin, .key_text = key->text, .key_len = key->len,
                                      .build_log = "", .log_len = 0, .arch = "sm_90a", .entry = "tiny" };
    return gdni_program_create(&entry);
}

/* Enters as the one who builds, and builds. */
static void build(struct gdni_registry *r, const struct gdni_key *key)
{
    struct gdni_program *program;
    struct gdni_flight *flight;
    cr_assert_eq(gdni_registry_enter(r, key, 0, NULL, &program, &flight), GDN_OK, "%s", gdni_error_text());
    cr_assert(!program && flight, "%s is there already", key->text);
    program = program_of(key);
    cr_assert_eq(gdni_registry_settle(r, flight, GDN_OK, program), GDN_OK);
    gdni_program_release(program);
}

Test(registry, gives_back_what_was_built)
{
    struct gdni_registry *r = gdni_registry_create();
    struct gdni_key key = key_of("a");
    struct gdni_program *program;
    struct gdni_flight *flight;
    build(r, &key);
    cr_assert_eq(gdni_registry_enter(r, &key, 0, NULL, &program, &flight), GDN_OK);
    cr_assert(program && !flight);
    cr_assert_str_eq(program->key_text, "a");
    gdni_program_release(program);
    gdni_registry_destroy(r);
    gdni_key_free(&key);
}

Test(registry, tells_thousands_of_keys_apart_by_their_text)
{
    enum { KEYS = 3000 };
    struct gdni_registry *r = gdni_registry_create();
    for (int round = 0; round < 2; ++round)
        for (int i = 0; i < KEYS; ++i) {
            char text[32];
            snprintf(text, sizeof text, "key %d", i);
            struct gdni_key key = key_of(text);
            memset(key.hex, '0', 32); /* the text decides, not the hash */
            if (round == 0)
                build(r, &key);
            else {
                struct gdni_program *program;
                struct gdni_flight *flight;
                cr_assert_eq(gdni_registry_enter(r, &key, 0, NULL, &program, &flight), GDN_OK);
                cr_assert_not_null(program, "%s", text);
                cr_assert_str_eq(program->key_text, text);
                gdni_program_release(program);
            }
            gdni_key_free(&key);
        }
    gdni_registry_destroy(r);
}

Test(registry, a_program_outlives_the_registry_while_someone_holds_it)
{
    struct gdni_registry *r = gdni_registry_create();
    struct gdni_key key = key_of("a");
    struct gdni_program *program;
    struct gdni_flight *flight;
    build(r, &key);
    cr_assert_eq(gdni_registry_enter(r, &key, 0, NULL, &program, &flight), GDN_OK);
    gdni_registry_destroy(r);
    cr_assert_str_eq(program->key_text, "a");
    cr_assert_eq(program->refs, 1);
    gdni_program_release(program);
    gdni_key_free(&key);
}

Test(registry, a_failure_is_not_kept)
{
    struct gdni_registry *r = gdni_registry_create();
    struct gdni_key key = key_of("a");
    struct gdni_program *program;
    struct gdni_flight *flight;
    cr_assert_eq(gdni_registry_enter(r, &key, 0, NULL, &program, &flight), GDN_OK);
    cr_assert_eq(gdni_registry_settle(r, flight, GDN_FAIL(GDN_E_COMPILE, "no"), NULL), GDN_E_COMPILE);
    build(r, &key);
    gdni_registry_destroy(r);
    gdni_key_free(&key);
}

Test(registry, a_fresh_program_takes_the_place_of_the_old_one)
{
    struct gdni_registry *r = gdni_registry_create();
    struct gdni_key key = key_of("a");
    struct gdni_program *old, *fresh, *found;
    struct gdni_flight *flight;
    build(r, &key);
    cr_assert_eq(gdni_registry_enter(r, &key, 0, NULL, &old, &flight), GDN_OK);
    cr_assert_eq(gdni_registry_enter(r, &key, 0, old, &fresh, &flight), GDN_OK);
    cr_assert(!fresh && flight);
    fresh = program_of(&key);
    gdni_registry_settle(r, flight, GDN_OK, fresh);
    cr_assert_eq(gdni_registry_enter(r, &key, 0, NULL, &found, &flight), GDN_OK);
    cr_assert_eq(found, fresh);
    cr_assert_eq(old->refs, 1, "the registry still holds the old program");
    gdni_program_release(old);
    gdni_program_release(fresh);
    gdni_program_release(found);
    gdni_registry_destroy(r);
    gdni_key_free(&key);
}

/* ---- specs ---- */

static struct gdni_spec spec_of(int32_t tile_tokens)
{
    struct gdni_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.params.tile_tokens = tile_tokens;
    return spec;
}

static void expect_recalled(struct gdni_registry *r, const struct gdni_spec *spec, const char *key_text)
{
    struct gdni_program *program = gdni_registry_recall(r, spec);
    cr_assert_eq(program != NULL, key_text != NULL);
    if (program) cr_expect_str_eq(program->key_text, key_text);
    gdni_program_release(program);
}

Test(registry, a_spec_is_recalled_once_it_was_learnt_and_its_key_built)
{
    struct gdni_registry *r = gdni_registry_create();
    struct gdni_key a = key_of("a"), b = key_of("b");
    const struct gdni_spec one = spec_of(4), same_code = spec_of(8), other = spec_of(16);
    expect_recalled(r, &one, NULL);
    gdni_registry_learn(r, &one, &a);
    expect_recalled(r, &one, NULL);
    build(r, &a);
    build(r, &b);
    expect_recalled(r, &one, "a");
    expect_recalled(r, &other, NULL);
    gdni_registry_learn(r, &same_code, &a);
    gdni_registry_learn(r, &other, &b);
    gdni_registry_learn(r, &other, &b);
    expect_recalled(r, &one, "a");
    expect_recalled(r, &same_code, "a");
    expect_recalled(r, &other, "b");
    gdni_registry_destroy(r);
    gdni_key_free(&a);
    gdni_key_free(&b);
}

Test(registry, a_spec_leads_to_the_program_that_took_the_place_of_a_refused_one)
{
    struct gdni_registry *r = gdni_registry_create();
    struct gdni_key key = key_of("a");
    const struct gdni_spec spec = spec_of(4);
    struct gdni_flight *flight;
    struct gdni_program *none;
    build(r, &key);
    gdni_registry_learn(r, &spec, &key);
    struct gdni_program *refused = gdni_registry_recall(r, &spec);
    cr_assert_eq(gdni_registry_enter(r, &key, 0, refused, &none, &flight), GDN_OK);
    struct gdni_program *fresh = program_of(&key);
    gdni_registry_settle(r, flight, GDN_OK, fresh);
    struct gdni_program *found = gdni_registry_recall(r, &spec);
    cr_expect_eq(found, fresh);
    cr_expect_eq(refused->refs, 1, "the registry still holds the refused program");
    gdni_program_release(refused);
    gdni_program_release(fresh);
    gdni_program_release(found);
    gdni_registry_destroy(r);
    gdni_key_free(&key);
}

Test(registry, a_spec_that_found_no_memory_is_not_learnt_and_can_be_later)
{
    struct gdni_key key = key_of("a");
    const struct gdni_spec spec = spec_of(4);
    struct gdni_registry *r = gdni_registry_create();
    build(r, &key);
    gdni_mem_fail_after(0);
    gdni_registry_learn(r, &spec, &key);
    gdni_mem_fail_after(-1);
    expect_recalled(r, &spec, NULL);
    gdni_registry_learn(r, &spec, &key);
    expect_recalled(r, &spec, "a");
    gdni_registry_destroy(r);
    gdni_key_free(&key);
    cr_assert(fake_no_leaks());
}

Test(registry, thousands_of_specs_are_told_apart)
{
    enum { SPECS = 2000, KEYS = 7 };
    struct gdni_registry *r = gdni_registry_create();
    struct gdni_key keys[KEYS];
    for (int k = 0; k < KEYS; ++k) {
        char text[16];
        snprintf(text, sizeof text, "key %d", k);
        keys[k] = key_of(text);
        build(r, &keys[k]);
    }
    for (int32_t i = 0; i < SPECS; ++i) {
        const struct gdni_spec spec = spec_of(i);
        gdni_registry_learn(r, &spec, &keys[i % KEYS]);
    }
    for (int32_t i = 0; i < SPECS; ++i) {
        const struct gdni_spec spec = spec_of(i);
        expect_recalled(r, &spec, keys[i % KEYS].text);
    }
    gdni_registry_destroy(r);
    for (int k = 0; k < KEYS; ++k)
        gdni_key_free(&keys[k]);
}

/* ---- threads ---- */

enum { THREADS = 16 };

struct shared {
    struct gdni_registry *r;
    struct gdni_key key;
    pthread_barrier_t start;
    gdn_status outcome; /* of the build */
    atomic_int builds, same_program, same_sentence, waiting;
    _Atomic(struct gdni_program *) built;
};

static void *enter_together(void *data)
{
    struct shared *s = data;
    struct gdni_program *program;
    struct gdni_flight *flight;
    pthread_barrier_wait(&s->start);
    ++s->waiting;
    gdn_status status = gdni_registry_enter(s->r, &s->key, 0, NULL, &program, &flight);
    if (flight) {
        ++s->builds;
        while (s->waiting < THREADS) usleep(100); /* about to enter, or inside: the next line gives them time */
        usleep(50000);
        program = s->outcome == GDN_OK ? program_of(&s->key) : NULL;
        s->built = program;
        if (!program) gdni_fail(s->outcome, "the builder's own words");
        status = gdni_registry_settle(s->r, flight, s->outcome, program);
    }
    s->same_program += status == GDN_OK && program == s->built;
    s->same_sentence += status == s->outcome && strcmp(gdni_error_text(), "the builder's own words") == 0;
    gdni_program_release(status == GDN_OK ? program : NULL);
    return NULL;
}

static void run_together(struct shared *s)
{
    pthread_t threads[THREADS];
    s->r = gdni_registry_create();
    s->key = key_of("a");
    pthread_barrier_init(&s->start, NULL, THREADS);
    for (int i = 0; i < THREADS; ++i) cr_assert_eq(pthread_create(&threads[i], NULL, enter_together, s), 0);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    gdni_registry_destroy(s->r);
    pthread_barrier_destroy(&s->start);
    gdni_key_free(&s->key);
}

Test(registry, one_thread_builds_for_all)
{
    struct shared s = { .outcome = GDN_OK };
    run_together(&s);
    cr_assert_eq(s.builds, 1);
    cr_assert_eq(s.same_program, THREADS);
}

Test(registry, who_waits_gets_the_builders_failure_and_sentence)
{
    struct shared s = { .outcome = GDN_E_COMPILE };
    run_together(&s);
    cr_assert_eq(s.builds, 1, "%d threads built: those that waited tried again", s.builds);
    cr_assert_eq(s.same_sentence, THREADS);
}

struct pair {
    struct gdni_registry *r;
    struct gdni_key *key;
    atomic_int entered;
};

static void *enter_allowed(void *data)
{
    struct pair *p = data;
    struct gdni_program *program;
    struct gdni_flight *flight;
    ++p->entered;
    const gdn_status status = gdni_registry_enter(p->r, p->key, 0, NULL, &program, &flight);
    if (status != GDN_OK || !flight) return "was given the failure of a caller that may not compile";
    program = program_of(p->key);
    gdni_registry_settle(p->r, flight, GDN_OK, program);
    gdni_program_release(program);
    return NULL;
}

Test(registry, who_may_compile_is_not_given_the_refusal_of_one_who_may_not)
{
    struct gdni_key key = key_of("a");
    struct pair p = { .r = gdni_registry_create(), .key = &key };
    struct gdni_program *program;
    struct gdni_flight *strict;
    pthread_t thread;
    void *complaint;
    cr_assert_eq(gdni_registry_enter(p.r, &key, GDNI_ENTER_STRICT, NULL, &program, &strict), GDN_OK);
    cr_assert_not_null(strict);
    cr_assert_eq(pthread_create(&thread, NULL, enter_allowed, &p), 0);
    while (!p.entered) usleep(100);
    usleep(20000);
    gdni_registry_settle(p.r, strict, GDN_FAIL(GDN_E_NOT_CACHED, "strict"), NULL);
    pthread_join(thread, &complaint);
    cr_assert_null(complaint, "%s", (const char *)complaint);
    gdni_registry_destroy(p.r);
    gdni_key_free(&key);
}

Test(registry, running_out_of_memory_is_a_status_and_leaves_nothing)
{
    for (int allowed = 0; allowed < 3; ++allowed) {
        gdni_mem_fail_after(allowed);
        struct gdni_registry *r = gdni_registry_create();
        gdni_mem_fail_after(-1);
        cr_assert_eq(r == NULL, allowed < 2);
        gdni_registry_destroy(r);
    }
    struct gdni_key key = key_of("a");
    for (int allowed = 0; allowed < 3; ++allowed) { /* text, records, flight */
        struct gdni_registry *r = gdni_registry_create();
        struct gdni_program *program;
        struct gdni_flight *flight;
        gdni_mem_fail_after(allowed);
        const gdn_status status = gdni_registry_enter(r, &key, 0, NULL, &program, &flight);
        gdni_mem_fail_after(-1);
        cr_assert_eq(status, GDN_E_NOMEM, "after %d allocations: %s", allowed, gdn_status_name(status));
        cr_assert(!program && !flight);
        build(r, &key);
        gdni_registry_destroy(r);
    }
    gdni_key_free(&key);
    cr_assert(fake_no_leaks());
}
