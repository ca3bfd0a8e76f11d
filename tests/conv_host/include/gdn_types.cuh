// templates/include/gdn_types.cuh without inline PTX: the same names, the same values.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

inline u16 float_to_io(float x)
{
    return spec::IO_BF16 ? gdni_bf16_from_double(x) : gdni_f16_from_double(x);
}

inline float io_to_float(u16 bits)
{
    return spec::IO_BF16 ? gdni_bf16_to_float(bits) : gdni_f16_to_float(bits);
}

inline u32 pack_io(float lo, float hi)
{
    return float_to_io(lo) | (u32)float_to_io(hi) << 16;
}

inline float io_lo(u32 pair)
{
    return io_to_float((u16)pair);
}

inline float io_hi(u32 pair)
{
    return io_to_float((u16)(pair >> 16));
}
