/*
 * make_tuning.c - writes a tuning file: on an H200, calls of conv1d-QKV of qwen3.5-27b at TP 1 up to 256 tokens are fastest
 * with tiles of 16.
 *
 *   make_tuning FILE
 */
#include <stdio.h>

#include "runtime/tuning_api.h"
#include "support/tuning_cases.h"

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    struct gdni_tuning_entry e = tuning_conv(0);
    e.key.num_q_heads = e.key.num_k_heads = 16;
    e.key.num_v_heads = 48;
    e.params.tile_tokens = 16;
    struct gdni_tuning_table table = tuning_table_of("NVIDIA H200", 132, &e, 1);
    const gdn_status status = gdni_tuning_write(&table, argv[1]);
    if (status != GDN_OK) fprintf(stderr, "%s\n", gdn_last_error());
    gdni_tuning_table_free(&table);
    return status != GDN_OK;
}
