/*
 * What the time of a compile is measured in (tests/nvrtc/test_matrix.c): a kernel of the kind that the library writes, loops
 * unrolled over registers and inline PTX of many operands. Never run, and not to be changed: bounds count in it.
 */
__device__ __forceinline__ void load(unsigned (&a)[4], unsigned from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(from)
                 : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned pack(float x, float y)
{
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
}

/* x (16 x 128) = scale x + (x as bf16) tile */
__device__ __forceinline__ void step(float (&x)[16][4], unsigned tile, const float *scale)
{
    unsigned a[8][4];
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            a[i][j] = pack(x[2 * i + j / 2][2 * (j & 1)], x[2 * i + j / 2][2 * (j & 1) + 1]);
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        const float s = scale[8 * n + (threadIdx.x & 3)];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            x[n][j] *= s;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            unsigned b[4];
            load(b, tile + 4096 * i + 512 * n + 16 * (threadIdx.x & 31));
            multiply(x[2 * n], a[i], b[0], b[1]);
            multiply(x[2 * n + 1], a[i], b[2], b[3]);
        }
}

extern "C" __global__ void __launch_bounds__(128) yardstick(float *states, const float *scales, int num_steps)
{
    float x[16][4];
    float *const from = states + 64 * (blockIdx.x * 128 + threadIdx.x);
#pragma unroll
    for (int i = 0; i < 64; ++i)
        x[i / 4][i % 4] = from[i];
    for (int i = 0; i < num_steps; ++i, scales += 4096) {
        step(x, 32768 * (i & 1), scales);
        if (scales[1] < 0.0f) step(x, 32768, scales + 128);
        if (scales[2] < 0.0f) step(x, 65536, scales + 256);
        if (scales[3] < 0.0f) step(x, 98304, scales + 384);
        if (scales[4] < 0.0f) step(x, 131072, scales + 512);
        if (scales[5] < 0.0f) step(x, 163840, scales + 640);
        if (scales[6] < 0.0f) step(x, 196608, scales + 768);
        if (scales[7] < 0.0f) step(x, 229376, scales + 896);
        if (scales[8] < 0.0f) step(x, 262144, scales + 1024);
        if (scales[9] < 0.0f) step(x, 294912, scales + 1152);
        if (scales[10] < 0.0f) step(x, 327680, scales + 1280);
        if (scales[11] < 0.0f) step(x, 360448, scales + 1408);
        if (scales[12] < 0.0f) step(x, 393216, scales + 1536);
        if (scales[13] < 0.0f) step(x, 425984, scales + 1664);
        if (scales[14] < 0.0f) step(x, 458752, scales + 1792);
        if (scales[15] < 0.0f) step(x, 491520, scales + 1920);
        if (scales[16] < 0.0f) step(x, 524288, scales + 2048);
    }
#pragma unroll
    for (int i = 0; i < 64; ++i)
        from[i] = x[i / 4][i % 4];
}
