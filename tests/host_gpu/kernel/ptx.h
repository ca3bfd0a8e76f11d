/*
 * ptx.h - inline PTX by its text: `asm("text" : outputs : inputs)` of a template becomes ptx::run<"text">(outputs, inputs)
 * (translate.cc). One that is not known here, by the whole text or of barriers, copies and products by how it begins, does not
 * compile.
 *
 * Layouts of fragments and descriptors are those of the PTX ISA, "Warp-level matrix instructions" and "Asynchronous warpgroup
 * level matrix instructions", written down anew: what the templates' comments say of them is under test.
 */
#ifndef HOST_GPU_PTX_H
#define HOST_GPU_PTX_H

#include <string_view>
#include <tuple>

#include "builtins.h"
#include "fakecuda/fake_map.h"

namespace ptx {

using namespace simt;
typedef uint16_t u16;

/* ---- 16-bit numbers ---- */

inline float of_bf16(u32 bits)
{
    return __uint_as_float(bits << 16);
}

inline float of_f16(u32 bits)
{
    const u32 exponent = bits >> 10 & 31, fraction = bits & 1023;
    float x;
    if (exponent == 0)
        x = (float)fraction * 0x1p-24f;
    else if (exponent == 31)
        x = fraction ? NAN : INFINITY;
    else
        x = __uint_as_float((exponent + 112) << 23 | fraction << 13);
    return bits & 0x8000 ? -x : x;
}

inline u32 to_bf16(float x)
{
    const u32 bits = __float_as_uint(x);
    if (std::isnan(x)) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline u32 to_f16(float x)
{
    const u32 sign = __float_as_uint(x) >> 16 & 0x8000;
    const float a = fabsf(x);
    if (std::isnan(x)) return 0x7fff;
    if (a >= 65520.0f) return sign | 0x7c00;
    if (a < 0x1p-14f) return sign | (u32)nearbyintf(a * 0x1p24f);
    const u32 bits = __float_as_uint(a), rounded = bits + 0xfff + (bits >> 13 & 1);
    return sign | ((rounded >> 13) - (112u << 10));
}

inline float flushed(float x)
{
    return std::fpclassify(x) == FP_SUBNORMAL ? copysignf(0.0f, x) : x;
}

/* ---- Fragments ---- */

/* D (16 x 8) += A (16 x 16) B (16 x 8) of a warp. */
struct Mma {
    float *d[4];
    u32 a[4], b[2];
};

inline void multiply(void **operands, float (*number)(u32))
{
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const Mma &x = *(const Mma *)operands[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i)
            for (int h = 0; h < 2; ++h)
                a[g + i % 2 * 8][2 * t + h + i / 2 * 8] = number(x.a[i] >> 16 * h & 0xffff);
        for (int i = 0; i < 2; ++i)
            for (int h = 0; h < 2; ++h)
                b[2 * t + h + 8 * i][g] = number(x.b[i] >> 16 * h & 0xffff);
    }
    for (int lane = 0; lane < 32; ++lane) {
        const Mma &x = *(const Mma *)operands[lane];
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double sum = *x.d[i];
            for (int k = 0; k < 16; ++k)
                sum += (double)a[row][k] * b[k][column];
            *x.d[i] = (float)sum;
        }
    }
}

/* Four 8 x 8 blocks; lane i names row i % 8 of block i / 8. */
struct Blocks {
    u32 address;
    u32 *r[4];
};

inline void load_blocks(void **operands, bool transposed)
{
    u16 block[4][8][8];
    for (int i = 0; i < 32; ++i)
        memcpy(block[i / 8][i % 8], shared_at(((const Blocks *)operands[i])->address, 16, 16), 16);
    for (int lane = 0; lane < 32; ++lane)
        for (int j = 0; j < 4; ++j) {
            const int g = lane / 4, t = lane % 4;
            const u32 lo = transposed ? block[j][2 * t][g] : block[j][g][2 * t];
            const u32 hi = transposed ? block[j][2 * t + 1][g] : block[j][g][2 * t + 1];
            *((const Blocks *)operands[lane])->r[j] = lo | hi << 16;
        }
}

struct StoredBlocks {
    u32 address, r[4];
};

inline void store_blocks(void **operands, bool transposed)
{
    u16 block[4][8][8];
    for (int lane = 0; lane < 32; ++lane)
        for (int j = 0; j < 4; ++j)
            for (int h = 0; h < 2; ++h) {
                const int g = lane / 4, column = lane % 4 * 2 + h;
                const u16 x = (u16)(((const StoredBlocks *)operands[lane])->r[j] >> 16 * h);
                if (transposed)
                    block[j][column][g] = x;
                else
                    block[j][g][column] = x;
            }
    for (int i = 0; i < 32; ++i)
        memcpy(shared_at(((const StoredBlocks *)operands[i])->address, 16, 16), block[i / 8][i % 8], 16);
}

