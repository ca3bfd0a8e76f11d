/*
 * test_serving.c - what an engine does with GDN prefill over several calls, and sizes that break 32-bit arithmetic: prompts in
 * pieces, prefixes resumed from a checkpoint, a captured graph whose metadata changes, thousands of short prompts, pools and
 * rows beyond 2^31 elements, 128 heads, 128K tokens without decay; calls without sequences, and sequences without tokens.
 *
 * Where two runs do the same arithmetic (a cut at a multiple of 64 with a float32 state, by one kernel) they must agree bit for
 * bit; else both must be within the bounds, which the emulator gives for the very inputs.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "bounds.h"
#include "emulator.h"
#include "gdn_cases.h"
#include "gpu_inputs.h"
#include "gpu_prefill.h"

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

static struct gpu_options options;
static gdn_ctx *ctx;

/* ---- a case on the device ----------------------------------------------------------------------------------------------- */

struct session {
    struct gdn_case c;
    gdn_plan *plan;
    struct gpu_inputs in;
    struct gpu_buffer o, state;
    gdn_prefill_args args; /* the whole case in one call */
};

static struct session open_planned(const char *family, const struct gdn_shape *shape, gdn_dtype type, int dim,
                                   uint32_t flags, uint32_t plan_flags)
{
    struct session s;
    struct gdn_case *c = &s.c;
    gdn_case_make(c, gdn_family_find(family), shape, type, dim, GDN_STATE_KV, options.seed);
    c->desc.flags |= flags;
    s.plan = gpu_prefill_plan_with(ctx, options.device, &c->desc, plan_flags, 0);
    gpu_inputs_upload(&s.in, c);
    s.o = gpu_buffer_filled((size_t)c->o_count * 2, GPU_NAN_FILL);
    s.state = gpu_buffer_filled((size_t)c->state_count * 4, GPU_NAN_FILL);
    s.args = c->args;
    gpu_inputs_aim(&s.args, &s.in);
    s.args.o = s.o.p, s.args.final_state = s.state.p;
    return s;
}

static struct session open_session(const char *family, const struct gdn_shape *shape, gdn_dtype type, int dim,
                                   uint32_t flags)
{
    return open_planned(family, shape, type, dim, flags, 0);
}

static void close_session(struct session *s)
{
    gpu_inputs_free(&s->in);
    gpu_buffer_free(&s->o);
    gpu_buffer_free(&s->state);
    gdn_plan_destroy(s->plan);
    gdn_case_free(&s->c);
}

static void *read_buffer(const struct gpu_buffer *buffer)
{
    void *host = gpu_malloc(buffer->bytes);
    gpu_buffer_read(buffer, host);
    return host;
}

/* The errors of o and state, and what the emulator reaches on the same inputs. False when out of bounds. */
static bool within_bounds(struct gdn_case *c, const uint16_t *o, const float *state, char *detail, size_t size)
{
    struct gdn_errors got, emulated;
    float *emu_o = gpu_malloc((size_t)c->o_count * 4), *emu_state = gpu_malloc((size_t)c->state_count * 4);
    memset(emu_o, 0, (size_t)c->o_count * 4);
    if (!c->ref_o) GDN(gdn_case_oracle(c));
    if (!emu_prefill(&c->desc, &c->args, &emu_kernel, emu_o, emu_state)) exit(2);
    gdn_case_errors(&emulated, c, GDN_F32, emu_o, emu_state);
    gdn_case_errors(&got, c, (int32_t)c->desc.io_type, o, state);
    const double bound_o = BOUNDS_FACTOR * (emulated.o > BOUNDS_FLOOR ? emulated.o : BOUNDS_FLOOR);
    const double bound_state = BOUNDS_FACTOR * (emulated.state > BOUNDS_FLOOR ? emulated.state : BOUNDS_FLOOR);
    const bool passed = got.o <= bound_o && got.state <= bound_state;
    snprintf(detail, size, "o %.1e <= %.1e  state %.1e <= %.1e", got.o, bound_o, got.state, bound_state);
    free(emu_o), free(emu_state);
    return passed;
}

