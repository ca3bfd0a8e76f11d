/*
 * gdn_jit.h - public C interface of libgdnjit.
 *
 * Two operators of Gated DeltaNet (GDN) inference, specialised per shape, compiled by NVRTC and cached on disk:
 *
 *   conv1d-QKV    the prologue: causal depthwise conv1d (+ bias, SiLU, L2 norm, gates) straight from the packed projection
 *                 into separate q, k, v, g and beta, with the conv state update and checkpoints, in one launch.
 *   GDN prefill   the chunked gated delta rule, forward, exact, varlen, with initial and final state.
 *
 * Life of a call:   desc -> gdn_plan_*() -> gdn_plan_load() -> gdn_execute_*()       (plan: compiles, touches no device)
 * or, in one call:  gdn_prefill(), gdn_conv1d_qkv()                                  (plan and load on first use)
 *
 * Threads. A gdn_ctx may be used by any number of threads. A gdn_plan is immutable once created, except that gdn_plan_load()
 * may be called by any thread and is idempotent. gdn_execute_*() reads the plan only: it allocates nothing, takes no lock,
 * reads no environment and no file, and is legal during stream capture. Concurrent executes need different workspaces.
 * Every callback must return (no longjmp, no exception); what it is given is valid until then. A log callback may be called
 * from any thread that is in a call with the context or a plan of it, must not call this library, and must not wait for a
 * thread that is planning; other callbacks may call it, but not destroy what the call around them was given. A thread inside a
 * call must not be cancelled (pthread_cancel): others would wait for it. gdn_last_error() is per thread. After fork() a child
 * must not use a context of its parent, not even to destroy it; where the parent had begun to use CUDA, a child cannot.
 *
 * Errors. Every function that can fail returns a gdn_status; gdn_last_error() then holds one sentence that names the field,
 * its value and the remedy; bytes of names and paths stand in it as they were given, control characters apart, so that it is
 * one line; of GDN_E_COMPILE the end of the compiler's log, in its lines, follows. Nothing here aborts, prints, or exits.
 *
 * Structs. Set the first member, struct_size, by starting from the struct's _INIT macro. A library that is newer than its
 * caller accepts the caller's shorter struct and uses defaults for the rest; an older one takes a longer struct if what it does
 * not know of it is zero, else GDN_E_VERSION. Structs that a callback is given have the library's struct_size: read no member
 * beyond it.
 *
 * Versions. Running needs an NVIDIA driver of CUDA 12.0 (R525) or newer, and of no older major version than the NVRTC that made
 * the cubins: what NVRTC 13 made does not load on a driver of CUDA 12, from a cache or a bundle neither.
 *
 * This header includes no CUDA header: gdn_stream is CUstream / cudaStream_t, gdn_devptr is CUdeviceptr.
 */
#ifndef GDN_JIT_H
#define GDN_JIT_H

#include <stddef.h>
#include <stdint.h>

#include "gdn_jit/version.h"

#if defined(GDN_STATIC)
#define GDN_API
#elif defined(__GNUC__)
#define GDN_API __attribute__((visibility("default")))
#else
#define GDN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gdn_ctx gdn_ctx;
typedef struct gdn_plan gdn_plan;
typedef struct CUstream_st *gdn_stream; /* NULL: the legacy default stream */
typedef uint64_t gdn_devptr;            /* device address; 0 is "not given" */

/* ---- 1. Status ------------------------------------------------------------------------------------------------------ */

/* The numbers are ABI: never renumbered; new ones join their group of ten. */
typedef enum gdn_status {
    GDN_OK = 0,
    GDN_E_INVALID = 10,     /* an argument breaks its contract */
    GDN_E_UNSUPPORTED = 11, /* legal, but this library has no kernel for it */
    GDN_E_VERSION = 12,     /* struct_size or file of another version */
    GDN_E_NOMEM = 20,
    GDN_E_IO = 21,
    GDN_E_NO_DRIVER = 30, /* libcuda not found or unusable */
    GDN_E_NO_NVRTC = 31,  /* libnvrtc not found or too old for the arch */
    GDN_E_NO_DEVICE = 32,
    GDN_E_COMPILE = 40,
    GDN_E_NOT_CACHED = 41, /* strict mode, and the cubin is in no cache */
    GDN_E_NOT_TUNED = 42,  /* GDN_PLAN_TUNED_ONLY, and no table has an entry */
    GDN_E_WRONG_RESULT = 43, /* a kernel that was tried does not compute what the host reference does */
    GDN_E_CUDA = 50,
    GDN_E_NOT_LOADED = 51, /* gdn_plan_load() has not run for the current device */
    GDN_E_WORKSPACE = 52,
    GDN_E_TIMEOUT = 53, /* a kernel that was tried did not end: the process's CUDA context is lost */
    GDN_E_CANCELLED = 60 /* a callback asked to stop */
} gdn_status;

/* Version of the library in use, as GDN_VERSION of version.h: major * 10000 + minor * 100 + patch. */
GDN_API uint32_t gdn_version(void);

/* "GDN_E_INVALID" and so on; "GDN_E_?" for a number that is no status. Static storage. */
GDN_API const char *gdn_status_name(gdn_status status);

/*
 * Sentence of this thread's last failure; to be read when a call has failed: one that succeeds may leave a sentence about
 * something that it tried and passed over. "" at first. Valid until this thread's next call of this library.
 */
GDN_API const char *gdn_last_error(void);

/* ---- 2. Context ----------------------------------------------------------------------------------------------------- */

enum { GDN_LOG_ERROR = 1, GDN_LOG_WARN = 2, GDN_LOG_INFO = 3, GDN_LOG_DEBUG = 4 };
typedef void (*gdn_log_fn)(void *user, int level, const char *message);

enum {
    GDN_CTX_NO_COMPILE = 1u, /* strict: a cubin that is in no cache is GDN_E_NOT_CACHED, never a compile */
    GDN_CTX_NO_ENV = 2u,     /* ignore every GDN_JIT_* variable, XDG_CACHE_HOME and HOME */
    GDN_CTX_SHARED_CACHE = 4u, /* accept a cache_dir that another user owns (a group shares it on purpose) */
    GDN_CTX_EXISTING_CACHE = 8u /* for what only reads: where the cache directory is not there, memory only; none is made */
};

/* What it points to is copied: it need live no longer than gdn_ctx_create() takes, but for log_user. */
typedef struct gdn_config {
    size_t struct_size;
    const char *cache_dir;          /* NULL: GDN_JIT_CACHE_DIR, else XDG_CACHE_HOME/gdn-jit, else HOME/.cache/gdn-jit,
                                       else memory only, as with GDN_JIT_DISABLE_CACHE=1. "": memory only */
    const char *const *bundle_dirs; /* read-only cache directories, searched first; then those of GDN_JIT_BUNDLE_PATH */
    size_t num_bundle_dirs;
    uint64_t cache_max_bytes; /* 0: GDN_JIT_CACHE_MAX_BYTES, else 512 MiB; least recently used entries go first */
    uint32_t flags;           /* GDN_CTX_*; GDN_JIT_DISABLE_COMPILE=1 acts as GDN_CTX_NO_COMPILE */
    const char *nvrtc_path;   /* NULL: GDN_JIT_NVRTC, else libnvrtc.so.13, else libnvrtc.so.12 */
    const char *driver_path;  /* NULL: libcuda.so.1. A tuning looks for libnvidia-ml.so.1, clocks' source, beside a path */
    gdn_log_fn log_fn;        /* NULL: silent */
    void *log_user;
    int log_level; /* 0: GDN_JIT_LOG, else GDN_LOG_WARN */
    /*
     * Stampede guard: a plan that is about to compile first waits up to so long, for all its kernels together, for another
     * process of this machine and user that compiles the same keys, and takes its cubins. 0: GDN_JIT_COMPILE_WAIT_MS, else no
     * waiting; -1: no waiting. Past the time it compiles on its own: the guard saves work, nothing depends on it.
     */
    int32_t compile_wait_ms;
    const char *record_path; /* NULL: GDN_JIT_RECORD, else nothing; "": nothing. A file to which every plan that is asked for
                                appends one line, for gdn-jit-cache warm --from */
    const char *tuning_path; /* NULL: GDN_JIT_TUNING_PATH, else none; "": none. ':'-separated tuning files (gdn-jit-tuning(5)),
                                each as by gdn_tuning_load(); one that is no good is a warning in the log */
    int32_t compile_jobs;    /* kernels that are compiled at a time for this context, up to 256, each with up to hundreds of MB
                                of memory; more wait. 0: GDN_JIT_COMPILE_JOBS, else four */
    int32_t reserved;
} gdn_config;
#define GDN_CONFIG_INIT { sizeof(gdn_config), NULL, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 0, 0 }