inline void transpose_block(void **operands)
{
    u16 block[8][8];
    for (int lane = 0; lane < 32; ++lane)
        for (int h = 0; h < 2; ++h)
            block[lane / 4][lane % 4 * 2 + h] = (u16)(((u32 *)operands[lane])[0] >> 16 * h);
    for (int lane = 0; lane < 32; ++lane)
        ((u32 *)operands[lane])[1] = block[lane % 4 * 2][lane / 4] | (u32)block[lane % 4 * 2 + 1][lane / 4] << 16;
}

/* ---- wgmma: a warp's 16 rows of m64nNk16 ---- */

struct Wgmma {
    float *d;
    u32 a[4];
    u64 a_descriptor, b;
    u32 accumulate;
    u64 fenced; /* by this lane */
};

inline u32 descriptor_address(u64 d)
{
    if (d >> 62 != 1 || (d >> 32 & 0x3fff) != 64)
        fault("a descriptor %#llx that is not of 128-byte swizzle", (unsigned long long)d);
    if (d & 0xc000c000) fault("a descriptor %#llx of more than its fields hold", (unsigned long long)d);
    return (u32)(d & 0x3fff) << 4;
}

template <int N> struct WarpProduct {
    float *d[32];
    float a[16][16];
    u64 a_descriptor, b;
    bool a_is_shared, transposed, accumulate;
    int warp; /* of the warpgroup */
    float (*number)(u32);
    Cta *cta;
    u64 fenced;

    float shared_number(u32 address) const
    {
        u16 bits;
        memcpy(&bits, async_read(cta, swizzled(address), 2, fenced), 2);
        return number(bits);
    }
    void compute()
    {
        static float bt[16][N];
        const u32 b0 = descriptor_address(b), next = (u32)(b >> 16 & 0x3fff) << 4;
        for (int k = 0; k < 16; ++k)
            for (int n = 0; n < N; ++n)
                bt[k][n] = shared_number(transposed ? b0 + n / 64 * next + k / 8 * 1024 + k % 8 * 128 + n % 64 * 2
                                                    : b0 + n / 8 * 1024 + n % 8 * 128 + k * 2);
        if (a_is_shared) {
            const u32 a0 = descriptor_address(a_descriptor);
            for (int row = 0; row < 16; ++row)
                for (int k = 0; k < 16; ++k) {
                    const int r = 16 * warp + row;
                    a[row][k] = shared_number(a0 + r / 8 * 1024 + r % 8 * 128 + k * 2);
                }
        }
        for (int row = 0; row < 16; ++row) {
            double sum[N];
            for (int n = 0; n < N; ++n)
                sum[n] = accumulate ? *at(row, n) : 0.0f;
            for (int k = 0; k < 16; ++k)
                for (int n = 0; n < N; ++n)
                    sum[n] += (double)a[row][k] * bt[k][n];
            for (int n = 0; n < N; ++n)
                *at(row, n) = (float)sum[n];
        }
    }
    float *at(int row, int n)
    {
        return &d[row % 8 * 4 + n % 8 / 2][n / 8 * 4 + row / 8 * 2 + n % 2];
    }
};

template <int N> inline void issue(void **operands, bool a_is_shared, bool transposed, float (*number)(u32))
{
    Warp *warp = m.current->warp;
    WarpProduct<N> p = {};
    const Wgmma &first = *(const Wgmma *)operands[0];
    p.a_descriptor = first.a_descriptor;
    p.b = first.b;
    p.accumulate = first.accumulate != 0;
    p.a_is_shared = a_is_shared;
    p.transposed = transposed;
    p.warp = m.current->thread / 32 % 4;
    p.number = number;
    p.cta = m.current->cta;
    p.fenced = first.fenced;
    for (int lane = 0; lane < 32; ++lane) {
        const Wgmma &x = *(const Wgmma *)operands[lane];
        if (x.b != first.b || x.a_descriptor != first.a_descriptor || x.accumulate != first.accumulate)
            fault("lanes of a warp give wgmma unlike operands");
        p.d[lane] = x.d;
        p.fenced = min(p.fenced, x.fenced);
        for (int i = 0; i < 4 && !a_is_shared; ++i)
            for (int h = 0; h < 2; ++h)
                p.a[lane / 4 + i % 2 * 8][lane % 4 * 2 + h + i / 2 * 8] = number(x.a[i] >> 16 * h & 0xffff);
    }
    warp->products.push_back({ [p]() mutable { p.compute(); }, warp->product_groups });
}

/* ---- Tensor maps of 16-bit elements, boxes of 128-byte rows with 128-byte swizzle ---- */

