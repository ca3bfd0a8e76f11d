/*
 * resources.c - see resources.h. Reads the library's own JSON dump, whose form it knows: one object a variant, integers plain.
 */
#include "demo_layer/resources.h"

#include <string.h>

#include "cuda_mini.h"

struct text {
    char *chars; /* NUL-terminated */
    size_t len;
};

static gdn_status append(void *user, const void *data, size_t size)
{
    struct text *t = user;
    char *grown = realloc(t->chars, t->len + size + 1);
    if (!grown) return GDN_E_NOMEM;
    memcpy(grown + t->len, data, size);
    t->chars = grown;
    t->len += size;
    t->chars[t->len] = '\0';
    return GDN_OK;
}

/* Start of the value of "name" after `at`; "" when there is none. */
static const char *value_of(const char *at, const char *name)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", name);
    const char *found = strstr(at, quoted);
    return found ? found + strlen(quoted) : "";
}

/* Behind the brace of an object. */
static const char *members_of(const char *at, const char *name)
{
    const char *value = value_of(at, name);
    return *value == '{' ? value + 1 : value;
}

static int int_of(const char *at, const char *name)
{
    return atoi(value_of(at, name));
}

/* A string's characters, at most `max` of them: for %.*s. */
struct span {
    int len;
    const char *chars;
};

static struct span span_of(const char *at, const char *name, int max)
{
    const char *value = value_of(at, name);
    const int len = *value == '"' ? (int)strcspn(value + 1, "\"") : 0;
    return (struct span){ len < max ? len : max, len ? value + 1 : "" };
}

void resources_header(void)
{
    printf("  %-8s %-3s %-20s %9s %12s %7s %6s %9s  %8s  %-8s  %s\n", "arch", "TP", "kernel", "registers",
           "shared bytes", "spills", "local", "found", "compiled", "key", "parameters");
}

static int print_variant(const char *at, int tp)
{
    const struct span arch = span_of(at, "arch", 16), kernel = span_of(at, "kernel", 24);
    const struct span origin = span_of(at, "origin", 12), key = span_of(at, "key", 8);
    const char *params = members_of(at, "params");
    const int spills = int_of(at, "spill_bytes"), local = int_of(at, "local_bytes");
    printf("  %-8.*s %-3d %-20.*s %9d %12d %7d %6d %9.*s  %5d ms  %-8.*s  %.*s\n", arch.len, arch.chars, tp, kernel.len,
           kernel.chars, int_of(at, "registers"), int_of(at, "static_smem") + int_of(at, "dynamic_smem"), spills, local,
           origin.len, origin.chars, int_of(at, "compile_ms"), key.len, key.chars, (int)strcspn(params, "}"), params);
    return spills != 0 || local != 0;
}

static int print_variants(const gdn_plan *plan, int tp)
{
    static const char variant[] = "{\"kernel\": ";
    struct text json = { NULL, 0 };
    int bad = 0;
    GDN(gdn_plan_dump(plan, GDN_DUMP_JSON, append, &json));
    for (const char *at = json.chars ? strstr(json.chars, variant) : NULL; at; at = strstr(at + 1, variant))
        bad += print_variant(at, tp);
    free(json.chars);
    return bad;
}

static int fail(const char *what)
{
    printf("  %s not planned: %s\n", what, gdn_last_error());
    return -1;
}

int resources_print(gdn_ctx *ctx, const gdn_target *target, const struct layer *l)
{
    const gdn_conv1d_desc conv = layer_conv_desc(l);
    const gdn_prefill_desc gdn = layer_gdn_desc(l);
    gdn_plan *plan;
    if (gdn_plan_conv1d_qkv(ctx, target, &conv, 0, &plan) != GDN_OK) return fail("conv1d-QKV");
    int bad = print_variants(plan, l->tp);
    gdn_plan_destroy(plan);
    if (gdn_plan_prefill(ctx, target, &gdn, 0, &plan) != GDN_OK) return fail("GDN prefill");
    bad += print_variants(plan, l->tp);
    gdn_plan_destroy(plan);
    return bad;
}
