/*
 * machine.h - what runs a CUDA kernel on the host: CTAs of lanes, each a coroutine, and what they meet at. One OS thread, so
 * that every run is one order of events, drawn from a seed, and may be run again.
 *
 * What a GPU does later happens here at a time of the seed's choice: copies land, products are computed and tiles are stored
 * anywhere between where they are asked for and where they are waited for. What reads too early reads NaN, or old data.
 *
 * Checked beside the values: accesses within shared memory and aligned; lanes of a warp meet at one instruction; arrivals are
 * no more than a barrier expects; barriers' words are not overwritten; what TMA and wgmma read of shared memory was fenced by
 * who wrote it; somebody wrote the bytes that are read by their numbers; nobody waits for ever.
 */
#ifndef HOST_GPU_MACHINE_H
#define HOST_GPU_MACHINE_H

#include <algorithm>
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <execinfo.h>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "host_gpu/host_gpu.h"

namespace simt {

typedef uint32_t u32;
typedef uint64_t u64;

constexpr u32 SHARED_BASE = 1024; /* address of a CTA's first byte: 0 is none */
constexpr u32 STATIC_BYTES = 1024, STATIC_GAP = 4096; /* of arrays that a kernel declares, behind what no access may touch */
constexpr size_t STACK_BYTES = 128 * 1024, STACKS_PER_SLAB = 256;
constexpr u64 STACK_END = 0x65646e65206b6361; /* its lowest word, while nobody has come so far */
constexpr u64 HEAD_START = 100000; /* turns until a slow CTA falls behind: all have begun, and drawn tickets */
constexpr u32 SLOWNESS = 64;       /* and then has one turn for so many */
constexpr u64 PATIENCE = 20000000; /* turns without a barrier's completion or a lane's end */

/* ---- Chance ---- */

struct Dice {
    u64 state;
    u32 next()
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (u32)(state >> 32);
    }
    u32 below(u32 n)
    {
        return (u32)((u64)next() * n >> 32);
    }
    bool once_in(u32 n)
    {
        return below(n) == 0;
    }
};

/* ---- State ---- */

struct Cta;
struct Warp;

struct Copy { /* cp.async */
    u32 to;
    const void *from;
    u32 bytes, of; /* the rest of `of` bytes are zeros */
    int group, number; /* of the lane's copies */
};

struct Store { /* of a tile, by TMA */
    std::function<void(std::vector<unsigned char> &)> read;
    std::function<void(const std::vector<unsigned char> &)> write;
    std::vector<unsigned char> bytes;
    bool was_read;
    int group;
};

struct Lane {
    jmp_buf here;
    ucontext_t start;
    char *stack;
    Cta *cta;
    Warp *warp;
    int thread, lane;
    bool done, runnable;
    unsigned cluster_phase; /* in which it last arrived */
    const char *waits; /* at what instruction, for reports */
    u32 waits_for;
    std::deque<Copy> copies;
    std::vector<int> group_ends; /* copies issued when each closed */
    int copies_issued, copies_waited;
    bool all_came; /* at the named barrier where it was last, with its condition true */
    std::deque<Store> stores;
    int store_groups;
    std::vector<u32> unfenced; /* 16-byte pieces of shared memory that it wrote */
    u64 fenced;                /* when it last fenced */
};

struct Gathering {
    u32 mask, arrived; /* mask 0: free */
    const char *what;
    void *operands[32];
};

struct Product { /* wgmma of one warp: 16 rows */
    std::function<void()> compute;
    int group;
};

struct Warp {
    Lane *lanes[32];
    unsigned registers; /* of a thread */
    Gathering gatherings[4];
    std::deque<Product> products;
    int product_groups;
};

struct Mbar {
    bool live;
    u32 expected, pending, phase;
    int64_t bytes;
    std::vector<Lane *> waiters;
};

struct Named {
    u32 threads, arrived;
    bool all;
    std::vector<Lane *> waiters;
};

struct Written { /* not fenced by who wrote it */
    u64 when;
    int thread; /* + 1; 0: nothing */
};

struct Cluster {
    Cta *ctas[HOST_GPU_CLUSTER]; /* that have not ended */
    unsigned threads, arrived, phase;
    std::vector<Lane *> waiters;
};