struct Box {
    fake_map map;
    int at[5];
    u32 shared;

    /* each(address in shared memory, address in global memory or 0) of every 16 bytes */
    template <class F> void pieces(F &&each) const
    {
        if (map.box[0] != 64) fault("a box of rows of %u elements", map.box[0]);
        u32 to = shared;
        int i[5];
        for (i[4] = 0; i[4] < (int)map.box[4]; ++i[4])
            for (i[3] = 0; i[3] < (int)map.box[3]; ++i[3])
                for (i[2] = 0; i[2] < (int)map.box[2]; ++i[2])
                    for (i[1] = 0; i[1] < (int)map.box[1]; ++i[1])
                        for (i[0] = 0; i[0] < (int)map.box[0]; i[0] += 8, to += 16)
                            each(swizzled(to), source(i));
    }
    u64 source(const int (&i)[5]) const
    {
        u64 from = map.address;
        for (int n = 0; n < 5; ++n) {
            const int64_t x = (int64_t)at[n] + i[n];
            if (x < 0 || x >= (int64_t)map.dims[n]) return 0;
            from += (u64)x * (n ? map.strides[n - 1] : 2);
        }
        return from;
    }
    u32 bytes() const
    {
        return map.box[0] * map.box[1] * map.box[2] * map.box[3] * map.box[4] * 2;
    }
};

inline Box box_of(const void *map, u32 shared, int c0, int c1, int c2, int c3, int c4)
{
    Box box;
    memcpy(&box.map, map, sizeof box.map);
    if ((uintptr_t)map % 64) fault("a tensor map at an address that is not a multiple of 64");
    if (shared % 1024) fault("a tile of TMA at %#x, not a multiple of 1024", shared);
    const int at[5] = { c0, c1, c2, c3, c4 };
    memcpy(box.at, at, sizeof at);
    box.shared = shared;
    shared_at(shared, box.bytes(), 128);
    return box;
}

inline void load_box(const Box &box, u32 bar)
{
    Cta *cta = m.current->cta;
    const u64 fenced = m.current->fenced;
    mbar_at(cta, bar);
    m.jobs.push_back({ cta, [box, bar, cta, fenced] {
                          box.pieces([&](u32 to, u64 from) {
                              unsigned char *const at = async_written(cta, to, fenced);
                              if (from)
                                  memcpy(at, (const void *)(uintptr_t)from, 16);
                              else
                                  memset(at, 0, 16);
                          });
                          mbar_landed(cta, bar, box.bytes());
                      } });
}

inline void store_box(const Box &box)
{
    Cta *cta = m.current->cta;
    Store s = {};
    const u64 fenced = m.current->fenced;
    s.read = [box, cta, fenced](std::vector<unsigned char> &bytes) {
        box.pieces([&](u32 from, u64) {
            const unsigned char *at = async_read(cta, from, 16, fenced);
            bytes.insert(bytes.end(), at, at + 16);
        });
    };
    s.write = [box](const std::vector<unsigned char> &bytes) {
        size_t i = 0;
        box.pieces([&](u32, u64 to) {
            if (to) memcpy((void *)(uintptr_t)to, bytes.data() + i, 16);
            i += 16;
        });
    };
    s.group = m.current->store_groups;
    m.current->stores.push_back(std::move(s));
}

/* Bulk copies without a map. */
inline const void *bulk_pieces(const void *address, u32 shared, u32 bytes)
{
    if (bytes % 16 || bytes == 0) fault("a bulk copy of %u bytes, which are no pieces of 16", bytes);
    if ((uintptr_t)address % 16) fault("a bulk copy at %p, which is not a multiple of 16", address);
    shared_at(shared, bytes, 16);
    return address;
}

inline void load_line(u32 to, const void *from, u32 bytes, u32 bar)
{
    Cta *cta = m.current->cta;
    mbar_at(cta, bar);
    bulk_pieces(from, to, bytes);
    const u64 fenced = m.current->fenced;
    m.jobs.push_back({ cta, [=] {
                          for (u32 i = 0; i < bytes; i += 16)
                              memcpy(async_written(cta, to + i, fenced), (const unsigned char *)from + i, 16);
                          mbar_landed(cta, bar, bytes);
                      } });
}

inline void store_line(void *to, u32 from, u32 bytes)
{
    Cta *cta = m.current->cta;
    bulk_pieces(to, from, bytes);
    Store s = {};
    const u64 fenced = m.current->fenced;
    s.read = [=](std::vector<unsigned char> &read) {
        for (u32 i = 0; i < bytes; i += 16) {
            const unsigned char *at = async_read(cta, from + i, 16, fenced);
            read.insert(read.end(), at, at + 16);
        }
    };
    s.write = [=](const std::vector<unsigned char> &read) { memcpy(to, read.data(), read.size()); };
    s.group = m.current->store_groups;
    m.current->stores.push_back(std::move(s));
}

