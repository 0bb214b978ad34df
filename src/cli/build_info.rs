//! From which commit the program was built, and for which system, as `build.rs` at the root finds it.

pub(super) const COMMIT: &str = env!("SEKISHO_BUILD_COMMIT");

/// Of the commit.
pub(super) const DATE: &str = env!("SEKISHO_BUILD_DATE");

pub(super) const TARGET: &str = env!("SEKISHO_BUILD_TARGET");

/// The text of `--version`; `-V` shows only the version.
pub(super) const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SEKISHO_BUILD"), ")");
