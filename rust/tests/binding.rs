//! The binding against the library: values of the host reference, errors, and a call on a device: libcuda.so.1's, or that of the
//! driver that GDN_TEST_DRIVER names, with the NVRTC of GDN_TEST_NVRTC, as tests/host_gpu has them. Skipped without a device.

#![allow(unknown_lints, clippy::missing_transmute_annotations)]

use gdn_jit::{conv1d_qkv_support, prefill_support, reference, sys, text, Config, Context, Operator, Plan};
use std::{
    env,
    ffi::CString,
    mem::size_of_val,
    os::raw::{c_char, c_int, c_void},
    panic,
    path::PathBuf,
    ptr::null_mut,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc, Mutex,
    },
    thread,
};

fn in_memory() -> Config {
    Config { cache_dir: Some(PathBuf::new()), flags: sys::GDN_CTX_NO_ENV, ..Config::default() }
}

fn shape() -> sys::gdn_prefill_desc {
    sys::gdn_prefill_desc {
        num_q_heads: 1,
        num_k_heads: 1,
        num_v_heads: 2,
        head_dim_qk: 64,
        head_dim_v: 64,
        max_tokens: 256,
        max_seqs: 4,
        ..Default::default()
    }
}

/// bf16 of a number that bf16 holds.
fn bf16(x: f32) -> u16 {
    assert_eq!(x.to_bits() & 0xffff, 0, "{x} is no bf16");
    (x.to_bits() >> 16) as u16
}

fn address<T>(x: &[T]) -> sys::gdn_devptr {
    x.as_ptr() as sys::gdn_devptr
}

#[test]
fn the_library_is_of_the_headers_version() {
    // SAFETY: takes nothing.
    assert_eq!(unsafe { sys::gdn_version() }, sys::GDN_VERSION);
    let (major, minor, patch) = (sys::GDN_VERSION_MAJOR, sys::GDN_VERSION_MINOR, sys::GDN_VERSION_PATCH);
    assert_eq!(env!("CARGO_PKG_VERSION"), format!("{major}.{minor}.{patch}"));
}

/// One token, S = 0: u = beta v, S = k^T u, o = scale (q k) u. q and k have one entry each, so that nothing is rounded.
#[test]
fn the_reference_computes_one_token() {
    let dim = 64;
    let desc = shape();
    let (mut q, mut k, mut v) = (vec![0u16; dim], vec![0u16; dim], vec![0u16; 2 * dim]);
    q[3] = bf16(2.0);
    k[3] = bf16(0.5);
    for (i, x) in v.iter_mut().enumerate() {
        *x = bf16((i % 8) as f32 - 3.0);
    }
    let beta = [0.5f32, 1.0];
    let mut o = vec![0u16; 2 * dim];
    let mut state = vec![-1.0f32; 2 * dim * dim];
    let args = sys::gdn_prefill_args {
        q: address(&q),
        k: address(&k),
        v: address(&v),
        beta: address(&beta),
        o: o.as_mut_ptr() as sys::gdn_devptr,
        final_state: state.as_mut_ptr() as sys::gdn_devptr,
        num_tokens: 1,
        num_seqs: 1,
        scale: 0.25,
        has_scale: 1,
        ..Default::default()
    };
    // SAFETY: the arrays are of the sizes that desc and args say.
    unsafe { reference::prefill(&desc, &args) }.unwrap();
    for head in 0..2 {
        for i in 0..dim {
            let u = beta[head] * ((head * dim + i) % 8) as f32 - 3.0 * beta[head];
            assert_eq!(o[head * dim + i], bf16(0.25 * u), "o of head {head}, column {i}");
            for key in 0..dim {
                let expected = if key == 3 { 0.5 * u } else { 0.0 };
                assert_eq!(
                    state[(head * dim + key) * dim + i],
                    expected,
                    "state of head {head}, key {key}, column {i}"
                );
            }
        }
    }
}

