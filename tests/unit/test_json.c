/*
 * test_json.c - JSON of a stranger is taken only when it is JSON, and only the members that a table names.
 */
#include <criterion/criterion.h>

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "support/rng.h"

static gdn_status parse_bytes(const char *bytes, size_t len)
{
    gdni_json *root = NULL;
    char *copy = malloc(len ? len : 1); /* exactly as long: AddressSanitizer sees a read past the end */
    memcpy(copy, bytes, len);
    const gdn_status status = gdni_json_parse("f.json", copy, len, &root);
    cr_assert_eq(status == GDN_OK, root != NULL);
    free(copy);
    gdni_json_free(root);
    return status;
}

static void expect_refused(const char *text, const char *words)
{
    cr_assert_eq(parse_bytes(text, strlen(text)), GDN_E_INVALID, "taken: %s", text);
    cr_assert(strstr(gdn_last_error(), "f.json") && strstr(gdn_last_error(), words), "%s: '%s' is not in '%s'", text, words,
              gdn_last_error());
}

Test(json, takes_json)
{
    static const char *const good[] = { "{}", "[]", " [1, -2, true, null, \"a\\n\\u00e9\\\\\"]\n",
                                        "{\"a\": {\"b\": [\"\xc3\xa9\"]}}",
                                        "\"\xf0\x9f\x98\x80\"", "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i)
        cr_assert_eq(parse_bytes(good[i], strlen(good[i])), GDN_OK, "%s: %s", good[i], gdn_last_error());
}

/* cJSON's memory, of which so many pieces can be had. As hooks of an embedder may, it does not set errno. */
static int pieces;

static void *some_memory(size_t size)
{
    return pieces-- > 0 ? malloc(size) : NULL;
}

/* Whoever hears "not valid JSON" looks for a fault in a file that has none. */
Test(json, memory_that_there_is_not_is_no_fault_of_the_text)
{
    static const char text[] = "{\"a\": [1, \"b\"]}";
    gdn_status status = GDN_E_NOMEM;
    cJSON_InitHooks(&(cJSON_Hooks){ some_memory, free });
    int failed = 0;
    while (failed < 100 && (pieces = failed, status = parse_bytes(text, strlen(text))) != GDN_OK) {
        cr_assert_eq(status, GDN_E_NOMEM, "after %d: %s", failed, gdn_last_error());
        cr_assert(strstr(gdn_last_error(), "out of memory: reading f.json of 15 bytes"), "%s", gdn_last_error());
        const char *at = cJSON_GetErrorPtr(); /* the process's: not into what was freed */
        cr_assert(!at || strcmp(at, "0") == 0, "after %d", failed);
        ++failed;
    }
    cr_expect(status == GDN_OK && failed >= 6, "%d: four values, a name and a text at least", failed);
    pieces = 100;
    errno = ENOMEM; /* of another call */
    expect_refused("[1, 2", "not valid JSON");
    cJSON_InitHooks(NULL);
}

/* Of his own text that was no JSON; ours that is none is nothing to him. */
Test(json, leaves_the_error_of_who_else_parses_alone)
{
    static const char his[] = "{\"a\": oops}";
    cr_assert_null(cJSON_Parse(his));
    const char *at = cJSON_GetErrorPtr();
    cr_assert(at >= his && at < his + sizeof his);
    expect_refused("{\"schema\": 1, oops}", "not valid JSON near \"oops}\"");
    cr_expect_eq(cJSON_GetErrorPtr(), at);
}

/* What is refused behind the scan is told as memory that there was not. */
Test(json, cjson_takes_what_is_taken_for_json)
{
    static const char text[] = "{\"a\": [1, -20.5e+3, true, null], \"b\\n\\u00e9\\ud83d\\ude00\": "
                               "{\"c\": \"\xc3\xa9\"}, \"\": []}";
    static const char bytes[] = "{}[]\",:\\ud8/0123456789.-+eE ntrfl\n\t\xc3\xa9";
    struct rng rng;
    int taken = 0;
    rng_seed(&rng, 1);
    for (int i = 0; i < 200000; ++i) {
        char made[sizeof text];
        size_t len = sizeof text - 1;
        memcpy(made, text, sizeof text);
        for (int changes = rng_below(&rng, 4); changes >= 0; --changes) {
            const size_t at = (size_t)rng_below(&rng, (int)len);
            if (rng_below(&rng, 2))
                made[at] = bytes[rng_below(&rng, (int)sizeof bytes - 1)];
            else
                memmove(made + at, made + at + 1, len-- - at);
        }
        const gdn_status status = parse_bytes(made, len);
        taken += status == GDN_OK;
        cr_assert(status == GDN_OK || status == GDN_E_INVALID, "%s: %.*s", gdn_last_error(), (int)len, made);
    }
    cr_expect_gt(taken, 1000, "%d", taken);
}

Test(json, refuses_what_is_not_json_and_names_the_line)
{
    expect_refused("", "line 1");
    expect_refused("{\"a\": 1}\n x", "line 2");
    expect_refused("{} {}", "not valid JSON");
    expect_refused("{\"a\": 1,\n\n}", "line 3");
    expect_refused("{'a': 1}", "not valid JSON");
    expect_refused("[1, 2", "not valid JSON");
    expect_refused("\"open", "not valid JSON");
    expect_refused("\"open\\", "not valid JSON");
    expect_refused("[0x10]", "not valid JSON");
    expect_refused("[nan]", "not valid JSON");
    static const char *const bad[] = { "[1,]", "[,1]", "[1 2]", "{,}", "{\"a\"}", "{\"a\" 1}", "{\"a\":}", "{\"a\":1,}",
                                       "{1: 2}", "[}", "{]", "]", "tru", "[truefalse]", "nul", "\"a\"b", "{\"a\":1" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) expect_refused(bad[i], "line 1: not valid JSON near");
}

Test(json, takes_the_escapes_of_json_and_no_other)
{
    static const char *const good[] = { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\u0001\\uABcd\\uffff\"", "\"\\ud800\\udc00\"",
                                        "\"\\uDBFF\\uDFFF\"" };
    static const char *const bad[] = { "\"\\x41\"", "\"\\'\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\uZZZZ\"", "\"\\udc00\"",
                                       "\"\\ud800\"", "\"\\ud800x\"", "\"\\ud800\\n\"", "\"\\ud800\\u0041\"",
                                       "\"\\u\x10\x11\x12\x13\"" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i)
        cr_expect_eq(parse_bytes(good[i], strlen(good[i])), GDN_OK, "%s: %s", good[i], gdn_last_error());
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) expect_refused(bad[i], "not valid JSON near \"\\");
}