struct Cta {
    unsigned index, rank;
    bool begun; /* a lane has run */
    std::shared_ptr<Cluster> cluster;
    unsigned char *shared;
    std::vector<Lane *> lanes;
    std::vector<Warp> warps;
    std::vector<Mbar> mbars; /* by 8-byte word */
    std::vector<Written> unfenced; /* by 16-byte piece */
    std::vector<unsigned char> known; /* by byte: 1, somebody has written it */
    Named named[16];
    unsigned given;                /* registers of a thread that warps gave and none has taken; those that end give nothing */
    std::vector<Lane *> want_more; /* registers */
    int alive;
};

struct Job { /* what happens at some time */
    Cta *cta;
    std::function<void()> run;
};

struct Machine {
    Dice dice;
    jmp_buf scheduler;
    Lane *current;
    std::vector<Lane *> runnable;
    std::vector<Job> jobs;
    std::vector<Cta *> resident;
    std::vector<char *> slabs; /* of stacks: a mapping each would be more than a process may have */
    std::vector<Lane *> spare;
    u64 turns, last_progress;
    unsigned grid, block, shared_bytes, slow;
    std::function<void()> body;
    std::string trouble;
    bool stopped;
};

inline Machine m;
inline unsigned char *shared_window; /* of the CTA that runs */

/* ---- Faults ---- */

[[noreturn]] inline void leave();

/* The launch has failed, and ends here: what a lane's stack holds is not unwound. */
[[noreturn]] inline void fault(const char *format, ...)
{
    char text[8192], where[128] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (m.current)
        snprintf(where, sizeof where, "CTA %u, warp %d, lane %d: ", m.current->cta->index, m.current->thread / 32,
                 m.current->lane);
    m.trouble = std::string(where) + text;
    if (getenv("HOST_GPU_KEEP")) { /* for addr2line on the kernel.so that was kept */
        void *frames[12];
        backtrace_symbols_fd(frames, backtrace(frames, 12), 2);
    }
    m.stopped = true;
    leave();
}

/* ---- Lanes ---- */

[[noreturn]] __attribute__((noinline)) inline void leave()
{
    _longjmp(m.scheduler, 1);
}

/* Back to the scheduler; returns when this lane is chosen again. */
__attribute__((noinline)) inline void switch_out()
{
    if (_setjmp(m.current->here) == 0) leave();
}

inline void make_runnable(Lane *lane)
{
    if (lane->runnable || lane->done) return;
    lane->runnable = true;
    m.runnable.push_back(lane);
}

inline void block(const char *what, u32 which)
{
    m.current->waits = what;
    m.current->waits_for = which;
    switch_out();
}

/* Lets others go first. */
inline void yield()
{
    make_runnable(m.current);
    m.current->waits = "its turn";
    switch_out();
}

inline void maybe_yield(u32 once_in)
{
    if (m.dice.once_in(once_in)) yield();
}

/* A warp's, down to so many a thread; who waits for some looks again. */
inline void give_registers(Lane *me, unsigned wanted)
{
    me->cta->given += me->warp->registers - wanted;
    me->warp->registers = wanted;
    for (Lane *lane : me->cta->want_more)
        make_runnable(lane);
    me->cta->want_more.clear();
}

/* Up to so many, once others of the CTA have given them: there are no more than it started with. By each lane of a warp. */
inline void take_registers(Lane *me, unsigned wanted)
{
    Warp &warp = *me->warp;
    while (warp.registers < wanted && me->cta->given < wanted - warp.registers) {
        me->cta->want_more.push_back(me);
        block("that others give registers, it wants", wanted);
    }
    if (warp.registers < wanted) me->cta->given -= wanted - warp.registers;
    warp.registers = wanted;
}

inline void progress()
{
    m.last_progress = m.turns;
}

/* ---- Shared memory ---- */

/* Where arrays lie that a kernel declares beside the launch's, from a CTA's first byte. */
inline u32 static_at()
{
    return (m.shared_bytes + 1023) / 1024 * 1024 + STATIC_GAP;
}

inline u32 window_bytes()
{
    return static_at() + STATIC_BYTES;
}

inline bool within(u32 first, u32 size, u32 address, u32 bytes)
{
    return address >= first && address - first <= size && bytes <= size - (address - first);
}

/* Addresses of shared memory say from bit 24 on whose it is: the rank in the cluster, as mapa and nvcc have it. */
constexpr u32 CLUSTER_SHIFT = 24;

