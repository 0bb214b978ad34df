//! Where tests find the files of their checkout.

use std::path::PathBuf;

/// The folder of the package whose tests run, as cargo names it to them, or the current one. Not that of the build: another
/// checkout may have built them, into a folder that both use.
pub fn checkout() -> PathBuf {
    let named = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| std::env::current_dir().expect("a current folder"))
}