Test(json, takes_every_number_of_json_and_no_other)
{
    static const char *const good[] = { "0", "-0", "7", "[10,-120]", "0.5", "-0.05", "1e5", "1E+05", "0e0", "12.50e-003" };
    static const char *const bad[] = { "05", "-05", "00", "[1, 007]", "5.", "0132.", "-.5", "-", "1.e5", "1e", "1e+" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i)
        cr_expect_eq(parse_bytes(good[i], strlen(good[i])), GDN_OK, "%s: %s", good[i], gdn_last_error());
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) expect_refused(bad[i], "a number that is not valid JSON");
    expect_refused("{\n\"a\": 01}", "line 2");
    char digits[66];
    memset(digits, '7', sizeof digits);
    cr_expect_eq(parse_bytes(digits, 63), GDN_OK, "%s", gdn_last_error());
    digits[64] = '\0';
    expect_refused(digits, "a number of more than 63 characters");
    expect_refused("[1.5.5]", "not valid JSON");
    expect_refused("[1-5]", "not valid JSON");
}

Test(json, refuses_what_cjson_lets_through)
{
    expect_refused("\"a\\u0000b\"", "\\u0000");
    expect_refused("\n\"a\nb\"", "line 2: a control character");
    expect_refused("\"a\x7f\"", "control character");
    expect_refused("{\x01}", "no JSON");
    expect_refused("\xef\xbb\xbf{}", "no JSON");
    cr_assert_eq(parse_bytes("{}\0", 3), GDN_E_INVALID);
    cr_assert_eq(parse_bytes("\"a\0b\"", 5), GDN_E_INVALID);
    expect_refused("[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]", "16 levels");
}

