/*
 * unit.h - one translation unit: the virtual files that NVRTC is given for a spec, in a fixed order.
 */
#ifndef GDNI_UNIT_H
#define GDNI_UNIT_H

#include "base/strbuf.h"
#include "codegen/spec.h"

/* Embedded by cmake/EmbedFiles.cmake from templates/: file name without its folder, text, length. */
struct gdni_template {
    const char *name, *text;
    size_t len;
};
extern const struct gdni_template gdni_templates[];
extern const size_t gdni_num_templates;
const struct gdni_template *gdni_template_find(const char *name);

enum { GDNI_UNIT_MAX_FILES = 44 };

struct gdni_unit_file {
    const char *name; /* as an #include names it */
    const char *text;
    char *owned; /* text, when it was generated */
};

struct gdni_unit {
    struct gdni_spec spec;
    const char *entry;                 /* extern "C" kernel */
    const char *main_name, *main_text; /* the program: includes the rest */
    int num_files;
    struct gdni_unit_file files[GDNI_UNIT_MAX_FILES];
};

/* GDN_E_NOMEM, or a sentence about a table that names what it lacks (a bug that tests find). */
gdn_status gdni_unit_build(struct gdni_unit *out, const struct gdni_spec *spec);
void gdni_unit_free(struct gdni_unit *unit);

/* The generated files. */
void gdni_emit_spec(struct gdni_strbuf *sb, const struct gdni_spec *spec);
void gdni_emit_params(struct gdni_strbuf *sb, const struct gdni_spec *spec);
gdn_status gdni_emit_ptx(struct gdni_strbuf *sb, const struct gdni_spec *spec);

#endif