#[test]
fn errors_have_the_librarys_sentence() {
    let context = Context::new(in_memory()).unwrap();
    let e = context.target("NVIDIA Nothing").unwrap_err();
    assert_eq!(e.status(), sys::GDN_E_UNSUPPORTED, "{e}");
    assert!(e.sentence().contains("NVIDIA Nothing"), "{e}");
    let target = context.target("NVIDIA H200").unwrap();
    assert_eq!((text(&target.gpu_name).as_str(), text(&target.arch).as_str()), ("NVIDIA H200", "sm_90a"));
    let desc = sys::gdn_prefill_desc { num_k_heads: 0, ..shape() };
    let e = context.plan_prefill(&target, &desc, 0).unwrap_err();
    assert_eq!((e.status(), e.name()), (sys::GDN_E_INVALID, "GDN_E_INVALID"));
    assert!(e.to_string().starts_with("GDN_E_INVALID: num_k_heads is 0"), "{e}");
    let desc = sys::gdn_prefill_desc { struct_size: 4096, ..shape() };
    for e in [context.plan_prefill(&target, &desc, 0).unwrap_err(), prefill_support(&target, &desc, 0).unwrap_err()] {
        assert!(e.sentence().starts_with("gdn_prefill_desc.struct_size is 4096: the struct has "), "{e}");
    }
    let e = context.target("a\0b").unwrap_err();
    assert_eq!((e.status(), e.sentence()), (sys::GDN_E_INVALID, "name has a NUL at byte 1: give it without one"));
    let args = sys::gdn_prefill_args { num_tokens: -1, ..Default::default() };
    // SAFETY: refused before anything is read.
    let e = unsafe { reference::prefill(&shape(), &args) }.unwrap_err();
    assert!(e.sentence().contains("num_tokens is -1"), "{e}");
}

#[test]
fn support_is_told_before_any_compile() {
    let context = Context::new(in_memory()).unwrap();
    let target = context.target("sm_90a").unwrap();
    let desc = sys::gdn_prefill_desc { head_dim_qk: 128, head_dim_v: 128, ..shape() };
    assert_eq!(text(&prefill_support(&target, &desc, 0).unwrap().kernel), "gdn_prefill_hopper");
    let generic = prefill_support(&target, &desc, sys::GDN_PLAN_GENERIC).unwrap();
    assert_eq!(text(&generic.kernel), "gdn_prefill_generic");
    assert!(text(&generic.reason).contains("GDN_PLAN_GENERIC"), "{}", text(&generic.reason));
    let conv = sys::gdn_conv1d_desc { width: 9, ..Default::default() };
    assert_eq!(conv1d_qkv_support(&target, &conv, 0).unwrap_err().status(), sys::GDN_E_INVALID);
    assert_eq!(context.cache_stats().unwrap().compiles, 0);
    assert_eq!(context.cache_dir(), None);
}

fn is_shared_by_threads<T: Send + Sync>() {}

#[test]
fn contexts_and_plans_are_shared_by_threads() {
    is_shared_by_threads::<Context>();
    is_shared_by_threads::<Plan>();
    is_shared_by_threads::<gdn_jit::Error>();
}

/// A thing that a panic carries, and that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_in_a_log_goes_no_further() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let log = |_: c_int, _: &str| {
        CALLS.fetch_add(1, Ordering::SeqCst);
        panic::panic_any(Bomb);
    };
    let config = Config { cache_dir: Some("/proc/no such place".into()), log: Some(Box::new(log)), ..in_memory() };
    let context = panic::catch_unwind(panic::AssertUnwindSafe(|| Context::new(config)))
        .expect("nothing comes through the library")
        .unwrap();
    assert_eq!((CALLS.load(Ordering::SeqCst), context.cache_dir()), (1, None), "it warned of the folder");
    panic::catch_unwind(|| context.target("sm_90a")).unwrap().unwrap();
}

// ---- On a GPU, or what the tests' stand-in for one runs on the host ----

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The few functions of the CUDA driver API that an engine has by another crate.
struct Driver {
    init: unsafe extern "C" fn(u32) -> c_int,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    set_current: unsafe extern "C" fn(*mut c_void) -> c_int,
    synchronize: unsafe extern "C" fn() -> c_int,
    alloc: unsafe extern "C" fn(*mut sys::gdn_devptr, usize) -> c_int,
    upload: unsafe extern "C" fn(sys::gdn_devptr, *const c_void, usize) -> c_int,
    download: unsafe extern "C" fn(*mut c_void, sys::gdn_devptr, usize) -> c_int,
}

