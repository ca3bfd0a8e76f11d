/*
 * fuzz_cli_lists.c - shape lists and recorded lists of gdn-jit-cache on any bytes: no crash, each is read or refused with a
 * sentence; and a shape that was read and that the library takes is read again, the same, as the library records it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "cli/record.h"
#include "codegen/problem.h"
#include "codegen/shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static gdn_status problem_of(struct gdni_problem *out, const struct cli_shape *shape)
{
    return shape->op == CLI_PREFILL ? gdni_problem_from_prefill(out, &shape->desc.prefill)
                                    : gdni_problem_from_conv1d(out, &shape->desc.conv1d);
}

static void check_again(const struct gdni_problem *problem, const struct cli_shape *shape)
{
    struct gdni_strbuf sb = { 0 };
    struct cli_shape again = { .op = shape->op };
    struct gdni_problem same;
    cJSON *root = NULL;
    gdni_shape_print(&sb, problem);
    if (!sb.failed) {
        require(cli_json_parse("again", sb.text, sb.len, &root) == CLI_OK);
        require(cli_shape_from_json(&again, "again", root) == CLI_OK);
        require(again.op == shape->op && problem_of(&same, &again) == GDN_OK);
        require(memcmp(&same, problem, sizeof same) == 0);
        cJSON_Delete(root);
    }
    gdni_sb_free(&sb);
}

static void check_shape(const struct cli_shape *shape)
{
    char text[CLI_SHAPE_TEXT];
    struct gdni_problem problem;
    require(strlen(cli_shape_text(text, shape)) < sizeof text);
    require(strlen(shape->label) < sizeof shape->label);
    if (problem_of(&problem, shape) == GDN_OK) check_again(&problem, shape);
}

static void check_result(int code, size_t count)
{
    require(code == CLI_OK ? count > 0 : code == CLI_USAGE && cli_error()[0]);
}

static void try_shapes(const char *text, size_t len)
{
    struct cli_shapes list = { 0 };
    cJSON *root = NULL;
    int code = cli_json_parse("fuzz", text, len, &root);
    if (code == CLI_OK) code = cli_shapes_from_json(&list, "fuzz", root);
    check_result(code, list.count);
    for (size_t i = 0; i < list.count; ++i)
        check_shape(&list.items[i]);
    cJSON_Delete(root);
    cli_shapes_free(&list);
}

static void try_records(const char *text, size_t len)
{
    struct cli_records list = { 0 };
    const int code = cli_records_parse(&list, "fuzz", text, len);
    check_result(code, list.count);
    for (size_t i = 0; i < list.count; ++i)
        check_shape(&list.items[i].shape);
    cli_records_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* readers of files put a NUL behind what they read */
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    try_shapes(text, size);
    try_records(text, size);
    free(text);
    return 0;
}
