//! Copies the structures of `src/core` once for each mistake, with the mistake in the copy.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a build stops at the first surprise")]

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

include!("mistakes.rs");

const FILES: [&str; 4] = ["bounded.rs", "share.rs", "share/bytes.rs", "share/lease.rs"];

fn main() {
    let core = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../src/core");
    let out = env::var("OUT_DIR").unwrap();
    let mut modules = String::new();
    println!("cargo::rerun-if-changed=mistakes.rs");
    for (name, edited, text, replacement, _) in MISTAKES {
        let folder = Path::new(&out).join(name);
        fs::create_dir_all(folder.join("share")).unwrap();
        for file in FILES {
            println!("cargo::rerun-if-changed={}", core.join(file).display());
            let mut content = fs::read_to_string(core.join(file)).unwrap();
            if file == edited {
                let times = content.matches(text).count();
                if times != 1 {
                    panic!("{name} in tests/models/mistakes.rs: its text is {times} times in {file}; write it again");
                }
                content = content.replace(text, replacement);
            }
            fs::write(folder.join(file), content).unwrap();
        }
        let path = folder.display();
        writeln!(
            modules,
            "#[path = {:?}] #[allow(warnings, clippy::all)] pub mod {name} {{ pub mod bounded; pub mod share; pub use sekisho_core::caller; }}",
            path.to_string()
        )
        .unwrap();
    }
    fs::write(Path::new(&out).join("modules.rs"), modules).unwrap();
}