/* Where in a CTA's shared memory, whichever it is. */
inline u32 place_of(u32 address)
{
    return address & ((1u << CLUSTER_SHIFT) - 1);
}

inline unsigned char *byte_of(Cta *cta, u32 address)
{
    return cta->shared + (place_of(address) - SHARED_BASE);
}

/* Where it is in this CTA's. */
inline u32 own_place(const Cta *cta, u32 address)
{
    if (address >> CLUSTER_SHIFT != cta->rank)
        fault("%#x is no address in the shared memory of its CTA, whose rank is %u", address, cta->rank);
    return place_of(address);
}

inline unsigned char *shared_at(u32 whole_address, u32 bytes, u32 alignment)
{
    const u32 address = own_place(m.current->cta, whole_address);
    if (!within(SHARED_BASE, m.shared_bytes, address, bytes) &&
        !within(SHARED_BASE + static_at(), STATIC_BYTES, address, bytes))
        fault("%u bytes at %#x are not in shared memory, %u bytes from %#x", bytes, address, m.shared_bytes, SHARED_BASE);
    if (address % alignment) fault("address %#x of shared memory is not a multiple of %u", address, alignment);
    return shared_window + (address - SHARED_BASE);
}

inline void make_known(Cta *cta, u32 address, u32 bytes)
{
    memset(&cta->known[place_of(address) - SHARED_BASE], 1, bytes);
}

/* Of what is read by its number alone: of words and larger pieces some are read that are of no use then. */
inline void expect_known(u32 address)
{
    if (!m.current->cta->known[place_of(address) - SHARED_BASE])
        fault("a byte of shared memory at %#x is read, and nobody has written it", address);
}

inline void wrote(Lane *me, u32 address, u32 bytes)
{
    make_known(me->cta, address, bytes);
    const u32 first = place_of(address) - SHARED_BASE;
    for (u32 piece = first / 16; piece <= (first + bytes - 1) / 16; ++piece) {
        Written &w = me->cta->unfenced[piece];
        if (w.thread != me->thread + 1) me->unfenced.push_back(piece);
        w = { m.turns, me->thread + 1 };
    }
}

inline void fence_writes()
{
    Lane *me = m.current;
    for (u32 piece : me->unfenced)
        if (me->cta->unfenced[piece].thread == me->thread + 1) me->cta->unfenced[piece].thread = 0;
    me->unfenced.clear();
    me->fenced = m.turns;
}

/* `what` happens behind a fence of the lane that wrote there last, or since then of who asked for it. */
inline void expect_fence(const Written &w, u64 fenced, u32 address, const char *what)
{
    if (w.thread && fenced <= w.when)
        fault("shared memory at %#x is %s asynchronously; thread %d wrote it, and no fence came between", address, what,
              w.thread - 1);
}

/*
 * What wgmma or TMA reads, maybe while no lane of the CTA runs. A fence between a write and such a read is the writer's, or,
 * after they met, the reader's: `fenced` is when who asked for the read last did.
 */
inline const unsigned char *async_read(Cta *cta, u32 whole_address, u32 bytes, u64 fenced)
{
    const u32 address = place_of(whole_address); /* a matrix descriptor's is that alone */
    if (address < SHARED_BASE || address - SHARED_BASE + bytes > m.shared_bytes)
        fault("an asynchronous read of %u bytes at %#x is not in shared memory", bytes, address);
    expect_fence(cta->unfenced[(address - SHARED_BASE) / 16], fenced, address, "read");
    return cta->shared + (address - SHARED_BASE);
}

/* Where TMA writes 16 bytes: over what a lane wrote only behind a fence, of that lane or of who asked, as for a read. */
inline unsigned char *async_written(Cta *cta, u32 address, u64 fenced)
{
    Written &w = cta->unfenced[(place_of(address) - SHARED_BASE) / 16];
    expect_fence(w, fenced, address, "written");
    w.thread = 0;
    make_known(cta, address, 16);
    return byte_of(cta, address);
}

inline u32 swizzled(u32 address)
{
    return address ^ (address >> 7 & 7) << 4;
}

/* ---- Lanes of a warp meet ---- */