impl Driver {
    /// None: there is no such library.
    fn open(path: &str) -> Option<Driver> {
        const NOW: c_int = 2;
        let path = CString::new(path).unwrap();
        // SAFETY: texts; functions by their prototypes.
        unsafe {
            let library = dlopen(path.as_ptr(), NOW);
            if library.is_null() {
                return None;
            }
            let symbol = |name: &str| {
                let name = CString::new(name).unwrap();
                let found = dlsym(library, name.as_ptr());
                assert!(!found.is_null(), "{path:?} has no {name:?}");
                found
            };
            Some(Driver {
                init: std::mem::transmute(symbol("cuInit")),
                device: std::mem::transmute(symbol("cuDeviceGet")),
                retain: std::mem::transmute(symbol("cuDevicePrimaryCtxRetain")),
                set_current: std::mem::transmute(symbol("cuCtxSetCurrent")),
                synchronize: std::mem::transmute(symbol("cuCtxSynchronize")),
                alloc: std::mem::transmute(symbol("cuMemAlloc_v2")),
                upload: std::mem::transmute(symbol("cuMemcpyHtoD_v2")),
                download: std::mem::transmute(symbol("cuMemcpyDtoH_v2")),
            })
        }
    }

    /// For this thread. False: there is no device.
    fn make_current(&self) -> bool {
        let (mut device, mut primary) = (0, null_mut());
        // SAFETY: as CUDA documents it.
        unsafe {
            (self.init)(0) == 0
                && (self.device)(&mut device, 0) == 0
                && (self.retain)(&mut primary, device) == 0
                && (self.set_current)(primary) == 0
        }
    }

    fn memory<T>(&self, x: &[T]) -> sys::gdn_devptr {
        let mut p = 0;
        let bytes = size_of_val(x);
        // SAFETY: `x` has so many bytes, and so has what is allocated.
        assert_eq!(
            unsafe { ((self.alloc)(&mut p, bytes), (self.upload)(p, x.as_ptr() as *const c_void, bytes)) },
            (0, 0)
        );
        p
    }

    fn read<T>(&self, x: &mut [T], p: sys::gdn_devptr) {
        // SAFETY: memory() made it of as many.
        let done = unsafe { ((self.synchronize)(), (self.download)(x.as_mut_ptr() as *mut c_void, p, size_of_val(x))) };
        assert_eq!(done, (0, 0));
    }
}