/*
 * Makes a context. Reads the environment (once, here, unless GDN_CTX_NO_ENV; never in a program that runs with another user's
 * rights or file capabilities, as secure_getenv(3) has it); opens neither the driver nor NVRTC, which are
 * looked for when first needed, so that a machine without either can still use what it has. Each is opened once: a context that
 * did not find one goes on without it, and to try again takes a new context. cfg NULL means GDN_CONFIG_INIT.
 * Tables and manifests are read by cJSON: where that is a shared library, hooks that the process has set by cJSON_InitHooks()
 * serve here too, in whatever thread calls.
 * An unusable cache directory is no error: one warning goes to the log and cubins are kept in memory only.
 * GDN_E_INVALID: a member of cfg, or a variable of the environment that is a switch, a number or a level, has a value that it
 * cannot have; the sentence names it. GDN_E_NOMEM.
 */
GDN_API gdn_status gdn_ctx_create(gdn_ctx **out, const gdn_config *cfg);

/*
 * Destroys ctx and what the one-call functions loaded, of which the same holds as of plans that are destroyed: no kernel of it
 * may be running or waiting. No other thread may be in a call that was given ctx. NULL is allowed. Other plans of ctx may be
 * destroyed before or after: each works until then, and the last one frees what they share. log_fn is called for them too, so
 * keep it and log_user as long.
 */
GDN_API void gdn_ctx_destroy(gdn_ctx *ctx);

/* ---- 3. Target ------------------------------------------------------------------------------------------------------ */

/*
 * What to compile and tune for. A target named "NVIDIA H200" equals the one that gdn_target_from_device() gives on such a
 * GPU, so that a warm-up on any machine produces exactly the keys of the run. arch is in a cubin's key; num_sms chooses
 * parameters that are (a part with another SM count may need other cubins); the other members only inform.
 */
typedef struct gdn_target {
    size_t struct_size;
    char gpu_name[64]; /* as the driver prints it, in printable ASCII; "" when only an arch was named */
    char arch[16];     /* "sm_90a" */
    int32_t num_sms;   /* 0: of the arch's most common GPU */
    int32_t smem_per_block; /* bytes, opt-in maximum */
    int32_t l2_bytes;
    int32_t dram_gbps;     /* peak, 10^9 bytes/s; 0 unknown */
    int32_t tensor_tflops; /* dense 16-bit peak; 0 unknown */
    int32_t reserved;
} gdn_target;
#define GDN_TARGET_INIT { sizeof(gdn_target), { 0 }, { 0 }, 0, 0, 0, 0, 0, 0 }

/* name: a GPU ("NVIDIA H200", case and the vendor's word do not matter) or an arch ("sm_90a"). Needs no GPU. */
GDN_API gdn_status gdn_target_from_name(gdn_ctx *ctx, const char *name, gdn_target *out);
/* device: CUDA ordinal. Needs the driver; creates no context on the device. */
GDN_API gdn_status gdn_target_from_device(gdn_ctx *ctx, int device, gdn_target *out);
/* Calls fn for each GPU and arch name that gdn_target_from_name() knows, GPUs first. */
GDN_API void gdn_target_names(void (*fn)(void *user, const char *name, const char *arch), void *user);

/* ---- 4. GDN prefill ------------------------------------------------------------------------------------------------- */

typedef enum gdn_dtype { GDN_BF16 = 1, GDN_F16 = 2, GDN_F32 = 3 } gdn_dtype;

typedef enum gdn_index_type { GDN_INDEX_I32 = 1, GDN_INDEX_I64 = 2 } gdn_index_type;

typedef enum gdn_state_layout {
    GDN_STATE_KV = 1, /* [slots, H, DK, DV], DV contiguous */
    GDN_STATE_VK = 2  /* [slots, H, DV, DK], DK contiguous */
} gdn_state_layout;

/* Which of n heads of q, k or v state head h of H reads. */
typedef enum gdn_head_map {
    GDN_HEADS_GROUPED = 1, /* h * n / H */
    GDN_HEADS_TILED = 2    /* h % n */
} gdn_head_map;

/* What args.g holds, one value per token and state head; never cumulated. */
typedef enum gdn_gate {
    GDN_GATE_LOG = 1,    /* g, the log decay, natural log */
    GDN_GATE_LINEAR = 2, /* alpha = exp(g), in [0, 1]: g is its log */
    GDN_GATE_LOGITS = 3  /* a: g = -exp(a_log[h]) * softplus(a + dt_bias[h]); softplus(x) is log(1 + e^x), above 20 x */
} gdn_gate;

/* What args.beta holds, one value per token and state head. */
typedef enum gdn_beta {
    GDN_BETA_PLAIN = 1, /* beta */
    GDN_BETA_LOGITS = 2 /* b: beta = 1 / (1 + exp(-b)) */
} gdn_beta;

enum {
    GDN_PREFILL_QK_L2NORM = 1u,    /* rows of q and k are x * rsqrt(sum x^2 + 1e-6) of what is given */
    GDN_PREFILL_BETA_TIMES_2 = 2u, /* a given beta (or sigmoid) is doubled: negative eigenvalues */
    GDN_PREFILL_CHECKPOINTS = 4u,  /* args.checkpoints may be given */
    GDN_PREFILL_ZERO_PADDING = 8u, /* rows of o from cu_seqlens[num_seqs] to num_tokens become zeros */
    GDN_PREFILL_PROGRAMMATIC_LAUNCH = 16u /* launched with programmatic stream serialization: starts while the kernel before
                                             it still runs, where that allows it (GDN_CONV_LAUNCH_DEPENDENTS), and waits for
                                             it before it reads or writes any memory. sm_90a on. docs/prefill.md */
};

/*
 * GDN prefill, per state head h and sequence, token by token (row vectors; the state S is DK x DV):
 *
 *     S   <- exp(g_t) S                          g_t: log decay, natural log, one token's own (not cumulated)
 *     u   =  beta_t (v_t - k_t S)
 *     S   <- S + k_t^T u
 *     o_t =  scale * q_t S
 *
 * (Yang et al., "Gated Delta Networks", arXiv:2412.06464, eq. 10.) Computed exactly in chunks of 64 tokens: nothing is
 * truncated, whatever the gates. State, sums, gates and norms are float32; matrix operands are 16 bit. State heads
 * H = max(num_q_heads, num_k_heads, num_v_heads), and each of the three divides H; head_map says which a state head reads.
 *
 * g <= 0 in every model. g = -infinity (alpha = 0) forgets the state exactly (no NaN); so does a decay below 2^-126. A
 * positive g is computed as written as long as the sum of g over any run of tokens inside one chunk of 64 stays below 8.
 *
 * Range. State and values have that of float32. Inside a chunk, the products |q_i . k_j| exp(g_j+1 + .. + g_i), before scale
 * and after the norm, are held in fp16: they must stay below 65504, and lose bits below 2^-14. The recurrence must not grow
 * inside a chunk: 0 <= beta |k|^2 <= 2 (unit keys and beta in [0, 2], as in every model), or decay that makes up for more.
 * GDN_PREFILL_QK_L2NORM sums squares in float32: |x| below 2^60; keys of one chunk whose lengths are more than 2^15 apart (with
 * io_type GDN_F16 2^12) cost bits. Rounding errors of a value column are relative to its largest value in the chunk. A NaN or
 * infinity in an input spoils its sequence from there on and may spoil the up to 63 tokens before it in its chunk; other
 * sequences and heads are not touched. docs/prefill.md, "Numbers", has more.
 */
