/*
 * test_code.c - what tells that a kernel has changed since it was measured: all of its code, and nothing of its comments.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/code.h"
#include "codegen/unit.h"
#include "runtime/known_code.h"

enum { MAX_BYTES = 1 << 20 };
static char bytes[MAX_BYTES];

/* The code of a text, with its end, to where there is room for it; its length. */
static size_t code_of(char *to, const char *text)
{
    struct gdni_code code = { .at = text };
    size_t len = 0;
    while ((to[len++] = gdni_code_next(&code)) != '\0')
        ;
    return len;
}

Test(code, comments_and_blanks_do_not_count)
{
    static const struct {
        const char *text, *code;
    } cases[] = {
        { "", "" },
        { "/* all of it */ // and more", "" },
        { "/* what it is */\n\nint a; /* why */\n    int b; // what\n", "int a;\nint b;" },
        { "int a;\n/* between\n   lines */\nint b;", "int a;\nint b;" },
        { "f(a,/* out */ b)", "f(a, b)" },
        { "int/**/a;", "int a;" },
        { "a / b /c/ d", "a / b /c/ d" },
        { "a;// to the end\n// and on\n\tb;", "a;\nb;" },
        { "a; /* no end", "a;" },
    };
    char code[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        code_of(code, cases[i].text);
        cr_expect_str_eq(code, cases[i].code, "of \"%s\"", cases[i].text);
    }
}

Test(code, all_of_a_literal_counts)
{
    static const char *const texts[] = {
        "asm(\"ld.b32 %0,  [%1]; // kept\" : x)", "f(\"/* kept */\")",       "f('\"', \"a  b\")",
        "f(\"a\\\"  /* kept */\")",             "f('\\\\', \"// kept\")", "f(\"never  ends",
    };
    char code[128];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
        code_of(code, texts[i]);
        cr_expect_str_eq(code, texts[i]);
    }
}

/* Its own file and every one that it includes, with their ends. */
Test(code, of_a_kernel_is_all_of_its_files)
{
    for (int kernel = 0; kernel < GDNI_NUM_KERNELS; ++kernel) {
        const struct gdni_kernel_info *info = gdni_kernel_info((enum gdni_kernel)kernel);
        char main_name[64], hash[GDNI_CODE_HEX], expected[GDNI_CODE_HEX];
        size_t len = 0;
        snprintf(main_name, sizeof main_name, "%s.cu", info->name);
        const struct gdni_template *file = gdni_template_find(main_name);
        for (const char *const *next = info->headers; file; file = *next ? gdni_template_find(*next++) : NULL) {
            cr_assert_lt(len + file->len, sizeof bytes, "%s", info->name);
            len += code_of(bytes + len, file->text);
        }
        snprintf(expected, sizeof expected, "%016llx", (unsigned long long)XXH3_64bits(bytes, len));
        gdni_kernel_code_hash(hash, (enum gdni_kernel)kernel);
        cr_expect_str_eq(hash, expected, "%s", info->name);
    }
}

Test(code, of_a_measurement_is_that_of_the_kernel_or_not)
{
    for (int kernel = 0; kernel < GDNI_NUM_KERNELS; ++kernel) {
        char hash[GDNI_CODE_HEX + 1] = { 0 };
        gdni_kernel_code_hash(hash, (enum gdni_kernel)kernel);
        for (int again = 0; again < 2; ++again) /* worked out, and known */
            cr_expect(gdni_kernel_code_is((enum gdni_kernel)kernel, hash), "%s", hash);
        for (int i = 0; i < GDNI_CODE_HEX - 1; ++i) {
            const char digit = hash[i];
            hash[i] = digit == '0' ? '1' : '0';
            cr_expect_not(gdni_kernel_code_is((enum gdni_kernel)kernel, hash), "%s", hash);
            hash[i] = '\0';
            cr_expect_not(gdni_kernel_code_is((enum gdni_kernel)kernel, hash), "%d digits", i);
            hash[i] = digit;
        }
        hash[GDNI_CODE_HEX - 1] = '0';
        cr_expect_not(gdni_kernel_code_is((enum gdni_kernel)kernel, hash), "%s", hash);
    }
}