/* act(operands) once, by who comes last; operands[i] is lane i's. */
template <class F> inline void meet_lanes(u32 mask, const char *what, void *mine, F &&act)
{
    Lane *me = m.current;
    Gathering *g = nullptr, *unused = nullptr;
    for (Gathering &x : me->warp->gatherings) {
        if (x.mask == mask) g = &x;
        if (!x.mask) unused = &x;
    }
    if (!(mask >> me->lane & 1)) fault("%s: the mask %#x has not this lane in it", what, mask);
    if (!g) {
        if (!unused) fault("%s: lanes of the warp wait in too many places", what);
        g = unused;
        *g = Gathering{ mask, 0, what, {} };
    }
    if (g->what != what && strcmp(g->what, what) != 0) fault("meets lanes of its warp at %s that are at %s", what, g->what);
    g->operands[me->lane] = mine;
    g->arrived |= 1u << me->lane;
    if (g->arrived != mask) {
        block(what, mask);
        return;
    }
    act(g->operands);
    g->mask = 0;
    for (int i = 0; i < 32; ++i)
        if (mask >> i & 1 && me->warp->lanes[i] != me) make_runnable(me->warp->lanes[i]);
}

/* ---- mbarriers ---- */

constexpr u64 MBAR_WORD = 0x6d62617272696572u;

inline Mbar &mbar_at(Cta *cta, u32 whole_address)
{
    const u32 address = own_place(cta, whole_address);
    const u32 word = (address - SHARED_BASE) / 8;
    u64 value;
    if (address % 8 || address < SHARED_BASE || word >= cta->mbars.size()) fault("no mbarrier can be at %#x", address);
    memcpy(&value, cta->shared + word * 8, sizeof value);
    if (!cta->mbars[word].live) fault("the mbarrier at %#x was not initialised", address);
    if (value != MBAR_WORD) fault("the mbarrier at %#x was overwritten", address);
    return cta->mbars[word];
}

inline void mbar_make(u32 address, u32 count)
{
    Cta *cta = m.current->cta;
    memcpy(shared_at(address, 8, 8), &MBAR_WORD, 8);
    Mbar &b = cta->mbars[(place_of(address) - SHARED_BASE) / 8];
    if (b.live) fault("the mbarrier at %#x is initialised a second time", address);
    if (!count) fault("the mbarrier at %#x is to expect nobody", address);
    b = Mbar{ true, count, count, 0, 0, {} };
}

inline void mbar_settle(Mbar &b)
{
    if (b.pending || b.bytes) return;
    ++b.phase;
    b.pending = b.expected;
    for (Lane *lane : b.waiters)
        make_runnable(lane);
    b.waiters.clear();
    progress();
}

inline void mbar_come(Cta *cta, u32 address, int64_t bytes)
{
    Mbar &b = mbar_at(cta, address);
    if (!b.pending) fault("more arrivals than the %u that the mbarrier at %#x expects", b.expected, address);
    b.bytes += bytes;
    --b.pending;
    mbar_settle(b);
}

inline void mbar_landed(Cta *cta, u32 address, u32 bytes)
{
    Mbar &b = mbar_at(cta, address);
    b.bytes -= bytes;
    mbar_settle(b);
}

inline bool mbar_has_passed(u32 address, u32 parity)
{
    return (mbar_at(m.current->cta, address).phase & 1) != (parity & 1);
}

/* As try_wait, which may give up. */
inline bool mbar_try(u32 address, u32 parity)
{
    if (mbar_has_passed(address, parity)) return true;
    if (m.dice.once_in(16)) return false;
    mbar_at(m.current->cta, address).waiters.push_back(m.current);
    block("an mbarrier", address);
    return mbar_has_passed(address, parity);
}

/* ---- Named barriers ---- */

inline bool named_come(int id, u32 threads, bool waits, bool condition)
{
    if (id < 0 || id > 15) fault("there is no barrier %d", id);
    Named &b = m.current->cta->named[id];
    if (threads % 32 || !threads) fault("barrier %d of %u threads, which are no whole warps", id, threads);
    if (b.arrived && b.threads != threads) fault("barrier %d is met of %u threads and of %u", id, b.threads, threads);
    if (!b.arrived) {
        b.threads = threads;
        b.all = true;
    }
    b.all = b.all && condition;
    if (++b.arrived == threads) {
        b.arrived = 0;
        b.waiters.push_back(m.current);
        for (Lane *lane : b.waiters) {
            lane->all_came = b.all;
            if (lane != m.current) make_runnable(lane);
        }
        b.waiters.clear();
        progress();
    } else if (waits) {
        b.waiters.push_back(m.current);
        block("a named barrier", (u32)id);
    }
    return m.current->all_came;
}

