//! From where a document is to one JSON value: fetched, changed by overlays, its parts brought together.

pub(crate) mod bundle;
pub(crate) mod cache;
pub(crate) mod document;
pub(crate) mod fetch;
pub(crate) mod location;
pub(crate) mod overlay;
