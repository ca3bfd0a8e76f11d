/*
 * test_cli_json.c - what the tool's JSON reader lets through and what it refuses, with which sentence.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "cli/json.h"

static const struct gdni_json_word colours[] = { { "red", 1 }, { "blue", 2 }, { NULL, 0 } };

struct values {
    int64_t count;
    bool flag;
    const char *name;
    int colour;
    const cJSON *list, *inner;
};

static int read_values(const char *text, size_t len, struct values *v)
{
    const struct gdni_json_field fields[] = {
        { "count", GDNI_JSON_INT, true, &v->count, -5, 100, NULL },
        { "flag", GDNI_JSON_BOOL, false, &v->flag, 0, 0, NULL },
        { "name", GDNI_JSON_STRING, false, &v->name, 0, 0, NULL },
        { "colour", GDNI_JSON_WORD, false, &v->colour, 0, 0, colours },
        { "list", GDNI_JSON_ARRAY, false, &v->list, 0, 0, NULL },
        { "inner", GDNI_JSON_OBJECT, false, &v->inner, 0, 0, NULL },
    };
    cJSON *root = NULL;
    int code = cli_json_parse("a.json", text, len, &root);
    if (code == CLI_OK) code = cli_json_object("a.json", root, fields, sizeof fields / sizeof fields[0]);
    cJSON_Delete(root);
    return code;
}

static void *no_memory(size_t size)
{
    (void)size;
    errno = ENOMEM;
    return NULL;
}

/* As wherever it has none: it ends, and says nothing of the text. */
Test(cli_json, without_memory_the_tool_ends, .exit_code = CLI_FAILED)
{
    cJSON *root = NULL;
    cJSON_InitHooks(&(cJSON_Hooks){ no_memory, NULL });
    cli_json_parse("a.json", "{}", 2, &root);
}

Test(cli_json, members_reach_their_places)
{
    struct values v = { 0 };
    const char *text = "{\"count\": 7, \"flag\": true, \"colour\": \"blue\", \"list\": [], \"inner\": {}}\n";
    cr_assert_eq(read_values(text, strlen(text), &v), CLI_OK, "%s", cli_error());
    cr_assert_eq(v.count, 7);
    cr_assert_eq(v.flag, true);
    cr_assert_eq(v.colour, 2);
    cr_assert_not_null(v.list);
    cr_assert_not_null(v.inner);
}

Test(cli_json, absent_members_keep_their_defaults)
{
    struct values v = { .flag = true, .colour = 1 };
    cr_assert_eq(read_values("{\"count\":-5}", 12, &v), CLI_OK, "%s", cli_error());
    cr_assert_eq(v.count, -5);
    cr_assert_eq(v.flag, true);
    cr_assert_eq(v.colour, 1);
}

Test(cli_json, bad_text_is_refused_with_its_reason)
{
    static const struct {
        const char *text, *words; /* words: what the sentence must hold */
    } rows[] = {
        { "", "line 1: not valid JSON" },
        { "{\"count\": 1\n,}", "line 2: not valid JSON" },
        { "{\"count\": 1} x", "not valid JSON" },
        { "{\"count\": 1}{}", "not valid JSON" },
        { "[1]", "must be an object" },
        { "{}", "\"count\" is missing" },
        { "{\"count\": 1, \"count\": 2}", "\"count\" is given twice" },
        { "{\"Count\": 1}", "\"Count\" is no member here: use count, flag, name, colour, list, inner" },
        { "{\"count\": 1, \"extra\": 2}", "\"extra\" is no member" },
        { "{\"count\": 101}", "\"count\" is 101: must be from -5 to 100" },
        { "{\"count\": -6}", "\"count\" is -6" },
        { "{\"count\": 1.5}", "\"count\" is 1.5: must be an integer" },
        { "{\"count\": 1e999}", "\"count\" is inf: must be an integer" },
        { "{\"count\": -1e999}", "\"count\" is -inf: must be an integer" },
        { "{\"count\": 1e17}", "\"count\" is 1e+17: must be an integer" },
        { "{\"count\": 4294967297}", "\"count\" is 4294967297" },
        { "{\"count\": \"1\"}", "\"count\" is \"1\": must be an integer" },
        { "{\"count\": null}", "\"count\" is null: must be an integer" },
        { "{\"count\": 1, \"flag\": 1}", "\"flag\" is 1: must be true or false" },
        { "{\"count\": 1, \"name\": 1}", "\"name\" is 1: must be a string" },
        { "{\"count\": 1, \"colour\": \"green\"}", "\"colour\" is \"green\": must be red or blue" },
        { "{\"count\": 1, \"colour\": 1}", "\"colour\" is 1: must be red or blue" },
        { "{\"count\": 1, \"list\": {}}", "\"list\" is an object: must be an array" },
        { "{\"count\": 1, \"inner\": []}", "\"inner\" is an array: must be an object" },
        { "{\"count\": 1, \"colour\": \"blue\\u0000green\"}", "line 1: \\u0000 is not taken: it would end the string" },
        { "{\"count\": 1,\n \"name\": \"a\033b\"}",
          "line 2: a control character in a string must be written as an escape" },
        { "{\"count\": 1, \"name\": \"\xc3\"}", "line 1: the text is not UTF-8" },
        { "{\"count\": 1}\f", "line 1: a byte that is no JSON" },
        { "[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", "line 1: nested deeper than 16 levels" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        struct values v = { 0 };
        const int code = read_values(rows[i].text, strlen(rows[i].text), &v);
        cr_expect_eq(code, CLI_USAGE, "%s: code %d", rows[i].text, code);
        cr_expect(strstr(cli_error(), rows[i].words), "%s: \"%s\" lacks \"%s\"", rows[i].text, cli_error(),
                  rows[i].words);
        cr_expect(strncmp(cli_error(), "a.json", 6) == 0, "%s: \"%s\" does not name the file", rows[i].text,
                  cli_error());
    }
}

Test(cli_json, a_nul_does_not_end_the_text)
{
    struct values v = { 0 };
    static const char text[] = "{\"count\": 1}\0{\"count\": 2}";
    cr_assert_eq(read_values(text, sizeof text - 1, &v), CLI_USAGE);
    cr_assert(strstr(cli_error(), "NUL"), "%s", cli_error());
}

Test(cli_json, deep_nesting_is_refused_and_not_followed)
{
    enum { DEPTH = 100000 };
    char *text = cli_alloc(DEPTH);
    memset(text, '[', DEPTH);
    cJSON *root = NULL;
    cr_assert_eq(cli_json_parse("deep", text, DEPTH, &root), CLI_USAGE);
    cli_free(text);
}

Test(cli_json, only_an_integer_is_a_number)
{
    static const struct {
        const char *text;
        int64_t number;
    } rows[] = {
        { "-7", -7 },   { "9007199254740992", INT64_C(9007199254740992) },
        { "1e300", 0 }, { "-1e999", 0 },
        { "1e17", 0 },  { "1.5", 0 },
        { "\"7\"", 0 }, { "true", 0 },
        { "null", 0 },  { "[7]", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        cJSON *root = cJSON_CreateObject();
        cJSON_AddItemToObject(root, "n", cJSON_Parse(rows[i].text));
        cr_expect_eq(cli_json_number(root, "n"), rows[i].number, "%s", rows[i].text);
        cr_expect_eq(cli_json_number(root, "m"), 0);
        cJSON_Delete(root);
    }
}
