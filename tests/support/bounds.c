/*
 * bounds.c - owns the table of error bounds: measuring a row, printing it, reading it back.
 * Must not know: devices, kernels.
 */
#include "bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "emulator.h"

#ifndef GDN_TEST_DATA_DIR
#define GDN_TEST_DATA_DIR "tests/data"
#endif

const char bounds_header[] = "family\tdtype\thead_dim\tshape\to\to_worst\tstate\tstate_worst";

static const char *dtype_name(gdn_dtype type)
{
    return type == GDN_BF16 ? "bf16" : "fp16";
}

void bounds_print(FILE *out, const struct bound_row *row)
{
    fprintf(out, "%s\t%s\t%d\t%s\t%.4e\t%.4e\t%.4e\t%.4e\n", row->family, row->dtype, row->head_dim, row->shape, row->o,
            row->o_worst, row->state, row->state_worst);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static FILE *open_table(const char *path)
{
    static const char *const places[] = { GDN_TEST_DATA_DIR "/bounds.tsv", "tests/data/bounds.tsv",
                                          "../tests/data/bounds.tsv" };
    if (path) return fopen(path, "r");
    for (size_t i = 0; i < sizeof places / sizeof places[0]; ++i) {
        FILE *file = fopen(places[i], "r");
        if (file) return file;
    }
    return NULL;
}

static bool parse(struct bound_row *row, const char *line)
{
    return sscanf(line, "%31s %7s %d %31s %lf %lf %lf %lf", row->family, row->dtype, &row->head_dim, row->shape,
                  &row->o, &row->o_worst, &row->state, &row->state_worst) == 8;
}

static bool append(struct bounds *b, const struct bound_row *row)
{
    if (b->count % 256 == 0) {
        struct bound_row *grown = realloc(b->rows, sizeof *grown * (size_t)(b->count + 256));
        if (!grown) return false;
        b->rows = grown;
    }
    b->rows[b->count++] = *row;
    return true;
}

/* Lines that start with '#' are comments; the first other line is the header. */
static bool read_rows(struct bounds *out, FILE *file)
{
    char line[512];
    bool header = false;
    while (fgets(line, sizeof line, file)) {
        struct bound_row row;
        if (line[0] == '#') continue;
        if (!header) {
            header = !strncmp(line, bounds_header, sizeof bounds_header - 1);
            if (!header) return false;
            continue;
        }
        if (!parse(&row, line) || !append(out, &row)) return false;
    }
    return header;
}

bool bounds_load(struct bounds *out, const char *path)
{
    *out = (struct bounds){ NULL, 0 };
    FILE *file = open_table(path);
    if (!file) {
        fprintf(stderr, "bounds: cannot open %s: run make_bounds, or start in the source tree\n",
                path ? path : GDN_TEST_DATA_DIR "/bounds.tsv");
        return false;
    }
    const bool read = read_rows(out, file);
    fclose(file);
    if (!read) {
        fprintf(stderr, "bounds: row %d of the table is damaged: run make_bounds\n", out->count + 1);
        bounds_free(out);
    }
    return read;
}

void bounds_free(struct bounds *bounds)
{
    free(bounds->rows);
    *bounds = (struct bounds){ NULL, 0 };
}

/* ---- looking up ------------------------------------------------------------------------------------------------ */

static bool is_of(const struct bound_row *row, const char *family, gdn_dtype io_type, int head_dim)
{
    return row->head_dim == head_dim && !strcmp(row->dtype, dtype_name(io_type)) && !strcmp(row->family, family);
}

const struct bound_row *bounds_find(const struct bounds *bounds, const char *family, gdn_dtype io_type, int head_dim,
                                    const char *shape)
{
    for (int i = 0; i < bounds->count; ++i)
        if (is_of(&bounds->rows[i], family, io_type, head_dim) && !strcmp(bounds->rows[i].shape, shape))
            return &bounds->rows[i];
    return NULL;
}

static void widen(struct bound_row *row, const struct bound_row *by)
{
    row->o = fmax(row->o, by->o);
    row->o_worst = fmax(row->o_worst, by->o_worst);
    row->state = fmax(row->state, by->state);
    row->state_worst = fmax(row->state_worst, by->state_worst);
}

static bool has_full_chunk(const char *shape_name)
{
    const struct gdn_shape *shape = gdn_shape_find(shape_name);
    for (int n = 0; shape && n < shape->num_seqs; ++n)
        if (shape->lens[n] >= 64) return true;
    return false;
}

bool bounds_of_family(struct bound_row *out, const struct bounds *bounds, const char *family, gdn_dtype io_type,
                      int head_dim)
{
    bool found = false;
    *out = (struct bound_row){ .head_dim = head_dim };
    snprintf(out->family, sizeof out->family, "%s", family);
    snprintf(out->dtype, sizeof out->dtype, "%s", dtype_name(io_type));
    snprintf(out->shape, sizeof out->shape, "any");
    for (int i = 0; i < bounds->count; ++i) {
        const struct bound_row *row = &bounds->rows[i];
        if (!is_of(row, family, io_type, head_dim) || !has_full_chunk(row->shape)) continue;
        widen(out, row);
        found = true;
    }
    return found;
}

static bool within(double error, double emulated)
{
    return error <= BOUNDS_FACTOR * emulated; /* false for a NaN */
}

bool bounds_check(const struct bound_row *row, const struct gdn_errors *errors)
{
    return within(errors->o, row->o) && within(errors->o_worst, row->o_worst) && within(errors->state, row->state) &&
           within(errors->state_worst, row->state_worst);
}

/* ---- measuring ------------------------------------------------------------------------------------------------- */

static bool measure_case(struct bound_row *row, struct gdn_case *c)
{
    struct gdn_errors errors;
    float *o = calloc((size_t)c->o_count + 1, sizeof *o), *state = calloc((size_t)c->state_count + 1, sizeof *state);
    const bool ran =
        o && state && gdn_case_oracle(c) == GDN_OK && emu_prefill(&c->desc, &c->args, &emu_kernel, o, state);
    if (ran) {
        gdn_case_errors(&errors, c, GDN_F32, o, state);
        widen(row,
              &(struct bound_row){
                  .o = errors.o, .o_worst = errors.o_worst, .state = errors.state, .state_worst = errors.state_worst });
    }
    free(o);
    free(state);
    return ran;
}

bool bounds_measure(struct bound_row *out, const struct gdn_family *family, const struct gdn_shape *shape,
                    gdn_dtype io_type, int head_dim)
{
    bool ran = true;
    *out = (struct bound_row){ .head_dim = head_dim,
                               .o = BOUNDS_FLOOR,
                               .o_worst = BOUNDS_FLOOR,
                               .state = BOUNDS_FLOOR,
                               .state_worst = BOUNDS_FLOOR };
    snprintf(out->family, sizeof out->family, "%s", family->name);
    snprintf(out->dtype, sizeof out->dtype, "%s", dtype_name(io_type));
    snprintf(out->shape, sizeof out->shape, "%s", shape->name);
    for (int i = 0; ran && i < BOUNDS_NUM_SEEDS; ++i) {
        struct gdn_case c;
        gdn_case_make(&c, family, shape, io_type, head_dim, GDN_STATE_KV, (uint64_t)GDN_CASE_SEED + (uint64_t)i);
        ran = measure_case(out, &c);
        gdn_case_free(&c);
    }
    return ran;
}