/* ---- Clusters ---- */

inline u32 cluster_address(u32 address, u32 rank)
{
    if (rank >= HOST_GPU_CLUSTER) fault("there is no CTA %u in a cluster of %d", rank, HOST_GPU_CLUSTER);
    return own_place(m.current->cta, address) | rank << CLUSTER_SHIFT;
}

inline Cta *cluster_cta(u32 address)
{
    const u32 rank = address >> CLUSTER_SHIFT;
    if (rank >= HOST_GPU_CLUSTER) fault("%#x is no address in the shared memory of a cluster", address);
    Cta *there = m.current->cta->cluster->ctas[rank];
    if (!there) fault("the CTA of rank %u, whose shared memory has %#x, has ended", rank, address);
    if (!there->begun) fault("the CTA of rank %u, whose shared memory has %#x, may not have begun", rank, address);
    return there;
}

inline unsigned char *cluster_at(u32 address, u32 bytes)
{
    Cta *there = cluster_cta(address);
    if (address % bytes || !within(SHARED_BASE, m.shared_bytes, place_of(address), bytes))
        fault("%u bytes at %#x of a cluster's shared memory", bytes, address);
    return byte_of(there, address);
}

inline void cluster_arrive()
{
    Cluster &c = *m.current->cta->cluster;
    m.current->cluster_phase = c.phase;
    if (++c.arrived < c.threads) return;
    c.arrived = 0;
    ++c.phase;
    for (Lane *lane : c.waiters)
        make_runnable(lane);
    c.waiters.clear();
    progress();
}

inline void cluster_wait()
{
    Cluster &c = *m.current->cta->cluster;
    if (c.phase != m.current->cluster_phase) return;
    c.waiters.push_back(m.current);
    block("a cluster's barrier", 0);
}

/* ---- Asynchronous copies into shared memory ---- */

/* A generic write of the lane's. */
inline void land_first(Lane *lane)
{
    const Copy c = lane->copies.front();
    unsigned char *const to = byte_of(lane->cta, c.to);
    lane->copies.pop_front();
    memset(to, 0, c.of);
    if (c.bytes) memcpy(to, c.from, c.bytes);
    wrote(lane, c.to, c.of);
}

/* Of a lane's copies, those of groups below `below`. */
inline void land_groups(Lane *lane, int below)
{
    if (below > 0) lane->copies_waited = std::max(lane->copies_waited, lane->group_ends[(size_t)below - 1]);
    while (!lane->copies.empty() && lane->copies.front().group < below)
        land_first(lane);
}

/* Those that were asked for before copy number `below`. */
inline void land_copies(Lane *lane, int below)
{
    lane->copies_waited = std::max(lane->copies_waited, below);
    while (!lane->copies.empty() && lane->copies.front().number < below)
        land_first(lane);
}

/* ---- Tiles that are stored ---- */

inline void read_stores(Lane *lane, int below)
{
    for (Store &s : lane->stores)
        if (s.group < below && !s.was_read) {
            s.read(s.bytes);
            s.was_read = true;
        }
}

inline void write_stores(Lane *lane, int below)
{
    read_stores(lane, below);
    while (!lane->stores.empty() && lane->stores.front().group < below) {
        lane->stores.front().write(lane->stores.front().bytes);
        lane->stores.pop_front();
    }
}

/* ---- Products ---- */

inline void compute_products(Warp *warp, int below)
{
    while (!warp->products.empty() && warp->products.front().group < below) {
        warp->products.front().compute();
        warp->products.pop_front();
    }
}

/* ---- The grid ---- */

inline void lane_main()
{
    m.body();
    Lane *me = m.current;
    for (const Store &s : me->stores)
        if (!s.was_read) fault("a lane ends while a tile that it stores is still to be read from shared memory");
    write_stores(me, 1 << 30);
    if (me->copies_waited < me->copies_issued) fault("a lane ends before it has waited for its cp.async");
    if (!me->warp->products.empty()) fault("a lane ends before its warp has waited for its wgmma");
    if (memcmp(me->stack, &STACK_END, sizeof STACK_END) != 0) fault("its stack was too small");
    me->done = true;
    --me->cta->alive;
    progress();
    leave();
}

