/*
 * gdn_images.cuh - images of chunks, which some CTAs of a launch make for others: their rows and flags, in what order they are
 * made, how they are waited for. Must not know: what is in an image.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_params.cuh"
#include "gdn_spec.cuh"
#include "gdn_types.cuh"
#include "gdn_work.cuh"

/*
 * Images lie by rows: sequence n begins at row first_token / chunk + n, which leaves it ceil(len / chunk) rows whatever the
 * lengths, so that nobody needs a prefix sum over the sequences.
 */
__device__ __forceinline__ i64 first_image_row(const prefill_params &p, int seq)
{
    const i64 token = p.cu_seqlens ? load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, seq) : seq * p.uniform_len;
    return token / spec::CHUNK + seq;
}

__device__ __forceinline__ i64 image_index(const prefill_params &p, int head, i64 row)
{
    return head * p.image_rows + row;
}

__device__ __forceinline__ u32 *image_flag(const prefill_params &p, i64 index)
{
    return p.control + 1 + index;
}

/* The last sequence that begins at or before a row; -1: none. One round of loads for each factor 32 of num_seqs. */
__device__ __forceinline__ int sequence_of_image_row(const prefill_params &p, u32 row, int lane)
{
    int low = 0, count = p.num_seqs;
    for (;;) {
        const int step = (count + 31) / 32, at = lane * step;
        const u32 before = __ballot_sync(~0u, at < count && first_image_row(p, low + at) <= row);
        if (before == 0) return -1;
        const int last = 31 - __clz(before);
        low += last * step;
        count = min(step, count - last * step);
        if (step == 1) return low;
    }
}

/* One chunk of one head. */
struct Item {
    Work work;
    int chunk;
    u32 row;
};

/*
 * Deals items: the rows are cut into as many spans as there are sequences, and spans advance together, all heads of a row one
 * after the other. With equal lengths, that is chunk by chunk. 32 bits count items: each has an image in memory.
 */
struct Deal {
    u32 rows, span, count, number, step; /* number: of the next item to look at */

    __device__ __forceinline__ Deal(const prefill_params &p, u32 first, u32 step)
        : rows((u32)first_image_row(p, p.num_seqs)), number(first), step(step)
    {
        span = (rows + p.num_seqs - 1) / p.num_seqs;
        count = span * p.num_seqs * p.num_heads;
    }
    /* The next item that is a chunk; false behind the last. */
    __device__ __forceinline__ bool next(Item &item, const prefill_params &p, int lane)
    {
        while (number < count) {
            const u32 n = number / p.num_heads, head = number % p.num_heads;
            number += step;
            item.row = n % p.num_seqs * span + n / p.num_seqs;
            const int seq = item.row < rows ? sequence_of_image_row(p, item.row, lane) : -1;
            if (seq < 0) continue;
            item.work = make_work(p, seq, (int)head);
            item.chunk = (int)(item.row - first_image_row(p, seq));
            if (!item.work.inert && item.chunk < item.work.chunks) return true;
        }
        return false;
    }
};

/* Looks for 32 chunks' images; returns up to which chunk all are there. */
__device__ __forceinline__ int look_for_images(const prefill_params &p, i64 first, int chunk, int chunks, int lane)
{
    const bool there = chunk + lane < chunks && peek_acquire(image_flag(p, first + chunk + lane)) != 0;
    const u32 missing = ~__ballot_sync(~0u, there);
    __syncwarp(); /* of every lane, of which each saw its own flag */
    return missing == 0 ? chunk + 32 : chunk + __ffs(missing) - 1;
}

/* The same, until a chunk's image is there. */
__device__ __forceinline__ int wait_images(const prefill_params &p, i64 first, int chunk, int chunks, int lane)
{
    for (;;) {
        const int ready = look_for_images(p, first, chunk, chunks, lane);
        if (ready > chunk) return ready;
        __nanosleep(40);
    }
}
