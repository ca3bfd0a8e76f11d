//! Says where libgdnjit is: in the folder that GDN_JIT_LIB_DIR names, else where pkg-config finds gdn-jit.

use std::{env, process::Command};

/// The library's versions that this crate is written for: below 1.0 a minor version may change the interface.
const VERSIONS: [&str; 2] = ["gdn-jit >= 0.1", "gdn-jit < 0.2"];

fn main() {
    println!("cargo:rerun-if-env-changed=GDN_JIT_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if let Ok(folder) = env::var("GDN_JIT_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-lib=dylib=gdnjit");
        return;
    }
    let remedy = "install libgdnjit, set PKG_CONFIG_PATH, or name its folder in GDN_JIT_LIB_DIR";
    let out = Command::new("pkg-config").arg("--libs").args(VERSIONS).output();
    let out = out.unwrap_or_else(|e| panic!("pkg-config cannot be run ({e}): {remedy}"));
    if !out.status.success() {
        panic!("{}: {remedy}", String::from_utf8_lossy(&out.stderr).trim());
    }
    for word in String::from_utf8_lossy(&out.stdout).split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    }
}
