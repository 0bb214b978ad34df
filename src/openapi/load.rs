//! Loads a document into one JSON value: fetches it, applies overlays, bundles its parts.

pub(crate) mod bundle;
pub(crate) mod cache;
pub(crate) mod document;
pub(crate) mod fetch;
pub(crate) mod flaws;
pub(crate) mod identifiers;
pub(crate) mod location;
pub(crate) mod overlay;
