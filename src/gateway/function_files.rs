//! The files of Python functions, as their operators see them: source, cases, and the calls that failed last.

use std::cmp::Reverse;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::PythonFunctions;
use sekisho_config::ConsoleRole;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::{CallSummary, Status};
use sekisho_store::IndexFilter;
use sekisho_tools::python_tools::source_of;

/// Calls that are shown of one file.
const MAX_FAILURES: usize = 20;

/// Maximum bytes of a file with cases.
const MAX_CASES_BYTES: u64 = 256 << 10;

/// The folder of the files.
#[derive(Debug)]
pub struct FunctionFolder {
    pub files: Vec<FunctionFile>,
    /// Names and versions of the packages that the files can import besides the interpreter's.
    pub packages: Vec<String>,
    /// The problems of the folder, or of packages.
    pub problems: Vec<String>,
}

/// A file of functions.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = FunctionFileBody)]
pub struct FunctionFile {
    /// Its name without `.py`.
    pub name: String,
    /// Those that are offered.
    pub tools: Vec<String>,
    /// What is wrong with it, and what to write instead.
    pub problems: Vec<String>,
}

/// All of one file.
#[derive(Debug)]
pub struct FunctionSource {
    pub file: FunctionFile,
    /// Absent for a file that cannot be read.
    pub text: Option<String>,
    pub cases: Vec<Value>,
    /// Why the cases cannot be read.
    pub cases_problem: Option<String>,
    /// The failures that the caller may see, newest first.
    pub failures: Vec<Arc<CallSummary>>,
}

impl PythonFunctions {
    /// All files, by name.
    /// Errors: `denied` to all but operators and administrators of the tenant `default`.
    pub fn files(&self, caller: &Caller) -> Result<FunctionFolder, CallError> {
        self.require_source_reader(caller)?;
        let found = self.tool_offer.python_tools.load();
        let files = found.files().map(|name| self.file(name)).collect();
        Ok(FunctionFolder { files, packages: found.packages().to_vec(), problems: found.folder_problems() })
    }

    /// One file.
    /// Errors: `denied` to all but operators and administrators of the tenant `default`; `not_found`.
    pub async fn source(&self, caller: &Caller, name: &str) -> Result<FunctionSource, CallError> {
        self.require_source_reader(caller)?;
        let found = self.tool_offer.python_tools.load_full();
        let Some(text) = found.text_of(name) else {
            let message = format!("there is no file of Python functions `{name}`; `/admin/python-tools` lists them");
            return Err(CallError::new(ErrorCode::NotFound, message));
        };
        let directory = self.configuration.current().python_tools.directory.clone();
        // The name belongs to a file of the folder.
        let path = directory.unwrap_or_default().join(format!("{name}.cases.yaml"));
        let cases = tokio::task::spawn_blocking(move || read_cases(&path)).await.map_err(CallError::internal)?;
        let (cases, cases_problem) = match cases {
            Ok(cases) => (cases, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        let file = self.file(name);
        let failures = self.failures_of(caller, &file.tools).await?;
        Ok(FunctionSource { file, text: text.map(str::to_owned), cases, cases_problem, failures })
    }

    fn file(&self, name: &str) -> FunctionFile {
        let (source, snapshot) = (source_of(name), self.pipeline.registry.snapshot());
        let offered = snapshot.tools().iter().filter(|tool| tool.metadata.source == source);
        let tools = offered.map(|tool| tool.name().to_owned()).collect();
        FunctionFile { name: name.to_owned(), tools, problems: self.tool_offer.python_tools.load().problems_of(name) }
    }

    /// The latest failures of each tool, the latest of all first.
    async fn failures_of(&self, caller: &Caller, tools: &[String]) -> Result<Vec<Arc<CallSummary>>, CallError> {
        let mut failures: Vec<Arc<CallSummary>> = Vec::new();
        for tool in tools {
            let status = Some(Status::Error.as_str().to_owned());
            let failed = IndexFilter { tool: Some(tool.clone()), status, ..IndexFilter::default() };
            let found = self.history.latest_calls(caller, failed, MAX_FAILURES).await?;
            failures.extend(found.into_iter().map(|found| found.call));
        }
        failures.sort_by_key(|call| Reverse(call.time));
        failures.truncate(MAX_FAILURES);
        Ok(failures)
    }

    /// The files are the operator's, for all tenants.
    fn require_source_reader(&self, caller: &Caller) -> Result<(), CallError> {
        let roles = self.configuration.console_roles(caller);
        let is_operator = roles.iter().any(|role| matches!(role, ConsoleRole::Operator | ConsoleRole::Admin));
        if is_operator && caller.is_of_default() {
            return Ok(());
        }
        let message = "the sources of Python functions are for all tenants: they are shown to the console roles operator and \
                       admin (`console.roles`) of the tenant `default` alone";
        Err(CallError::new(ErrorCode::Denied, message))
    }
}

/// None where there is no file.
fn read_cases(path: &Path) -> Result<Vec<Value>, String> {
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_CASES_BYTES + 1).read_to_string(&mut text));
    let length = read.map_err(|error| format!("the cases cannot be read: {error}"))?;
    if length as u64 > MAX_CASES_BYTES {
        return Err(format!("the cases have more than {} KiB", MAX_CASES_BYTES >> 10));
    }
    // As `sekisho tools test` reads them.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cases_are_read_as_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weather.cases.yaml");
        assert_eq!(read_cases(&path), Ok(Vec::new()));
        std::fs::write(&path, "- {name: one, tool: now, arguments: {y: 1}, output: null}\n").unwrap();
        let expected = json!({"name": "one", "tool": "now", "arguments": {"y": 1}, "output": null});
        assert_eq!(read_cases(&path), Ok(vec![expected]));
        std::fs::write(&path, "- {name: [\n").unwrap();
        read_cases(&path).unwrap_err();
        std::fs::write(&path, "#".repeat((256 << 10) + 1)).unwrap();
        assert!(read_cases(&path).unwrap_err().contains("256 KiB"));
    }
}