/* From this CTA's shared memory into another one's of the cluster. */
inline void copy_to_cluster(u32 to, u32 from, u32 bytes, u32 bar)
{
    Cta *here = m.current->cta, *there = cluster_cta(bar);
    const u64 fenced = m.current->fenced;
    const u32 to_end = to + bytes - 16;
    if (there != cluster_cta(to) || there != cluster_cta(to_end)) fault("a copy into one CTA whose barrier is in another");
    cluster_at(to, 16), cluster_at(to_end, 16);
    bulk_pieces(nullptr, from, bytes);
    mbar_at(there, bar);
    m.jobs.push_back({ there, [=] {
                          unsigned char *at = byte_of(there, to);
                          make_known(there, to, bytes);
                          for (u32 i = 0; i < bytes; i += 16)
                              memcpy(at + i, async_read(here, from + i, 16, fenced), 16);
                          mbar_landed(there, bar, bytes);
                      } });
}

/* ---- Instructions ---- */

template <size_t SIZE> struct Text {
    char s[SIZE];
    constexpr Text(const char (&text)[SIZE])
    {
        for (size_t i = 0; i < SIZE; ++i)
            s[i] = text[i];
    }
    constexpr std::string_view view() const
    {
        return { s, SIZE - 1 };
    }
    constexpr bool has(std::string_view part) const
    {
        return view().find(part) != std::string_view::npos;
    }
    constexpr bool is(std::string_view text) const
    {
        return view() == text;
    }
    constexpr bool begins(std::string_view part) const
    {
        return view().substr(0, part.size()) == part;
    }
    constexpr int number_after(std::string_view part) const
    {
        int x = 0;
        for (size_t i = view().find(part) + part.size(); s[i] >= '0' && s[i] <= '9'; ++i)
            x = 10 * x + s[i] - '0';
        return x;
    }
};

template <class> inline constexpr bool never = false;

template <class T> inline void load_shared(u32 address, u32 alignment, T &first, T &second, T &third, T &fourth)
{
    const unsigned char *at = shared_at(address, 4 * sizeof(T), alignment);
    memcpy(&first, at, sizeof(T));
    memcpy(&second, at + sizeof(T), sizeof(T));
    memcpy(&third, at + 2 * sizeof(T), sizeof(T));
    memcpy(&fourth, at + 3 * sizeof(T), sizeof(T));
}

inline void *global_at(const void *address, u32 alignment)
{
    if ((uintptr_t)address % alignment)
        fault("address %p of global memory is not a multiple of %u", address, alignment);
    return (void *)address;
}

/* `bytes` of `of`; the rest are zeros. */
inline void copy_async(u32 to, const void *from, u32 bytes, u32 of)
{
    if (bytes > of) fault("cp.async of %u bytes of %u", bytes, of);
    Lane *me = m.current;
    shared_at(to, of, of);
    const void *const source = bytes ? global_at(from, of) : nullptr;
    me->copies.push_back({ to, source, bytes, of, (int)me->group_ends.size(), me->copies_issued++ });
}

template <class... T> inline void store_shared(u32 address, const T &...x)
{
    const u32 bytes = (u32)(sizeof(x) + ...);
    unsigned char *at = shared_at(address, bytes, bytes);
    ((memcpy(at, &x, sizeof x), at += sizeof x), ...);
    wrote(m.current, address, bytes);
    maybe_yield(16);
}

template <Text T, class Tuple> inline void memory(Tuple &&x);
template <Text T, class Tuple> inline void barrier(Tuple &&x);
template <Text T, class Tuple> inline void matrix(Tuple &&x);
template <Text T, class Tuple> inline void bulk(Tuple &&x);
template <Text T, class Tuple> inline void arithmetic(Tuple &&x);

template <Text T, class... A> inline void run(A &&...args)
{
    auto x = std::forward_as_tuple(args...);
    asm volatile("" ::: "memory");
    if constexpr (T.view().empty())
        (void)x;
    else if constexpr (T.begins("st.shared") || T.begins("ld.shared") || T.has(".gpu") || T.has(".global.v4") ||
                       T.begins("fence.acq_rel") || T.begins("cp.async.c") || T.begins("cp.async.wait"))
        memory<T>(x);
    else if constexpr (T.has("bulk") || T.begins("prefetch") || T.begins("fence.proxy"))
        bulk<T>(x);
    else if constexpr (T.has("mbarrier") || T.has("barrier.cluster") || T.begins("bar.") || T.has("barrier.red"))
        barrier<T>(x);
    else if constexpr (T.has("matrix") || T.begins("mma") || T.has("wgmma"))
        matrix<T>(x);
    else
        arithmetic<T>(x);
    asm volatile("" ::: "memory");
}

