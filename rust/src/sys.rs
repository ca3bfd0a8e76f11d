//! The public header, `gdn_jit.h`, in Rust: its names, numbers and types. What they mean it says itself.
//!
//! What a callback is given may be an older library's, and shorter: look at `struct_size` by the pointer
//! before making a reference of it.
//!
//! Written by rust/make_sys.py: do not edit, run it again.

use std::os::raw::{c_char, c_int, c_uint, c_void};

pub const GDN_VERSION_MAJOR: u32 = 0;
pub const GDN_VERSION_MINOR: u32 = 1;
pub const GDN_VERSION_PATCH: u32 = 0;
pub const GDN_VERSION: u32 = 100;
pub const GDN_LOG_ERROR: c_int = 1;
pub const GDN_LOG_WARN: c_int = 2;
pub const GDN_LOG_INFO: c_int = 3;
pub const GDN_LOG_DEBUG: c_int = 4;
pub const GDN_CTX_NO_COMPILE: u32 = 1;
pub const GDN_CTX_NO_ENV: u32 = 2;
pub const GDN_CTX_SHARED_CACHE: u32 = 4;
pub const GDN_CTX_EXISTING_CACHE: u32 = 8;
pub const GDN_PREFILL_QK_L2NORM: u32 = 1;
pub const GDN_PREFILL_BETA_TIMES_2: u32 = 2;
pub const GDN_PREFILL_CHECKPOINTS: u32 = 4;
pub const GDN_PREFILL_ZERO_PADDING: u32 = 8;
pub const GDN_PREFILL_PROGRAMMATIC_LAUNCH: u32 = 16;
pub const GDN_CONV_SILU: u32 = 1;
pub const GDN_CONV_BIAS: u32 = 2;
pub const GDN_CONV_L2_NORM: u32 = 4;
pub const GDN_CONV_EXACT_NORM: u32 = 8;
pub const GDN_CONV_ZERO_PADDING: u32 = 16;
pub const GDN_CONV_CHECKPOINTS: u32 = 32;
pub const GDN_CONV_GATE_EXP: u32 = 64;
pub const GDN_CONV_BETA_ROUNDED: u32 = 128;
pub const GDN_CONV_BETA_TIMES_2: u32 = 256;
pub const GDN_CONV_LAUNCH_DEPENDENTS: u32 = 512;
pub const GDN_PLAN_CACHED_ONLY: u32 = 1;
pub const GDN_PLAN_GENERIC: u32 = 2;
pub const GDN_PLAN_HEURISTIC: u32 = 4;
pub const GDN_PLAN_TUNED_ONLY: u32 = 8;
pub const GDN_PLAN_WHOLE_SEQUENCES: u32 = 16;
pub const GDN_PLAN_BATCH_INVARIANT: u32 = 32;
pub const GDN_VERIFY_REMOVE: u32 = 1;
pub const GDN_PRUNE_DRY_RUN: u32 = 1;
pub const GDN_PRUNE_OTHER_COMPILERS: u32 = 2;
pub const GDN_TUNING_MERGE: u32 = 1;
pub const GDN_TUNE_COMPILE: u32 = 1;
pub const GDN_TUNE_CHECK: u32 = 2;
pub const GDN_TUNE_MEASURE: u32 = 4;

pub type gdn_status = c_uint;
pub const GDN_OK: gdn_status = 0;
pub const GDN_E_INVALID: gdn_status = 10;
pub const GDN_E_UNSUPPORTED: gdn_status = 11;
pub const GDN_E_VERSION: gdn_status = 12;
pub const GDN_E_NOMEM: gdn_status = 20;
pub const GDN_E_IO: gdn_status = 21;
pub const GDN_E_NO_DRIVER: gdn_status = 30;
pub const GDN_E_NO_NVRTC: gdn_status = 31;
pub const GDN_E_NO_DEVICE: gdn_status = 32;
pub const GDN_E_COMPILE: gdn_status = 40;
pub const GDN_E_NOT_CACHED: gdn_status = 41;
pub const GDN_E_NOT_TUNED: gdn_status = 42;
pub const GDN_E_WRONG_RESULT: gdn_status = 43;
pub const GDN_E_CUDA: gdn_status = 50;
pub const GDN_E_NOT_LOADED: gdn_status = 51;
pub const GDN_E_WORKSPACE: gdn_status = 52;
pub const GDN_E_TIMEOUT: gdn_status = 53;
pub const GDN_E_CANCELLED: gdn_status = 60;

