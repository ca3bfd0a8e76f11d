/*
 * workspace.c - owns the layout of a call's workspace. Must not know: addresses, the driver.
 */
#include "codegen/workspace.h"

#include <string.h>

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* CTAs that make images: the SMs that the recurrence leaves idle, and no fewer than keep it fed; no more than there is work. */
static int32_t num_producers(int64_t recurrence_ctas, int32_t ctas_per_producer, int num_sms, int64_t images)
{
    enum { GROUPS = 2 };
    const int64_t busy = recurrence_ctas < num_sms ? recurrence_ctas : num_sms;
    int64_t n = num_sms - busy;
    if (n < busy / ctas_per_producer) n = busy / ctas_per_producer;
    if (n > (images + GROUPS - 1) / GROUPS) n = (images + GROUPS - 1) / GROUPS;
    return (int32_t)(n > 1 ? n : 1);
}

void gdni_workspace_of(struct gdni_workspace *out, const struct gdni_spec *spec, const struct gdni_problem *problem,
                       int num_sms, int64_t num_tokens, int64_t num_seqs)
{
    enum { ALIGNMENT = 256 };
    memset(out, 0, sizeof *out);
    if (spec->kernel != GDNI_KERNEL_PREFILL_SPLIT) return;
    const int64_t heads = problem->num_heads;
    out->image_rows = num_tokens / spec->params.chunk + num_seqs;
    const int64_t images = out->image_rows * heads;
    out->control_words = (size_t)(1 + images);
    out->images_offset = (size_t)round_up((1 + images) * 4, ALIGNMENT);
    out->size = out->images_offset + (size_t)(images * gdni_prefill_image_bytes(spec));
    out->num_producers = num_producers(num_seqs * heads * (spec->dv / spec->params.block_dv),
                                       spec->params.ctas_per_producer, num_sms, images);
}
