//! Copies the structures of `src/core`: once as they are, and once for each mistake, with the mistake in the copy. Their unit tests are left
//! out: they run in `sekisho-core`.
#![expect(clippy::unwrap_used, reason = "a build stops at the first surprise")]

use std::path::Path;
use std::{env, fs};

include!("mistakes.rs");

const FILES: [&str; 4] = ["bounded.rs", "share.rs", "share/bytes.rs", "share/lease.rs"];

fn main() {
    println!("cargo::rerun-if-changed=mistakes.rs");
    let mut modules = module("unchanged", |_, content| content);
    for (name, edited, text, replacement, _) in MISTAKES {
        modules += &module(name, |file, content| {
            if file != edited {
                return content;
            }
            let times = content.matches(text).count();
            assert_eq!(times, 1, "{name} in tests/models/mistakes.rs: how often its text is in {file}; write it again");
            content.replace(text, replacement)
        });
    }
    let out = env::var("OUT_DIR").unwrap();
    fs::write(Path::new(&out).join("modules.rs"), modules).unwrap();
}

/// Copies the files as `changed` returns them for their names, and returns the module of the copy.
fn module(name: &str, changed: impl Fn(&str, String) -> String) -> String {
    let core = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../src/core");
    let folder = Path::new(&env::var("OUT_DIR").unwrap()).join(name);
    fs::create_dir_all(folder.join("share")).unwrap();
    for file in FILES {
        println!("cargo::rerun-if-changed={}", core.join(file).display());
        let content = changed(file, fs::read_to_string(core.join(file)).unwrap());
        fs::write(folder.join(file), content.replace("#[cfg(test)]", "#[cfg(any())]")).unwrap();
    }
    format!(
        "#[path = {folder:?}] #[allow(warnings, clippy::all)] pub mod {name} {{ pub mod bounded; pub mod share; pub use sekisho_core::caller; }}\n"
    )
}
