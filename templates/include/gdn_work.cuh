/*
 * gdn_work.cuh - what is walked chunk by chunk: a sequence and a state head. Must not know: who walks it.
 */
#pragma once

#include "gdn_params.cuh"
#include "gdn_sequence.cuh"
#include "gdn_spec.cuh"

struct Work : Sequence {
    int seq, head;
    int chunks;
};

__device__ __forceinline__ Work make_work(const prefill_params &p, int seq, int head)
{
    Work w;
    (Sequence &)w = find_sequence(p, seq);
    w.seq = seq;
    w.head = head;
    w.chunks = w.len / spec::CHUNK + (w.len % spec::CHUNK != 0); /* not rounded up by a sum: len may be near 2^31 */
    return w;
}
