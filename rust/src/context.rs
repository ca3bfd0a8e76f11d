//! A context: cache, compiler, driver, tables; and the targets that it knows.

use crate::{
    error::{caught, check, check_version},
    sys, Error,
};
use std::{
    ffi::{CStr, CString, OsStr, OsString},
    fmt,
    os::raw::{c_char, c_int, c_void},
    os::unix::ffi::OsStrExt,
    panic::{RefUnwindSafe, UnwindSafe},
    path::PathBuf,
    ptr::{null, null_mut, NonNull},
    sync::Arc,
};

/// Given a level, one of `sys::GDN_LOG_*`, and a message, by any thread that is in a call. It must not call this library, nor
/// wait for a thread that is planning: either may wait for ever. A panic of it goes no further, and what it carried is leaked.
pub type Log = Box<dyn Fn(c_int, &str) + Send + Sync>;

/// What a context is made with: `gdn_config`. What is `None`, 0 or empty is the library's default.
#[derive(Default)]
pub struct Config {
    /// Empty: cubins are kept in memory only.
    pub cache_dir: Option<PathBuf>,
    /// Read-only, searched first.
    pub bundle_dirs: Vec<PathBuf>,
    pub cache_max_bytes: u64,
    /// `sys::GDN_CTX_*`.
    pub flags: u32,
    pub nvrtc_path: Option<PathBuf>,
    pub driver_path: Option<PathBuf>,
    pub log: Option<Log>,
    pub log_level: c_int,
    pub compile_wait_ms: i32,
    pub record_path: Option<PathBuf>,
    /// Files, with `:` between them.
    pub tuning_path: Option<OsString>,
    /// Kernels that are compiled at a time, up to 256.
    pub compile_jobs: i32,
}

fn c_string(name: &str, text: impl AsRef<OsStr>) -> Result<CString, Error> {
    CString::new(text.as_ref().as_bytes())
        .map_err(|e| Error::invalid(format!("{name} has a NUL at byte {}: give it without one", e.nul_position())))
}

fn c_option(name: &str, text: &Option<impl AsRef<OsStr>>) -> Result<Option<CString>, Error> {
    text.as_ref().map(|t| c_string(name, t)).transpose()
}

fn address(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(null(), |t| t.as_ptr())
}

unsafe extern "C" fn log_to(user: *mut c_void, level: c_int, message: *const c_char) {
    let log = &*(user as *const Log);
    let message = CStr::from_ptr(message).to_string_lossy();
    caught(|| log(level, &message));
}

/// What the library has the address of.
struct LogPlace(*mut Log);

impl LogPlace {
    fn new(log: Option<Log>) -> LogPlace {
        LogPlace(log.map_or(null_mut(), |l| Box::into_raw(Box::new(l))))
    }
}

impl Drop for LogPlace {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: of Box::into_raw(), once.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

struct Inner {
    raw: NonNull<sys::gdn_ctx>,
    _log: LogPlace, // dropped when the context is gone
}

// SAFETY: a gdn_ctx may be used by any number of threads, and so may a Log.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}
impl UnwindSafe for Inner {} // a log's panic goes nowhere
impl RefUnwindSafe for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; that no kernel of it runs is what who launched one has promised.
        unsafe { sys::gdn_ctx_destroy(self.raw.as_ptr()) }
    }
}

/// `gdn_ctx`, once a process. A clone is the same context, which goes with the last clone and the last plan. What its one-call
/// forms loaded goes with it: see [`crate::Plan`] for when that may be. A child of `fork()` makes a context of its own, and
/// drops none of its parent's.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.0.raw).finish()
    }
}

impl Context {
    /// Opens neither the driver nor NVRTC: they are looked for when first needed.
    pub fn new(config: Config) -> Result<Context, Error> {
        check_version()?;
        let cache_dir = c_option("cache_dir", &config.cache_dir)?;
        let nvrtc = c_option("nvrtc_path", &config.nvrtc_path)?;
        let driver = c_option("driver_path", &config.driver_path)?;
        let record = c_option("record_path", &config.record_path)?;
        let tuning = c_option("tuning_path", &config.tuning_path)?;
        let dirs = config.bundle_dirs.iter().map(|d| c_string("bundle_dirs", d)).collect::<Result<Vec<_>, _>>()?;
        let dirs: Vec<*const c_char> = dirs.iter().map(|d| d.as_ptr()).collect();
        let log = LogPlace::new(config.log);
        let given = sys::gdn_config {
            cache_dir: address(&cache_dir),
            bundle_dirs: if dirs.is_empty() { null() } else { dirs.as_ptr() },
            num_bundle_dirs: dirs.len(),
            cache_max_bytes: config.cache_max_bytes,
            flags: config.flags,
            nvrtc_path: address(&nvrtc),
            driver_path: address(&driver),
            log_fn: if log.0.is_null() { None } else { Some(log_to) },
            log_user: log.0 as *mut c_void,
            log_level: config.log_level,
            compile_wait_ms: config.compile_wait_ms,
            record_path: address(&record),
            tuning_path: address(&tuning),
            compile_jobs: config.compile_jobs,
            ..Default::default()
        };
        let mut raw = null_mut();
        // SAFETY: what `given` points to lives until the end of this function, and the log as long as the context.
        check(unsafe { sys::gdn_ctx_create(&mut raw, &given) })?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::invalid("gdn_ctx_create() gave no context".into()))?;
        Ok(Context(Arc::new(Inner { raw, _log: log })))
    }

    /// For what of [`sys`] has no function here. Valid as long as this context.
    pub fn as_ptr(&self) -> *mut sys::gdn_ctx {
        self.0.raw.as_ptr()
    }

    /// A GPU as the driver prints it, `"NVIDIA H200"`, or an arch, `"sm_90a"`; needs no GPU.
    pub fn target(&self, name: &str) -> Result<sys::gdn_target, Error> {
        let name = c_string("name", name)?;
        let mut target = sys::gdn_target::default();
        // SAFETY: both are this function's own.
        check(unsafe { sys::gdn_target_from_name(self.as_ptr(), name.as_ptr(), &mut target) })?;
        Ok(target)
    }

    /// The GPU of a CUDA ordinal.
    pub fn target_of_device(&self, device: c_int) -> Result<sys::gdn_target, Error> {
        let mut target = sys::gdn_target::default();
        // SAFETY: this function's own.
        check(unsafe { sys::gdn_target_from_device(self.as_ptr(), device, &mut target) })?;
        Ok(target)
    }

    /// `compiles` is 0 after a start whose warm-up was complete.
    pub fn cache_stats(&self) -> Result<sys::gdn_cache_stats, Error> {
        let mut stats = sys::gdn_cache_stats::default();
        // SAFETY: this function's own.
        check(unsafe { sys::gdn_cache_stat(self.as_ptr(), &mut stats) })?;
        Ok(stats)
    }

    /// The cache directory in use; `None` where cubins are kept in memory only.
    pub fn cache_dir(&self) -> Option<PathBuf> {
        // SAFETY: the context is there.
        let dir = unsafe { sys::gdn_cache_dir(self.as_ptr()) };
        if dir.is_null() {
            return None;
        }
        // SAFETY: a text that lives as long as the context.
        Some(OsStr::from_bytes(unsafe { CStr::from_ptr(dir) }.to_bytes()).into())
    }
}

/// A text of a struct, such as `gdn_target.gpu_name`, up to its NUL.
pub fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
