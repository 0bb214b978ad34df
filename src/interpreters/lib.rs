//! The interpreters that the sandbox runs: their parts, the parts in the folder of this machine, and the Python inside.

pub mod compiled;
pub mod interpreter;
pub mod packages;
pub mod prepare;
pub mod python;
