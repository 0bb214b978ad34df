//! Packages that `npx`, `uvx` and their like fetch. They are installed in a step of their own, which may reach package registries and write only the
//! folder of the packages; the server's program may write nothing there.

mod command;
mod installation;
mod installed;
mod output;
mod removal;
mod tree;

pub use command::{Installer, PackageCommand, UnsupportedCommand};
pub use installation::{InstallError, PackageFolder};
pub(crate) use installed::FOLDER;
pub use installed::{Installed, Package, Reading};
pub use output::Redaction;
pub use tree::TreeError;
