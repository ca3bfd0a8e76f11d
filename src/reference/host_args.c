/*
 * host_args.c - owns the reading of what host calls share: addresses, cu_seqlens. Must not know: operators.
 */
#include "reference/host_args.h"

#include <string.h>

#include "base/error.h"

enum { DEVICE_ALIGNMENT = 16 };

void gdni_align_for_check(gdn_devptr *const addresses[], size_t count)
{
    for (size_t i = 0; i < count; ++i)
        if (*addresses[i] >= DEVICE_ALIGNMENT) *addresses[i] -= *addresses[i] % DEVICE_ALIGNMENT;
}

int64_t gdni_load_index(int32_t type, gdn_devptr array, int64_t index)
{
    const unsigned char *base = gdni_host(array);
    int32_t narrow;
    int64_t wide;
    if (type == GDN_INDEX_I64) {
        memcpy(&wide, base + index * (int64_t)sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, base + index * (int64_t)sizeof narrow, sizeof narrow);
    return narrow;
}

int64_t gdni_seqlens_start(const struct gdni_seqlens *s, int64_t n)
{
    return s->cu ? gdni_load_index(s->type, s->cu, n) : n * s->uniform_len;
}

gdn_status gdni_seqlens_take(struct gdni_seqlens *out, gdn_devptr cu_seqlens, int32_t type, int64_t num_tokens,
                             int64_t num_seqs)
{
    out->cu = cu_seqlens;
    out->type = type;
    out->uniform_len = num_seqs ? num_tokens / num_seqs : 0;
    if (!out->cu) return GDN_OK;
    int64_t last = gdni_seqlens_start(out, 0);
    if (last != 0) return GDN_FAIL(GDN_E_INVALID, "cu_seqlens[0] is %lld: must be 0", (long long)last);
    for (int64_t n = 1; n <= num_seqs; ++n) {
        const int64_t next = gdni_seqlens_start(out, n);
        if (next < last || next > num_tokens)
            return GDN_FAIL(
                GDN_E_INVALID,
                "cu_seqlens[%lld] is %lld after %lld: must not decrease, nor pass num_tokens, which is %lld",
                (long long)n, (long long)next, (long long)last, (long long)num_tokens);
        last = next;
    }
    return GDN_OK;
}