static bool same(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

/* ---- prompts in pieces -------------------------------------------------------------------------------------------------- */

/* Tokens [first, first + count) of the case's one sequence, from the state buffer (at the start h0) into the state buffer. */
static void run_piece(const struct session *s, int64_t first, int64_t count)
{
    const struct gdn_shape *shape = s->c.shape;
    const int64_t row = s->c.desc.head_dim_qk * 2, gates = first * s->c.heads * 4;
    gdn_prefill_args a = s->args;
    a.cu_seqlens = 0;
    a.num_tokens = count;
    a.q += (gdn_devptr)(first * shape->num_q_heads * row), a.k += (gdn_devptr)(first * shape->num_k_heads * row);
    a.v += (gdn_devptr)(first * shape->num_v_heads * row), a.o += (gdn_devptr)(first * s->c.heads * row);
    if (a.g) a.g += (gdn_devptr)gates;
    if (a.beta) a.beta += (gdn_devptr)gates;
    a.initial_state = first ? s->state.p : s->in.at[GPU_H0].p;
    gpu_prefill_execute(s->plan, &a);
}

struct cuts {
    const char *name;
    int32_t len;
    int32_t pieces[8]; /* ends at 0; the last one is repeated to the end */
    bool exact;        /* every cut is a multiple of 64 */
};

static const struct cuts cuts[] = {
    { "61+128", 189, { 61, 128 }, false },
    { "511+501", 1012, { 511, 501 }, false },
    { "1+1+...", 70, { 1 }, false },
    { "64+64+...", 500, { 64 }, true },
    { "128+320+61", 509, { 128, 320, 61 }, true },
    { "256+256", 512, { 256 }, true },
    { "63+1+64+...", 400, { 63, 1, 64 }, false },
    { "65+63+...", 400, { 65, 63, 128 }, false },
};

static void pieces_of(const struct session *s, const struct cuts *cut)
{
    int32_t first = 0;
    CU(cuMemsetD8Async(s->o.p, GPU_NAN_FILL, s->o.bytes, NULL));
    CU(cuStreamSynchronize(NULL));
    for (int i = 0; first < cut->len;) {
        const int32_t piece = cut->pieces[i], left = cut->len - first;
        run_piece(s, first, piece < left ? piece : left);
        first += piece;
        if (cut->pieces[i + 1]) ++i;
    }
}

/* What pieces give is within the bounds; where one_kernel is promised for all calls, with the bits of one call. */
static bool pieces_pass(const struct cuts *cut, const char *family, gdn_dtype type, int dim, bool one_kernel,
                        char *detail, size_t size)
{
    const struct gdn_shape shape = { "prompt", 2, 2, 4, 1, { cut->len }, 0, false };
    const uint32_t plan_flags = one_kernel ? GDN_PLAN_BATCH_INVARIANT | GDN_PLAN_WHOLE_SEQUENCES : 0;
    struct session s = open_planned(family, &shape, type, dim, 0, plan_flags);
    char errors[160];
    gpu_prefill_execute(s.plan, &s.args);
    uint16_t *whole_o = read_buffer(&s.o);
    float *whole_state = read_buffer(&s.state);
    pieces_of(&s, cut);
    uint16_t *o = read_buffer(&s.o);
    float *state = read_buffer(&s.state);
    const bool close = within_bounds(&s.c, o, state, errors, sizeof errors);
    const bool bits = same(o, whole_o, s.o.bytes) && same(state, whole_state, s.state.bytes);
    const char *verdict = bits ? ", the bits of one call" : one_kernel ? ", not the bits of one call" : "";
    snprintf(detail, size, "%s%s", errors, verdict);
    free(whole_o), free(whole_state), free(o), free(state);
    close_session(&s);
    return close && (bits || !one_kernel);
}

/* Plans that choose a kernel by a call's size promise the bounds only (docs/prefill.md, "Prompts in pieces"). */
static void run_cut(const char *name, const struct cuts *cut, const char *family, gdn_dtype type, int dim)
{
    char usual[200], pinned[200] = "", detail[420];
    bool passed = pieces_pass(cut, family, type, dim, false, usual, sizeof usual);
    if (cut->exact) passed &= pieces_pass(cut, family, type, dim, true, pinned, sizeof pinned);
    snprintf(detail, sizeof detail, "%s%s%s", usual, cut->exact ? "; one kernel: " : "", pinned);
    gpu_report(passed, name, detail);
}

/* ---- prefixes ----------------------------------------------------------------------------------------------------------- */

enum { PREFIX_SEQS = 3, PREFIX_LINES = 12 };

/*
 * Prompts of 320, 200 and 129 tokens leave a checkpoint at 192, 64 and 128. A second call resumes each from its checkpoint's
 * line into another one and must give the first call's bits for the rest. That is promised where the batch chooses no kernel:
 * without a workspace, and with GDN_PLAN_GENERIC.
 */
static void prefix_cache(const char *name, gdn_dtype type)
{
    static const struct gdn_shape shape = { "prefixes", 2, 2, 4, PREFIX_SEQS, { 320, 200, 129 }, 0, false };
    static const int32_t ends[PREFIX_SEQS] = { 192, 64, 128 }, first_lines[] = { 4, 1, 7 }, last_lines[] = { 9, 3, 0 };
    static const int64_t rows[PREFIX_SEQS][3] = { { 0, 192, 2 }, { 1, 64, 11 }, { 2, 128, 5 } };
    static const int32_t resumed[PREFIX_SEQS] = { 2, 11, 5 };
    void (*const execute)(const gdn_plan *, const gdn_prefill_args *) =
        gpu_plan_flags & GDN_PLAN_GENERIC ? gpu_prefill_execute : gpu_prefill_execute_bare;
    struct session s = open_session("random_no_h0", &shape, type, 128, GDN_PREFILL_CHECKPOINTS);
    const size_t line = (size_t)s.c.state_count / PREFIX_SEQS * 4, row = (size_t)s.c.heads * 128 * 2;
    struct gpu_buffer pool = gpu_buffer_filled(PREFIX_LINES * line, GPU_NAN_FILL), list = gpu_buffer_from(rows, sizeof rows);
    struct gpu_buffer slots[3] = { gpu_buffer_from(first_lines, sizeof first_lines), gpu_buffer_from(resumed, sizeof resumed),
                                   gpu_buffer_from(last_lines, sizeof last_lines) };
    gdn_prefill_args a = s.args;
    a.final_state = pool.p, a.slot_out = slots[0].p, a.checkpoints = list.p, a.num_checkpoints = PREFIX_SEQS;
    execute(s.plan, &a);
    char *o = read_buffer(&s.o);
    bool passed = true;
    a.initial_state = pool.p, a.slot_in = slots[1].p, a.slot_out = slots[2].p, a.num_checkpoints = 0;
    for (int n = 0; n < PREFIX_SEQS; ++n) { /* each alone: its rows are not next to the others' */
        const int64_t first = s.c.cu[n] + ends[n], heads = s.c.heads;
        gdn_prefill_args b = a;
        b.cu_seqlens = 0, b.num_seqs = 1, b.num_tokens = s.c.cu[n + 1] - first;
        b.slot_in += (gdn_devptr)n * 4, b.slot_out += (gdn_devptr)n * 4;
        b.q += (gdn_devptr)(first * 2 * 128 * 2), b.k += (gdn_devptr)(first * 2 * 128 * 2);
        b.v += (gdn_devptr)(first * heads * 128 * 2), b.o += (gdn_devptr)(first * heads * 128 * 2);
        b.g += (gdn_devptr)(first * heads * 4), b.beta += (gdn_devptr)(first * heads * 4);
        CU(cuMemsetD8Async(b.o, GPU_NAN_FILL, (size_t)b.num_tokens * row, NULL));
        CU(cuStreamSynchronize(NULL));
        execute(s.plan, &b);
    }
    char *again = read_buffer(&s.o), *lines = read_buffer(&pool);
    passed &= same(o, again, s.o.bytes);
    for (int n = 0; n < PREFIX_SEQS; ++n)
        passed &= same(lines + (size_t)first_lines[n] * line, lines + (size_t)last_lines[n] * line, line);
    gpu_report(passed, name,
               passed ? "the rest of each prompt has the bits of the first call" : "other bits than the first call");
    free(o), free(again), free(lines);
    for (int i = 0; i < 3; ++i)
        gpu_buffer_free(&slots[i]);
    gpu_buffer_free(&pool);
    gpu_buffer_free(&list);
    close_session(&s);
}

/* ---- a graph whose metadata changes ------------------------------------------------------------------------------------- */

enum { GRAPH_SEQS = 4, GRAPH_LINES = 8 };

struct metadata {
    int32_t cu[GRAPH_SEQS + 1], slots[GRAPH_SEQS];
    int64_t checkpoints[2][3];
};

/* Captured once with the first; -1 and empty sequences come and go, rows past the last become zeros. */
static const struct metadata replays[] = {
    { { 0, 100, 228, 228, 300 }, { 0, 1, 2, 3 }, { { 1, 128, 6 }, { -1, -1, -1 } } },
    { { 0, 0, 64, 200, 200 }, { 5, -1, 2, 7 }, { { 2, 64, 6 }, { 2, 128, 4 } } },
    { { 0, 1, 2, 3, 4 }, { 3, 2, 1, -1 }, { { -1, -1, -1 }, { -1, -1, -1 } } },
};

struct graph_test {
    struct session s;
    struct gpu_buffer pool, cu, slots, list;
    gdn_prefill_args args;
};

static void set_metadata(const struct graph_test *t, const struct metadata *m)
{
    CU(cuMemsetD8Async(t->s.o.p, GPU_NAN_FILL, t->s.o.bytes, NULL));
    CU(cuMemsetD8Async(t->pool.p, 0x11, t->pool.bytes, NULL));
    CU(cuStreamSynchronize(NULL));
    cu_copy_in(t->cu.p, m->cu, sizeof m->cu);
    cu_copy_in(t->slots.p, m->slots, sizeof m->slots);
    cu_copy_in(t->list.p, m->checkpoints, sizeof m->checkpoints);
}

static bool replay_is_the_call(const struct graph_test *t, const struct metadata *m, cu_graph_exec graph,
                               gdn_stream stream)
{
    set_metadata(t, m);
    CU(cuGraphLaunch(graph, stream));
    CU(cuStreamSynchronize(stream));
    char *o = read_buffer(&t->s.o), *pool = read_buffer(&t->pool);
    set_metadata(t, m);
    GDN(gdn_execute_prefill(t->s.plan, &t->args, 0, 0, NULL)); /* as it was captured: another kernel has other bits */
    CU(cuStreamSynchronize(NULL));
    char *direct_o = read_buffer(&t->s.o), *direct_pool = read_buffer(&t->pool);
    const bool passed = same(o, direct_o, t->s.o.bytes) && same(pool, direct_pool, t->pool.bytes);
    free(o), free(pool), free(direct_o), free(direct_pool);
    return passed;
}

static void captured_graph(const char *name)
{
    static const struct gdn_shape shape = { "captured", 2, 2, 4, 1, { 300 }, 0, false };
    struct graph_test t = { .s = open_session("random_no_h0", &shape, GDN_BF16, 128,
                                              GDN_PREFILL_CHECKPOINTS | GDN_PREFILL_ZERO_PADDING) };
    struct metadata first = replays[0];
    size_t nodes = 0;
    gdn_stream stream;
    t.pool = gpu_buffer_filled((size_t)t.s.c.state_count * 4 * GRAPH_LINES, GPU_NAN_FILL);
    t.cu = gpu_buffer_from(first.cu, sizeof first.cu), t.slots = gpu_buffer_from(first.slots, sizeof first.slots);
    t.list = gpu_buffer_from(first.checkpoints, sizeof first.checkpoints);
    t.args = t.s.args;
    t.args.num_seqs = GRAPH_SEQS;
    t.args.cu_seqlens = t.cu.p, t.args.slot_in = t.slots.p, t.args.initial_state = t.args.final_state = t.pool.p;
    t.args.checkpoints = t.list.p, t.args.num_checkpoints = 2;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    cu_capture_begin(stream);
    GDN(gdn_execute_prefill(t.s.plan, &t.args, 0, 0, stream));
    cu_graph_exec graph = cu_capture_end(stream, &nodes);
    bool passed = nodes == 1;
    for (size_t i = 0; i < sizeof replays / sizeof replays[0]; ++i)
        passed &= replay_is_the_call(&t, &replays[i], graph, stream);
    gpu_report(passed, name, "lengths, slots, checkpoints changed between replays of one node");
    CU(cuGraphExecDestroy(graph));
    CU(cuStreamDestroy(stream));
    gpu_buffer_free(&t.pool), gpu_buffer_free(&t.cu), gpu_buffer_free(&t.slots), gpu_buffer_free(&t.list);
    close_session(&t.s);
}

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

/* A buffer's bytes so many times in a row. */
static struct gpu_buffer repeated(const struct gpu_buffer *one, size_t times)
{
    struct gpu_buffer out = gpu_buffer_filled(one->bytes * times, GPU_NAN_FILL);
    for (size_t k = 0; k < times; ++k)
        CU(cuMemcpyDtoDAsync(out.p + k * one->bytes, one->p, one->bytes, NULL));
    return out;
}

/* 82 times the case's 25 prompts of 16 tokens: 2050 prompts, 65600 pairs of sequence and head. */
static void many_prompts(const char *name)
{
    enum { TIMES = 82, SEQS = 25, LEN = 16, HEADS = 32 };
    struct gdn_shape shape = { "documents", HEADS, HEADS, HEADS, SEQS, { 0 }, 0, false };
    for (int n = 0; n < SEQS; ++n)
        shape.lens[n] = LEN;
    struct session s = open_session("random", &shape, GDN_BF16, 64, 0);
    struct gpu_inputs big = s.in;
    int32_t *starts = gpu_malloc((TIMES * SEQS + 1) * sizeof *starts);
    char detail[320];
    for (int n = 0; n <= TIMES * SEQS; ++n)
        starts[n] = n * LEN;
    for (int i = 0; i < GPU_NUM_INPUTS; ++i)
        big.at[i] = i == GPU_CU ? gpu_buffer_from(starts, (TIMES * SEQS + 1) * sizeof *starts)
                                : repeated(&s.in.at[i], TIMES);
    struct gpu_buffer big_o = gpu_buffer_filled(s.o.bytes * TIMES, GPU_NAN_FILL);
    struct gpu_buffer big_state = gpu_buffer_filled(s.state.bytes * TIMES, GPU_NAN_FILL);
    CU(cuStreamSynchronize(NULL));
    gdn_prefill_args a = s.args;
    gpu_inputs_aim(&a, &big);
    a.o = big_o.p, a.final_state = big_state.p;
    a.num_tokens = (int64_t)TIMES * SEQS * LEN, a.num_seqs = (int64_t)TIMES * SEQS;
    gdn_prefill_desc wide = s.c.desc;
    wide.max_tokens = a.num_tokens, wide.max_seqs = a.num_seqs;
    gdn_plan *plan = gpu_prefill_plan(ctx, options.device, &wide);
    gpu_prefill_execute(plan, &a);
    char *o = read_buffer(&big_o), *state = read_buffer(&big_state);
    bool passed = within_bounds(&s.c, (const uint16_t *)(void *)o, (const float *)(void *)state, detail, sizeof detail);
    for (size_t k = 1; k < TIMES; ++k)
        passed &= same(o, o + k * s.o.bytes, s.o.bytes) &&
                  same(state, state + k * s.state.bytes, s.state.bytes);
    gpu_report(passed, name, detail);
    gpu_inputs_free(&big);
    gpu_buffer_free(&big_o), gpu_buffer_free(&big_state);
    gdn_plan_destroy(plan);
    free(starts), free(o), free(state);
    close_session(&s);
}

/* Lines 2^30 elements apart: line 3 begins past 2^31. Against the packed call, bit for bit. */
static void far_lines(const char *name)
{
    static const struct gdn_shape shape = { "far", 1, 1, 2, 2, { 70, 129 }, 0, false };
    static const int32_t lines[] = { 3, 0 };
    static const int64_t stride = (int64_t)1 << 30;
    struct session s = open_session("random", &shape, GDN_BF16, 128, 0);
    const size_t line = (size_t)s.c.state_count / 2 * 4;
    gdn_devptr pool = cu_alloc((size_t)(3 * stride) * 4 + line);
    struct gpu_buffer slots = gpu_buffer_from(lines, sizeof lines);
    gpu_prefill_execute(s.plan, &s.args);
    char *o = read_buffer(&s.o), *state = read_buffer(&s.state), *far = gpu_malloc(2 * line);
    for (int n = 0; n < 2; ++n)
        cu_copy_in(pool + (gdn_devptr)(lines[n] * stride) * 4, (const char *)s.c.h0 + (size_t)n * line, line);
    gdn_prefill_args a = s.args;
    a.initial_state = a.final_state = pool, a.initial_slot_stride = a.final_slot_stride = stride, a.slot_in = slots.p;
    gpu_prefill_execute(s.plan, &a);
    char *again = read_buffer(&s.o);
    for (int n = 0; n < 2; ++n)
        CU(cuMemcpyDtoH(far + (size_t)n * line, pool + (gdn_devptr)(lines[n] * stride) * 4, line));
    gpu_report(same(o, again, s.o.bytes) && same(state, far, 2 * line), name, "a line past 2^31 elements");
    free(o), free(state), free(far), free(again);
    CU(cuMemFree(pool));
    gpu_buffer_free(&slots);
    close_session(&s);
}

/* Rows of q and o 2^25 elements apart: the last of 100 begins past 2^31. */
static void far_rows(const char *name)
{
    static const struct gdn_shape shape = { "far", 1, 1, 1, 1, { 100 }, 0, false };
    static const int64_t stride = (int64_t)1 << 25;
    enum { TOKENS = 100, ROW = 128 * 2 };
    struct session s = open_session("random", &shape, GDN_F16, 128, 0);
    gdn_devptr q = cu_alloc((size_t)stride * 2 * TOKENS), o = cu_alloc((size_t)stride * 2 * TOKENS);
    gpu_prefill_execute(s.plan, &s.args);
    char *packed = read_buffer(&s.o), *far = gpu_malloc(TOKENS * ROW);
    for (int t = 0; t < TOKENS; ++t)
        cu_copy_in(q + (gdn_devptr)(t * stride) * 2, (const char *)s.c.q + t * ROW, ROW);
    gdn_prefill_args a = s.args;
    a.q = q, a.o = o, a.q_strides.token = a.o_strides.token = stride;
    gpu_prefill_execute(s.plan, &a);
    for (int t = 0; t < TOKENS; ++t)
        CU(cuMemcpyDtoH(far + t * ROW, o + (gdn_devptr)(t * stride) * 2, ROW));
    gpu_report(same(packed, far, TOKENS * ROW), name, "rows past 2^31 elements");
    free(packed), free(far);
    CU(cuMemFree(q));
    CU(cuMemFree(o));
    close_session(&s);
}

/* One call of a shape, against the bounds of its own inputs. */
static void whole_call(const char *name, const char *family, const struct gdn_shape *shape, gdn_dtype type)
{
    struct session s = open_session(family, shape, type, 128, 0);
    char detail[320];
    gpu_prefill_execute(s.plan, &s.args);
    uint16_t *o = read_buffer(&s.o);
    float *state = read_buffer(&s.state);
    gpu_report(within_bounds(&s.c, o, state, detail, sizeof detail), name, detail);
    free(o), free(state);
    close_session(&s);
}

/* ---- calls with little to do --------------------------------------------------------------------------------------------- */

enum { IDLE_TOKENS = 96, IDLE_HEADS = 2 };

static bool is_zeros(const struct gpu_buffer *buffer)
{
    unsigned char *bytes = read_buffer(buffer);
    bool zeros = gpu_buffer_guards_intact(buffer);
    for (size_t i = 0; i < buffer->bytes; ++i)
        zeros &= bytes[i] == 0;
    free(bytes);
    return zeros;
}

/* Rows, but no sequence: they become zeros, and inputs may be null. */
static bool prefill_pads(const struct gpu_buffer *ends, const struct gpu_buffer *o)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = IDLE_HEADS;
    desc.head_dim_qk = desc.head_dim_v = 128;
    desc.flags = GDN_PREFILL_ZERO_PADDING;
    desc.max_tokens = 1024, desc.max_seqs = 8;
    args.o = o->p, args.cu_seqlens = ends->p, args.num_tokens = IDLE_TOKENS;
    gdn_plan *plan = gpu_prefill_plan(ctx, options.device, &desc);
    gpu_prefill_execute(plan, &args);
    gdn_plan_destroy(plan);
    return is_zeros(o);
}