typedef struct gdn_prefill_desc {
    size_t struct_size;
    gdn_dtype io_type;    /* q, k, v, o: GDN_BF16 or GDN_F16 */
    gdn_dtype state_type; /* initial and final state; 16 bit: the state is rounded when it is stored, and only then */
    gdn_state_layout state_layout;
    int32_t num_q_heads, num_k_heads, num_v_heads; /* 1 to 4096 each; each divides the largest of the three, which is H */
    int32_t head_dim_qk, head_dim_v;               /* 64 or 128, equal */
    gdn_head_map head_map;
    gdn_gate gate;
    gdn_dtype gate_type; /* args.g */
    gdn_beta beta;
    gdn_dtype beta_type;            /* args.beta */
    gdn_index_type cu_seqlens_type; /* 0: GDN_INDEX_I32 */
    gdn_index_type slot_type;       /* slot_in, slot_out; 0: GDN_INDEX_I32 */
    uint32_t flags;                 /* GDN_PREFILL_* */
    int64_t max_tokens;             /* upper bound of a call's num_tokens, below 2^31: selects variants, is in no key */
    int64_t max_seqs;               /* upper bound of a call's num_seqs, below 2^31 */
} gdn_prefill_desc;
#define GDN_PREFILL_DESC_INIT                                                                                         \
    { sizeof(gdn_prefill_desc), GDN_BF16, GDN_F32, GDN_STATE_KV, 0, 0, 0, 0, 0, GDN_HEADS_GROUPED, GDN_GATE_LOG, GDN_F32, \
      GDN_BETA_PLAIN, GDN_F32, GDN_INDEX_I32, GDN_INDEX_I32, 0, 0, 0 }

/*
 * Elements from token to token, head to head, sequence to sequence; the last index is contiguous. 0: packed, which is
 * [tokens, heads, dim]: token = heads * dim, head = dim, batch = tokens of a sequence * token. batch is for a uniform batch,
 * and 0 with cu_seqlens. With a head stride of one's own the others are given too: [B, H, T, D] is { H * T * D, D, T * D }.
 */
typedef struct gdn_strides {
    int64_t batch, token, head;
} gdn_strides;

/*
 * One call's tensors, all in device memory. q, k, v, o and the states are 16-byte aligned, and so are their strides (multiples
 * of 8 elements of 16 bits, of 4 of float32 states); no two rows of q, of k, of v or of o overlap (GDN_E_INVALID). g, beta,
 * a_log, dt_bias and index arrays are aligned to their elements.
 *   q  [tokens, num_q_heads, head_dim_qk]   io_type, q_strides
 *   k  [tokens, num_k_heads, head_dim_qk]   io_type, k_strides
 *   v  [tokens, num_v_heads, head_dim_v]    io_type, v_strides
 *   g  [tokens, H] gate_type, g_strides (dim is 1); 0: no decay
 *   beta [tokens, H] beta_type, beta_strides; 0: all ones, whatever the kind and flags
 *   a_log, dt_bias [H] float32, for GDN_GATE_LOGITS: a_log is required with g; dt_bias 0: zeros. 0 for the other kinds
 *   o  [tokens, H, head_dim_v]              io_type, o_strides; rows outside every sequence are left alone (but see
 *              GDN_PREFILL_ZERO_PADDING)
 *   initial_state lines of [H, ...] state_type in state_layout; 0: zero
 *   final_state   the same; 0: not stored. May equal initial_state, with equal strides: in place, or a fork inside one pool
 *   slot_in, slot_out [num_seqs] slot_type: line of initial_state that sequence n starts from, line of final_state where its
 *              state goes. -1 in either: an inert row, nothing of that sequence is read or written, its rows of o included.
 *              slot_out 0: same as slot_in. slot_in 0: line n (slot_out then still applies). Lines of slot_out differ, and no
 *              sequence reads a line that another one of the call writes
 *   has_initial_state [num_seqs] uint8: 0 starts from zeros, the line is not read. 0: every sequence reads its line
 *   cu_seqlens [num_seqs + 1] cu_seqlens_type, starts at 0, never decreases, last value <= num_tokens. 0: a uniform batch of
 *              num_seqs sequences of num_tokens / num_seqs tokens each, which is [B, T, H, D]
 *   checkpoints [num_checkpoints, 3] int64 rows { sequence, token_end, slot }: the state after the sequence's first token_end
 *              tokens of this call (a multiple of 64) also goes to line slot of final_state. Inert rows: sequence or slot
 *              negative, token_end not positive, no multiple of 64 or beyond the sequence's length. Rows are sorted by
 *              (sequence, token_end), negative sequences last: each sequence finds its own by one search. Lines of rows that
 *              are not inert differ from each other and from every line that the call reads or writes else: parts of a
 *              sequence may be computed in any order. num_checkpoints is a capacity; fill up with rows of -1
 *   max_seq_tokens  decides how the work is shared out, nothing else: where it knows that, the Hopper kernel takes 1 to 5 %
 *              less time with a batch whose sequences are alike, and down to a third of the time with one of few heads in
 *              which one is much longer than the others. A sequence that is longer all the same gets its results as well
 * An empty sequence copies its initial state to its final state and touches nothing else.
 * o and final_state overlap no other tensor of the call, and none overlaps the workspace (GDN_E_INVALID where two begin at one
 * address; else the caller's to see to), but that initial_state and final_state may be equal.
 */
typedef struct gdn_prefill_args {
    size_t struct_size;
    gdn_devptr q, k, v, g, beta, o;
    gdn_devptr a_log, dt_bias;
    gdn_devptr initial_state, final_state;
    gdn_devptr slot_in, slot_out, has_initial_state;
    gdn_devptr cu_seqlens, checkpoints;
    gdn_strides q_strides, k_strides, v_strides, o_strides, g_strides, beta_strides;
    int64_t initial_slot_stride, final_slot_stride; /* elements from line to line; 0: H * DK * DV, packed */
    int64_t slot_in_stride, slot_out_stride;        /* elements of slot_type from sequence to sequence; 0: 1 */
    int64_t num_checkpoints;
    int64_t num_tokens; /* rows of q, k, v, o; under graph capture an upper bound for every replay */
    int64_t num_seqs;
    float scale;       /* with has_scale, any finite number; else 0 */
    int32_t has_scale; /* 0: scale is head_dim_qk^-0.5 */
    int64_t max_seq_tokens; /* no sequence of cu_seqlens is longer; under graph capture, in no replay; 0: not known */
} gdn_prefill_args;
#define GDN_PREFILL_ARGS_INIT                                                                                         \
    { sizeof(gdn_prefill_args), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 },    \
      { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, 0, 0, 0, 0, 0, 0, 0, 0.0f, 0, 0 }

/* ---- 5. conv1d-QKV -------------------------------------------------------------------------------------------------- */

typedef enum gdn_conv_state_layout {
    GDN_CONV_STATE_CW = 1,        /* [slots, C, width - 1], newest token last */
    GDN_CONV_STATE_WC = 2,        /* [slots, width - 1, C] */
    GDN_CONV_STATE_CW_STRIDED = 3 /* [slots, C, args.state_channel_stride]: CW, of whose columns only the first are used */
} gdn_conv_state_layout;

typedef enum gdn_conv_x_layout {
    GDN_CONV_X_PACKED = 1,     /* a row is [q heads | k heads | v heads | ...] */
    GDN_CONV_X_INTERLEAVED = 2 /* a row is, per k head, [q | k | its v heads | ...]: Qwen3-Next's projection */
} gdn_conv_x_layout;