template <Text T, class Tuple> inline void memory(Tuple &&x)
{
    using std::get;
    if constexpr (T.is("st.shared.v4.b32 [%0], {%1, %2, %3, %4};")) {
        store_shared(get<0>(x), get<1>(x), get<2>(x), get<3>(x), get<4>(x));
    } else if constexpr (T.is("ld.shared::cluster.u32 %0, [%1];")) {
        memcpy(&get<0>(x), cluster_at(get<1>(x), 4), 4);
    } else if constexpr (T.is("st.shared.v2.f32 [%0], {%1, %2};")) {
        store_shared(get<0>(x), get<1>(x), get<2>(x));
    } else if constexpr (T.is("st.shared.b32 [%0], %1;") || T.is("st.shared.f32 [%0], %1;")) {
        store_shared(get<0>(x), get<1>(x));
    } else if constexpr (T.is("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];") || T.is("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];")) {
        load_shared(get<4>(x), 16, get<0>(x), get<1>(x), get<2>(x), get<3>(x));
    } else if constexpr (T.is("ld.shared.v2.f32 {%0, %1}, [%2];")) {
        const unsigned char *at = shared_at(get<2>(x), 8, 8);
        memcpy(&get<0>(x), at, 4);
        memcpy(&get<1>(x), at + 4, 4);
    } else if constexpr (T.is("ld.shared.b32 %0, [%1];") || T.is("ld.shared.f32 %0, [%1];")) {
        memcpy(&get<0>(x), shared_at(get<1>(x), 4, 4), 4);
    } else if constexpr (T.is("st.shared.b16 [%0], %1;")) {
        store_shared(get<0>(x), get<1>(x));
    } else if constexpr (T.is("ld.shared.b16 %0, [%1];")) {
        memcpy(&get<0>(x), shared_at(get<1>(x), 2, 2), 2);
    } else if constexpr (T.begins("cp.async.c") && T.has("], 16, %2;")) {
        copy_async(get<0>(x), get<1>(x), get<2>(x), 16);
    } else if constexpr (T.begins("cp.async.c") && T.has("], %2;")) {
        copy_async(get<0>(x), get<1>(x), get<2>(x), get<2>(x));
    } else if constexpr (T.begins("cp.async.c") && T.has("], 16;")) {
        copy_async(get<0>(x), get<1>(x), 16, 16);
    } else if constexpr (T.begins("ld.global.v4")) {
        const u32 *from = (const u32 *)global_at(get<4>(x), 16);
        get<0>(x) = from[0], get<1>(x) = from[1], get<2>(x) = from[2], get<3>(x) = from[3];
    } else if constexpr (T.begins("st.global.v4")) {
        u32 *to = (u32 *)global_at(get<0>(x), 16);
        to[0] = get<1>(x), to[1] = get<2>(x), to[2] = get<3>(x), to[3] = get<4>(x);
    } else if constexpr (T.begins("cp.async.commit")) {
        m.current->group_ends.push_back(m.current->copies_issued);
    } else if constexpr (T.begins("cp.async.wait")) {
        land_groups(m.current, (int)m.current->group_ends.size() - get<0>(x));
    } else if constexpr (T.is("st.release.gpu.global.u32 [%0], %1;")) {
        maybe_yield(2);
        *get<0>(x) = get<1>(x);
        maybe_yield(2);
    } else if constexpr (T.is("ld.relaxed.gpu.global.u32 %0, [%1];") || T.is("ld.acquire.gpu.global.u32 %0, [%1];")) {
        yield();
        get<0>(x) = *get<1>(x);
    } else if constexpr (T.is("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;")) {
        maybe_yield(2);
        get<0>(x) = (*get<1>(x))++;
    } else if constexpr (T.is("atom.relaxed.gpu.global.or.b32 %0, [%1], %2;")) {
        maybe_yield(2);
        get<0>(x) = *get<1>(x);
        *get<1>(x) |= get<2>(x);
    } else if constexpr (T.is("red.relaxed.gpu.global.add.u32 [%0], %1;")) {
        maybe_yield(2);
        *get<0>(x) += get<1>(x);
    } else if constexpr (T.is("red.relaxed.gpu.global.max.u32 [%0], %1;")) {
        *get<0>(x) = max(*get<0>(x), get<1>(x));
    } else if constexpr (!T.is("fence.acq_rel.gpu;") && !T.is("fence.acq_rel.cluster;")) {
        static_assert(never<Tuple>, "memory");
    }
}