inline void make_spare_lanes()
{
    char *slab = (char *)mmap(nullptr, STACKS_PER_SLAB * STACK_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) abort();
    m.slabs.push_back(slab);
    for (size_t i = 0; i < STACKS_PER_SLAB; ++i) {
        m.spare.push_back(new Lane());
        m.spare.back()->stack = slab + i * STACK_BYTES;
    }
}

inline void free_lanes()
{
    for (Lane *lane : m.spare)
        delete lane;
    for (char *slab : m.slabs)
        munmap(slab, STACKS_PER_SLAB * STACK_BYTES);
    m.spare.clear();
    m.slabs.clear();
}

inline Lane *new_lane(Cta *cta, Warp *warp, int thread)
{
    if (m.spare.empty()) make_spare_lanes();
    Lane *lane = m.spare.back();
    m.spare.pop_back();
    char *stack = lane->stack;
    *lane = Lane();
    lane->stack = stack;
    memcpy(stack, &STACK_END, sizeof STACK_END);
    lane->cta = cta;
    lane->warp = warp;
    lane->thread = thread;
    lane->lane = thread % 32;
    warp->lanes[thread % 32] = lane;
    return lane;
}

/* Runs to where makecontext's function begins, and back: from then on it is entered by longjmp. */
inline void first_entry()
{
    switch_out();
    lane_main();
}

inline void prepare(Lane *lane)
{
    static ucontext_t origin;
    getcontext(&lane->start);
    lane->start.uc_stack.ss_sp = lane->stack;
    lane->start.uc_stack.ss_size = STACK_BYTES;
    lane->start.uc_link = nullptr;
    makecontext(&lane->start, first_entry, 0);
    m.current = lane;
    if (_setjmp(m.scheduler) == 0) swapcontext(&origin, &lane->start);
}

/* Of a thread when the kernel starts: what an SM has for a CTA of its size. */
inline unsigned registers_at_launch()
{
    return std::min(65536 / m.block, 255u) / 8 * 8;
}

/*
 * What is in shared memory that nobody has written: a NaN of each type, and no index that leads anywhere; in every second CTA
 * numbers that differ from CTA to CTA, NaN or large in each type, of which single bytes are anything. Two CTAs that both go by
 * such a byte do not go the same way.
 */
inline void spoil(uint16_t *shared, size_t count, unsigned cta)
{
    std::minstd_rand random(cta);
    for (size_t i = 0; i < count; ++i)
        shared[i] = cta % 2 == 0 ? 0x7fff : (uint16_t)(0x7c01 + random() % 0x3ff);
}

inline Cta *new_cta(unsigned index)
{
    Cta *cta = new Cta();
    const size_t bytes = window_bytes();
    cta->index = index;
    cta->shared = (unsigned char *)aligned_alloc(1024, (bytes + 1023) / 1024 * 1024);
    spoil((uint16_t *)cta->shared, bytes / 2, index);
    cta->warps.resize(m.block / 32);
    cta->mbars.resize(bytes / 8);
    cta->unfenced.resize(bytes / 16);
    cta->known.resize(bytes);
    cta->alive = (int)m.block;
    for (Warp &warp : cta->warps)
        warp.registers = registers_at_launch();
    for (int t = 0; t < (int)m.block; ++t) {
        Lane *lane = new_lane(cta, &cta->warps[t / 32], t);
        cta->lanes.push_back(lane);
        prepare(lane);
        make_runnable(lane);
    }
    return cta;
}

inline void new_cluster(unsigned first)
{
    auto cluster = std::make_shared<Cluster>();
    cluster->threads = HOST_GPU_CLUSTER * m.block;
    for (unsigned rank = 0; rank < HOST_GPU_CLUSTER; ++rank) {
        Cta *cta = new_cta(first + rank);
        cta->rank = rank;
        cta->cluster = cluster;
        cluster->ctas[rank] = cta;
        m.resident.push_back(cta);
    }
}

inline void end_cta(Cta *cta)
{
    cta->cluster->ctas[cta->rank] = nullptr;
    m.current = nullptr;
    for (const Job &job : m.jobs)
        if (job.cta == cta) fault("CTA %u ends before a copy into its shared memory has landed", cta->index);
    for (Lane *lane : cta->lanes)
        m.spare.push_back(lane);
    free(cta->shared);
    delete cta;
}