enum {
    GDN_CONV_SILU = 1u,              /* y = a * sigmoid(a) */
    GDN_CONV_BIAS = 2u,              /* args.bias is given */
    GDN_CONV_L2_NORM = 4u,           /* each head of q and k, after rounding to io_type: x * rsqrt(sum x^2 + 1e-6) */
    GDN_CONV_EXACT_NORM = 8u,        /* with L2_NORM: of the float32 values, without rounding before the norm */
    GDN_CONV_ZERO_PADDING = 16u,     /* rows of q, k, v, g, beta from cu_seqlens[num_seqs] to num_tokens become zeros */
    GDN_CONV_CHECKPOINTS = 32u,      /* args.checkpoints may be given */
    GDN_CONV_GATE_EXP = 64u,         /* g is exp of the log decay */
    GDN_CONV_BETA_ROUNDED = 128u,    /* sigmoid is rounded to gate_type (16 bit) before it is stored as float32 */
    GDN_CONV_BETA_TIMES_2 = 256u,    /* beta is doubled, after that: negative eigenvalues */
    GDN_CONV_LAUNCH_DEPENDENTS = 512u /* a kernel launched after it with programmatic stream serialization may start early;
                                         it must execute griddepcontrol.wait before it reads what this one writes, as
                                         GDN_PREFILL_PROGRAMMATIC_LAUNCH does. sm_90a on */
};

/*
 * conv1d-QKV, per sequence and channel c of [q | k | v] (C = Q + K + V channels, in head order):
 *
 *     h    = width - 1 inputs: state[slot_in][c], or zeros without an initial state
 *     ext  = h followed by x[first .. first + len)[c]
 *     a_t  = bias[c] + sum_j weight[c][j] * ext[t + j]            float32
 *     y_t  = silu ? a_t / (1 + exp(-a_t)) : a_t                   rounded to io_type, to q, k or v by channel; the
 *                                                                 quotient is -0 at a_t = -infinity
 *     state[slot_out][c] = the last width - 1 values of ext       raw, bit for bit where state_type is io_type; else
 *                                                                 rounded to nearest even; len < width - 1 shifts and appends
 * and per token and gate head h, when num_gate_heads is not 0:
 *
 *     g    = -exp(a_log[h]) * softplus(a[t][h] + dt_bias[h])      float32; softplus(x) = log(1 + e^x), and x above 20
 *     beta = 1 / (1 + exp(-b[t][h]))                              float32
 *
 * (The operator that engines know as causal_conv1d_fn, followed by split, l2norm and fused_gdn_gating.) The L2 norm's sum is
 * float32: a head's |y| must stay below 2^60. exp(a_log) must be finite in float32.
 */
typedef struct gdn_conv1d_desc {
    size_t struct_size;
    gdn_dtype io_type;    /* x, weight, bias, q, k, v: GDN_BF16, GDN_F16 or GDN_F32 */
    gdn_dtype state_type; /* 0: io_type */
    gdn_conv_state_layout state_layout;
    gdn_conv_x_layout x_layout;                    /* 0: GDN_CONV_X_PACKED */
    int32_t num_q_heads, num_k_heads, num_v_heads; /* 0 to 4096 each, not all 0; interleaved: q and k alike, v a multiple */
    int32_t head_dim_qk, head_dim_v;               /* multiples of 16, up to 256; with L2_NORM head_dim_qk is a power of 2 */
    int32_t num_gate_heads;                        /* heads of a, b, g, beta, up to 4096; 0: no gates */
    gdn_dtype gate_type;                           /* a, b; 0: io_type */
    gdn_dtype a_log_type, dt_bias_type;            /* 0: GDN_F32 */
    int32_t width;                                 /* 2, 3 or 4 */
    uint32_t flags;                                /* GDN_CONV_* */
    int32_t x_alignment; /* contract on x: address, x_stride and x_group_stride are multiples of this many bytes: 2, 4, 8 or
                            16 (float32: from 4 on); 0: 16 */
    gdn_index_type cu_seqlens_type; /* 0: GDN_INDEX_I32 */
    gdn_index_type slot_type;       /* slot_in, slot_out; 0: GDN_INDEX_I32 */
    int64_t max_tokens, max_seqs;
} gdn_conv1d_desc;
#define GDN_CONV1D_DESC_INIT                                                                                          \
    { sizeof(gdn_conv1d_desc), GDN_BF16, (gdn_dtype)0, GDN_CONV_STATE_CW, GDN_CONV_X_PACKED, 0, 0, 0, 0, 0, 0,           \
      (gdn_dtype)0, GDN_F32, GDN_F32, 4, GDN_CONV_SILU, 0, GDN_INDEX_I32, GDN_INDEX_I32, 0, 0 }

/*
 * One call's tensors, device memory. weight, bias, q, k, v and state are 16-byte aligned, x as x_alignment says, everything
 * else to its elements. Strides are in elements; 0 means packed, but for x_stride, which is always given.
 *   x       [tokens, x_stride]  io_type. Packed: x_stride >= C, the first C columns are read (the rest may be z, b, a).
 *           Interleaved: k head i's group begins at column i * x_group_stride and holds [q, k, num_v_heads / num_k_heads v
 *           heads]; 0 is that and as many columns again as the v heads have (their z)
 *   weight  [C, width]   bias [C] or 0, as the flag says; io_type, in the order [q | k | v] whatever x_layout is
 *   q, k, v [tokens, heads, head_dim] or as the strides say (multiples of 16 bytes); 0 where the head count is 0. Rows
 *           outside every sequence are left alone (but see GDN_CONV_ZERO_PADDING)
 *   a, b    [tokens, num_gate_heads] gate_type: heads adjacent, rows a_stride and b_stride apart, at least a row each.
 *           gate_group_stride, when not 0: elements from one k head's num_gate_heads / num_k_heads gate heads to the next
 *           one's, at least so many, in both; where groups are not packed by it, a_stride is given with a that is read, and
 *           b_stride with b: at least a row from its first group to the end of its last
 *   a_log, dt_bias [num_gate_heads]; dt_bias 0: zeros
 *   g, beta [tokens, num_gate_heads] float32. g 0: not computed, and a, a_log and dt_bias are not read; beta 0: not computed,
 *           and b is not read. With gate heads at least one of the two is given
 *   state   lines of [C, width - 1] as state_layout says, state_slot_stride apart (0: packed; a multiple of 16 bytes unless
 *           the layout is CW_STRIDED); 0: sequences start from zeros and nothing is stored
 *   slot_in, slot_out [num_seqs] slot_type, slot_in_stride and slot_out_stride apart: the state line that sequence n reads,
 *           and the one that it writes. slot_out 0: same as slot_in, in place. slot_in 0: line n (slot_out then still
 *           applies). -1 in either: an inert row, nothing of that sequence is read or written, its rows of q, k, v, g, beta
 *           included. Lines that are written differ, and no sequence reads a line that another one of the call writes; two may
 *           read the same line (a fork). Updating a line in place is race-free
 *   has_initial_state [num_seqs] uint8: 0 starts from zeros (the line is not read). 0: every sequence reads its line. Not
 *           without state
 *   cu_seqlens [num_seqs + 1] cu_seqlens_type as in gdn_prefill_args; 0: uniform batch
 *   checkpoints [num_checkpoints, 3] int64 rows { sequence, token_end, slot }: what the state is after the sequence's first
 *           token_end tokens of this call also goes to line slot of state. In any order. Inert rows: sequence or slot negative,
 *           token_end not positive or beyond the sequence's length, inert sequences. Lines of other rows differ from each other
 *           and from every line that the call reads or writes else. num_checkpoints is a capacity: fill up with rows of -1
 * An empty sequence leaves its line alone when slot_in and slot_out are equal, and else copies it (or zeros, without an
 * initial state). q, k, v, g, beta and state overlap no other tensor of the call (GDN_E_INVALID for equal addresses).
 */