Test(json, refuses_every_malformed_utf8)
{
    static const char *const bad[] = { "\"\x80\"", "\"\xc0\xaf\"", "\"\xc3\"", "\"\xe0\x80\x80\"", "\"\xed\xa0\x80\"",
                                       "\"\xf4\x90\x80\x80\"", "\"\xf0\x9f\x98\"", "\"\xff\"", "\"\xc3", "\"\\\xc3\"" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) expect_refused(bad[i], "UTF-8");
}

Test(json, refuses_more_than_it_reads)
{
    char *text = malloc(GDNI_JSON_MAX_BYTES + 1);
    memset(text, ' ', GDNI_JSON_MAX_BYTES + 1);
    memcpy(text, "[]", 2);
    cr_assert_eq(parse_bytes(text, GDNI_JSON_MAX_BYTES), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(parse_bytes(text, GDNI_JSON_MAX_BYTES + 1), GDN_E_INVALID);
    cr_assert(strstr(gdn_last_error(), "8388609 bytes"), "%s", gdn_last_error());
    free(text);
}

Test(json, reads_back_every_text_that_strbuf_writes)
{
    char text[128];
    for (int c = 1; c < 128; ++c) text[c - 1] = (char)c;
    text[127] = '\0';
    struct gdni_strbuf sb = { 0 };
    gdni_sb_str(&sb, "{\"n\": 1");
    gdni_sb_json_text(&sb, "text", text);
    gdni_sb_json_int(&sb, "least", INT64_C(-9007199254740992));
    gdni_sb_str(&sb, "}");
    gdni_json *root;
    const char *back = NULL;
    int64_t n = 0, least = 0;
    const struct gdni_json_field fields[] = {
        { "n", GDNI_JSON_INT, true, &n, 1, 1, NULL },
        { "text", GDNI_JSON_STRING, true, &back, 0, 0, NULL },
        { "least", GDNI_JSON_INT, true, &least, INT64_MIN, 0, NULL },
    };
    cr_assert_eq(gdni_json_parse("f.json", sb.text, sb.len, &root), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdni_json_object("f.json", root, fields, 3), GDN_OK, "%s", gdn_last_error());
    cr_assert_str_eq(back, text);
    cr_assert_eq(least, INT64_C(-9007199254740992));
    gdni_json_free(root);
    gdni_sb_free(&sb);
}

/* ---- members ---- */

enum { COLD = 3, WARM = 4 };
static const struct gdni_json_word words[] = { { "cold", COLD }, { "warm", WARM }, { NULL, 0 } };

struct record {
    int64_t n;
    bool flag;
    const char *text;
    int word;
    const gdni_json *object, *array;
};

static gdn_status read_record(const char *text, struct record *out, gdni_json **root)
{
    *out = (struct record){ .n = -1, .word = -1 };
    const struct gdni_json_field fields[] = {
        { "n", GDNI_JSON_INT, true, &out->n, 0, 100, NULL },
        { "flag", GDNI_JSON_BOOL, false, &out->flag, 0, 0, NULL },
        { "text", GDNI_JSON_STRING, false, &out->text, 0, 0, NULL },
        { "word", GDNI_JSON_WORD, false, &out->word, 0, 0, words },
        { "object", GDNI_JSON_OBJECT, false, &out->object, 0, 0, NULL },
        { "array", GDNI_JSON_ARRAY, false, &out->array, 0, 0, NULL },
    };
    const gdn_status status = gdni_json_parse("f.json", text, strlen(text), root);
    return status != GDN_OK ? status : gdni_json_object("f.json", *root, fields, sizeof fields / sizeof fields[0]);
}

Test(json, gives_every_member_by_its_type)
{
    struct record r;
    gdni_json *root;
    static const char text[] = "{\"word\": \"warm\", \"n\": 100, \"flag\": true, \"text\": \"t\", \"object\": {\"n\": 1}, "
                               "\"array\": [7, 8]}";
    cr_assert_eq(read_record(text, &r, &root), GDN_OK, "%s", gdn_last_error());
    cr_assert(r.n == 100 && r.flag && r.word == WARM && r.object);
    cr_assert_str_eq(r.text, "t");
    int64_t item = 0, sum = 0;
    const struct gdni_json_field field = { "array", GDNI_JSON_INT, true, &item, 0, 10, NULL };
    for (const gdni_json *i = gdni_json_first(r.array); i; i = gdni_json_next(i)) {
        cr_assert_eq(gdni_json_value("f.json", i, &field), GDN_OK);
        sum = sum * 10 + item;
    }
    cr_assert_eq(sum, 78);
    cr_assert_null(gdni_json_first(r.object), "an object is no array");
    gdni_json_free(root);
}

Test(json, an_absent_member_keeps_its_default)
{
    struct record r;
    gdni_json *root;
    cr_assert_eq(read_record("{\"n\": 0}", &r, &root), GDN_OK);
    cr_assert(r.n == 0 && r.word == -1 && !r.text && !r.array);
    gdni_json_free(root);
}

Test(json, refuses_members_that_do_not_fit_the_table)
{
    static const struct {
        const char *text, *words;
    } bad[] = {
        { "[]", "must be an object" },
        { "{}", "\"n\" is missing" },
        { "{\"n\": 1, \"m\": 2}", "\"m\" is no member here: use n, flag, text, word, object, array" },
        { "{\"n\": 1, \"N\": 2}", "\"N\" is no member" },
        { "{\"n\": 1, \"n\": 1}", "\"n\" is given twice" },
        { "{\"n\": 1, \"flag\": true, \"flag\": 1}", "\"flag\" is given twice" },
        { "{\"n\": \"1\"}", "\"n\" is \"1\": must be an integer" },
        { "{\"n\": 1.5}", "\"n\" is 1.5: must be an integer" },
        { "{\"n\": 1e999}", "\"n\" is inf: must be an integer" },
        { "{\"n\": 9007199254740993000}", "\"n\" is 9.007199254740993e+18: must be an integer" },
        { "{\"n\": 9007199254740994}", "\"n\" is 9007199254740994: must be an integer" }, /* 2^53 + 2 */
        { "{\"n\": 101}", "\"n\" is 101: must be from 0 to 100" },
        { "{\"n\": -1}", "\"n\" is -1: must be from 0 to 100" },
        { "{\"n\": true}", "\"n\" is true: must be an integer" },
        { "{\"n\": 1, \"flag\": 1}", "\"flag\" is 1: must be true or false" },
        { "{\"n\": 1, \"text\": null}", "\"text\" is null: must be a string" },
        { "{\"n\": 1, \"word\": \"hot\"}", "\"word\" is \"hot\": must be cold or warm" },
        { "{\"n\": 1, \"word\": 3}", "\"word\" is 3: must be cold or warm" },
        { "{\"n\": 1, \"object\": []}", "\"object\" is an array: must be an object" },
        { "{\"n\": 1, \"array\": {}}", "\"array\" is an object: must be an array" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        struct record r;
        gdni_json *root = NULL;
        cr_assert_eq(read_record(bad[i].text, &r, &root), GDN_E_INVALID, "taken: %s", bad[i].text);
        cr_assert(strstr(gdn_last_error(), bad[i].words), "%s: %s", bad[i].text, gdn_last_error());
        gdni_json_free(root);
    }
}
