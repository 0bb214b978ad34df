//! Lays what a tool call passes through side by side in the program. It is a thirtieth of the code, and every call meets
//! it cold: the caller's process and the server's have had the core meanwhile. Spread over 40 MB its pages were looked up
//! 670 times a call, side by side 390 times (`perf stat`, a tool of an MCP server over REST).

use std::env;
use std::path::Path;

/// A linker script for GNU ld and LLD; `scripts/order-functions` writes it.
const FUNCTIONS: &str = "functions.ld";

fn main() {
    println!("cargo::rerun-if-changed={FUNCTIONS}");
    let for_use = variable("PROFILE") == "release" && variable("CARGO_CFG_TARGET_OS") == "linux";
    // Who chooses a linker may have one that reads no scripts.
    let chosen = env::var_os("RUSTC_LINKER").is_some() || variable("CARGO_ENCODED_RUSTFLAGS").contains("fuse-ld");
    if for_use && !chosen {
        let script = Path::new(&variable("CARGO_MANIFEST_DIR")).join(FUNCTIONS);
        println!("cargo::rustc-link-arg-bin=sekisho=-T{}", script.display());
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
