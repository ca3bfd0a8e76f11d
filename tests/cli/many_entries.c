/*
 * many_entries.c - fills a cache directory with good entries without compiling any.
 *
 *   many_entries DIR COUNT BYTES       BYTES: of each cubin, 64 or more
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cache.h"
#include "runtime/program.h"
#include "support/store.h"

static void publish(struct store_cache *store, int number, size_t bytes)
{
    char source[32];
    snprintf(source, sizeof source, "kernel %d", number);
    const struct gdni_unit unit = store_unit("sm_90a", source);
    struct gdni_key key = store_key(&unit);
    void *cubin = store_cubin("sm_90a", bytes, (unsigned)number);
    const struct gdni_entry entry = store_entry("sm_90a", &key, cubin, bytes);
    struct gdni_program *program = gdni_program_create(&entry);
    if (!program) exit(1);
    gdni_cache_publish(store->cache, program, "0badc0de", false);
    gdni_program_release(program);
    free(cubin);
    gdni_key_free(&key);
}

int main(int argc, char **argv)
{
    static struct store_cache store;
    if (argc != 4) return 2;
    store_cache_open(&store, argv[1], NULL, UINT64_MAX);
    for (int i = 0; i < atoi(argv[2]); ++i)
        publish(&store, i, (size_t)atoi(argv[3]));
    const int code = atomic_load(&store.counters.publish_failures) != 0;
    store_cache_close(&store);
    return code;
}
