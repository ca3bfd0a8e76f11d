/*
 * make_bounds.c - writes the table of error bounds (tests/data/bounds.tsv): the emulator on every family, dtype, head
 * dim and shape. Minutes of one core. Run it when a family, a shape, or a rounding point of the kernels changes.
 *
 *   make_bounds [FAMILY...] > tests/data/bounds.tsv
 */
#include <stdio.h>
#include <string.h>

#include "bounds.h"

static bool wanted(const char *family, int argc, char **argv)
{
    for (int i = 1; i < argc; ++i)
        if (!strcmp(argv[i], family)) return true;
    return argc < 2;
}

static bool write_family(const struct gdn_family *family, gdn_dtype io_type, int head_dim)
{
    for (int s = 0; s < gdn_num_shapes; ++s) {
        struct bound_row row;
        if (!bounds_measure(&row, family, &gdn_shapes[s], io_type, head_dim)) return false;
        bounds_print(stdout, &row);
    }
    fflush(stdout);
    return true;
}

int main(int argc, char **argv)
{
    static const gdn_dtype types[] = { GDN_BF16, GDN_F16 };
    static const int dims[] = { 64, 128 };
    printf("# Errors of the CPU emulator of the chunked algorithm against the fp64 recurrence, the largest of %d "
           "seeds, at\n"
           "# least %.1e; a kernel's bound is %.1f times these. Written by tests/bounds/make_bounds.c: do not edit.\n",
           BOUNDS_NUM_SEEDS, BOUNDS_FLOOR, BOUNDS_FACTOR);
    printf("%s\n", bounds_header);
    for (int f = 0; f < gdn_num_families; ++f) {
        if (!wanted(gdn_families[f].name, argc, argv)) continue;
        fprintf(stderr, "%s\n", gdn_families[f].name);
        for (int t = 0; t < 2; ++t)
            for (int d = 0; d < 2; ++d)
                if (gdn_family_has(&gdn_families[f], types[t]) && !write_family(&gdn_families[f], types[t], dims[d])) {
                    fprintf(stderr, "make_bounds: out of memory\n");
                    return 1;
                }
    }
    return 0;
}