typedef struct gdn_conv1d_args {
    size_t struct_size;
    gdn_devptr x, weight, bias;
    gdn_devptr q, k, v;
    gdn_devptr a, b, a_log, dt_bias;
    gdn_devptr g, beta;
    gdn_devptr state, slot_in, slot_out, has_initial_state;
    gdn_devptr cu_seqlens;
    gdn_devptr checkpoints;
    int64_t num_tokens, num_seqs, num_checkpoints;
    int64_t x_stride; /* elements from row to row, below 2^31 */
    int64_t x_group_stride;
    gdn_strides q_strides, k_strides, v_strides; /* token strides below 2^31 */
    int64_t a_stride, b_stride, gate_group_stride;
    int64_t state_slot_stride;
    int64_t state_channel_stride; /* of GDN_CONV_STATE_CW_STRIDED, width - 1 to 65535; else 0 */
    int64_t slot_in_stride, slot_out_stride; /* 0: 1 */
} gdn_conv1d_args;
#define GDN_CONV1D_ARGS_INIT                                                                                          \
    { sizeof(gdn_conv1d_args), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0 },         \
      { 0, 0, 0 }, { 0, 0, 0 }, 0, 0, 0, 0, 0, 0, 0 }

/* ---- 6. Plan -------------------------------------------------------------------------------------------------------- */

enum {
    GDN_PLAN_CACHED_ONLY = 1u, /* as GDN_CTX_NO_COMPILE, for this plan */
    /*
     * Prefill: the generic kernels also where Hopper's own would run (sm_90a, head dims of 128; the plan's dump says which runs
     * and why). For comparisons, and as a way around.
     */
    GDN_PLAN_GENERIC = 2u,
    /* Parameters by the library's model alone, whatever was measured: equal on every machine with an equal target. */
    GDN_PLAN_HEURISTIC = 4u,
    /*
     * Parameters that were measured, or GDN_E_NOT_TUNED: each bucket of tokens up to max_tokens, or one beside it, must have an
     * entry for calls of any number of sequences. Calls of few sequences have a kernel of their own only if a table says so.
     * This flag is for tables of your own: of the built-in ones only conv1d-QKV's suffice, with GDN_CONV_L2_NORM and up to
     * 262144 tokens; prefill's have no such entry for short calls.
     */
    GDN_PLAN_TUNED_ONLY = 8u,
    /*
     * Prefill: no sequence is cut into partitions. Else Hopper's kernel, where heads are few and the call has a workspace, cuts
     * long sequences, so that more SMs have work. With 4 heads and 131072 tokens that is seven times as fast where gates decay
     * and five times where they do not; but where they do not, some calls of 4096 to 16384 tokens take a tenth to a quarter
     * longer by it (docs/prefill_partitions.md, "Cut or not"). Which chunks make a partition depends on num_tokens, num_seqs
     * and the GPU, and so does the rounding. GDN_JIT_WHOLE_SEQUENCES=1 in the environment is this flag for every plan of a
     * context.
     */
    GDN_PLAN_WHOLE_SEQUENCES = 16u,
    /*
     * Prefill: a sequence's bits depend on its own tokens, gates and states alone: alone or anywhere in a batch, whatever the
     * other sequences, num_tokens, num_seqs, the desc's bounds, tuning tables and the number of SMs. One kernel serves all
     * calls, with the library's own parameters. Hopper's cuts sequences into partitions of a length that follows from the heads
     * (a dump has it); for that every call needs the workspace, and without one is GDN_E_WORKSPACE. With
     * GDN_PLAN_WHOLE_SEQUENCES nothing is cut and no workspace is needed. Not with GDN_PLAN_TUNED_ONLY.
     */
    GDN_PLAN_BATCH_INVARIANT = 32u
};

/*
 * Finds or builds every cubin that calls within desc's bounds can need on target. Touches no device, needs no driver; needs
 * NVRTC only for what no cache holds. Blocks while compiling (one to three seconds a kernel). Concurrent calls for one key
 * compile once.
 *   GDN_E_INVALID, GDN_E_UNSUPPORTED  desc; the sentence says which member     GDN_E_NO_NVRTC  compile needed, none found
 *   GDN_E_NOT_CACHED  strict mode; the sentence names the key and ends with a shell command that would add the plan
 *   GDN_E_COMPILE     log tail in the sentence                 GDN_E_NOT_TUNED  GDN_PLAN_TUNED_ONLY, and no table has an entry
 * What no cache has is compiled in threads of the library's, up to four at a time in a context; the caller waits for them all.
 * Parameters come from what was measured, as ctx knows it now (section 9): the entry of desc on target's GPU, else one for
 * calls near in size, else one of another GPU of the arch; else from the library's model. A dump says which. No result depends
 * on it beyond rounding within the kernel's error bounds.
 */
GDN_API gdn_status gdn_plan_prefill(gdn_ctx *ctx, const gdn_target *target, const gdn_prefill_desc *desc, uint32_t flags,
                                    gdn_plan **out);
GDN_API gdn_status gdn_plan_conv1d_qkv(gdn_ctx *ctx, const gdn_target *target, const gdn_conv1d_desc *desc, uint32_t flags,
                                       gdn_plan **out);

/*
 * Whether a plan of desc with these flags on target has a kernel, which, and why that one; the host's answer before anything is
 * compiled. Looks into no cache, needs no context, driver or compiler, and does not depend on tuning. GDN_OK with the kernel
 * and what chose it; else what gdn_plan_prefill() or gdn_plan_conv1d_qkv() would return of them (GDN_E_INVALID,
 * GDN_E_UNSUPPORTED, GDN_E_VERSION), out->kernel is "" and out->reason is the sentence of gdn_last_error(). (GDN_E_INVALID,
 * GDN_E_VERSION for out itself: nothing is written.) The environment (GDN_JIT_WHOLE_SEQUENCES) is not asked: it changes no
 * kernel's name.
 */
typedef struct gdn_support {
    size_t struct_size;
    char kernel[64];  /* entry point of calls of desc.max_tokens; a dump of the plan names each variant's */
    char reason[256]; /* one sentence */
} gdn_support;
#define GDN_SUPPORT_INIT { sizeof(gdn_support), { 0 }, { 0 } }
GDN_API gdn_status gdn_prefill_support(const gdn_target *target, const gdn_prefill_desc *desc, uint32_t flags,
                                       gdn_support *out);
GDN_API gdn_status gdn_conv1d_support(const gdn_target *target, const gdn_conv1d_desc *desc, uint32_t flags,
                                      gdn_support *out);

/*
 * Unloads from every device. No kernel of this plan may be running or waiting on a stream, nor be captured in a graph that will
 * run again: synchronise first. Nor may another thread be in a call that was given the plan. NULL is allowed.
 */
GDN_API void gdn_plan_destroy(gdn_plan *plan);

/*
 * Loads the plan's cubins into one device's primary context and sets their attributes; idempotent. The context is made if there
 * is none (set its flags before), kept until gdn_plan_destroy(), and the calling thread's current one left as it was. A cached
 * cubin that the driver refuses is compiled anew here, which may block for seconds, unless strict. Not while this thread
 * captures, nor any thread in global mode. cudaDeviceReset() takes loaded plans away: destroy them first.
 *   GDN_E_INVALID  the device has another arch than the plan     GDN_E_NO_DRIVER, GDN_E_NO_DEVICE, GDN_E_CUDA  the machine
 *   of a compile, what gdn_plan_*() returns
 */
GDN_API gdn_status gdn_plan_load(gdn_plan *plan, int device);

/*
 * Bytes of device memory, 256-byte aligned, any contents, with which every call within desc's bounds runs its fastest kernel; 0
 * when no kernel of the plan uses any (and of a null plan, with a sentence in gdn_last_error()). What uses it
 * (docs/prefill.md, "Workspace"):
 *   kernels for few sequences and heads  11 KiB per 64 tokens and head, on Hopper with head dims of 128 26 KiB; up to 512 MiB
 *   the Hopper kernel, which may cut     on an H200 43 MB, with up to 32 heads up to 104 MB; where it may not at most 9 MB, so
 *                                        that with many heads a larger max_tokens may need less
 *   GDN_PLAN_BATCH_INVARIANT on Hopper   grows with max_tokens; bounds that need more than 512 MiB are GDN_E_UNSUPPORTED
 */
