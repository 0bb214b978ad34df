//! The interpreters that the sandbox runs: what they are made of, which of it is in the folder of this machine, and the Python inside it.

pub mod compiled;
pub mod interpreter;
pub mod packages;
pub mod prepare;
pub mod python;
