// templates/include/gdn_types.cuh without inline PTX: the same names, the same values.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

inline u32 pack_bf16x2(float lo, float hi)
{
    return gdni_bf16_from_double(lo) | (u32)gdni_bf16_from_double(hi) << 16;
}

inline u32 pack_f16x2(float lo, float hi)
{
    return gdni_f16_from_double(lo) | (u32)gdni_f16_from_double(hi) << 16;
}

inline float f16_to_float(u16 bits)
{
    return gdni_f16_to_float(bits);
}

inline u32 pack_io(float lo, float hi)
{
    return spec::IO_BF16 ? pack_bf16x2(lo, hi) : pack_f16x2(lo, hi);
}

enum { TYPE_BF16 = 1, TYPE_F16 = 2, TYPE_F32 = 3 };

template <int TYPE> inline float load_element(const void *base, i64 index)
{
    return (float)gdni_load(TYPE, base, index);
}

template <bool I64> inline i64 load_index(const void *base, i64 index)
{
    return I64 ? ((const i64 *)base)[index] : ((const int *)base)[index];
}
