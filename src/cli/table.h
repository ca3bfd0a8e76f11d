/*
 * table.h - a table on standard output, by libsmartcols.
 */
#ifndef GDN_CLI_TABLE_H
#define GDN_CLI_TABLE_H

#include "cli/cli.h"

struct cli_column {
    const char *title;
    bool right;
};

struct cli_table;
struct cli_table *cli_table_new(const struct cli_column *columns, size_t count);
/* One cell per column; copied. */
void cli_table_row(struct cli_table *table, const char *const *cells);
/* Prints and frees. */
void cli_table_print(struct cli_table *table);

#endif