GDN_API size_t gdn_plan_workspace_size(const gdn_plan *plan);

typedef enum gdn_dump_kind {
    GDN_DUMP_JSON = 1,      /* target, variants: kernel, parameters, what chose each, registers, shared memory, spills, key,
                               and bytes, FLOPs and floor (gdn_cost) of the largest call of each bucket; of two that serve
                               the same sizes of prefill one cuts sequences, and the other takes calls that are not cut */
    GDN_DUMP_SPEC = 2,      /* gdn_spec.cuh of each variant */
    GDN_DUMP_SOURCE = 3,    /* the whole translation unit, headers included, in the order NVRTC reads it */
    GDN_DUMP_KEY = 4,       /* canonical key text */
    GDN_DUMP_BUILD_LOG = 5, /* what NVRTC and ptxas said */
    GDN_DUMP_PTX = 6,       /* compiled again for this, in strict mode too: needs NVRTC */
    GDN_DUMP_CUBIN = 7      /* of variant 0 */
} gdn_dump_kind;

/* Receives a dump in pieces; a status other than GDN_OK stops it and is returned. */
typedef gdn_status (*gdn_write_fn)(void *user, const void *data, size_t size);
GDN_API gdn_status gdn_plan_dump(const gdn_plan *plan, gdn_dump_kind kind, gdn_write_fn write, void *user);

/* What one call must move and compute, whatever the kernel: the floor that measurements are held against. */
typedef struct gdn_cost {
    size_t struct_size;
    double bytes; /* each input read once, each output written once */
    double flops; /* of the chunked algorithm, dense, multiply and add counted apart */
    double floor_us; /* the larger of bytes / DRAM peak and flops / tensor peak of the plan's target; 0 if unknown */
} gdn_cost;
#define GDN_COST_INIT { sizeof(gdn_cost), 0, 0, 0 }
/* States are counted as read and written once per sequence. num_tokens and num_seqs may pass the desc's bounds. */
GDN_API gdn_status gdn_plan_cost(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs, gdn_cost *out);

/* ---- 7. Execute ----------------------------------------------------------------------------------------------------- */

/*
 * Enqueues one kernel on stream (where it uses the workspace, behind a small memset; with GDN_PREFILL_PROGRAMMATIC_LAUNCH
 * behind a small launch of that kernel) and returns. The kernel's grid follows from the plan, num_tokens, num_seqs and
 * num_checkpoints, which a captured graph keeps: a replay may use other cu_seqlens within them. Without tokens and sequences
 * there is nothing to do: GDN_OK, on a plan that is not loaded too, and pointers may be null.
 *
 * The current CUDA context must be the primary context of a device that the plan was loaded on: GDN_E_NOT_LOADED otherwise,
 * also in a thread that has made no call of the CUDA runtime yet, which has no current context until cudaSetDevice().
 * A green context's stream serves with the primary context current, and so does a process with a share of the SMs (MPS): no
 * kernel needs all of its CTAs on the device at a time.
 * GDN_E_INVALID for an argument; GDN_E_WORKSPACE when workspace is too small or not 256-byte aligned; these leave a capture as
 * it was. GDN_E_CUDA for a failed call of the driver: stream must be one of the current context, which is not looked at before.
 *
 * workspace 0 with workspace_size 0 is legal except where GDN_PLAN_BATCH_INVARIANT cuts sequences (GDN_E_WORKSPACE, of short
 * calls too): the call then runs a kernel that needs none, within the same error bounds and, for given sequences, with the same
 * bits in every batch (docs/prefill.md, "Prompts in pieces"). Else every call is given the whole of it, a small one too.
 */
GDN_API gdn_status gdn_execute_prefill(const gdn_plan *plan, const gdn_prefill_args *args, gdn_devptr workspace,
                                       size_t workspace_size, gdn_stream stream);
GDN_API gdn_status gdn_execute_conv1d_qkv(const gdn_plan *plan, const gdn_conv1d_args *args, gdn_stream stream);

/*
 * One-call forms: plan for the current device, load, execute. The first call for a desc compiles or reads the cache, and needs
 * the cubins and the workspace of the plan that gdn_plan_*() makes of it for that device; later calls with an equal desc find
 * the plan (one lock, and a compare with each plan that one-call forms of ctx have made; three where one plan serves many
 * descs, as below). While stream is capturing, a desc not seen before is GDN_E_NOT_LOADED rather than a compile: call once
 * outside the capture. So is one under a context that is not its device's primary one, where no plan runs.
 * Plans live until gdn_ctx_destroy().
 *
 * Bounds are meant to be those of all calls. Of descs that differ in max_tokens and max_seqs alone, from the fifth on (of those
 * that round up to the same powers of four, 256 at least) one plan serves all, with bounds rounded up so: it may need other
 * cubins and a larger workspace than gdn_plan_*() of the desc. (Where these cubins are in no cache and may not be compiled, the
 * desc has its own plan all the same.)
 */
GDN_API gdn_status gdn_prefill(gdn_ctx *ctx, const gdn_prefill_desc *desc, const gdn_prefill_args *args, gdn_devptr workspace,
                               size_t workspace_size, gdn_stream stream);
/*
 * gdn_plan_workspace_size() of the plan that gdn_prefill() has, or makes, for desc on the current device; out is 0 after an
 * error. stream: as of the call, looked at for whether it is capturing.
 */
GDN_API gdn_status gdn_prefill_workspace_size(gdn_ctx *ctx, const gdn_prefill_desc *desc, gdn_stream stream, size_t *out);
GDN_API gdn_status gdn_conv1d_qkv(gdn_ctx *ctx, const gdn_conv1d_desc *desc, const gdn_conv1d_args *args, gdn_stream stream);

/* ---- 8. Cache ------------------------------------------------------------------------------------------------------- */

typedef struct gdn_cache_stats {
    size_t struct_size;
    uint64_t memory_hits, disk_hits, misses; /* of this context: where plans found their cubins */
    uint64_t compiles, compile_usec;         /* compiles == 0 after a start proves that a warm-up was complete */
    uint64_t corrupt;                        /* entries refused, by the library or the driver */
    uint64_t evicted;
    uint64_t publish_failures;
} gdn_cache_stats;
#define GDN_CACHE_STATS_INIT { sizeof(gdn_cache_stats), 0, 0, 0, 0, 0, 0, 0, 0 }
GDN_API gdn_status gdn_cache_stat(gdn_ctx *ctx, gdn_cache_stats *out);

/* Directory in use; NULL when cubins are kept in memory only. Owned by ctx. */
GDN_API const char *gdn_cache_dir(const gdn_ctx *ctx);

typedef struct gdn_cache_entry {
    size_t struct_size;
    const char *path, *key, *arch, *entry_name, *compiler; /* valid during the call only */
    uint64_t bytes;
    int64_t mtime; /* seconds since 1970: last use, at the resolution of an hour */
    int32_t registers, spill_bytes, local_bytes, static_smem;
    int32_t valid;       /* 0: damaged; only path, bytes, mtime and problem are set */
    const char *options; /* the compiler's, as they were given to it */
    const char *problem; /* what is wrong with it, in a few words; "" when valid */
} gdn_cache_entry;
typedef int (*gdn_cache_entry_fn)(void *user, const gdn_cache_entry *entry);
/*
 * Calls fn for each entry of the cache directory, sorted by path; a nonzero return stops with GDN_E_CANCELLED. GDN_E_IO: the
 * directory cannot be read whole; fn was not called. A context that keeps cubins in memory only has none: GDN_OK.
 */
GDN_API gdn_status gdn_cache_list(gdn_ctx *ctx, gdn_cache_entry_fn fn, void *user);

