#include "yardstick.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "runtime/compile.h"

static void give_up(const char *what)
{
    fprintf(stderr, "yardstick: %s\n", what);
    abort();
}

static char *read_program(void)
{
    FILE *file = fopen(GDN_TEST_DATA_DIR "/yardstick.cu", "rb");
    char *text = calloc(1, 1 << 14);
    if (!file || !text || fread(text, 1, (1 << 14) - 1, file) == 0) give_up("tests/data/yardstick.cu cannot be read");
    fclose(file);
    return text;
}

double yardstick_ms(struct gdni_nvrtc *nvrtc)
{
    static char *program;
    if (!program) program = read_program();
    struct gdni_unit unit = { .entry = "yardstick", .main_name = "yardstick.cu", .main_text = program };
    if (gdni_arch_find("sm_90a", &unit.spec.arch) != GDN_OK) give_up(gdni_error_text());
    struct gdni_compiled compiled;
    const clock_t start = clock();
    if (gdni_compile(nvrtc, &unit, &compiled) != GDN_OK) give_up(gdni_error_text());
    const clock_t end = clock();
    gdni_compiled_free(&compiled);
    return 1e3 * (double)(end - start) / CLOCKS_PER_SEC;
}