/// Numbers from -1 to 1 in steps of 1/16, that bf16 holds.
fn numbers(count: usize, mut state: u32) -> Vec<u16> {
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        bf16((state >> 27) as f32 / 16.0 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

fn wide(x: &[u16]) -> Vec<f64> {
    x.iter().map(|b| f64::from(f32::from_bits(u32::from(*b) << 16))).collect()
}

/// Of two vectors, by the norm of the second.
fn difference(x: &[f64], y: &[f64]) -> f64 {
    let sum = |z: &mut dyn Iterator<Item = f64>| z.map(|v| v * v).sum::<f64>().sqrt();
    sum(&mut x.iter().zip(y).map(|(a, b)| a - b)) / sum(&mut y.iter().copied())
}

struct Call {
    q: Vec<u16>,
    k: Vec<u16>,
    v: Vec<u16>,
    g: Vec<f32>,
    o: Vec<u16>,
    state: Vec<f32>,
}

impl Call {
    fn new(tokens: usize, dim: usize, seed: u32) -> Call {
        let unit = |x: Vec<u16>| x.iter().map(|b| if *b == 0 { 0 } else { b - (3 << 7) }).collect(); // an eighth: |k|^2 < 1
        Call {
            q: numbers(tokens * dim, seed),
            k: unit(numbers(tokens * dim, seed + 1)),
            v: numbers(2 * tokens * dim, seed + 2),
            g: vec![-0.125; 2 * tokens],
            o: vec![0; 2 * tokens * dim],
            state: vec![0.0; 2 * dim * dim],
        }
    }

    fn args(&mut self, at: impl Fn(*const c_void, usize) -> sys::gdn_devptr) -> sys::gdn_prefill_args {
        let tokens = (self.g.len() / 2) as i64;
        sys::gdn_prefill_args {
            q: at(self.q.as_ptr().cast(), size_of_val(&self.q[..])),
            k: at(self.k.as_ptr().cast(), size_of_val(&self.k[..])),
            v: at(self.v.as_ptr().cast(), size_of_val(&self.v[..])),
            g: at(self.g.as_ptr().cast(), size_of_val(&self.g[..])),
            o: at(self.o.as_mut_ptr().cast(), size_of_val(&self.o[..])),
            final_state: at(self.state.as_mut_ptr().cast(), size_of_val(&self.state[..])),
            num_tokens: tokens,
            num_seqs: 1,
            ..Default::default()
        }
    }
}

#[test]
fn a_plan_is_made_loaded_and_computes_what_the_reference_does() {
    const BOUND: f64 = 8e-3; // bf16 has 2^-9 a rounding
    let named = env::var("GDN_TEST_DRIVER").ok();
    let name = named.clone().unwrap_or_else(|| "libcuda.so.1".into());
    let driver = match Driver::open(&name) {
        Some(driver) if driver.make_current() => Arc::new(driver),
        _ if named.is_none() => return eprintln!("skipped: {name} is not there, or has no device"),
        _ => panic!("GDN_TEST_DRIVER is {name}, which is not there, or has no device"),
    };
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = {
        let lines = lines.clone();
        move |level: c_int, line: &str| {
            lines.lock().unwrap().push((level, line.to_string()));
            assert_ne!(level, sys::GDN_LOG_INFO, "a panic in a log goes no further");
        }
    };
    let context = Context::new(Config {
        driver_path: Some(name.into()),
        nvrtc_path: env::var_os("GDN_TEST_NVRTC").map(PathBuf::from),
        log: Some(Box::new(log)),
        log_level: sys::GDN_LOG_INFO,
        ..in_memory()
    })
    .unwrap();
    let target = context.target_of_device(0).unwrap();
    let plan = Arc::new(context.plan_prefill(&target, &shape(), 0).unwrap());
    assert!(context.cache_stats().unwrap().compiles > 0);
    assert!(!lines.lock().unwrap_or_else(|e| e.into_inner()).is_empty(), "compiling is told of");
    drop(context); // the plan keeps it

    let (tokens, dim) = (70, 64);
    let threads: Vec<_> = (0..2)
        .map(|i| {
            let (plan, driver) = (plan.clone(), driver.clone());
            thread::spawn(move || {
                assert!(driver.make_current());
                let mut x = Call::new(tokens, dim, 7 + 10 * i);
                // SAFETY: `from` has so many bytes.
                let copy = |from, size| driver.memory(unsafe { std::slice::from_raw_parts(from as *const u8, size) });
                let args = x.args(copy);
                // SAFETY: refused, in the first thread that comes here, else it runs on memory as below.
                let before = unsafe { plan.execute_prefill(&args, 0, 0, null_mut()) };
                assert!(before.map_or_else(|e| e.status() == sys::GDN_E_NOT_LOADED, |()| true));
                plan.load(0).unwrap();
                // SAFETY: memory of this thread's own, which is never freed.
                unsafe { plan.execute_prefill(&args, 0, 0, null_mut()) }.unwrap();
                let (mut o, mut state) = (vec![0u16; x.o.len()], vec![0f32; x.state.len()]);
                driver.read(&mut o, args.o);
                driver.read(&mut state, args.final_state);
                x.o.fill(0);
                let host = x.args(|at, _| at as sys::gdn_devptr);
                // SAFETY: arrays of the call's own, of the sizes that it says.
                unsafe { reference::prefill(&shape(), &host) }.unwrap();
                let of_state = |s: &[f32]| s.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
                let errors = (difference(&wide(&o), &wide(&x.o)), difference(&of_state(&state), &of_state(&x.state)));
                assert!(errors.0 < BOUND && errors.1 < BOUND, "o, state off by {errors:?}, bound {BOUND}");
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let json = String::from_utf8(plan.dump(sys::GDN_DUMP_JSON).unwrap()).unwrap();
    assert!(json.contains("\"gdn_prefill_generic\""), "{json}");
    assert!(plan.cost(70, 1).unwrap().struct_size > 0);
    // SAFETY: refused.
    let e = unsafe { plan.execute_conv1d_qkv(&sys::gdn_conv1d_args::default(), null_mut()) }.unwrap_err();
    assert_eq!((e.status(), plan.operator()), (sys::GDN_E_INVALID, Operator::Prefill), "{e}");
}
