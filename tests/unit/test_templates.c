/*
 * test_templates.c - what cmake/EmbedFiles.cmake made is what lies in templates/: every file, every byte, sorted, findable.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "codegen/unit.h"

enum { FILE_MAX_BYTES = 1 << 20 };
static char bytes[FILE_MAX_BYTES];

static int is_template(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && (strcmp(dot, ".cu") == 0 || strcmp(dot, ".cuh") == 0);
}

/* Compares the folder's templates with the embedded ones; their number. */
static size_t check_folder(const char *folder)
{
    struct dirent **entries;
    const int count = scandir(folder, &entries, is_template, alphasort);
    cr_assert(count > 0, "no template in %s", folder);
    for (int i = 0; i < count; ++i) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        FILE *file = fopen(path, "rb");
        cr_assert(file, "cannot open %s", path);
        const size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);

        const struct gdni_template *embedded = gdni_template_find(entries[i]->d_name);
        cr_assert(embedded, "%s is not embedded", path);
        cr_expect_eq(embedded->len, size, "%s has %zu bytes, %zu are embedded", path, size, embedded->len);
        cr_expect(embedded->len == size && memcmp(embedded->text, bytes, size) == 0, "%s differs from what is embedded", path);
        cr_expect_eq(strlen(embedded->text), size, "%s: NVRTC would stop at byte %zu of %zu", path, strlen(embedded->text),
                     size);
        free(entries[i]);
    }
    free(entries);
    return (size_t)count;
}

Test(templates, are_the_files_of_the_tree_byte_for_byte)
{
    const size_t files = check_folder(GDN_SOURCE_DIR "/templates") + check_folder(GDN_SOURCE_DIR "/templates/include");
    cr_expect_eq(gdni_num_templates, files, "%zu templates are embedded, the tree has %zu", gdni_num_templates, files);
}

Test(templates, are_sorted_by_name_so_that_the_build_is_reproducible)
{
    for (size_t i = 1; i < gdni_num_templates; ++i)
        cr_expect(strcmp(gdni_templates[i - 1].name, gdni_templates[i].name) < 0, "%s stands before %s",
                  gdni_templates[i - 1].name, gdni_templates[i].name);
    cr_expect_null(gdni_templates[gdni_num_templates].name, "the list ends at a NULL name");
}

Test(templates, a_name_that_is_none_is_not_found)
{
    cr_expect_null(gdni_template_find("gdn_types"));
    cr_expect_null(gdni_template_find(""));
}
