//! The reader of the configuration file: from text to typed values, each error with its place.

pub(crate) mod document;
pub(crate) mod error;
pub(crate) mod interpolate;
pub(crate) mod reader;
pub(crate) mod reference;
pub(crate) mod type_error;
