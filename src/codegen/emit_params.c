/*
 * emit_params.c - kernel_params.h -> gdn_params.cuh: the device's launch-parameter struct, and asserts that its size and
 * every offset are the host's. A layout mismatch is a compile error, never a wrong launch.
 */
#include <stddef.h>

#include "codegen/kernel_params.h"
#include "codegen/unit.h"

struct field {
    const char *declaration, *name, *array;
    size_t offset;
};

#define FIELD(type, name, array) { type, #name, array, offsetof(STRUCT, name) },
#define IN(type, name)           FIELD("const " #type " *", name, "")
#define OUT(type, name)          FIELD(#type " *", name, "")
#define I64(name)                FIELD("long long ", name, "")
#define I32(name)                FIELD("int ", name, "")
#define F32(name)                FIELD("float ", name, "")
#define MAP(name)                FIELD("tensor_map ", name, "")
#define OUT_3(type, name)        FIELD(#type " *", name, "[3]")
#define I64_3(name)              FIELD("long long ", name, "[3]")
#define I32_3(name)              FIELD("int ", name, "[3]")

#define STRUCT struct gdni_prefill_params
static const struct field prefill_fields[] = { GDNI_PREFILL_PARAMS(IN, OUT, I64, I32, F32) };
#undef STRUCT
#define STRUCT struct gdni_prefill_hopper_params
static const struct field hopper_fields[] = { GDNI_PREFILL_HOPPER_PARAMS(IN, OUT, I64, I32, F32, MAP) };
#undef STRUCT
#define STRUCT struct gdni_conv1d_params
static const struct field conv1d_fields[] = { GDNI_CONV1D_PARAMS(IN, OUT, I64, I32, OUT_3, I64_3, I32_3) };
#undef STRUCT

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct layout {
    const char *name;
    const struct field *fields;
    size_t count, size;
} layouts[GDNI_NUM_KERNELS] = {
    [GDNI_KERNEL_PREFILL_GENERIC] = { "prefill_params", prefill_fields, COUNT(prefill_fields),
                                      sizeof(struct gdni_prefill_params) },
    [GDNI_KERNEL_PREFILL_SPLIT] = { "prefill_params", prefill_fields, COUNT(prefill_fields),
                                    sizeof(struct gdni_prefill_params) },
    [GDNI_KERNEL_PREFILL_HOPPER] = { "prefill_params", hopper_fields, COUNT(hopper_fields),
                                     sizeof(struct gdni_prefill_hopper_params) },
    [GDNI_KERNEL_PREFILL_HOPPER_SPLIT] = { "prefill_params", hopper_fields, COUNT(hopper_fields),
                                           sizeof(struct gdni_prefill_hopper_params) },
    [GDNI_KERNEL_CONV1D_QKV] = { "conv1d_params", conv1d_fields, COUNT(conv1d_fields),
                                 sizeof(struct gdni_conv1d_params) },
};

/* __INTADDR__ is the front end's constant form of an address: NVRTC has no offsetof. */
void gdni_emit_params(struct gdni_strbuf *sb, const struct gdni_spec *spec)
{
    const struct layout *l = &layouts[spec->kernel];
    gdni_sb_str(sb, "#pragma once\n\n");
    if (l->fields == hopper_fields)
        gdni_sb_str(sb, "struct alignas(64) tensor_map {\n    unsigned char bytes[128];\n};\n\n");
    gdni_sb_fmt(sb, "struct %s {\n", l->name);
    for (size_t i = 0; i < l->count; ++i)
        gdni_sb_fmt(sb, "    %s%s%s;\n", l->fields[i].declaration, l->fields[i].name, l->fields[i].array);
    gdni_sb_fmt(sb, "};\nstatic_assert(sizeof(%s) == %zu, \"host and device differ\");\n", l->name, l->size);
    for (size_t i = 0; i < l->count; ++i)
        gdni_sb_fmt(sb, "static_assert(__INTADDR__(&((%s *)0)->%s) == %zu, \"host and device differ\");\n", l->name,
                    l->fields[i].name, l->fields[i].offset);
}
