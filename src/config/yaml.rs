//! The reader of the configuration file: from text to typed values, each error with its place.

pub mod document;
pub mod error;
pub(crate) mod interpolate;
mod merge;
pub mod reader;
pub mod reference;
pub(crate) mod type_error;