pub type gdn_dtype = c_uint;
pub const GDN_BF16: gdn_dtype = 1;
pub const GDN_F16: gdn_dtype = 2;
pub const GDN_F32: gdn_dtype = 3;

pub type gdn_index_type = c_uint;
pub const GDN_INDEX_I32: gdn_index_type = 1;
pub const GDN_INDEX_I64: gdn_index_type = 2;

pub type gdn_state_layout = c_uint;
pub const GDN_STATE_KV: gdn_state_layout = 1;
pub const GDN_STATE_VK: gdn_state_layout = 2;

pub type gdn_head_map = c_uint;
pub const GDN_HEADS_GROUPED: gdn_head_map = 1;
pub const GDN_HEADS_TILED: gdn_head_map = 2;

pub type gdn_gate = c_uint;
pub const GDN_GATE_LOG: gdn_gate = 1;
pub const GDN_GATE_LINEAR: gdn_gate = 2;
pub const GDN_GATE_LOGITS: gdn_gate = 3;

pub type gdn_beta = c_uint;
pub const GDN_BETA_PLAIN: gdn_beta = 1;
pub const GDN_BETA_LOGITS: gdn_beta = 2;

pub type gdn_conv_state_layout = c_uint;
pub const GDN_CONV_STATE_CW: gdn_conv_state_layout = 1;
pub const GDN_CONV_STATE_WC: gdn_conv_state_layout = 2;
pub const GDN_CONV_STATE_CW_STRIDED: gdn_conv_state_layout = 3;

pub type gdn_conv_x_layout = c_uint;
pub const GDN_CONV_X_PACKED: gdn_conv_x_layout = 1;
pub const GDN_CONV_X_INTERLEAVED: gdn_conv_x_layout = 2;

pub type gdn_dump_kind = c_uint;
pub const GDN_DUMP_JSON: gdn_dump_kind = 1;
pub const GDN_DUMP_SPEC: gdn_dump_kind = 2;
pub const GDN_DUMP_SOURCE: gdn_dump_kind = 3;
pub const GDN_DUMP_KEY: gdn_dump_kind = 4;
pub const GDN_DUMP_BUILD_LOG: gdn_dump_kind = 5;
pub const GDN_DUMP_PTX: gdn_dump_kind = 6;
pub const GDN_DUMP_CUBIN: gdn_dump_kind = 7;

pub type gdn_devptr = u64;

#[repr(C)]
#[derive(Debug)]
pub struct gdn_ctx {
    opaque: [u8; 0],
}

#[repr(C)]
#[derive(Debug)]
pub struct gdn_plan {
    opaque: [u8; 0],
}

pub type gdn_stream = *mut c_void;

pub type gdn_log_fn = Option<unsafe extern "C" fn(*mut c_void, c_int, *const c_char)>;
pub type gdn_write_fn = Option<unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> gdn_status>;
pub type gdn_cache_entry_fn = Option<unsafe extern "C" fn(*mut c_void, *const gdn_cache_entry) -> c_int>;
pub type gdn_tuning_entry_fn = Option<unsafe extern "C" fn(*mut c_void, *const gdn_tuning_entry) -> c_int>;
pub type gdn_tune_fn = Option<unsafe extern "C" fn(*mut c_void, *const gdn_tune_event) -> c_int>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_config {
    pub struct_size: usize,
    pub cache_dir: *const c_char,
    pub bundle_dirs: *const *const c_char,
    pub num_bundle_dirs: usize,
    pub cache_max_bytes: u64,
    pub flags: u32,
    pub nvrtc_path: *const c_char,
    pub driver_path: *const c_char,
    pub log_fn: gdn_log_fn,
    pub log_user: *mut c_void,
    pub log_level: c_int,
    pub compile_wait_ms: i32,
    pub record_path: *const c_char,
    pub tuning_path: *const c_char,
    pub compile_jobs: i32,
    pub reserved: i32,
}

