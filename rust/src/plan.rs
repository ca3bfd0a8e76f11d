//! Plans, and the calls that they serve.

use crate::{
    error::{caught, check, check_size, check_version, SizeFirst},
    sys, Context, Error,
};
use std::{
    os::raw::{c_int, c_void},
    ptr::{null_mut, NonNull},
    slice,
};

/// What a plan is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Prefill,
    Conv1dQkv,
}

/// `gdn_plan`: everything that calls within a descriptor's bounds need, compiled. Dropping it unloads its kernels, which must
/// not run or wait then, in a graph neither: an early return or a panic between a call and a wait for the stream drops what
/// stands in a function. Keep plans where they live as long as the engine, or in a `ManuallyDrop`. After `cudaDeviceReset()`
/// and in a child of `fork()` a plan must not be used, nor dropped.
#[derive(Debug)]
pub struct Plan {
    raw: NonNull<sys::gdn_plan>,
    operator: Operator,
    context: Context,
}

// SAFETY: a gdn_plan is immutable but for gdn_plan_load(), which any thread may call.
unsafe impl Send for Plan {}
unsafe impl Sync for Plan {}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; that no kernel of it runs is what who launched one has promised.
        unsafe { sys::gdn_plan_destroy(self.raw.as_ptr()) }
    }
}

type MakePlan<Desc> = unsafe extern "C" fn(
    *mut sys::gdn_ctx,
    *const sys::gdn_target,
    *const Desc,
    u32,
    *mut *mut sys::gdn_plan,
) -> sys::gdn_status;
type AskSupport<Desc> =
    unsafe extern "C" fn(*const sys::gdn_target, *const Desc, u32, *mut sys::gdn_support) -> sys::gdn_status;

impl Context {
    fn plan_of<Desc: SizeFirst>(
        &self,
        operator: Operator,
        make: MakePlan<Desc>,
        target: &sys::gdn_target,
        desc: &Desc,
        flags: u32,
    ) -> Result<Plan, Error> {
        check_size(target)?;
        check_size(desc)?;
        let mut raw = null_mut();
        // SAFETY: references are valid, and the structs as long as they say.
        check(unsafe { make(self.as_ptr(), target, desc, flags, &mut raw) })?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::invalid("the library gave no plan".into()))?;
        Ok(Plan { raw, operator, context: self.clone() })
    }

    /// Finds or compiles the kernels; touches no device. `flags`: `sys::GDN_PLAN_*`.
    pub fn plan_prefill(
        &self,
        target: &sys::gdn_target,
        desc: &sys::gdn_prefill_desc,
        flags: u32,
    ) -> Result<Plan, Error> {
        self.plan_of(Operator::Prefill, sys::gdn_plan_prefill, target, desc, flags)
    }

    /// As [`Context::plan_prefill`].
    pub fn plan_conv1d_qkv(
        &self,
        target: &sys::gdn_target,
        desc: &sys::gdn_conv1d_desc,
        flags: u32,
    ) -> Result<Plan, Error> {
        self.plan_of(Operator::Conv1dQkv, sys::gdn_plan_conv1d_qkv, target, desc, flags)
    }

    /// One call: plans and loads on first use, for the current CUDA context's device.
    ///
    /// # Safety
    /// As of [`Plan::execute_prefill`], with this context in the plan's place.
    pub unsafe fn prefill(
        &self,
        desc: &sys::gdn_prefill_desc,
        args: &sys::gdn_prefill_args,
        workspace: sys::gdn_devptr,
        workspace_size: usize,
        stream: sys::gdn_stream,
    ) -> Result<(), Error> {
        check_size(desc)?;
        check_size(args)?;
        check(sys::gdn_prefill(self.as_ptr(), desc, args, workspace, workspace_size, stream))
    }

    /// What workspace [`Context::prefill`] wants, in bytes. Plans and loads if need be: call it at start.
    ///
    /// # Safety
    /// `stream` is a stream of the current CUDA context, or null.
    pub unsafe fn prefill_workspace_size(
        &self,
        desc: &sys::gdn_prefill_desc,
        stream: sys::gdn_stream,
    ) -> Result<usize, Error> {
        check_size(desc)?;
        let mut size = 0;
        check(sys::gdn_prefill_workspace_size(self.as_ptr(), desc, stream, &mut size))?;
        Ok(size)
    }

    /// As [`Context::prefill`].
    ///
    /// # Safety
    /// As of [`Context::prefill`].
    pub unsafe fn conv1d_qkv(
        &self,
        desc: &sys::gdn_conv1d_desc,
        args: &sys::gdn_conv1d_args,
        stream: sys::gdn_stream,
    ) -> Result<(), Error> {
        check_size(desc)?;
        check_size(args)?;
        check(sys::gdn_conv1d_qkv(self.as_ptr(), desc, args, stream))
    }
}

