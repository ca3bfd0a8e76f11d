// templates/include/gdn_conv.cuh without inline PTX. Each access checks the alignment that its instruction needs.
struct alignas(16) vec8 {
    u32 pair[4];
};

inline vec8 load_vec8(const vec8 *at)
{
    vec8 v;
    memcpy(&v, aligned_to(at, sizeof v), sizeof v);
    return v;
}

inline void store_vec8(vec8 *at, const vec8 &v)
{
    memcpy((void *)aligned_to(at, sizeof v), &v, sizeof v);
}

template <int PIECE>
inline vec8 load_activations(const u16 *at)
{
    vec8 v;
    memcpy(&v, aligned_to(at, PIECE), sizeof v);
    return v;
}

inline float ex2_approx(float x)
{
    return flushed(exp2f(flushed(x)));
}

inline float rcp_approx(float x)
{
    return flushed(1.0f / flushed(x));
}

inline float max_nan(float a, float b)
{
    return a != a || b != b ? NAN : fmaxf(a, b);
}
