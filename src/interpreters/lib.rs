//! The interpreters that the sandbox runs: what they are made of, how one is prepared, and the Python inside it.

pub mod compiled;
pub mod interpreter;
pub mod packages;
pub mod prepare;
pub mod python;