template <Text T, class Tuple> inline void barrier(Tuple &&x)
{
    using std::get;
    Cta *cta = m.current->cta;
    if constexpr (T.begins("mbarrier.init")) {
        mbar_make(get<0>(x), get<1>(x));
    } else if constexpr (T.begins("fence.mbarrier_init")) {
        maybe_yield(2);
    } else if constexpr (T.has("cp.async.mbarrier.arrive.noinc")) {
        Lane *lane = m.current;
        const u32 bar = get<0>(x);
        const int issued = lane->copies_issued;
        lane->copies_waited = issued; /* by whoever waits there */
        mbar_at(cta, bar);
        m.jobs.push_back({ cta, [cta, lane, bar, issued] {
                              land_copies(lane, issued);
                              mbar_come(cta, bar, 0);
                          } });
    } else if constexpr (T.has("arrive.expect_tx")) {
        maybe_yield(4);
        mbar_come(cta, get<0>(x), (int64_t)get<1>(x));
    } else if constexpr (T.begins("mbarrier.arrive.shared::cluster")) {
        maybe_yield(4);
        mbar_come(cluster_cta(get<0>(x)), get<0>(x), 0);
        maybe_yield(4);
    } else if constexpr (T.begins("barrier.cluster.arrive")) {
        meet_lanes(~0u, T.s, nullptr, [](void **) {});
        cluster_arrive();
    } else if constexpr (T.begins("barrier.cluster.wait")) {
        meet_lanes(~0u, T.s, nullptr, [](void **) {});
        cluster_wait();
    } else if constexpr (T.begins("mbarrier.arrive")) {
        maybe_yield(4);
        get<0>(x) = mbar_at(cta, get<1>(x)).phase;
        mbar_come(cta, get<1>(x), 0);
    } else if constexpr (T.has("mbarrier.arrive")) {
        maybe_yield(4);
        mbar_come(cta, get<0>(x), 0);
        maybe_yield(4);
    } else if constexpr (T.has("try_wait.parity") || T.has("test_wait.parity")) {
        if constexpr (T.has("try_wait"))
            get<0>(x) = mbar_try(get<1>(x), get<2>(x));
        else {
            yield();
            get<0>(x) = mbar_has_passed(get<1>(x), get<2>(x));
        }
    } else if constexpr (T.has("test_wait")) {
        yield();
        get<0>(x) = mbar_at(cta, get<1>(x)).phase != (u32)get<2>(x);
    } else if constexpr (T.begins("bar.sync")) {
        meet_lanes(~0u, T.s, nullptr, [](void **) {});
        named_come((int)get<0>(x), (u32)get<1>(x), true, true);
        maybe_yield(4);
    } else if constexpr (T.begins("bar.arrive")) {
        meet_lanes(~0u, T.s, nullptr, [](void **) {});
        named_come((int)get<0>(x), (u32)get<1>(x), false, true);
    } else if constexpr (T.has("barrier.red.and")) {
        meet_lanes(~0u, T.s, nullptr, [](void **) {});
        get<0>(x) = named_come((int)get<1>(x), (u32)get<2>(x), true, get<3>(x) != 0);
    } else {
        static_assert(never<Tuple>, "barrier");
    }
}

