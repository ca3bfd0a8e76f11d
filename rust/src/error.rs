//! A call that failed.

use crate::sys;
use std::{
    ffi::CStr,
    fmt,
    panic::{catch_unwind, AssertUnwindSafe},
};

/// Below 1.0 a minor version may change the interface.
const COMPATIBLE: u32 = 100;

/// A status, and the sentence that names the field, its value and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: sys::gdn_status,
    sentence: String,
}

impl Error {
    pub(crate) fn invalid(sentence: String) -> Self {
        Error { status: sys::GDN_E_INVALID, sentence }
    }

    /// One of `sys::GDN_E_*`.
    pub fn status(&self) -> sys::gdn_status {
        self.status
    }

    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// `"GDN_E_INVALID"` and so on.
    pub fn name(&self) -> &'static str {
        // SAFETY: static storage, ASCII, for any number.
        unsafe { CStr::from_ptr(sys::gdn_status_name(self.status)) }.to_str().unwrap_or("GDN_E_?")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.sentence)
    }
}

impl std::error::Error for Error {}

/// To be called by the thread that called, before it calls the library again: the sentence is the thread's last one.
pub(crate) fn check(status: sys::gdn_status) -> Result<(), Error> {
    if status == sys::GDN_OK {
        return Ok(());
    }
    // SAFETY: this thread's own, until its next call.
    let sentence = unsafe { CStr::from_ptr(sys::gdn_last_error()) }.to_string_lossy().into_owned();
    Err(Error { status, sentence })
}

/// Whether the library that the loader found is of the header that [`sys`] was written from. By what is called first.
pub(crate) fn check_version() -> Result<(), Error> {
    // SAFETY: takes nothing, and every version has it.
    let found = unsafe { sys::gdn_version() };
    if found / COMPATIBLE == sys::GDN_VERSION / COMPATIBLE {
        return Ok(());
    }
    let (major, minor, patch) = (found / 10000, found / 100 % 100, found % 100);
    let sentence = format!(
        "libgdnjit is version {major}.{minor}.{patch}, this crate is written for {}.{}: build the two of one source",
        sys::GDN_VERSION_MAJOR,
        sys::GDN_VERSION_MINOR
    );
    Err(Error { status: sys::GDN_E_VERSION, sentence })
}

/// A struct that begins with its size.
pub(crate) trait SizeFirst {
    const NAME: &'static str;
    fn struct_size(&self) -> usize;
}

macro_rules! size_first {
    ($($name:ident)*) => {
        $(impl SizeFirst for sys::$name {
            const NAME: &'static str = stringify!($name);
            fn struct_size(&self) -> usize {
                self.struct_size
            }
        })*
    };
}

size_first!(gdn_target gdn_prefill_desc gdn_prefill_args gdn_conv1d_desc gdn_conv1d_args);

/// The library reads as many bytes of a struct as that says it has: no more than there are.
pub(crate) fn check_size<T: SizeFirst>(given: &T) -> Result<(), Error> {
    let (name, says, size) = (T::NAME, given.struct_size(), std::mem::size_of::<T>());
    if says <= size {
        return Ok(());
    }
    Err(Error::invalid(format!("{name}.struct_size is {says}: the struct has {size} bytes; begin with its default()")))
}

/// What a callback does; `None` where it panicked, which goes no further. What the panic carried is leaked: its drop may panic.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).map_err(std::mem::forget).ok()
}
