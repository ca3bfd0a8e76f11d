/*
 * faulty.cu - kernels with a fault each, and some without, by p.fault: what the host GPU has to see, and what it must not.
 * A cluster of two CTAs of a warp, SHARED bytes of shared memory each. The second CTA is there for faults from FIRST_OF_TWO on
 * alone, and theirs are its results. test_host_gpu.c has the numbers' names.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

struct faulty_params {
    int fault;
    u32 *out; /* 32 words, 16-byte aligned */
};
constexpr u32 SHARED = 16384;
constexpr int FIRST_OF_TWO = 28;

namespace {

void store(u32 address, u32 value)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

u32 load(u32 address)
{
    u32 value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

u32 load_cluster(u32 address)
{
    u32 value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

void init(u32 bar, u32 count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

void arrive(u32 bar)
{
    asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.shared.b64 t, [%0];\n}" ::"r"(bar) : "memory");
}

void expect(u32 bar, u32 bytes)
{
    asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.expect_tx.shared.b64 t, [%0], %1;\n}" ::"r"(bar), "r"(bytes) : "memory");
}

void bulk_load(u32 to, const u32 *from, u32 bytes, u32 bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

void wait(u32 bar, u32 parity)
{
    u32 done = 0;
    while (!done)
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
}

void meet(int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1), "r"(threads) : "memory");
}

u32 rank_in_cluster()
{
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

u32 address_in(u32 address, u32 rank)
{
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

void meet_cluster()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

void fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* An element of the product of 16 columns of ones, which lie in the first 8192 bytes: 16. */
float product(u32 base, bool waited)
{
    const u64 d = (u64)0x40000040u << 32 | base >> 4 | 1u << 16;
    float x[32] = {};
    u32 yes = 0;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0}, %32, %33, p, 1, 1, 0, 0; }"
                 : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]), "+f"(x[7]), "+f"(x[8]),
                   "+f"(x[9]), "+f"(x[10]), "+f"(x[11]), "+f"(x[12]), "+f"(x[13]), "+f"(x[14]), "+f"(x[15]), "+f"(x[16]),
                   "+f"(x[17]), "+f"(x[18]), "+f"(x[19]), "+f"(x[20]), "+f"(x[21]), "+f"(x[22]), "+f"(x[23]), "+f"(x[24]),
                   "+f"(x[25]), "+f"(x[26]), "+f"(x[27]), "+f"(x[28]), "+f"(x[29]), "+f"(x[30]), "+f"(x[31])
                 : "l"(d), "l"(d), "r"(yes)
                 : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    if (waited) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(0) : "memory");
    const float first = x[0];
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(0) : "memory");
    return first;
}

} // namespace

