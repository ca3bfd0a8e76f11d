/*
 * host_args.h - what the host's calls share: addresses in gdn_devptr members, and where each sequence lies.
 */
#ifndef GDNI_HOST_ARGS_H
#define GDNI_HOST_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

static inline void *gdni_host(gdn_devptr address)
{
    return (void *)(uintptr_t)address;
}

/*
 * Host tensors may lie at any address; the checks of codegen/problem.h want the device's alignment. They are given a
 * copy of the args whose addresses are rounded down: null stays null, anything else stays given.
 */
void gdni_align_for_check(gdn_devptr *const addresses[], size_t count);

/* Element `index` of an array of gdn_index_type at any address. */
int64_t gdni_load_index(int32_t type, gdn_devptr array, int64_t index);

struct gdni_seqlens {
    gdn_devptr cu; /* 0: uniform */
    int32_t type;  /* gdn_index_type */
    int64_t uniform_len;
};

/* Unlike the device, the host can afford to check: GDN_E_INVALID names the entry that breaks the contract. */
gdn_status gdni_seqlens_take(struct gdni_seqlens *out, gdn_devptr cu_seqlens, int32_t type, int64_t num_tokens,
                             int64_t num_seqs);

/* First row of sequence n; of n = num_seqs, the end of the last. */
int64_t gdni_seqlens_start(const struct gdni_seqlens *s, int64_t n);

#endif
