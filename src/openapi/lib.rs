//! Tools from OpenAPI documents: document → operations → tools; request and response at call time; and a report of the
//! parts that were approximated or lost on the way.

pub(crate) mod call;
pub mod collection;
pub mod collections;
pub mod load;
mod loader;
pub mod read;
pub mod registration;
#[cfg(test)]
mod tests;
mod tool;
mod user_scheme;

pub use self::call::credentials::CredentialError;
pub use self::call::executor::Access;
pub use self::collection::{Collection, CollectionError};
pub use self::collections::{Collections, DesiredCollections, Wait};
pub use self::load::fetch::SpecOrigin;
pub use self::loader::Loader;
pub use self::registration::{OwnedRegistration, Registration, RegistrationError};
pub use self::tool::definitions;