static bool conv_pads(const struct gpu_buffer *ends, const struct gpu_buffer out[3])
{
    gdn_target target = GDN_TARGET_INIT;
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    gdn_conv1d_args args = GDN_CONV1D_ARGS_INIT;
    gdn_plan *plan;
    desc.io_type = GDN_BF16;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = IDLE_HEADS;
    desc.head_dim_qk = desc.head_dim_v = 128;
    desc.width = 4;
    desc.flags = GDN_CONV_ZERO_PADDING | GDN_CONV_SILU;
    desc.max_tokens = 1024, desc.max_seqs = 8;
    args.q = out[0].p, args.k = out[1].p, args.v = out[2].p, args.cu_seqlens = ends->p, args.num_tokens = IDLE_TOKENS;
    GDN(gdn_target_from_device(ctx, options.device, &target));
    GDN(gdn_plan_conv1d_qkv(ctx, &target, &desc, 0, &plan));
    GDN(gdn_plan_load(plan, options.device));
    GDN(gdn_execute_conv1d_qkv(plan, &args, NULL));
    CU(cuStreamSynchronize(NULL));
    gdn_plan_destroy(plan);
    return is_zeros(&out[0]) && is_zeros(&out[1]) && is_zeros(&out[2]);
}

static void no_sequence(const char *name)
{
    static const int32_t none = 0;
    struct gpu_buffer ends = gpu_buffer_from(&none, sizeof none), out[4];
    for (int i = 0; i < COUNT(out); ++i)
        out[i] = gpu_buffer_filled(IDLE_TOKENS * IDLE_HEADS * 128 * 2, GPU_NAN_FILL);
    const bool prefill = prefill_pads(&ends, &out[3]), conv = conv_pads(&ends, out);
    gpu_report(prefill && conv, name, prefill ? conv ? "all rows are zeros" : "conv1d-QKV's are not" : "prefill's are not");
    for (int i = 0; i < COUNT(out); ++i)
        gpu_buffer_free(&out[i]);
    gpu_buffer_free(&ends);
}

