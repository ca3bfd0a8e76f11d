/*
 * workspace.h - what a launch needs in global memory beside its arguments, how it lies there, and how its sequences are cut.
 */
#ifndef GDNI_WORKSPACE_H
#define GDNI_WORKSPACE_H

#include <stddef.h>

#include "codegen/partition.h"
#include "codegen/spec.h"

/*
 * Where a call has control words there is room for so many: a memset node of a graph takes 0.6 to 1.4 us longer up to 4 KiB
 * than of a little more (an H200; on a stream it is the other way round), so that execute clears at least these there.
 */
enum { GDNI_GRAPH_CLEAR_WORDS = 1088 };

/*
 * From the workspace's first byte: `control_words` 32-bit words that must be zeros, then images, or states between partitions,
 * which need not be. All 0: nothing is needed.
 */
struct gdni_workspace {
    size_t control_words, images_offset, size;
    size_t t_offset;         /* of T that is wanted again; 0: none is kept */
    int64_t image_rows;      /* of a head */
    int32_t num_producers;   /* CTAs */
    int32_t partition;       /* chunks; 0: sequences stay whole */
    bool ranked;             /* and only the longest are cut */
    enum gdni_carry carry;   /* how partitions before which gates do not decay get their states */
    int32_t most_forgetting; /* chunks of a replay that goes by keys; 0: these are not asked: see partition.h */
    int64_t num_items;       /* of the persistent kernel, a bound */
    int32_t gang;            /* its CTAs have, or may have, even shares, so many side by side: gdn_hopper_shares.cuh; 0: no */
};

/*
 * Of one call. num_sms: of the device; it chooses how many CTAs produce, and how sequences are cut. longest: tokens of its
 * longest sequence at the most; 0: not known. `size` grows with num_tokens and num_seqs, whatever longest is.
 */
void gdni_workspace_of(struct gdni_workspace *out, const struct gdni_spec *spec, const struct gdni_problem *problem,
                       int num_sms, int64_t num_tokens, int64_t num_seqs, int64_t longest);

/* How such a call is cut. */
static inline struct gdni_cut gdni_workspace_cut(const struct gdni_workspace *needs)
{
    return (struct gdni_cut){ needs->partition, needs->partition && needs->gang, needs->ranked };
}

#endif
