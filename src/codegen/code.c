/*
 * code.c - owns which characters of a kernel's text are code, so that a comment that is put right makes no measurement old.
 * Must not know: measurements.
 */
#include "codegen/code.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/unit.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* Past one blank or one comment; at itself where neither begins. */
static const char *past_blank(const char *at)
{
    if (is_blank(*at)) return at + 1;
    if (at[0] == '/' && at[1] == '/') return at + strcspn(at, "\n");
    if (at[0] != '/' || at[1] != '*') return at;
    const char *end = strstr(at + 2, "*/");
    return end ? end + 2 : at + strlen(at);
}

static char next_of_literal(struct gdni_code *code)
{
    const char c = *code->at;
    if (c == '\0') return c;
    ++code->at;
    if (code->escaped)
        code->escaped = false;
    else if (c == '\\')
        code->escaped = true;
    else if (c == code->quote)
        code->quote = 0;
    return c;
}

char gdni_code_next(struct gdni_code *code)
{
    if (code->quote) return next_of_literal(code);
    char blank = 0;
    for (const char *next; (next = past_blank(code->at)) != code->at; code->at = next)
        blank = *code->at == '\n' || blank == '\n' ? '\n' : ' ';
    if (*code->at == '\0') return '\0';
    if (blank && code->begun) return blank;
    code->begun = true;
    const char c = *code->at++;
    if (c == '"' || c == '\'') code->quote = c;
    return c;
}

/* With an end, so that what moves from one file to the next counts. */
static void hash_code(XXH3_state_t *state, const struct gdni_template *t)
{
    char buffer[512];
    size_t used = 0;
    struct gdni_code code = { .at = t->text };
    do {
        buffer[used] = gdni_code_next(&code);
        if (++used < sizeof buffer && buffer[used - 1] != '\0') continue;
        XXH3_64bits_update(state, buffer, used);
        if (buffer[used - 1] == '\0') return;
        used = 0;
    } while (true);
}

void gdni_kernel_code_hash(char out[GDNI_CODE_HEX], enum gdni_kernel kernel)
{
    const struct gdni_kernel_info *info = gdni_kernel_info(kernel);
    char main_name[64];
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    snprintf(main_name, sizeof main_name, "%s.cu", info->name);
    const struct gdni_template *file = gdni_template_find(main_name);
    for (const char *const *next = info->headers; file; file = *next ? gdni_template_find(*next++) : NULL)
        hash_code(&state, file);
    snprintf(out, GDNI_CODE_HEX, "%016llx", (unsigned long long)XXH3_64bits_digest(&state));
}