/* What verify, prune and pack went through. */
typedef struct gdn_cache_report {
    size_t struct_size;
    uint64_t entries, bytes;    /* looked at, damaged ones included */
    uint64_t damaged;           /* refused, whatever the reason: what gdn_cache_entry.problem says */
    uint64_t missing, unlisted; /* of a bundle: in its manifest and not there, there and not in its manifest */
    uint64_t removed, removed_bytes;
    uint64_t temporaries; /* left by publishers that were killed; removed ones included */
} gdn_cache_report;
#define GDN_CACHE_REPORT_INIT { sizeof(gdn_cache_report), 0, 0, 0, 0, 0, 0, 0, 0 }

enum { GDN_VERIFY_REMOVE = 1u /* damaged entries and temporary files older than an hour; not of a bundle */ };
/*
 * Reads every byte of every entry of the cache directory (bundle NULL), or of a bundle against its manifest, and calls fn (may
 * be NULL) for each damaged, missing or unlisted one. GDN_OK whatever was found: out tells. GDN_E_CANCELLED: fn returned
 * nonzero, before that entry was removed; out has the counts so far. GDN_E_IO: the directory or the manifest cannot be read or
 * is no manifest, or cubins are kept in memory only. GDN_E_VERSION: a manifest of another version.
 */
GDN_API gdn_status gdn_cache_verify(gdn_ctx *ctx, const char *bundle, uint32_t flags, gdn_cache_entry_fn fn, void *user,
                                    gdn_cache_report *out);

enum {
    GDN_PRUNE_DRY_RUN = 1u,        /* removes nothing, reports what it would */
    GDN_PRUNE_OTHER_COMPILERS = 2u /* also entries that this context's NVRTC did not make; GDN_E_NO_NVRTC without one */
};
typedef struct gdn_prune_options {
    size_t struct_size;
    uint64_t max_bytes; /* least recently used entries go until no more are left; 0: no limit, 1: all go */
    int64_t max_age;    /* seconds since the last use, from which on an entry goes, as one does that is dated more than an hour
                           ahead of the clock; 0: no limit */
    const char *arch;   /* only entries of this arch; NULL: of all */
    uint32_t flags;     /* GDN_PRUNE_* */
    int32_t reserved;
} gdn_prune_options;
#define GDN_PRUNE_OPTIONS_INIT { sizeof(gdn_prune_options), 0, 0, NULL, 0, 0 }
/*
 * Removes entries of the cache directory, damaged ones and old temporary files always; fn (may be NULL) is called for each
 * that goes, before it does: nonzero keeps it and stops with GDN_E_CANCELLED. Safe beside processes that use the directory:
 * what they loaded stays loaded, what they used meanwhile stays, what they need again they compile.
 */
GDN_API gdn_status gdn_cache_prune(gdn_ctx *ctx, const gdn_prune_options *options, gdn_cache_entry_fn fn, void *user,
                                   gdn_cache_report *out);

typedef struct gdn_pack_options {
    size_t struct_size;
    const char *dir;          /* the bundle: made, or an empty directory; its parent is there */
    const char *const *keys;  /* 32 hex digits each, as plan dumps and gdn_cache_list() have them; NULL: every key */
    size_t num_keys;
    const char *const *contents; /* lines for people in the manifest, sorted by pack: "qwen3-next-80b-a3b tp4, NVIDIA H200" */
    size_t num_contents;
} gdn_pack_options;
#define GDN_PACK_OPTIONS_INIT { sizeof(gdn_pack_options), NULL, NULL, 0, NULL, 0 }
/*
 * Copies entries from the cache directory (and this context's bundles) into a new bundle: a read-only directory that may be
 * moved, with a manifest, whose bytes depend on the entries and contents alone. One entry a key: of this context's compiler if
 * there is one. All or nothing: written beside `dir`, under a name .gdnk-tmp-*, and moved there when whole. GDN_E_NOT_CACHED:
 * a key that is in no cache, named; or nothing to pack. GDN_E_INVALID: dir is not empty, or no place. GDN_E_IO: cannot be made.
 */
GDN_API gdn_status gdn_cache_pack(gdn_ctx *ctx, const gdn_pack_options *options, gdn_cache_report *out);

/*
 * What a context can do here. Each text is one line, a long path cut in its middle; what is empty is not available, and its
 * `_problem` says why. A cache directory that serves, but takes no new kernel, has both, unless nothing is compiled anyway;
 * whether it can be written is asked of its permissions, where gdn-jit-cache doctor tries.
 */
typedef struct gdn_doctor {
    size_t struct_size;
    char driver[128], driver_problem[256];
    char nvrtc[128], nvrtc_problem[256];
    char cache[256], cache_problem[256];
    int32_t num_devices;
    int32_t reserved;
} gdn_doctor;
#define GDN_DOCTOR_INIT { sizeof(gdn_doctor), { 0 }, { 0 }, { 0 }, { 0 }, { 0 }, { 0 }, 0, 0 }
GDN_API gdn_status gdn_examine(gdn_ctx *ctx, gdn_doctor *out);

/* ---- 9. Tuning ------------------------------------------------------------------------------------------------------ */

/*
 * Measured choices of parameters: values, in JSON files that people can read and merge (gdn-jit-tuning(5), docs/tuning.md). A
 * context starts with the tables that are built in, then takes gdn_config.tuning_path in turn; what comes later goes before
 * what was there, unless it is stale and that is not. Plans that exist are not changed. For each slot, which is a bucket of
 * tokens and a class of sequences, a plan asks for the entry of its GPU, then for that of its GPU and a slot beside it, if that
 * beat the model there, then for that of another GPU of its arch with about as many SMs, then the model. Nothing here measures,
 * and no plan ever does. Thread-safe.
 */
typedef struct gdn_tuning_entry {
    size_t struct_size;
    const char *arch, *gpu_name; /* texts are valid during the call only */
    const char *kernel;          /* the problem's own: "gdn_prefill_generic", "gdn_prefill_hopper", "conv1d_qkv" */
    int32_t num_sms;
    gdn_dtype io_type;
    int32_t head_dim_qk, head_dim_v, num_q_heads, num_k_heads, num_v_heads;
    int32_t l2norm, width;  /* width: conv; prefill 0 */
    int64_t tokens, seqs;   /* most of a call; 4194304 tokens: any number above 1048576; 0 seqs: any number */
    const char *params;     /* JSON: {"chunk": 64, ...} */
    int64_t median_ns, mad_ns, heuristic_ns; /* heuristic_ns: of the model's choice, in the same run; 0: it failed */
    int32_t samples;
    int32_t sm_mhz, mem_mhz; /* clocks seen; 0 unknown */
    int32_t stale;           /* 1: the kernel's source has changed since it was measured; the entry is still used */
    const char *driver, *nvrtc, *date; /* "2026-11-22" */
    const char *note; /* gdn_tuning_load(): "added", "same", "replaced: faster" and so on; gdn_tuning_list(): "" */
} gdn_tuning_entry;
/* A nonzero return stops with GDN_E_CANCELLED. */
typedef int (*gdn_tuning_entry_fn)(void *user, const gdn_tuning_entry *entry);

typedef struct gdn_tuning_report {
    size_t struct_size;
    uint64_t entries, added, same, replaced, kept; /* of the file; kept: what was known stays */
} gdn_tuning_report;
#define GDN_TUNING_REPORT_INIT { sizeof(gdn_tuning_report), 0, 0, 0, 0, 0 }

enum {
    /*
     * Of two entries with one key, both stale or neither, the file's does not simply win: it must not be older, and be of the
     * same choice, or of another source of the kernel, or faster by more than the tie band on an equal driver and NVRTC. The
     * notes say what was decided.
     */
    GDN_TUNING_MERGE = 1u
};
/*
 * Takes a file in, all of it or nothing. fn (may be NULL) is called for each entry before anything changes, so that one that
 * returns nonzero at the end makes it a rehearsal; it must not call this library. out may be NULL. A file of another GPU or
 * arch is legal: it serves plans of that arch.
 *   GDN_E_IO  cannot be read, or no regular file      GDN_E_VERSION  another schema, or another version's parameters
 *   GDN_E_INVALID  anything else that is wrong; the sentence has the line or entry     GDN_E_UNSUPPORTED  its arch
 */
