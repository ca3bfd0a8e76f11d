/*
 * test_contract.c - the host reference in every convention, and the contract calls themselves: what the GPU program runs on the
 * device runs here on the host, and a call that is spoiled must be found.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brief.h"
#include "gdn_contract.h"
#include "pairwise.h"

enum { SEED = 20261121 };

struct copies {
    unsigned char *data[CONTRACT_MAX_IMAGES];
    gdn_prefill_args args;
};

/* The call on copies of its memory. */
static struct copies copy_call(const struct contract_call *c)
{
    struct copies copies = { .args = c->args };
    for (int i = 0; i < c->num_images; ++i) {
        copies.data[i] = malloc(c->images[i].bytes + 1);
        memcpy(copies.data[i], c->images[i].data, c->images[i].bytes);
    }
    for (const size_t *p = contract_pointers; *p != (size_t)-1; ++p) {
        gdn_devptr *member = (gdn_devptr *)(void *)((char *)&copies.args + *p);
        size_t offset = 0;
        const int image = *member ? contract_find_image(c, *member, &offset) : -1;
        if (*member) cr_assert(image >= 0, "%s: an address is in no image", c->name);
        if (*member) *member = (gdn_devptr)(uintptr_t)(copies.data[image] + offset);
    }
    return copies;
}

static void free_copies(const struct contract_call *c, struct copies *copies)
{
    for (int i = 0; i < c->num_images; ++i)
        free(copies->data[i]);
}

Test(contract, the_reference_keeps_it_in_every_pair_of_conventions)
{
    static struct pairwise_row rows[PAIRWISE_MAX_ROWS];
    const int count = pairwise_sample(contract_levels, CONTRACT_FACTORS, SEED, rows);
    cr_assert(count >= 56 && count < 128, "%d tuples", count);
    for (int i = 0; i < count; i += brief_step()) {
        struct contract_call c;
        struct contract_result r;
        contract_make(&c, rows[i].level, SEED + (uint64_t)i);
        struct copies copies = copy_call(&c);
        cr_assert_eq(gdn_reference_prefill(&c.desc, &copies.args), GDN_OK, "%s: %s", c.name, gdn_last_error());
        contract_check(&r, &c, copies.data);
        cr_expect(r.passed,
                  "%s: o %.2e <= %.2e (worst %.2e <= %.2e) state %.2e <= %.2e (worst %.2e <= %.2e) checkpoints %.2e <= "
                  "%.2e %s",
                  c.name, r.o, r.bound_o, r.o_worst, r.bound_o_worst, r.state, r.bound_state, r.state_worst,
                  r.bound_state_worst, r.checkpoint, r.bound_checkpoint, r.trouble);
        free_copies(&c, &copies);
        contract_free(&c);
    }
}

Test(contract, tuples_cover_every_pair_of_levels)
{
    static struct pairwise_row rows[PAIRWISE_MAX_ROWS];
    const int count = pairwise_sample(contract_levels, CONTRACT_FACTORS, SEED, rows);
    for (int a = 0; a < CONTRACT_FACTORS; ++a)
        for (int b = a + 1; b < CONTRACT_FACTORS; ++b)
            for (int la = 0; la < contract_levels[a]; ++la)
                for (int lb = 0; lb < contract_levels[b]; ++lb) {
                    bool found = false;
                    for (int i = 0; i < count; ++i)
                        found |= rows[i].level[a] == la && rows[i].level[b] == lb;
                    cr_expect(found, "factors %d, %d levels %d, %d", a, b, la, lb);
                }
}

/* Runs the reference under a desc that differs from the call's. */
static bool passes_under(const int level[CONTRACT_FACTORS], void (*spoil)(gdn_prefill_desc *, gdn_prefill_args *))
{
    struct contract_call c;
    struct contract_result r;
    contract_make(&c, level, SEED);
    struct copies copies = copy_call(&c);
    gdn_prefill_desc desc = c.desc;
    spoil(&desc, &copies.args);
    cr_assert_eq(gdn_reference_prefill(&desc, &copies.args), GDN_OK, "%s: %s", c.name, gdn_last_error());
    contract_check(&r, &c, copies.data);
    free_copies(&c, &copies);
    contract_free(&c);
    return r.passed;
}

static void nothing(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)d, (void)a;
}
static void other_map(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)a;
    d->head_map = d->head_map == GDN_HEADS_TILED ? GDN_HEADS_GROUPED : GDN_HEADS_TILED;
}
static void no_norm(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)a;
    d->flags &= ~(uint32_t)GDN_PREFILL_QK_L2NORM;
}
static void no_zeros(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)a;
    d->flags &= ~(uint32_t)GDN_PREFILL_ZERO_PADDING;
}
static void no_checkpoints(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)d;
    a->num_checkpoints = 0;
}
static void no_bias(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)d;
    a->dt_bias = 0;
}
static void not_doubled(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)a;
    d->flags &= ~(uint32_t)GDN_PREFILL_BETA_TIMES_2;
}
static void no_flags(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)d;
    a->has_initial_state = 0;
}
static void packed_slots(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)d;
    a->initial_slot_stride = a->final_slot_stride = 0;
}
static void other_layout(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)a;
    d->state_layout = d->state_layout == GDN_STATE_KV ? GDN_STATE_VK : GDN_STATE_KV;
}
static void wrong_scale(gdn_prefill_desc *d, gdn_prefill_args *a)
{
    (void)d;
    a->has_scale = 1, a->scale = 0.71f;
}

Test(contract, a_convention_that_is_ignored_is_found)
{
    /* fp16 64, 2/2/4 tiled, view cu32, logits with bias, logits x2, in place with flags and inert rows, all features, mixed */
    static const int level[CONTRACT_FACTORS] = { 3, 2, 3, 5, 5, 7, 3, 2 };
    static const struct {
        const char *name;
        void (*spoil)(gdn_prefill_desc *, gdn_prefill_args *);
    } faults[] = { { "head map", other_map },
                   { "norm", no_norm },
                   { "zero padding", no_zeros },
                   { "checkpoints", no_checkpoints },
                   { "dt_bias", no_bias },
                   { "times 2", not_doubled },
                   { "has_initial_state", no_flags },
                   { "slot stride", packed_slots },
                   { "state layout", other_layout },
                   { "scale", wrong_scale } };
    cr_assert(passes_under(level, nothing));
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; ++i)
        cr_expect_not(passes_under(level, faults[i].spoil), "%s", faults[i].name);
}