/// GDN_CONFIG_INIT.
impl Default for gdn_config {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_config = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_config>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_target {
    pub struct_size: usize,
    pub gpu_name: [c_char; 64],
    pub arch: [c_char; 16],
    pub num_sms: i32,
    pub smem_per_block: i32,
    pub l2_bytes: i32,
    pub dram_gbps: i32,
    pub tensor_tflops: i32,
    pub reserved: i32,
}

/// GDN_TARGET_INIT.
impl Default for gdn_target {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_target = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_target>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_prefill_desc {
    pub struct_size: usize,
    pub io_type: gdn_dtype,
    pub state_type: gdn_dtype,
    pub state_layout: gdn_state_layout,
    pub num_q_heads: i32,
    pub num_k_heads: i32,
    pub num_v_heads: i32,
    pub head_dim_qk: i32,
    pub head_dim_v: i32,
    pub head_map: gdn_head_map,
    pub gate: gdn_gate,
    pub gate_type: gdn_dtype,
    pub beta: gdn_beta,
    pub beta_type: gdn_dtype,
    pub cu_seqlens_type: gdn_index_type,
    pub slot_type: gdn_index_type,
    pub flags: u32,
    pub max_tokens: i64,
    pub max_seqs: i64,
}

/// GDN_PREFILL_DESC_INIT.
impl Default for gdn_prefill_desc {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_prefill_desc = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_prefill_desc>();
        x.io_type = GDN_BF16;
        x.state_type = GDN_F32;
        x.state_layout = GDN_STATE_KV;
        x.head_map = GDN_HEADS_GROUPED;
        x.gate = GDN_GATE_LOG;
        x.gate_type = GDN_F32;
        x.beta = GDN_BETA_PLAIN;
        x.beta_type = GDN_F32;
        x.cu_seqlens_type = GDN_INDEX_I32;
        x.slot_type = GDN_INDEX_I32;
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[derive(Default)]
pub struct gdn_strides {
    pub batch: i64,
    pub token: i64,
    pub head: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_prefill_args {
    pub struct_size: usize,
    pub q: gdn_devptr,
    pub k: gdn_devptr,
    pub v: gdn_devptr,
    pub g: gdn_devptr,
    pub beta: gdn_devptr,
    pub o: gdn_devptr,
    pub a_log: gdn_devptr,
    pub dt_bias: gdn_devptr,
    pub initial_state: gdn_devptr,
    pub final_state: gdn_devptr,
    pub slot_in: gdn_devptr,
    pub slot_out: gdn_devptr,
    pub has_initial_state: gdn_devptr,
    pub cu_seqlens: gdn_devptr,
    pub checkpoints: gdn_devptr,
    pub q_strides: gdn_strides,
    pub k_strides: gdn_strides,
    pub v_strides: gdn_strides,
    pub o_strides: gdn_strides,
    pub g_strides: gdn_strides,
    pub beta_strides: gdn_strides,
    pub initial_slot_stride: i64,
    pub final_slot_stride: i64,
    pub slot_in_stride: i64,
    pub slot_out_stride: i64,
    pub num_checkpoints: i64,
    pub num_tokens: i64,
    pub num_seqs: i64,
    pub scale: f32,
    pub has_scale: i32,
    pub max_seq_tokens: i64,
}

/// GDN_PREFILL_ARGS_INIT.
impl Default for gdn_prefill_args {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_prefill_args = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_prefill_args>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_conv1d_desc {
    pub struct_size: usize,
    pub io_type: gdn_dtype,
    pub state_type: gdn_dtype,
    pub state_layout: gdn_conv_state_layout,
    pub x_layout: gdn_conv_x_layout,
    pub num_q_heads: i32,
    pub num_k_heads: i32,
    pub num_v_heads: i32,
    pub head_dim_qk: i32,
    pub head_dim_v: i32,
    pub num_gate_heads: i32,
    pub gate_type: gdn_dtype,
    pub a_log_type: gdn_dtype,
    pub dt_bias_type: gdn_dtype,
    pub width: i32,
    pub flags: u32,
    pub x_alignment: i32,
    pub cu_seqlens_type: gdn_index_type,
    pub slot_type: gdn_index_type,
    pub max_tokens: i64,
    pub max_seqs: i64,
}

/// GDN_CONV1D_DESC_INIT.
impl Default for gdn_conv1d_desc {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_conv1d_desc = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_conv1d_desc>();
        x.io_type = GDN_BF16;
        x.state_layout = GDN_CONV_STATE_CW;
        x.x_layout = GDN_CONV_X_PACKED;
        x.a_log_type = GDN_F32;
        x.dt_bias_type = GDN_F32;
        x.width = 4;
        x.flags = 1;
        x.cu_seqlens_type = GDN_INDEX_I32;
        x.slot_type = GDN_INDEX_I32;
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_conv1d_args {
    pub struct_size: usize,
    pub x: gdn_devptr,
    pub weight: gdn_devptr,
    pub bias: gdn_devptr,
    pub q: gdn_devptr,
    pub k: gdn_devptr,
    pub v: gdn_devptr,
    pub a: gdn_devptr,
    pub b: gdn_devptr,
    pub a_log: gdn_devptr,
    pub dt_bias: gdn_devptr,
    pub g: gdn_devptr,
    pub beta: gdn_devptr,
    pub state: gdn_devptr,
    pub slot_in: gdn_devptr,
    pub slot_out: gdn_devptr,
    pub has_initial_state: gdn_devptr,
    pub cu_seqlens: gdn_devptr,
    pub checkpoints: gdn_devptr,
    pub num_tokens: i64,
    pub num_seqs: i64,
    pub num_checkpoints: i64,
    pub x_stride: i64,
    pub x_group_stride: i64,
    pub q_strides: gdn_strides,
    pub k_strides: gdn_strides,
    pub v_strides: gdn_strides,
    pub a_stride: i64,
    pub b_stride: i64,
    pub gate_group_stride: i64,
    pub state_slot_stride: i64,
    pub state_channel_stride: i64,
    pub slot_in_stride: i64,
    pub slot_out_stride: i64,
}

/// GDN_CONV1D_ARGS_INIT.
impl Default for gdn_conv1d_args {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_conv1d_args = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_conv1d_args>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_support {
    pub struct_size: usize,
    pub kernel: [c_char; 64],
    pub reason: [c_char; 256],
}

/// GDN_SUPPORT_INIT.
impl Default for gdn_support {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_support = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_support>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_cost {
    pub struct_size: usize,
    pub bytes: f64,
    pub flops: f64,
    pub floor_us: f64,
}

/// GDN_COST_INIT.
impl Default for gdn_cost {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_cost = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_cost>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_cache_stats {
    pub struct_size: usize,
    pub memory_hits: u64,
    pub disk_hits: u64,
    pub misses: u64,
    pub compiles: u64,
    pub compile_usec: u64,
    pub corrupt: u64,
    pub evicted: u64,
    pub publish_failures: u64,
}

/// GDN_CACHE_STATS_INIT.
impl Default for gdn_cache_stats {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_cache_stats = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_cache_stats>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_cache_entry {
    pub struct_size: usize,
    pub path: *const c_char,
    pub key: *const c_char,
    pub arch: *const c_char,
    pub entry_name: *const c_char,
    pub compiler: *const c_char,
    pub bytes: u64,
    pub mtime: i64,
    pub registers: i32,
    pub spill_bytes: i32,
    pub local_bytes: i32,
    pub static_smem: i32,
    pub valid: i32,
    pub options: *const c_char,
    pub problem: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_cache_report {
    pub struct_size: usize,
    pub entries: u64,
    pub bytes: u64,
    pub damaged: u64,
    pub missing: u64,
    pub unlisted: u64,
    pub removed: u64,
    pub removed_bytes: u64,
    pub temporaries: u64,
}

/// GDN_CACHE_REPORT_INIT.
impl Default for gdn_cache_report {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_cache_report = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_cache_report>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_prune_options {
    pub struct_size: usize,
    pub max_bytes: u64,
    pub max_age: i64,
    pub arch: *const c_char,
    pub flags: u32,
    pub reserved: i32,
}

/// GDN_PRUNE_OPTIONS_INIT.
impl Default for gdn_prune_options {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_prune_options = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_prune_options>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_pack_options {
    pub struct_size: usize,
    pub dir: *const c_char,
    pub keys: *const *const c_char,
    pub num_keys: usize,
    pub contents: *const *const c_char,
    pub num_contents: usize,
}

/// GDN_PACK_OPTIONS_INIT.
impl Default for gdn_pack_options {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_pack_options = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_pack_options>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_doctor {
    pub struct_size: usize,
    pub driver: [c_char; 128],
    pub driver_problem: [c_char; 256],
    pub nvrtc: [c_char; 128],
    pub nvrtc_problem: [c_char; 256],
    pub cache: [c_char; 256],
    pub cache_problem: [c_char; 256],
    pub num_devices: i32,
    pub reserved: i32,
}

/// GDN_DOCTOR_INIT.
impl Default for gdn_doctor {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_doctor = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_doctor>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_tuning_entry {
    pub struct_size: usize,
    pub arch: *const c_char,
    pub gpu_name: *const c_char,
    pub kernel: *const c_char,
    pub num_sms: i32,
    pub io_type: gdn_dtype,
    pub head_dim_qk: i32,
    pub head_dim_v: i32,
    pub num_q_heads: i32,
    pub num_k_heads: i32,
    pub num_v_heads: i32,
    pub l2norm: i32,
    pub width: i32,
    pub tokens: i64,
    pub seqs: i64,
    pub params: *const c_char,
    pub median_ns: i64,
    pub mad_ns: i64,
    pub heuristic_ns: i64,
    pub samples: i32,
    pub sm_mhz: i32,
    pub mem_mhz: i32,
    pub stale: i32,
    pub driver: *const c_char,
    pub nvrtc: *const c_char,
    pub date: *const c_char,
    pub note: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_tuning_report {
    pub struct_size: usize,
    pub entries: u64,
    pub added: u64,
    pub same: u64,
    pub replaced: u64,
    pub kept: u64,
}

/// GDN_TUNING_REPORT_INIT.
impl Default for gdn_tuning_report {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_tuning_report = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_tuning_report>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_tune_event {
    pub struct_size: usize,
    pub step: u32,
    pub ended: i32,
    pub candidate: i32,
    pub num_candidates: i32,
    pub params: *const c_char,
    pub status: gdn_status,
    pub message: *const c_char,
    pub best_params: *const c_char,
    pub best_ns: i64,
    pub elapsed_ms: i64,
    pub left_ms: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_tune_options {
    pub struct_size: usize,
    pub device: i32,
    pub steps: u32,
    pub plan_flags: u32,
    pub reserved: i32,
    pub target: *const gdn_target,
    pub num_tokens: i64,
    pub num_seqs: i64,
    pub budget_ms: i64,
    pub timeout_ms: i64,
    pub max_scratch_bytes: u64,
    pub skip: *const *const c_char,
    pub num_skip: usize,
    pub only: *const c_char,
    pub progress: gdn_tune_fn,
    pub user: *mut c_void,
}

/// GDN_TUNE_OPTIONS_INIT.
impl Default for gdn_tune_options {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_tune_options = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_tune_options>();
        x
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gdn_tune_result {
    pub struct_size: usize,
    pub num_candidates: i32,
    pub num_failed: i32,
    pub decided: i32,
    pub samples: i32,
    pub params: [c_char; 256],
    pub heuristic_params: [c_char; 256],
    pub verdict: [c_char; 128],
    pub ns: i64,
    pub mad_ns: i64,
    pub cold_ns: i64,
    pub warm_ns: i64,
    pub heuristic_ns: i64,
    pub heuristic_mad_ns: i64,
}

/// GDN_TUNE_RESULT_INIT.
impl Default for gdn_tune_result {
    fn default() -> Self {
        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero.
        let mut x: gdn_tune_result = unsafe { std::mem::zeroed() };
        x.struct_size = std::mem::size_of::<gdn_tune_result>();
        x
    }
}

extern "C" {
    pub fn gdn_version() -> u32;
    pub fn gdn_status_name(status: gdn_status) -> *const c_char;
    pub fn gdn_last_error() -> *const c_char;
    pub fn gdn_ctx_create(out: *mut *mut gdn_ctx, cfg: *const gdn_config) -> gdn_status;
    pub fn gdn_ctx_destroy(ctx: *mut gdn_ctx);
    pub fn gdn_target_from_name(ctx: *mut gdn_ctx, name: *const c_char, out: *mut gdn_target) -> gdn_status;
    pub fn gdn_target_from_device(ctx: *mut gdn_ctx, device: c_int, out: *mut gdn_target) -> gdn_status;
    pub fn gdn_target_names(function: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char)>, user: *mut c_void);
    pub fn gdn_plan_prefill(ctx: *mut gdn_ctx, target: *const gdn_target, desc: *const gdn_prefill_desc, flags: u32, out: *mut *mut gdn_plan) -> gdn_status;
    pub fn gdn_plan_conv1d_qkv(ctx: *mut gdn_ctx, target: *const gdn_target, desc: *const gdn_conv1d_desc, flags: u32, out: *mut *mut gdn_plan) -> gdn_status;
    pub fn gdn_prefill_support(target: *const gdn_target, desc: *const gdn_prefill_desc, flags: u32, out: *mut gdn_support) -> gdn_status;
    pub fn gdn_conv1d_support(target: *const gdn_target, desc: *const gdn_conv1d_desc, flags: u32, out: *mut gdn_support) -> gdn_status;
    pub fn gdn_plan_destroy(plan: *mut gdn_plan);
    pub fn gdn_plan_load(plan: *mut gdn_plan, device: c_int) -> gdn_status;
    pub fn gdn_plan_workspace_size(plan: *const gdn_plan) -> usize;
    pub fn gdn_plan_dump(plan: *const gdn_plan, kind: gdn_dump_kind, write: gdn_write_fn, user: *mut c_void) -> gdn_status;
    pub fn gdn_plan_cost(plan: *const gdn_plan, num_tokens: i64, num_seqs: i64, out: *mut gdn_cost) -> gdn_status;
    pub fn gdn_execute_prefill(plan: *const gdn_plan, args: *const gdn_prefill_args, workspace: gdn_devptr, workspace_size: usize, stream: gdn_stream) -> gdn_status;
    pub fn gdn_execute_conv1d_qkv(plan: *const gdn_plan, args: *const gdn_conv1d_args, stream: gdn_stream) -> gdn_status;
    pub fn gdn_prefill(ctx: *mut gdn_ctx, desc: *const gdn_prefill_desc, args: *const gdn_prefill_args, workspace: gdn_devptr, workspace_size: usize, stream: gdn_stream) -> gdn_status;
    pub fn gdn_prefill_workspace_size(ctx: *mut gdn_ctx, desc: *const gdn_prefill_desc, stream: gdn_stream, out: *mut usize) -> gdn_status;
    pub fn gdn_conv1d_qkv(ctx: *mut gdn_ctx, desc: *const gdn_conv1d_desc, args: *const gdn_conv1d_args, stream: gdn_stream) -> gdn_status;
    pub fn gdn_cache_stat(ctx: *mut gdn_ctx, out: *mut gdn_cache_stats) -> gdn_status;
    pub fn gdn_cache_dir(ctx: *const gdn_ctx) -> *const c_char;
    pub fn gdn_cache_list(ctx: *mut gdn_ctx, function: gdn_cache_entry_fn, user: *mut c_void) -> gdn_status;
    pub fn gdn_cache_verify(ctx: *mut gdn_ctx, bundle: *const c_char, flags: u32, function: gdn_cache_entry_fn, user: *mut c_void, out: *mut gdn_cache_report) -> gdn_status;
    pub fn gdn_cache_prune(ctx: *mut gdn_ctx, options: *const gdn_prune_options, function: gdn_cache_entry_fn, user: *mut c_void, out: *mut gdn_cache_report) -> gdn_status;
    pub fn gdn_cache_pack(ctx: *mut gdn_ctx, options: *const gdn_pack_options, out: *mut gdn_cache_report) -> gdn_status;
    pub fn gdn_examine(ctx: *mut gdn_ctx, out: *mut gdn_doctor) -> gdn_status;
    pub fn gdn_tuning_load(ctx: *mut gdn_ctx, path: *const c_char, flags: u32, function: gdn_tuning_entry_fn, user: *mut c_void, out: *mut gdn_tuning_report) -> gdn_status;
    pub fn gdn_tuning_save(ctx: *mut gdn_ctx, target: *const gdn_target, path: *const c_char) -> gdn_status;
    pub fn gdn_tuning_list(ctx: *mut gdn_ctx, function: gdn_tuning_entry_fn, user: *mut c_void) -> gdn_status;
    pub fn gdn_tune_prefill(ctx: *mut gdn_ctx, desc: *const gdn_prefill_desc, options: *const gdn_tune_options, out: *mut gdn_tune_result) -> gdn_status;
    pub fn gdn_tune_conv1d_qkv(ctx: *mut gdn_ctx, desc: *const gdn_conv1d_desc, options: *const gdn_tune_options, out: *mut gdn_tune_result) -> gdn_status;
    pub fn gdn_reference_prefill(desc: *const gdn_prefill_desc, args: *const gdn_prefill_args) -> gdn_status;
    pub fn gdn_reference_conv1d_qkv(desc: *const gdn_conv1d_desc, args: *const gdn_conv1d_args) -> gdn_status;
}
