//! Loads `.rego` files as a policy set, or reports all their errors.
//!
//! Also an error is a set that cannot do what its author intended: it has no `deny` rule, a file that no rule
//! reaches, a call of an unknown function, or a field that the input does not have.

mod check;
mod depth;
mod files;
mod module;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regorus::{Engine, Source};
use sha2::{Digest, Sha256};

use super::builtins;
use super::cache::Cache;
use super::checks::Checks;
use super::reads::{self, Reads};
use super::reasons::Reasons;
use super::set::{APPROVER_DENY, MASK, PolicyRule, PolicySet, REQUIRE_APPROVAL};

pub(super) use self::files::CASES;
use self::files::SourceFile;
use self::module::{Module, RuleName};

/// One error of a policy set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyError {
    /// Path of the file, or of the folder if the error concerns the set as a whole.
    pub file: String,
    /// Counted from 1.
    pub line: Option<u32>,
    pub message: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}: {}", self.file, self.message),
            None => write!(formatter, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for PolicyError {}

impl PolicyError {
    pub(super) fn new(file: impl Into<String>, line: Option<u32>, message: impl Into<String>) -> Self {
        Self { file: file.into(), line, message: message.into() }
    }

    /// From an error text of regorus: the position (`--> file:line:column`), the source line, and the message.
    pub(super) fn from_regorus(file: &str, error: &impl fmt::Display) -> Self {
        let text = error.to_string();
        let place = text.split_once("--> ").and_then(|(_, rest)| {
            let mut parts = rest.lines().next()?.rsplitn(3, ':');
            let _column = parts.next()?;
            let line = parts.next()?.parse().ok()?;
            Some((parts.next()?.to_owned(), line))
        });
        let what = text.split_once("\nerror: ").map_or(text.as_str(), |(_, what)| what);
        let what = what.lines().next().unwrap_or_default().trim();
        match place {
            Some((file, line)) => Self::new(file, Some(line), what),
            None => Self::new(file, None, what),
        }
    }
}

/// Compiles the set of `directory`, or the default set.
/// Errors: all errors of the first step that has any: reading, parsing, checking, compiling.
pub(super) fn load(directory: Option<&Path>, timeout: Duration, checks: Checks) -> Result<PolicySet, Vec<PolicyError>> {
    let set_name = directory.map_or_else(|| "default policies".to_owned(), |path| path.display().to_string());
    compile(&set_name, &files::read(directory)?, timeout, checks)
}

/// The files of a folder's set: names for messages, and texts.
/// Errors: files that cannot be read.
pub(super) fn texts_of(directory: &Path) -> Result<impl Iterator<Item = (String, String)>, Vec<PolicyError>> {
    Ok(files::read(Some(directory))?.into_iter().map(|file| (file.name, file.text)))
}

fn compile(
    set_name: &str,
    files: &[SourceFile],
    timeout: Duration,
    checks: Checks,
) -> Result<PolicySet, Vec<PolicyError>> {
    let mut engine = parse(files)?;
    let modules = Module::all_of(&mut engine).map_err(|error| vec![error])?;
    let errors = check::errors(set_name, &modules);
    if !errors.is_empty() {
        return Err(errors);
    }
    builtins::bound(&mut engine, |name| modules.iter().any(|module| module.may_call(name)))
        .map_err(|error| vec![error])?;
    let [asks_approval, masks, checks_approvers] =
        [REQUIRE_APPROVAL, MASK, APPROVER_DENY].map(|rule| check::has_rule(&modules, rule));
    check::compile(&mut engine, set_name, &modules).map_err(|error| vec![error])?;
    let about_calls = || modules.iter().filter(|module| !module.is_about_approvers());
    Ok(PolicySet {
        engine,
        version: version(files),
        rules: rules(files, &modules),
        reasons: deciding(&modules).map(|(module, rule)| Reasons::within(&module.tokens, &rule.extent)).collect(),
        checks,
        reads: about_calls().fold(Reads::default(), |reads, module| reads.or(module.reads)),
        input_paths: about_calls()
            .flat_map(|module| reads::references(&module.tokens, "input"))
            .map(|reference| reference.path)
            .collect(),
        reads_input: about_calls().any(|module| !reads::references(&module.tokens, "input").is_empty()),
        asks_approval,
        masks,
        checks_approvers,
        timeout,
        cache: Cache::default(),
    })
}

/// The rules that decide. They use the other rules.
fn rules(files: &[SourceFile], modules: &[Module]) -> Vec<PolicyRule> {
    let short =
        |name: &str| files.iter().find(|file| file.name == name).map_or(name, |file| &file.short_name).to_owned();
    deciding(modules)
        .map(|(module, rule)| {
            let name = if module.is_about_approvers() { format!("approvals.{}", rule.name) } else { rule.name.clone() };
            PolicyRule { name, file: short(&module.file), line: rule.line }
        })
        .collect()
}

fn deciding(modules: &[Module]) -> impl Iterator<Item = (&Module, &RuleName)> {
    let all = modules.iter().flat_map(|module| module.rules.iter().map(move |rule| (module, rule)));
    all.filter(|(module, rule)| check::decides(module, rule))
}

fn parse(files: &[SourceFile]) -> Result<Engine, Vec<PolicyError>> {
    let mut engine = Engine::new();
    // Accepts both syntaxes: a file in the new one has `import rego.v1`.
    engine.set_rego_v0(true);
    engine.set_strict_builtin_errors(true);
    // Otherwise `print` would write to standard error.
    engine.set_gather_prints(true);
    let mut errors = Vec::new();
    for file in files {
        if let Err(error) = add(&mut engine, file) {
            errors.push(error);
        }
    }
    if errors.is_empty() { Ok(engine) } else { Err(errors) }
}

fn add(engine: &mut Engine, file: &SourceFile) -> Result<(), PolicyError> {
    let of_regorus = |error| PolicyError::from_regorus(&file.name, &error);
    let source = Source::from_contents(file.name.clone(), file.text.clone()).map_err(of_regorus)?;
    if let Some((line, problem)) = depth::too_deep(&reads::tokens(&source)?) {
        return Err(PolicyError::new(&file.name, Some(line), problem));
    }
    engine.add_policy(file.name.clone(), file.text.clone()).map(drop).map_err(of_regorus)
}

/// The hash of names and texts, each preceded by its length, so that different sets have different inputs.
fn version(files: &[SourceFile]) -> Arc<str> {
    let mut hash = Sha256::new();
    for part in files.iter().flat_map(|file| [&file.short_name, &file.text]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize()[..8]).into()
}
