/*
 * unit.c - owns what a translation unit consists of: generated headers, the kernel's template, the headers that it includes.
 * Must not know: NVRTC, files on disk.
 */
#include "codegen/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

const struct gdni_template *gdni_template_find(const char *name)
{
    for (size_t i = 0; i < gdni_num_templates; ++i)
        if (strcmp(gdni_templates[i].name, name) == 0) return &gdni_templates[i];
    return NULL;
}

static gdn_status add_file(struct gdni_unit *unit, const char *name, const char *text, char *owned)
{
    if (unit->num_files == GDNI_UNIT_MAX_FILES) {
        gdni_free(owned);
        return GDN_FAIL(GDN_E_INVALID, "unit %s has more than %d files", unit->entry, GDNI_UNIT_MAX_FILES);
    }
    unit->files[unit->num_files++] = (struct gdni_unit_file){ name, text, owned };
    return GDN_OK;
}

static gdn_status add_generated(struct gdni_unit *unit, const char *name, struct gdni_strbuf *sb)
{
    char *text = gdni_sb_take(sb);
    if (!text) return GDN_FAIL(GDN_E_NOMEM, "out of memory while generating %s", name);
    return add_file(unit, name, text, text);
}

static gdn_status add_template(struct gdni_unit *unit, const char *name)
{
    const struct gdni_template *t = gdni_template_find(name);
    if (!t) return GDN_FAIL(GDN_E_INVALID, "kernel %s includes %s, which is not embedded", unit->entry, name);
    return add_file(unit, t->name, t->text, NULL);
}

static gdn_status add_all_generated(struct gdni_unit *unit)
{
    struct gdni_strbuf sb = { 0 };
    gdni_emit_spec(&sb, &unit->spec);
    GDN_TRY(add_generated(unit, "gdn_spec.cuh", &sb));
    gdni_emit_params(&sb, &unit->spec);
    GDN_TRY(add_generated(unit, "gdn_params.cuh", &sb));
    const gdn_status status = gdni_emit_ptx(&sb, &unit->spec);
    if (status != GDN_OK) {
        gdni_sb_free(&sb);
        return status;
    }
    return add_generated(unit, "gdn_ptx.cuh", &sb);
}

static gdn_status add_all(struct gdni_unit *unit)
{
    const struct gdni_kernel_info *kernel = gdni_kernel_info((enum gdni_kernel)unit->spec.kernel);
    GDN_TRY(add_all_generated(unit));
    for (const char *const *name = kernel->headers; *name; ++name)
        GDN_TRY(add_template(unit, *name));
    char main_name[64];
    snprintf(main_name, sizeof main_name, "%s.cu", kernel->name);
    const struct gdni_template *t = gdni_template_find(main_name);
    if (!t) return GDN_FAIL(GDN_E_INVALID, "kernel %s has no embedded template %s", kernel->name, main_name);
    unit->main_name = t->name;
    unit->main_text = t->text;
    return GDN_OK;
}

gdn_status gdni_unit_build(struct gdni_unit *out, const struct gdni_spec *spec)
{
    memset(out, 0, sizeof *out);
    out->spec = *spec;
    out->entry = gdni_kernel_info((enum gdni_kernel)spec->kernel)->name;
    const gdn_status status = add_all(out);
    if (status != GDN_OK) gdni_unit_free(out);
    return status;
}

void gdni_unit_free(struct gdni_unit *unit)
{
    for (int i = 0; i < unit->num_files; ++i)
        gdni_free(unit->files[i].owned);
    memset(unit, 0, sizeof *unit);
}