template <Text T, class Tuple> inline void matrix(Tuple &&x)
{
    using std::get;
    constexpr float (*number)(u32) = T.has("bf16") ? of_bf16 : of_f16;
    if constexpr (T.begins("mma.sync.aligned.m16n8k16.row.col.f32")) {
        Mma op = { { &get<0>(x), &get<1>(x), &get<2>(x), &get<3>(x) },
                   { get<4>(x), get<5>(x), get<6>(x), get<7>(x) },
                   { get<8>(x), get<9>(x) } };
        meet_lanes(~0u, T.s, &op, [&](void **operands) { multiply(operands, number); });
    } else if constexpr (T.begins("ldmatrix")) {
        Blocks op = { get<4>(x), { &get<0>(x), &get<1>(x), &get<2>(x), &get<3>(x) } };
        meet_lanes(~0u, T.s, &op, [&](void **operands) { load_blocks(operands, T.has("trans")); });
    } else if constexpr (T.begins("stmatrix")) {
        StoredBlocks op = { get<0>(x), { get<1>(x), get<2>(x), get<3>(x), get<4>(x) } };
        meet_lanes(~0u, T.s, &op, [&](void **operands) { store_blocks(operands, T.has("trans")); });
        wrote(m.current, op.address, 16);
    } else if constexpr (T.begins("movmatrix")) {
        u32 op[2] = { get<1>(x), 0 };
        meet_lanes(~0u, T.s, op, transpose_block);
        get<0>(x) = op[1];
    } else if constexpr (T.has("wgmma.mma_async")) {
        constexpr int N = T.number_after("m64n"), D = N / 2, LAST = (int)std::tuple_size_v<std::decay_t<Tuple>> - 1;
        constexpr bool SHARED_A = LAST == D + 2;
        static_assert(T.has("p, 1, 1, 0;") || T.has("p, 1, 1, 1;") || T.has("p, 1, 1, 0, 0;"));
        Wgmma op = {};
        op.d = &get<0>(x);
        if (&get<D - 1>(x) != op.d + D - 1) fault("accumulators of wgmma that are no array");
        if constexpr (SHARED_A) {
            op.a_descriptor = get<D>(x);
        } else {
            const u32 a[4] = { get<D>(x), get<D + 1>(x), get<D + 2>(x), get<D + 3>(x) };
            memcpy(op.a, a, sizeof a);
        }
        op.b = get<LAST - 1>(x);
        op.accumulate = get<LAST>(x);
        op.fenced = m.current->fenced;
        meet_lanes(~0u, T.s, &op,
                   [&](void **operands) { issue<N>(operands, SHARED_A, T.has("p, 1, 1, 1;"), number); });
    } else if constexpr (T.begins("wgmma.fence")) {
        meet_lanes(~0u, T.s, nullptr, [](void **) {});
    } else if constexpr (T.begins("wgmma.commit")) {
        Warp *warp = m.current->warp;
        meet_lanes(~0u, T.s, nullptr, [&](void **) {
            ++warp->product_groups;
            if (m.dice.once_in(3)) compute_products(warp, 1 << 30);
        });
    } else if constexpr (T.begins("wgmma.wait")) {
        Warp *warp = m.current->warp;
        const int pending = get<0>(x);
        meet_lanes(~0u, T.s, nullptr,
                   [&](void **) { compute_products(warp, warp->product_groups - pending); });
    } else {
        static_assert(never<Tuple>, "matrix");
    }
}

template <Text T, class Tuple> inline void bulk(Tuple &&x)
{
    using std::get;
    Lane *me = m.current;
    if constexpr (T.begins("cp.async.bulk.tensor.5d.shared")) {
        load_box(box_of(get<1>(x), get<0>(x), get<3>(x), get<4>(x), get<5>(x), get<6>(x), get<7>(x)), get<2>(x));
    } else if constexpr (T.begins("cp.async.bulk.tensor.5d.global")) {
        store_box(box_of(get<0>(x), get<1>(x), get<2>(x), get<3>(x), get<4>(x), get<5>(x), get<6>(x)));
    } else if constexpr (T.begins("prefetch.tensormap")) {
        if ((uintptr_t)get<0>(x) % 64) fault("a tensor map at an address that is not a multiple of 64");
    } else if constexpr (T.begins("cp.async.bulk.prefetch.L2")) {
        if ((uintptr_t)get<0>(x) % 16 || get<1>(x) % 16) fault("a bulk prefetch that is not of pieces of 16 bytes");
    } else if constexpr (T.begins("prefetch.global.L2")) { /* a hint, of any address */
    } else if constexpr (T.begins("cp.async.bulk.shared::cluster.global.mbarrier")) {
        load_line(get<0>(x), get<1>(x), get<2>(x), get<3>(x));
    } else if constexpr (T.begins("cp.async.bulk.shared::cluster.shared::cta.mbarrier")) {
        copy_to_cluster(get<0>(x), get<1>(x), get<2>(x), get<3>(x));
    } else if constexpr (T.begins("cp.async.bulk.global.shared::cta")) {
        store_line(get<0>(x), get<1>(x), get<2>(x));
    } else if constexpr (T.begins("cp.async.bulk.commit_group")) {
        ++me->store_groups;
    } else if constexpr (T.begins("cp.async.bulk.wait_group.read")) {
        read_stores(me, me->store_groups - get<0>(x));
    } else if constexpr (T.begins("cp.async.bulk.wait_group")) {
        write_stores(me, me->store_groups - get<0>(x));
    } else if constexpr (T.is("fence.proxy.async.shared::cta;") || T.is("fence.proxy.async;")) {
        fence_writes();
    } else {
        static_assert(never<Tuple>, "bulk");
    }
}

inline u32 largest(float a, float b, u32 bits_a, u32 bits_b)
{
    if (std::isnan(a) || std::isnan(b)) return 0x7fff;
    return a > b ? bits_a : bits_b;
}