/* A sequence of no tokens copies its state, bit for bit, also what products with zeros would not leave as it is. */
static void empty_sequences(const char *name, gdn_dtype type)
{
    enum { LINES = 3, COUNT_OF_STATE = LINES * IDLE_HEADS * 128 * 128 };
    static const int32_t cu_seqlens[LINES + 1] = { 0 };
    static const float odd[] = { INFINITY, -INFINITY, -0.0f, 3.4e38f, -1e-40f, 1e30f };
    float *initial = gpu_malloc(COUNT_OF_STATE * sizeof *initial);
    for (int i = 0; i < COUNT_OF_STATE; ++i)
        initial[i] = i % 1021 < COUNT(odd) ? odd[i % 1021] : (float)(i * 7919 % 1000) / 500 - 1;
    struct gpu_buffer ends = gpu_buffer_from(cu_seqlens, sizeof cu_seqlens);
    struct gpu_buffer from = gpu_buffer_from(initial, COUNT_OF_STATE * 4);
    struct gpu_buffer to = gpu_buffer_filled(COUNT_OF_STATE * 4, GPU_NAN_FILL);
    struct gpu_buffer rows = gpu_buffer_filled(64 * 512, GPU_NAN_FILL);
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
    desc.io_type = type;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = IDLE_HEADS;
    desc.head_dim_qk = desc.head_dim_v = 128;
    desc.max_tokens = 1024, desc.max_seqs = 8;
    args.q = args.k = args.v = rows.p, args.o = rows.p + 32 * 512;
    args.cu_seqlens = ends.p, args.num_tokens = 32, args.num_seqs = LINES;
    args.initial_state = from.p, args.final_state = to.p;
    gdn_plan *plan = gpu_prefill_plan(ctx, options.device, &desc);
    gpu_prefill_execute(plan, &args);
    float *final = read_buffer(&to);
    gpu_report(same(initial, final, COUNT_OF_STATE * 4) && gpu_buffer_guards_intact(&to), name, "states of no tokens");
    free(initial), free(final);
    gpu_buffer_free(&ends), gpu_buffer_free(&from), gpu_buffer_free(&to), gpu_buffer_free(&rows);
    gdn_plan_destroy(plan);
}

