//! Tools of sekisho itself, and those that users bring as code: components of WebAssembly, and functions in Python.

pub mod builtin;
pub mod components;
pub mod python_tools;