extern "C" __global__ void __cluster_dims__(2, 1, 1) faulty(const __grid_constant__ faulty_params p)
{
    extern __shared__ __align__(1024) u8 shared[];
    const u32 base = (u32)__cvta_generic_to_shared(shared), lane = threadIdx.x, bar = base + SHARED - 8;
    const u32 rank = rank_in_cluster();
    if (p.fault < FIRST_OF_TWO && rank != 0) return;
    if (lane == 0) init(bar, 32);
    __syncwarp();
    u32 x = 0;
    switch (p.fault) {
    case 0: /* none: a value goes round by shared memory, an mbarrier and a shuffle */
        store(base + 4 * lane, lane);
        arrive(bar);
        wait(bar, 0);
        x = __shfl_xor_sync(~0u, load(base + 4 * (31 - lane)), 1);
        break;
    case 1: store(base + SHARED, 0); break;
    case 2: store(base + 2, 0); break;
    case 3: /* an exchange by shared memory that nothing orders */
        store(base + 4 * lane, lane);
        x = load(base + 4 * (31 - lane));
        break;
    case 4: /* half of a warp is somewhere else */
        if (lane < 16)
            __syncwarp();
        else
            x = __shfl_xor_sync(~0u, lane, 1);
        break;
    case 5: /* a lane does not come */
        if (lane) __syncwarp();
        break;
    case 6: /* once more than the barrier expects, which still waits for bytes */
        if (lane == 0) expect(bar, 16);
        arrive(bar);
        break;
    case 7: wait(bar - 8, 0); break;
    case 8: /* the barrier's word is overwritten */
        if (lane == 3) store(bar, 0);
        __syncwarp();
        arrive(bar);
        break;
    case 9: wait(bar, 0); break;
    case 10: meet(lane < 16 ? 32 : 64); break;
    case 11: /* an operand that no fence shows to wgmma */
    case 12: /* a product that is not waited for */
    case 13: /* neither fault */
        for (u32 at = 4 * lane; at < 8192; at += 128)
            store(base + at, 0x3c003c00);
        if (p.fault != 11) fence();
        __syncwarp();
        x = (u32)product(base, p.fault != 12);
        break;
    case 14: /* a copy that is waited for too late */
    case 15: /* one that is */
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(base + 16 * lane), "l"(p.out), "r"(16) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (p.fault == 15) asm volatile("cp.async.wait_group %0;" ::"n"(0) : "memory");
        x = load(base + 16 * lane);
        asm volatile("cp.async.wait_group %0;" ::"n"(0) : "memory");
        break;
    case 17: /* a copy that is never waited for */
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(base + 16 * lane), "l"(p.out), "r"(16) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        break;
    case 18: init(bar, 32); break; /* once more */
    case 19: asm volatile("bar.sync %0, %1;" ::"r"(20), "r"(32) : "memory"); break; /* of a barrier that there is not */
    case 20: /* unlike shuffles */
        x = lane < 16 ? __shfl_xor_sync(~0u, lane, 1) : __shfl_sync(~0u, lane, 1);
        break;
    case 21: /* a copy's bytes that no fence shows to wgmma */
        for (u32 at = 4 * lane; at < 8192; at += 128)
            store(base + at, 0x3c003c00);
        fence();
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(base + 16 * lane), "l"(p.out), "r"(16) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group %0;" ::"n"(0) : "memory");
        __syncwarp();
        x = (u32)product(base, true);
        break;
    case 22: asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(256)); break; /* of more than it has */
    case 25: asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(256)); break; /* which nobody gives */
    case 23: x = address_in(base, 2); break; /* of two CTAs */
    case 24: bulk_load(base, p.out, 24, bar); break; /* of what are no pieces of 16 bytes */
    case 26: /* a bulk copy over what lanes wrote, with no fence between */
    case 27: /* with one */
        store(base + 4 * lane, lane);
        if (p.fault == 27) fence();
        __syncwarp();
        if (lane == 0) {
            expect(bar, 16);
            bulk_load(base, p.out, 16, bar);
        } else {
            arrive(bar);
        }
        wait(bar, 0);
        x = load(base + 4 * (lane % 4));
        break;
    case 28: /* the other's memory by an instruction for one's own */
    case 29: /* as it has to be; by mapa's address of what is its own too */
        meet_cluster();
        store(address_in(base, rank) + 4 * lane, 100 * rank + lane);
        meet_cluster();
        x = p.fault == 28 ? load(address_in(base, 1 - rank) + 4 * lane) : load_cluster(address_in(base, 1 - rank) + 4 * lane);
        x += load(base + 4 * lane);
        meet_cluster();
        break;
    case 30: /* a byte that nobody wrote, beside one's own */
    case 31: /* one's own */
        store(base + 8 * lane, 0x01010101 * lane);
        x = shared[8 * lane + (p.fault == 30 ? 4 : 3)];
        break;
    case 16: /* from an address that is not a multiple of 16 */
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(base), "l"((u8 *)p.out + 4), "r"(16) : "memory");
        break;
    }
    __syncwarp();
    if (p.fault < FIRST_OF_TWO || rank == 1) p.out[lane] = x;
}
