//! Tools from OpenAPI documents: document → operations → tools; request and response at call time;
//! and a report of what was approximated or lost on the way.

pub mod adapter;
mod arguments;
mod body;
mod bundle;
pub mod collection;
pub mod collections;
mod credentials;
pub mod document;
mod executor;
pub mod fetch;
mod large_numbers;
mod loader;
pub mod location;
pub mod operation;
pub mod overlay;
mod pagination;
mod parameter;
pub mod reader;
mod reference;
pub mod registration;
pub mod report;
mod request;
mod response;
mod schema;
mod spec_cache;
mod swagger2;
#[cfg(test)]
mod tests;
mod tool;

pub use self::collection::{Collection, CollectionFault};
pub use self::collections::{Collections, Wait, Wanted};
pub use self::credentials::CredentialFault;
pub use self::executor::Access;
pub use self::fetch::SpecOrigin;
pub use self::loader::Loader;
pub use self::registration::{Registration, RegistrationFault};
pub use self::tool::definitions;
