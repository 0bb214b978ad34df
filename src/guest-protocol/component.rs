//! Components and commands that are tools: the contents of their files, the parts that a worker loads, and their calls.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{JobId, JobLimits, whole_bytes};

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModuleKind {
    /// A component of WASI 0.2.
    Component,
    /// A core module of WASI preview 1 with a `_start`.
    Command,
}

/// A file that a process examines, with nothing of it executed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Examination {
    #[serde(with = "whole_bytes")]
    pub wasm: Vec<u8>,
    /// The WIT beside it, for descriptions.
    pub wit: Option<String>,
    /// Whether it is compiled, too.
    pub compiles: bool,
}

/// The contents of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examined {
    pub kind: ModuleKind,
    /// For a component: the functions that can be tools.
    pub functions: Vec<FoundExport>,
    /// Exported functions that cannot be, with the reason.
    pub problems: Vec<(Export, String)>,
    /// The interfaces with functions, or the functions, that it imports.
    pub imports: Vec<String>,
    /// Empty where it was not compiled.
    #[serde(with = "whole_bytes")]
    pub compiled: Vec<u8>,
}

/// An exported function, with schemas as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundExport {
    pub export: Export,
    pub description: String,
    pub parameters: String,
    pub output: Option<String>,
}

/// The names of an exported function, as the component has them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Export {
    /// `None` for the world itself.
    pub interface: Option<String>,
    pub function: String,
}

/// The first message to workers for components, before they are hardened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentsLoad {
    pub components: Vec<ComponentLoad>,
    /// Maximum number of calls at once in this worker. Each costs address space, not memory.
    pub instances: u32,
}

/// A compiled component or command, and its grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentLoad {
    /// Unique among the components of a worker; another one once its content or a grant is another.
    pub id: String,
    pub kind: ModuleKind,
    pub compiled: PathBuf,
    pub grants: ComponentGrants,
}

/// The grants of a component. Clocks, random bytes and HTTP are granted by the list of its permitted imports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentGrants {
    pub environment: Vec<(String, String)>,
    /// For `wasi:config`.
    pub config: Vec<(String, String)>,
    pub folders: Vec<ComponentFolder>,
}

/// A folder of the host that a component reads: as it was when the worker started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentFolder {
    pub guest_path: String,
    pub host_path: PathBuf,
}

/// Files and folders that one component reads, at most: every worker has them in memory.
pub const MAX_FOLDER_ENTRIES: usize = 10_000;

/// A call of a component's function, or of a command.
#[derive(Debug, Serialize, Deserialize)]
pub struct ComponentCall {
    pub id: JobId,
    /// The id of a [`ComponentLoad`].
    pub component: String,
    /// Not for a command.
    pub export: Export,
    /// JSON of an object.
    pub arguments: String,
    /// `tool_calls` is the number of requests over HTTP.
    pub limits: JobLimits,
}

/// A request that a component sends over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRequest {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, Vec<u8>)>,
    #[serde(with = "whole_bytes")]
    pub body: Vec<u8>,
}

/// The response to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    #[serde(with = "whole_bytes")]
    pub body: Vec<u8>,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpFailure {
    /// It may not be sent.
    Denied,
    Timeout,
    /// The body of the response is too long.
    TooLarge,
    Failed(String),
}

/// Maximum bytes that the host copies out of a component at once: a byte of a list is a value of some 32 bytes there.
pub fn max_copied_bytes(limits: &JobLimits) -> u64 {
    const BYTES_OF_VALUE: u64 = 32;
    const LEAST: u64 = 4 << 20;
    limits.result_bytes.saturating_mul(BYTES_OF_VALUE).max(LEAST)
}

/// Maximum length of the body of a request or a response.
pub const MAX_HTTP_BODY_BYTES: usize = 8 << 20;
