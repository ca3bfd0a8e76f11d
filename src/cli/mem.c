/*
 * mem.c - owns the tool's calls of malloc. A short-lived process has nothing better to do without
 * memory than to say so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

void cli_out_of_memory(void)
{
    fputs("gdn-jit-cache: out of memory\n", stderr);
    exit(CLI_FAILED);
}

static void *checked(void *p)
{
    if (!p) cli_out_of_memory();
    return p;
}

void *cli_alloc(size_t size)
{
    return checked(calloc(1, size ? size : 1));
}

void *cli_realloc(void *p, size_t size)
{
    return checked(realloc(p, size ? size : 1));
}

char *cli_strdup(const char *s)
{
    return checked(strdup(s));
}

void cli_free(void *p)
{
    free(p);
}
