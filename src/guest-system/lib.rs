//! What a guest finds in its WebAssembly: the engine that runs it, WASI, and a file system in memory.

pub mod engine;
pub mod files;
pub mod mounts;
pub mod wasi;