inline void run_job(size_t i)
{
    const Job job = std::move(m.jobs[i]);
    m.jobs[i] = std::move(m.jobs.back());
    m.jobs.pop_back();
    m.current = nullptr;
    job.run();
}

/* What any warp or lane has on its way. */
inline void run_something_early()
{
    Cta *cta = m.resident[m.dice.below((u32)m.resident.size())];
    Lane *lane = cta->lanes[m.dice.below((u32)cta->lanes.size())];
    m.current = nullptr;
    if (!lane->copies.empty()) land_first(lane);
    for (Store &s : lane->stores)
        if (!s.was_read) {
            s.read(s.bytes);
            s.was_read = true;
            return;
        }
    if (!lane->stores.empty()) {
        lane->stores.front().write(lane->stores.front().bytes);
        lane->stores.pop_front();
        return;
    }
    Warp &warp = cta->warps[m.dice.below((u32)cta->warps.size())];
    if (!warp.products.empty()) {
        warp.products.front().compute();
        warp.products.pop_front();
    }
}

inline std::string who_waits()
{
    std::string text;
    for (const Cta *cta : m.resident)
        for (const Lane *lane : cta->lanes) {
            if (lane->done || text.size() > 7500) continue;
            const Lane *before = lane->lane ? lane->warp->lanes[lane->lane - 1] : nullptr;
            if (before && !before->done && lane->waits == before->waits && lane->waits_for == before->waits_for) continue;
            char line[160];
            snprintf(line, sizeof line, "\n  CTA %u warp %d lane %d%s: %.60s %#x", cta->index, lane->thread / 32, lane->lane,
                     lane->runnable ? " (looks again and again)" : "", lane->waits ? lane->waits : "its start",
                     lane->waits_for);
            text += line;
        }
    return text;
}

inline void turn()
{
    ++m.turns;
    if (!m.jobs.empty() && (m.runnable.empty() || m.dice.once_in(64))) {
        run_job(m.dice.below((u32)m.jobs.size()));
        return;
    }
    if (m.dice.once_in(256)) run_something_early();
    m.current = nullptr;
    if (m.runnable.empty()) fault("nobody can go on:%s", who_waits().c_str());
    if (m.turns - m.last_progress > PATIENCE) fault("nothing comes of what runs:%s", who_waits().c_str());
    const u32 i = m.dice.below((u32)m.runnable.size());
    Lane *lane = m.runnable[i];
    if (lane->cta->index + 1 == m.slow && m.turns > HEAD_START && !m.dice.once_in(SLOWNESS)) return;
    m.runnable[i] = m.runnable.back();
    m.runnable.pop_back();
    lane->runnable = false;
    m.current = lane;
    lane->cta->begun = true;
    shared_window = lane->cta->shared;
    _longjmp(lane->here, 1);
}

inline void take_away_the_ended()
{
    for (size_t i = 0; i < m.resident.size();)
        if (m.resident[i]->alive == 0) {
            end_cta(m.resident[i]);
            m.resident.erase(m.resident.begin() + (long)i);
        } else {
            ++i;
        }
}

/* A sentence, or "" when all went well. After a sentence nothing more can be run in this process. */
inline const char *run_grid(const struct host_gpu_launch *launch, std::function<void()> body)
{
    m.dice.state = launch->seed * 0x9e3779b97f4a7c15u + 0x1234567;
    m.grid = launch->grid;
    m.block = launch->block;
    m.shared_bytes = launch->shared_bytes;
    m.slow = launch->slow;
    m.body = std::move(body);
    m.turns = m.last_progress = 0;
    unsigned next = 0;
    if (m.grid % HOST_GPU_CLUSTER) return "a grid that is no whole clusters";
    volatile unsigned *at = &next; /* lives across longjmp */
    while (!m.stopped && (*at < m.grid || !m.resident.empty())) {
        const size_t room = std::max(launch->resident, (unsigned)HOST_GPU_CLUSTER);
        if (m.resident.size() + HOST_GPU_CLUSTER <= room && *at < m.grid) {
            new_cluster(*at);
            *at += HOST_GPU_CLUSTER;
            continue;
        }
        if (_setjmp(m.scheduler) == 0) turn();
        if (!m.stopped && _setjmp(m.scheduler) == 0) take_away_the_ended();
    }
    if (!m.stopped) free_lanes();
    return m.trouble.c_str();
}

} // namespace simt

#endif
