/*
 * fuzz_problem.c - problem descriptors of both operators, with any bytes in them, through plan, load, execute, dump and cost,
 * on the fake compiler and the fake driver: always a status that has a name and, unless it is GDN_OK, a sentence; never more.
 *
 * An input is a byte that chooses operator and base, then edits of 12 bytes: what is edited, the offset in it, how many bytes,
 * and the bytes. Near a legal problem is where checks are thin; far from one is reached by many edits.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fake_host.h"
#include "support/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EDIT = 12, CONTEXT_LIFE = 10000, CONV = 1, MANY_TOKENS = 2, ONE_SEQUENCE = 4 };

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_problem: %s: %s\n", what, gdn_last_error());
    abort();
}

/* ---- the problem ---- */

struct call {
    gdn_target target;
    gdn_prefill_desc prefill;
    gdn_conv1d_desc conv;
    gdn_prefill_args prefill_args;
    gdn_conv1d_args conv_args;
    uint32_t plan_flags;
    uint64_t workspace[2]; /* address and size */
};

static void apply(struct call *c, const uint8_t edit[EDIT])
{
    const struct {
        void *at;
        size_t size;
    } places[] = {
        { &c->prefill, sizeof c->prefill },
        { &c->conv, sizeof c->conv },
        { &c->prefill_args, sizeof c->prefill_args },
        { &c->conv_args, sizeof c->conv_args },
        { &c->target, sizeof c->target },
        { &c->plan_flags, sizeof c->plan_flags },
        { c->workspace, sizeof c->workspace },
    };
    const size_t place = edit[0] % (sizeof places / sizeof places[0]);
    const size_t offset = ((size_t)edit[1] | (size_t)edit[2] << 8) % places[place].size;
    size_t len = edit[3] % 8 + 1;
    if (len > places[place].size - offset) len = places[place].size - offset;
    memcpy((char *)places[place].at + offset, edit + 4, len);
}

/* ---- what it goes through ---- */

/* Results that nothing in an argument may lead to: the machine has memory, and the compiler compiles everything. */
static gdn_status checked(gdn_status status, const char *what)
{
    require(strcmp(gdn_status_name(status), "GDN_E_?") != 0, what);
    require(status != GDN_E_NOMEM && status != GDN_E_COMPILE && status != GDN_E_NO_NVRTC && status != GDN_E_NO_DRIVER,
            what);
    if (status != GDN_OK) require(strlen(gdn_last_error()) > 20, what);
    return status;
}

static gdn_status count_bytes(void *user, const void *data, size_t size)
{
    size_t *sum = user;
    require(data || !size, "a dump of nothing");
    *sum += size;
    return GDN_OK;
}

static void look_at(const gdn_plan *plan, const struct call *c, bool conv)
{
    size_t bytes = 0;
    gdn_cost cost = GDN_COST_INIT;
    require(gdn_plan_dump(plan, GDN_DUMP_JSON, count_bytes, &bytes) == GDN_OK && bytes > 0, "gdn_plan_dump");
    checked(gdn_plan_cost(plan, conv ? c->conv_args.num_tokens : c->prefill_args.num_tokens,
                          conv ? c->conv_args.num_seqs : c->prefill_args.num_seqs, &cost),
            "gdn_plan_cost");
}

static void run(gdn_ctx *ctx, const struct call *c, bool conv)
{
    gdn_plan *plan = NULL;
    const gdn_status status = checked(conv ? gdn_plan_conv1d_qkv(ctx, &c->target, &c->conv, c->plan_flags, &plan)
                                           : gdn_plan_prefill(ctx, &c->target, &c->prefill, c->plan_flags, &plan),
                                      "gdn_plan");
    require((status == GDN_OK) == (plan != NULL), "a plan with a failure, or none without");
    if (!plan) return;
    look_at(plan, c, conv);
    if (checked(gdn_plan_load(plan, 0), "gdn_plan_load") == GDN_OK)
        checked(conv ? gdn_execute_conv1d_qkv(plan, &c->conv_args, NULL)
                     : gdn_execute_prefill(plan, &c->prefill_args, c->workspace[0], c->workspace[1], NULL),
                "gdn_execute");
    gdn_plan_destroy(plan);
}

/* ---- the host ---- */

static const struct fake_controls *cuda;
static gdn_ctx *ctx;
static gdn_target h200;
static long uses;

/* A context keeps every program that it made: now and then a new one. */
static void refresh(void)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    if (!cuda) cuda = fake_open(GDN_FAKE_CUDA_PATH);
    if (uses++ % CONTEXT_LIFE != 0) return;
    gdn_ctx_destroy(ctx);
    require(fake_balanced(cuda), "something was not given back to the driver");
    cuda->reset();
    cuda->make_current(0);
    cfg.cache_dir = "";
    cfg.flags = GDN_CTX_NO_ENV;
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cfg.driver_path = GDN_FAKE_CUDA_PATH;
    require(gdn_ctx_create(&ctx, &cfg) == GDN_OK, "gdn_ctx_create");
    h200 = fake_h200(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    refresh();
    struct call c = { .target = h200,
                      .prefill = fake_prefill_desc(),
                      .conv = fake_conv1d_desc(),
                      .prefill_args = fake_prefill_args(),
                      .conv_args = fake_conv1d_args(),
                      .workspace = { 0x100000, 64 << 20 } };
    if (data[0] & MANY_TOKENS) c.prefill.max_tokens = c.conv.max_tokens = 100000;
    if (data[0] & ONE_SEQUENCE) c.prefill_args.num_seqs = c.conv_args.num_seqs = 1;
    for (size_t at = 1; at + EDIT <= size; at += EDIT)
        apply(&c, data + at);
    run(ctx, &c, data[0] & CONV);
    return 0;
}