template <Text T, class Tuple> inline void arithmetic(Tuple &&x)
{
    using std::get;
    if constexpr (T.is("cvt.rn.bf16x2.f32 %0, %1, %2;")) {
        get<0>(x) = to_bf16(get<1>(x)) << 16 | to_bf16(get<2>(x));
    } else if constexpr (T.is("cvt.rn.f16x2.f32 %0, %1, %2;")) {
        get<0>(x) = to_f16(get<1>(x)) << 16 | to_f16(get<2>(x));
    } else if constexpr (T.is("cvt.f32.f16 %0, %1;")) {
        get<0>(x) = of_f16(get<1>(x));
    } else if constexpr (T.is("mov.b32 %0, {%1, %2};")) {
        get<0>(x) = __uint_as_float((u32)get<1>(x) | (u32)get<2>(x) << 16);
    } else if constexpr (T.is("mul.rn.f16x2 %0, %1, %2;")) {
        const u32 a = get<1>(x), b = get<2>(x);
        get<0>(x) = to_f16(of_f16(a >> 16) * of_f16(b >> 16)) << 16 | to_f16(of_f16(a & 0xffff) * of_f16(b & 0xffff));
    } else if constexpr (T.has("abs.f16x2") && T.has("max.NaN.f16x2")) {
        const u32 a = get<1>(x), b = get<2>(x) & 0x7fff7fff;
        get<0>(x) = largest(of_f16(a >> 16), of_f16(b >> 16), a >> 16, b >> 16) << 16 |
                    largest(of_f16(a & 0xffff), of_f16(b & 0xffff), a & 0xffff, b & 0xffff);
    } else if constexpr (T.is("max.xorsign.abs.f16x2 %0, %1, %2;")) {
        u32 r = 0;
        for (int h = 0; h < 2; ++h) {
            const u32 a = get<1>(x) >> 16 * h & 0xffff, b = get<2>(x) >> 16 * h & 0xffff, sign = (a ^ b) & 0x8000;
            const float fa = of_f16(a & 0x7fff), fb = of_f16(b & 0x7fff);
            const u32 bits = std::isnan(fa) ? b & 0x7fff : std::isnan(fb) || fa > fb ? a & 0x7fff : b & 0x7fff;
            r |= (bits | sign) << 16 * h;
        }
        get<0>(x) = r;
    } else if constexpr (T.is("max.NaN.f32 %0, %1, %2;")) {
        const float a = get<1>(x), b = get<2>(x);
        get<0>(x) = std::isnan(a) || std::isnan(b) ? NAN : fmaxf(a, b);
    } else if constexpr (T.is("mov.f32 %0, %1;")) {
        get<0>(x) = get<1>(x);
    } else if constexpr (T.is("ex2.approx.ftz.f32 %0, %1;")) {
        get<0>(x) = flushed(exp2f(flushed(get<1>(x))));
    } else if constexpr (T.is("rcp.approx.ftz.f32 %0, %1;")) {
        get<0>(x) = flushed(1.0f / flushed(get<1>(x)));
    } else if constexpr (T.is("sqrt.approx.ftz.f32 %0, %1;")) {
        get<0>(x) = flushed(sqrtf(flushed(get<1>(x))));
    } else if constexpr (T.is("rsqrt.approx.ftz.f32 %0, %1;")) {
        get<0>(x) = flushed((float)(1.0 / sqrt((double)flushed(get<1>(x)))));
    } else if constexpr (T.has("%%laneid")) {
        get<0>(x) = m.current->lane;
    } else if constexpr (T.has("elect.sync _|p, 0xffffffff;")) {
        meet_lanes(~0u, T.s, nullptr, [](void **) {});
        get<0>(x) = m.current->lane == 31; /* none that code takes for granted */
    } else if constexpr (T.has("%%warpid")) {
        get<0>(x) = (u32)m.current->thread / 32;
    } else if constexpr (T.has("%%clock")) {
        get<0>(x) = (u32)m.turns;
    } else if constexpr (T.has("nanosleep")) {
        yield();
    } else if constexpr (T.is("trap;")) {
        fault("a trap: what a checked build expects does not hold");
    } else if constexpr (T.has("%%cluster_ctarank")) {
        get<0>(x) = m.current->cta->rank;
    } else if constexpr (T.begins("mapa.shared::cluster")) {
        get<0>(x) = cluster_address(get<1>(x), get<2>(x));
    } else if constexpr (T.begins("setmaxnreg")) {
        const unsigned wanted = get<0>(x);
        meet_lanes(~0u, T.s, nullptr, [&](void **) {
            const unsigned has = m.current->warp->registers;
            if (T.has(".inc.") ? wanted < has : wanted > has) fault("%s with %u, of %u registers", T.s, wanted, has);
            if (!T.has(".inc.")) give_registers(m.current, wanted);
        });
        if (T.has(".inc.")) take_registers(m.current, wanted);
    } else if constexpr (!T.begins("griddepcontrol")) {
        static_assert(never<Tuple>, "an instruction that is not known here");
    }
}

} // namespace ptx

#endif
