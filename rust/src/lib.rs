//! Bindings of libgdnjit: Gated DeltaNet prefill and its conv1d prologue on NVIDIA GPUs, compiled per shape and cached.
//!
//! [`sys`] is the whole C interface. The rest is what an engine calls, with Rust's errors and lifetimes: a [`Context`] for
//! the process, a [`Plan`] for each shape, and calls on a stream. `gdn_jit.h` is the contract: shapes, units, dtypes.
//!
//! ```no_run
//! use gdn_jit::{sys, Config, Context};
//!
//! # fn main() -> Result<(), gdn_jit::Error> {
//! let context = Context::new(Config::default())?;
//! let desc = sys::gdn_prefill_desc {
//!     num_q_heads: 16,
//!     num_k_heads: 16,
//!     num_v_heads: 32,
//!     head_dim_qk: 128,
//!     head_dim_v: 128,
//!     max_tokens: 8192, // bounds of every call, not the sizes of one
//!     max_seqs: 256,
//!     ..Default::default() // bf16, float32 state
//! };
//! let plan = context.plan_prefill(&context.target_of_device(0)?, &desc, 0)?;
//! plan.load(0)?;
//! let (workspace, size) = (0, 0); // device memory of plan.workspace_size() bytes
//! let args = sys::gdn_prefill_args { num_tokens: 0, ..Default::default() }; // addresses of device memory
//! // SAFETY: what args has addresses of is there, and laid out as desc says, until the stream is through.
//! unsafe { plan.execute_prefill(&args, workspace, size, std::ptr::null_mut())? };
//! # Ok(())
//! # }
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
    use crate::{error::check, sys, Error};

    /// # Safety
    /// Every address of `args` is one of this process's memory, of the size that `desc` and `args` say. `struct_size` of both
    /// is what their `default()` has.
    pub unsafe fn prefill(desc: &sys::gdn_prefill_desc, args: &sys::gdn_prefill_args) -> Result<(), Error> {
        check(sys::gdn_reference_prefill(desc, args))
    }

    /// # Safety
    /// As of [`prefill`].
    pub unsafe fn conv1d_qkv(desc: &sys::gdn_conv1d_desc, args: &sys::gdn_conv1d_args) -> Result<(), Error> {
        check(sys::gdn_reference_conv1d_qkv(desc, args))
    }
}
