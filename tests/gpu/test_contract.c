/*
 * test_contract.c - GDN prefill on the device in every pair of the header's conventions: type and dim, heads, layout, gate,
 * beta, state, features, sequences. Whatever kernel the plan chooses must pass it; the line names the kernel.
 *
 * Each call runs twice on fresh copies, on which outputs start as NaN and lie between guards: the bits must be the same, within
 * the emulator's error of the fp64 recurrence, and nothing else may change. A failure is run again by its seed's number:
 *
 *     test_contract --seed N                 the same tuples, their data drawn with another seed
 *     test_contract --tuples N               other tuples that have every pair: of three conventions each meets others
 *     test_contract --filter "| norm |"      those whose name contains the words
 */
#include <string.h>

#include "gdn_contract.h"
#include "gpu_prefill.h"
#include "pairwise.h"

static struct gpu_options options;
static gdn_ctx *ctx;
static FILE *results;
static struct pairwise_row rows[PAIRWISE_MAX_ROWS];

struct images {
    struct gpu_buffer buffer[CONTRACT_MAX_IMAGES];
    unsigned char *after[CONTRACT_MAX_IMAGES];
};

static void upload(struct images *m, const struct contract_call *c, gdn_prefill_args *args)
{
    *args = c->args;
    for (int i = 0; i < c->num_images; ++i)
        m->buffer[i] = gpu_buffer_from(c->images[i].data, c->images[i].bytes);
    for (const size_t *p = contract_pointers; *p != (size_t)-1; ++p) {
        gdn_devptr *member = (gdn_devptr *)(void *)((char *)args + *p);
        size_t offset = 0;
        if (!*member) continue;
        const int image = contract_find_image(c, *member, &offset);
        *member = m->buffer[image].p + offset;
    }
}

/* False when a guard was hit. */
static bool download(struct images *m, const struct contract_call *c)
{
    bool intact = true;
    for (int i = 0; i < c->num_images; ++i) {
        m->after[i] = gpu_malloc(c->images[i].bytes);
        gpu_buffer_read(&m->buffer[i], m->after[i]);
        intact &= gpu_buffer_guards_intact(&m->buffer[i]);
        gpu_buffer_free(&m->buffer[i]);
    }
    return intact;
}

static bool run_once(struct images *m, const struct contract_call *c, const gdn_plan *plan)
{
    gdn_prefill_args args;
    upload(m, c, &args);
    gpu_prefill_execute(plan, &args);
    return download(m, c);
}

static void free_images(struct images *m, const struct contract_call *c)
{
    for (int i = 0; i < c->num_images; ++i)
        free(m->after[i]);
}

static bool same_bits(const struct images *a, const struct images *b, const struct contract_call *c)
{
    for (int i = 0; i < c->num_images; ++i)
        if (memcmp(a->after[i], b->after[i], c->images[i].bytes) != 0) return false;
    return true;
}

static void report(const struct contract_call *c, const struct contract_result *r, const char *kernel,
                   const char *trouble)
{
    char detail[400];
    const bool passed = r->passed && !*trouble;
    snprintf(detail, sizeof detail,
             "%s  o %.1e <= %.1e (worst %.1e <= %.1e)  state %.1e <= %.1e (worst %.1e <= %.1e)  checkpoints %.1e <= "
             "%.1e  %s%s",
             kernel, r->o, r->bound_o, r->o_worst, r->bound_o_worst, r->state, r->bound_state, r->state_worst,
             r->bound_state_worst, r->checkpoint, r->bound_checkpoint, r->trouble, trouble);
    gpu_report(passed, c->name, detail);
    if (results)
        fprintf(results, "%s\t%s\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%s\n", c->name, kernel,
                r->o, r->bound_o, r->o_worst, r->bound_o_worst, r->state, r->bound_state, r->state_worst,
                r->bound_state_worst, r->checkpoint, r->bound_checkpoint, passed ? "pass" : "fail");
}

static void run_tuple(void *user, int i)
{
    const int *selected = user;
    struct contract_call c;
    struct contract_result r;
    struct images first, again;
    char kernel[64];
    const char *trouble = "";
    contract_make(&c, rows[selected[i]].level, options.seed + (uint64_t)selected[i]);
    gpu_running(c.name);
    gdn_plan *plan = gpu_prefill_plan(ctx, options.device, &c.desc);
    gpu_plan_kernel(plan, kernel, sizeof kernel);
    if (!run_once(&first, &c, plan)) trouble = "written beside a buffer";
    contract_check(&r, &c, first.after);
    for (int n = 0; n < 1 + options.repeat && !*trouble; ++n) {
        run_once(&again, &c, plan);
        if (!same_bits(&first, &again, &c)) trouble = "a second run gives other bits";
        free_images(&again, &c);
    }
    report(&c, &r, kernel, trouble);
    free_images(&first, &c);
    gdn_plan_destroy(plan);
    contract_free(&c);
}

/* For a sanitizer: the short sequences alone. */
static bool is_small(const struct pairwise_row *row)
{
    return row->level[7] == 1 || row->level[7] == 5;
}

static bool is_selected(int i)
{
    struct contract_call c;
    if (options.small && !is_small(&rows[i])) return false;
    if (!options.filter && !options.list) return true;
    contract_make(&c, rows[i].level, options.seed + (uint64_t)i);
    const bool selected = gpu_selected(&options, c.name);
    if (selected && options.list) puts(c.name);
    contract_free(&c);
    return selected;
}

int main(int argc, char **argv)
{
    enum { TUPLES_SEED = 20261121 }; /* the same tuples whatever the data's seed */
    int selected[PAIRWISE_MAX_ROWS], count = 0;
    gpu_draws_tuples = true;
    options = gpu_parse_options(argc, argv, TUPLES_SEED);
    const int all = pairwise_sample(contract_levels, CONTRACT_FACTORS, options.tuples ? options.tuples : TUPLES_SEED, rows);
    for (int i = 0; i < all; ++i)
        if (is_selected(i)) selected[count++] = i;
    if (options.list) return 0;
    gpu_require_device(&options);
    ctx = gpu_context();
    results = gpu_results_open(&options, "contract.tsv",
                               "tuple\tkernel\terr_o\tbound_o\terr_o_worst\tbound_o_worst\terr_state\tbound_state\t"
                               "err_state_worst\tbound_state_worst\terr_checkpoints\tbound_checkpoints\tresult");
    gpu_parallel(&options, count, run_tuple, selected);
    if (results) fclose(results);
    gdn_ctx_destroy(ctx);
    return gpu_summary();
}
