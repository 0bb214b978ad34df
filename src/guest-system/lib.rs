//! The surroundings of a guest: the engine that runs its WebAssembly, WASI, and a file system in memory.

pub mod engine;
pub mod files;
pub mod mounts;
pub mod wasi;