static void empty_bf16(const char *name)
{
    empty_sequences(name, GDN_BF16);
}

static void empty_fp16(const char *name)
{
    empty_sequences(name, GDN_F16);
}

/* ---- the list ----------------------------------------------------------------------------------------------------------- */

static const struct gdn_shape wholes[] = {
    { "128_heads", 8, 8, 128, 2, { 130, 61 }, 0, false }, { "ratio_16", 1, 1, 16, 2, { 130, 61 }, 0, false },
    { "ratio_8", 2, 2, 16, 2, { 130, 61 }, 0, false },    { "ratio_6", 2, 2, 12, 2, { 130, 61 }, 0, false },
    { "q_ratio_16", 16, 1, 1, 2, { 130, 61 }, 0, false }, { "128K", 1, 1, 1, 1, { 131072 }, 0, false },
};
static const char *const cut_families[] = { "random", "no_decay", "flashqla" };

struct job {
    char name[120];
    const struct cuts *cut;
    const struct gdn_shape *whole;
    void (*run)(const char *name);
    const char *family;
    gdn_dtype type;
    int dim;
};

static void run_job(void *user, int i)
{
    const struct job *j = &((const struct job *)user)[i];
    if (j->cut)
        run_cut(j->name, j->cut, j->family, j->type, j->dim);
    else if (j->whole)
        whole_call(j->name, j->family, j->whole, j->type);
    else if (j->run)
        j->run(j->name);
    else
        prefix_cache(j->name, j->type);
}

