//! Bindings of libgdnjit: Gated DeltaNet prefill and its conv1d prologue on NVIDIA GPUs, compiled per shape and cached.
//!
//! [`sys`] is the whole C interface. The rest is what an engine calls, with Rust's errors and lifetimes: a [`Context`] for
//! the process, a [`Plan`] for each shape, and calls on a stream. `gdn_jit.h` is the contract: shapes, units, dtypes.
//!
//! ```no_run
//! use gdn_jit::{sys, Config, Context, Error, Plan};
//!
//! /// At start, kept as long as the engine: see [`Plan`] for when it may be dropped.
//! fn plan_layer() -> Result<Plan, Error> {
//!     let context = Context::new(Config::default())?;
//!     let desc = sys::gdn_prefill_desc {
//!         num_q_heads: 16,
//!         num_k_heads: 16,
//!         num_v_heads: 32,
//!         head_dim_qk: 128,
//!         head_dim_v: 128,
//!         max_tokens: 8192, // bounds of every call, not the sizes of one
//!         max_seqs: 256,
//!         ..Default::default() // bf16, float32 state
//!     };
//!     let plan = context.plan_prefill(&context.target_of_device(0)?, &desc, 0)?;
//!     plan.load(0)?;
//!     Ok(plan)
//! }
//!
//! /// A step. workspace: device memory of `plan.workspace_size()` bytes.
//! unsafe fn step(plan: &Plan, q: u64, k: u64, v: u64, o: u64, tokens: i64, workspace: u64) -> Result<(), Error> {
//!     let args = sys::gdn_prefill_args { q, k, v, o, num_tokens: tokens, num_seqs: 1, ..Default::default() };
//!     plan.execute_prefill(&args, workspace, plan.workspace_size(), std::ptr::null_mut())
//! }
//! ```
//!
//! **Threads.** [`Context`] and [`Plan`] may be used by any number of threads at a time. Calls that may run at a time need
//! different workspaces.

mod context;
mod error;
mod plan;
#[allow(non_camel_case_types, clippy::type_complexity, clippy::field_reassign_with_default)]
#[rustfmt::skip] // make_sys.py writes it
pub mod sys;

pub use context::{text, Config, Context, Log};
pub use error::Error;
pub use plan::{conv1d_qkv_support, prefill_support, Operator, Plan};

/// The operators on the host, which then reads and writes host addresses: how a binding is checked.
pub mod reference {
    use crate::{
        error::{check, check_size, check_version},
        sys, Error,
    };

    /// # Safety
    /// Every address of `args` is one of this process's memory, of the size that `desc` and `args` say. What is written is of
    /// `as_mut_ptr()`, and nobody has a reference to it meanwhile.
    pub unsafe fn prefill(desc: &sys::gdn_prefill_desc, args: &sys::gdn_prefill_args) -> Result<(), Error> {
        check_version()?;
        check_size(desc)?;
        check_size(args)?;
        check(sys::gdn_reference_prefill(desc, args))
    }

    /// # Safety
    /// As of [`prefill`].
    pub unsafe fn conv1d_qkv(desc: &sys::gdn_conv1d_desc, args: &sys::gdn_conv1d_args) -> Result<(), Error> {
        check_version()?;
        check_size(desc)?;
        check_size(args)?;
        check(sys::gdn_reference_conv1d_qkv(desc, args))
    }
}
