//! Says where libgdnjit is: in the folder that GDN_JIT_LIB_DIR names, else where pkg-config finds gdn-jit. Crates that depend on
//! this one have the folder as DEP_GDNJIT_LIB_DIR, to make a run path of it.

use std::{env, fs, path::PathBuf, process::Command};

/// The library's versions that this crate is written for: below 1.0 a minor version may change the interface.
const VERSIONS: [&str; 2] = ["gdn-jit >= 0.1", "gdn-jit < 0.2"];
const REMEDY: &str = "install libgdnjit, set PKG_CONFIG_PATH, or name its folder in GDN_JIT_LIB_DIR";

fn named() -> Option<PathBuf> {
    let given = env::var_os("GDN_JIT_LIB_DIR").filter(|v| !v.is_empty())?;
    let folder = PathBuf::from(&given);
    assert!(folder.join("libgdnjit.so").is_file(), "GDN_JIT_LIB_DIR is {given:?}: no libgdnjit.so is there; {REMEDY}");
    Some(fs::canonicalize(folder).expect("GDN_JIT_LIB_DIR"))
}

fn installed() -> PathBuf {
    assert_eq!(env::var("HOST"), env::var("TARGET"), "pkg-config tells of this machine's library: set GDN_JIT_LIB_DIR");
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let tell = |what: &[&str]| {
        let out = Command::new(&program).args(what).output();
        let out = out.unwrap_or_else(|e| panic!("{program:?} cannot be run ({e}): {REMEDY}"));
        assert!(out.status.success(), "{}: {REMEDY}", String::from_utf8_lossy(&out.stderr).trim());
        String::from_utf8(out.stdout).expect("a path that is UTF-8").trim().to_string()
    };
    tell(&["--print-errors", "--exists", VERSIONS[0], VERSIONS[1]]);
    tell(&["--variable=libdir", "gdn-jit"]).into()
}

fn main() {
    for name in ["GDN_JIT_LIB_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("DOCS_RS").is_some() {
        return; // documentation needs no library
    }
    let folder = named().unwrap_or_else(installed);
    let folder = folder.to_str().expect("a path that is UTF-8");
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=dylib=gdnjit");
    println!("cargo:lib_dir={folder}");
}
