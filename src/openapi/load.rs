//! Loads a document into one JSON value: fetches it, applies overlays, bundles its parts.

pub(crate) mod bundle;
pub(crate) mod cache;
pub mod document;
pub mod fetch;
pub(crate) mod flaws;
pub(crate) mod identifiers;
pub(crate) mod location;
pub(crate) mod overlay;