GDN_API gdn_status gdn_tuning_load(gdn_ctx *ctx, const char *path, uint32_t flags, gdn_tuning_entry_fn fn, void *user,
                                   gdn_tuning_report *out);

/*
 * Writes what ctx knows of target's GPU (by name and SM count). Whole or not at all, in place of a file of that name, whose
 * permissions it takes; without one they are what the umask leaves of 0666. Equal entries give equal bytes. GDN_E_NOT_TUNED:
 * nothing is known of it. GDN_E_INVALID: of more entries or runs than a file may have (gdn-jit-tuning(5)); the file that is
 * there stays.
 */
GDN_API gdn_status gdn_tuning_save(gdn_ctx *ctx, const gdn_target *target, const char *path);

/* Calls fn once for each entry that is there now, sorted by arch, GPU, kernel, shape and slot. fn may call this library. */
GDN_API gdn_status gdn_tuning_list(gdn_ctx *ctx, gdn_tuning_entry_fn fn, void *user);

/*
 * Measures which parameters serve calls of one size best on one GPU. Nothing is tuned unless one of these is called.
 *
 * Candidates are the legal choices for the calls' slot, which is their bucket of tokens and, for prefill, their class of
 * sequences (up to 1, 2, 4 ... 64 of them; more have no class); of those that launch the same, one. The first candidate is what
 * a plan takes without any table. Each goes through up to three steps:
 *   compile   its cubin is found or built
 *   check     its results on an awkward call (lengths around a chunk, empty and inert sequences, forked slots, decays from none
 *             to total), and the bytes of every input after it, are held against the host reference
 *   measure   its results on the calls that are timed are held against the first candidate's; then graphs of calls are
 *             replayed, candidates interleaved, with a cold and a warm L2, in a race that halves the field: median against
 *             median, and whoever beats the first candidate by more than 2 % and the noise must do it again in a run of its
 *             own, and must not be slower on smaller and larger calls of the slot, within desc's bounds, nor where one
 *             sequence has half of the tokens, or nearly all, nor, of prefill, where every fourth head does not decay, nor,
 *             of conv1d-QKV, without gates (with them, if desc has none). Else the first candidate stays. docs/tuning.md
 *             has the rule.
 * A candidate that does not compile, does not load or computes something else is reported and left out.
 *
 * Everything runs on scratch memory and a stream of its own; no memory of the caller is read or written. A kernel that faults
 * or does not end takes the process's CUDA context with it (GDN_E_CUDA, GDN_E_TIMEOUT; the last event before says which
 * candidate it was): gdn-jit-cache tune runs candidates in processes of their own, a server should not tune.
 */
enum { GDN_TUNE_COMPILE = 1u, GDN_TUNE_CHECK = 2u, GDN_TUNE_MEASURE = 4u };

/* Before (ended 0) and after a candidate is tried. Pointers are valid during the call only. */
typedef struct gdn_tune_event {
    size_t struct_size;
    uint32_t step; /* one of GDN_TUNE_* */
    int32_t ended; /* 0: it is about to be tried; 1: status is what came out. Times are taken without an end each */
    int32_t candidate, num_candidates;
    const char *params;  /* the candidate's, a JSON object */
    gdn_status status;   /* GDN_OK while ended is 0 */
    const char *message; /* why it is left out; "" otherwise */
    const char *best_params; /* the fastest so far; "" before there is one */
    int64_t best_ns;
    int64_t elapsed_ms, left_ms; /* of the budget; left_ms is -1 without one */
} gdn_tune_event;
/* Called in the thread that tunes, whose current CUDA context it leaves as it is. Anything but 0 stops: GDN_E_CANCELLED. */
typedef int (*gdn_tune_fn)(void *user, const gdn_tune_event *event);

typedef struct gdn_tune_options {
    size_t struct_size;
    int32_t device;           /* CUDA ordinal; not used by GDN_TUNE_COMPILE alone */
    uint32_t steps;           /* GDN_TUNE_*; 0: all three */
    uint32_t plan_flags;      /* GDN_PLAN_GENERIC or 0: of the plans that are tuned for */
    int32_t reserved;
    const gdn_target *target; /* NULL: of device. GDN_TUNE_COMPILE alone needs no GPU when it is given; else it is device's */
    int64_t num_tokens, num_seqs; /* of the calls that are timed; 0: desc's max_tokens, max_seqs */
    int64_t budget_ms;        /* 0: none. Past it: GDN_E_CANCELLED, and nothing is decided */
    int64_t timeout_ms;       /* of one wait for the GPU; 0: 10 s */
    uint64_t max_scratch_bytes; /* 0: 4 GiB; never more than nine tenths of what is free */
    const char *const *skip;  /* params, as events have them, of candidates to leave out */
    size_t num_skip;
    const char *only;         /* params: try this candidate alone; NULL: all */
    gdn_tune_fn progress;     /* may be NULL */
    void *user;
} gdn_tune_options;
#define GDN_TUNE_OPTIONS_INIT { sizeof(gdn_tune_options), 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL }

/* Times are nanoseconds of one call: medians, of which ns is of means of a cold and a warm one. */
typedef struct gdn_tune_result {
    size_t struct_size;
    int32_t num_candidates, num_failed; /* failed: tried and left out; not those of options.skip */
    int32_t decided;                    /* 0: GDN_TUNE_MEASURE was not among the steps; what follows is not set */
    int32_t samples;                    /* that the decision rests on, of the winner */
    char params[256], heuristic_params[256]; /* JSON objects; equal when the first candidate stays */
    char verdict[128];                       /* why, for people */
    int64_t ns, mad_ns, cold_ns, warm_ns;
    int64_t heuristic_ns, heuristic_mad_ns; /* in the same rounds; 0 when it failed */
} gdn_tune_result;
#define GDN_TUNE_RESULT_INIT { sizeof(gdn_tune_result), 0, 0, 0, 0, { 0 }, { 0 }, { 0 }, 0, 0, 0, 0, 0, 0 }

/*
 * GDN_OK: the steps were gone through; out says what came of it. What was decided is an entry of ctx's tables from then on:
 * plans that are made take it, gdn_tuning_save() writes it. GDN_E_CANCELLED: by progress or the budget.
 * GDN_E_CUDA, GDN_E_TIMEOUT: a candidate took the context with it. GDN_E_NOMEM: the calls need more scratch memory than
 * allowed; the sentence says how much. GDN_E_UNSUPPORTED: every candidate failed. Not during stream capture of this thread.
 */
GDN_API gdn_status gdn_tune_prefill(gdn_ctx *ctx, const gdn_prefill_desc *desc, const gdn_tune_options *options,
                                    gdn_tune_result *out);
GDN_API gdn_status gdn_tune_conv1d_qkv(gdn_ctx *ctx, const gdn_conv1d_desc *desc, const gdn_tune_options *options,
                                       gdn_tune_result *out);

/* ---- 10. Host reference --------------------------------------------------------------------------------------------- */

/*
 * The recurrences above on the host, token by token, float64 accumulation: slow, obvious, and how an embedder checks a
 * binding. Same desc and args as the device calls, but every gdn_devptr holds a host address ((uintptr_t)pointer) of any
 * alignment (x_alignment included), max_tokens and max_seqs are not used, and the contents of index arrays and checkpoints are
 * checked, lines of states that two of the call would race for among them: GDN_E_INVALID. Outputs are rounded once, to nearest
 * even. Both allocate O(num_seqs + num_checkpoints), the first O(DK * DV) too. Thread-safe.
 */
GDN_API gdn_status gdn_reference_prefill(const gdn_prefill_desc *desc, const gdn_prefill_args *args);
GDN_API gdn_status gdn_reference_conv1d_qkv(const gdn_conv1d_desc *desc, const gdn_conv1d_args *args);

#ifdef __cplusplus
}
#endif
#endif
