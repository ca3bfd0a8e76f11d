/*
 * table.c - owns libsmartcols. Must not know: what the cells mean.
 */
#include "cli/table.h"

#include <libsmartcols.h>
#include <stdio.h>

struct cli_table {
    struct libscols_table *table;
    size_t columns;
};

/* libsmartcols fails for want of memory only. */
static void check(int failed)
{
    if (failed) cli_out_of_memory();
}

struct cli_table *cli_table_new(const struct cli_column *columns, size_t count)
{
    struct cli_table *t = cli_alloc(sizeof *t);
    t->table = scols_new_table();
    t->columns = count;
    check(!t->table);
    for (size_t i = 0; i < count; ++i)
        check(!scols_table_new_column(t->table, columns[i].title, 0, columns[i].right ? SCOLS_FL_RIGHT : 0));
    return t;
}

void cli_table_row(struct cli_table *t, const char *const *cells)
{
    struct libscols_line *line = scols_table_new_line(t->table, NULL);
    check(!line);
    for (size_t i = 0; i < t->columns; ++i)
        check(scols_line_set_data(line, i, cells[i]));
}

void cli_table_print(struct cli_table *t)
{
    check(scols_print_table(t->table));
    scols_unref_table(t->table);
    cli_free(t);
}