unsafe extern "C" fn append(user: *mut c_void, data: *const c_void, size: usize) -> sys::gdn_status {
    let out = &mut *(user as *mut Vec<u8>);
    let more = slice::from_raw_parts(data as *const u8, size);
    caught(|| out.extend_from_slice(more)).map_or(sys::GDN_E_NOMEM, |()| sys::GDN_OK)
}

impl Plan {
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The context that it was made by.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// For what of [`sys`] has no function here. Valid as long as this plan.
    pub fn as_ptr(&self) -> *mut sys::gdn_plan {
        self.raw.as_ptr()
    }

    /// Loads its kernels on a device, by CUDA ordinal; once a device is enough.
    pub fn load(&self, device: c_int) -> Result<(), Error> {
        // SAFETY: the plan is there.
        check(unsafe { sys::gdn_plan_load(self.as_ptr(), device) })
    }

    /// Bytes of device memory, aligned to 256, that its calls may be given; 0: none is used.
    pub fn workspace_size(&self) -> usize {
        // SAFETY: the plan is there.
        unsafe { sys::gdn_plan_workspace_size(self.as_ptr()) }
    }

    /// `kind`: `sys::GDN_DUMP_*`. All but cubins are text.
    pub fn dump(&self, kind: sys::gdn_dump_kind) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        // SAFETY: append() has `out` for this call alone.
        check(unsafe {
            sys::gdn_plan_dump(self.as_ptr(), kind, Some(append), &mut out as *mut Vec<u8> as *mut c_void)
        })?;
        Ok(out)
    }

    /// Bytes and operations of a call.
    pub fn cost(&self, num_tokens: i64, num_seqs: i64) -> Result<sys::gdn_cost, Error> {
        let mut cost = sys::gdn_cost::default();
        // SAFETY: this function's own.
        check(unsafe { sys::gdn_plan_cost(self.as_ptr(), num_tokens, num_seqs, &mut cost) })?;
        Ok(cost)
    }

    /// Enqueues a call on a stream of the current CUDA context: allocates nothing, waits for nothing, may be captured.
    ///
    /// # Safety
    /// * Every address of `args`, and `workspace`, of `workspace_size` bytes, is one of device memory that is laid out as the
    ///   descriptor and `args` say, until the stream has run the call, or a graph that captured it is gone. Nothing else
    ///   writes there meanwhile, or reads what the call writes, and what it writes overlaps nothing else.
    /// * `cu_seqlens`, slots and checkpoints say what the header allows: a slot is a line of the pool, -1 or below none.
    /// * `stream` is a stream of the current CUDA context, or null.
    /// * No other call that may run at a time has this workspace.
    /// * The plan is dropped when no kernel of it runs or waits.
    pub unsafe fn execute_prefill(
        &self,
        args: &sys::gdn_prefill_args,
        workspace: sys::gdn_devptr,
        workspace_size: usize,
        stream: sys::gdn_stream,
    ) -> Result<(), Error> {
        check_size(args)?;
        check(sys::gdn_execute_prefill(self.as_ptr(), args, workspace, workspace_size, stream))
    }

    /// As [`Plan::execute_prefill`], without a workspace.
    ///
    /// # Safety
    /// As of [`Plan::execute_prefill`].
    pub unsafe fn execute_conv1d_qkv(&self, args: &sys::gdn_conv1d_args, stream: sys::gdn_stream) -> Result<(), Error> {
        check_size(args)?;
        check(sys::gdn_execute_conv1d_qkv(self.as_ptr(), args, stream))
    }
}

fn support_of<Desc: SizeFirst>(
    ask: AskSupport<Desc>,
    target: &sys::gdn_target,
    desc: &Desc,
    flags: u32,
) -> Result<sys::gdn_support, Error> {
    check_version()?;
    check_size(target)?;
    check_size(desc)?;
    let mut said = sys::gdn_support::default();
    // SAFETY: references are valid, and the structs as long as they say.
    check(unsafe { ask(target, desc, flags, &mut said) })?;
    Ok(said)
}

/// Which kernel a plan would have, and why, before any compile; an error where there is none.
pub fn prefill_support(
    target: &sys::gdn_target,
    desc: &sys::gdn_prefill_desc,
    flags: u32,
) -> Result<sys::gdn_support, Error> {
    support_of(sys::gdn_prefill_support, target, desc, flags)
}

/// As [`prefill_support`].
pub fn conv1d_qkv_support(
    target: &sys::gdn_target,
    desc: &sys::gdn_conv1d_desc,
    flags: u32,
) -> Result<sys::gdn_support, Error> {
    support_of(sys::gdn_conv1d_support, target, desc, flags)
}