enum { MAX_JOBS = 160 };

static int add(struct job *jobs, int count, struct job job)
{
    if (!gpu_selected(&options, job.name)) return count;
    if (options.small && (job.run == many_prompts || job.run == far_lines || job.run == far_rows || job.whole))
        return count;
    if (options.small && job.cut && strcmp(job.cut->name, "61+128") != 0) return count;
    if (options.list) puts(job.name);
    jobs[count] = job;
    return count + 1;
}

/* The long ones first, so that the others run beside them. */
static int list_jobs(struct job *jobs)
{
    static const gdn_dtype types[] = { GDN_BF16, GDN_F16 };
    static const char *const type_names[] = { "bf16", "fp16" };
    static const struct job singles[] = { { .name = "serving 2050_prompts", .run = many_prompts },
                                          { .name = "serving far_lines", .run = far_lines },
                                          { .name = "serving far_rows", .run = far_rows },
                                          { .name = "serving captured_graph", .run = captured_graph },
                                          { .name = "serving no_sequence", .run = no_sequence },
                                          { .name = "serving empty_sequences bf16", .run = empty_bf16 },
                                          { .name = "serving empty_sequences fp16", .run = empty_fp16 } };
    int count = 0;
    for (int w = COUNT(wholes) - 1; w >= 0; --w)
        for (int t = 0; t < 2; ++t) {
            struct job j = { .whole = &wholes[w],
                             .family = w == COUNT(wholes) - 1 ? "no_decay" : "random",
                             .type = types[t] };
            snprintf(j.name, sizeof j.name, "serving %s %s", wholes[w].name, type_names[t]);
            count = add(jobs, count, j);
        }
    for (int i = 0; i < COUNT(singles); ++i)
        count = add(jobs, count, singles[i]);
    for (int t = 0; t < 2; ++t) {
        struct job j = { .type = types[t] };
        snprintf(j.name, sizeof j.name, "serving prefix_cache %s", type_names[t]);
        count = add(jobs, count, j);
    }
    for (int i = 0; i < COUNT(cuts) * COUNT(cut_families) * 4; ++i) {
        struct job j = { .cut = &cuts[i / 4 / COUNT(cut_families)],
                         .family = cut_families[i / 4 % COUNT(cut_families)],
                         .type = types[i & 1],
                         .dim = i & 2 ? 64 : 128 };
        snprintf(j.name, sizeof j.name, "serving pieces %s %s %s d=%d", j.cut->name, j.family, type_names[i & 1],
                 j.dim);
        count = add(jobs, count, j);
    }
    return count;
}

int main(int argc, char **argv)
{
    static struct job jobs[MAX_JOBS];
    options = gpu_parse_options(argc, argv, GDN_CASE_SEED);
    const int count = list_jobs(jobs);
    if (options.list) return 0;
    gpu_require_device(&options);
    ctx = gpu_context();
    gpu_parallel(&options, count, run_job, jobs);
    gdn_ctx_destroy(ctx);
    return gpu_summary();
}
