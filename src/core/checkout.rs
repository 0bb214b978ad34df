//! Where tests find the files of their checkout.
#![allow(clippy::expect_used, reason = "a test stops at the first surprise")]

use std::path::PathBuf;

/// The root of the workspace whose tests run: above the package's folder as cargo names it to them, or above the
/// current one. Not the root of the build: another checkout may have built them, into a folder that both use.
pub fn checkout() -> PathBuf {
    let named = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| std::env::current_dir().expect("a current folder"));
    let root = folder.ancestors().find(|folder| folder.join("Cargo.lock").exists());
    root.expect("a workspace").to_owned()
}
