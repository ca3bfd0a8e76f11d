// templates/include/gdn_conv_ptx.cuh without inline PTX. Each access checks the alignment that its instruction needs.
#ifndef GDN_CONV_PTX_CUH
#define GDN_CONV_PTX_CUH
#include "gdn_types.cuh"

struct alignas(16) vec16 {
    u32 word[4];
};

inline vec16 *shared_memory()
{
    return (vec16 *)conv_host_shared_memory();
}

template <int PIECE> inline void copy_16(vec16 *to, const void *from)
{
    conv_host_copy(to, aligned_to(from, PIECE), 16);
}

inline void copy_16_kept(vec16 *to, const void *from)
{
    conv_host_copy(to, aligned_to(from, 16), 16);
}

inline void end_group()
{
    conv_host_end_group();
}

template <int N> inline void wait_but_for()
{
    conv_host_wait_but_for(N);
}

inline vec16 load_16(const void *at)
{
    vec16 v;
    memcpy(&v, aligned_to(at, sizeof v), sizeof v);
    return v;
}

inline void store_16(void *at, const vec16 &v)
{
    memcpy((void *)aligned_to(at, sizeof v), &v, sizeof v);
}

inline u32 multiply_high(u32 a, u32 b)
{
    return (u32)((u64)a * b >> 32);
}

inline float ex2_approx(float x)
{
    return flushed(exp2f(flushed(x)));
}

inline float rcp_approx(float x)
{
    return flushed(1.0f / flushed(x));
}

inline float rsqrt_approx(float x)
{
    return flushed((float)(1.0 / sqrt((double)x)));
}

inline float max_nan(float a, float b)
{
    return a != a || b != b ? NAN : fmaxf(a, b);
}

inline float in_register(float x)
{
    return x;
}

inline u32 afresh(u32 x)
{
    return x;
}

inline u64 afresh(u64 x)
{
    return x;
}

inline float shuffle_xor(float x, int mask)
{
    return conv_host_shuffle_xor(x, mask);
}

inline bool all_lanes(bool condition)
{
    float failed = condition ? 0.0f : 1.0f;
    for (int mask = 16; mask > 0; mask /= 2)
        failed = fmaxf(failed, conv_host_shuffle_xor(failed, mask));
    return failed == 0.0f;
}

struct lane_group {
    u32 mask, rank, count;
};

inline lane_group lanes_together() // each alone
{
    return lane_group{ 0, 0, 1 };
}

inline bool any_of(const lane_group &, bool condition)
{
    return condition;
}

inline void launch_dependents()
{
}

#endif
