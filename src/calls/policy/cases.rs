//! Test cases of policies, `cases/*.yaml`: an input and the expected decision.
//!
//! ```yaml
//! - name: a dangerous tool is closed to a caller without the role operator
//!   input: {tool: deploy, metadata: {dangerous: true}}   # the rest is an example call
//!   expect: {deny: "deploy is dangerous: the caller needs the role operator"}
//! ```
//! `expect` is `allow`, `deny` or `require_approval`; the latter two with the reason, or the list of all
//! reasons. Includes the checks before the policies: an existing tool has the `dangerous`, `requires_auth` and `roles`
//! of its configuration, unless the case sets them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regorus::Value;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value as Json;

use super::load::{self, PolicyError};
use super::reads::Reads;
use super::set::{PolicySet, Verdict};
use super::{flow, input, load_set};
use crate::registry::Snapshot;
use crate::tool::{Destination, Metadata, SentCall};
use sekisho_config::PolicyConfig;
use sekisho_core::call::{Arguments, CallContext, Caller, Via};

/// The result of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    pub file: String,
    pub name: String,
    /// The actual decision, if it differs from the expected one; `None` when the case passes.
    pub problem: Option<String>,
}

/// Runs the cases in the folder `cases` of the configured policies, with the given `tools`. Runs nothing for the default
/// policies, whose cases are part of this crate's tests.
/// Errors: the errors of the policies, or of a file of cases.
pub fn run(config: &PolicyConfig, tools: &Snapshot) -> Result<Vec<CaseResult>, Vec<PolicyError>> {
    let set = load_set(config)?;
    let Some(directory) = &config.directory else { return Ok(Vec::new()) };
    let mut results = Vec::new();
    for path in case_files(&directory.join(load::CASES)).map_err(|error| vec![error])? {
        for case in read(&path).map_err(|error| vec![error])? {
            let problem = case.problem(&set, tools);
            results.push(CaseResult { file: path.display().to_string(), name: case.name, problem });
        }
    }
    Ok(results)
}

/// The input of each case of a folder of policies, with the file and the name of the case.
/// Errors: the errors of a file of cases.
pub(super) fn inputs(directory: &Path) -> Result<Vec<(String, String, Json)>, PolicyError> {
    let mut inputs = Vec::new();
    for path in case_files(&directory.join(load::CASES))? {
        let file = path.display().to_string();
        inputs.extend(read(&path)?.into_iter().map(|case| (file.clone(), case.name, case.input)));
    }
    Ok(inputs)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    input: Json,
    expect: Expectation,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Expectation {
    Allow,
    Deny(Reasons),
    RequireApproval(Reasons),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Reasons {
    One(String),
    All(BTreeSet<String>),
}

impl Case {
    fn problem(&self, set: &PolicySet, tools: &Snapshot) -> Option<String> {
        match self.decide(set, tools) {
            Ok(verdict) if self.expect.is_met_by(&verdict) => None,
            Ok(verdict) => Some(described(&verdict)),
            Err(failure) => Some(failure),
        }
    }

    /// The decision of the checks and the rules together, with all reasons. (A call ends at the first check that fails.)
    fn decide(&self, set: &PolicySet, tools: &Snapshot) -> Result<Verdict, String> {
        let name = self.input["tool"].as_str().unwrap_or("example");
        let named = Metadata { name: name.to_owned(), ..Metadata::default() };
        let tool = tools.get(name).map_or(named, |tool| tool.metadata.clone());
        let mut input = example(&tool)?;
        fill_in(&mut input, &self.input, "input")?;
        let (metadata, user) = (&input["metadata"], &input["user"]);
        let flag = |value: &Json, name: &str| value[name].as_bool().ok_or(format!("`{name}` must be true or false"));
        let (dangerous, requires_auth) = (flag(metadata, "dangerous")?, flag(metadata, "requires_auth")?);
        let roles =
            serde_json::from_value(user["roles"].clone()).map_err(|error| format!("`input.user.roles`: {error}"))?;
        let caller = Caller { anonymous: flag(user, "anonymous")?, ..Caller::new("alice", "default", roles) };
        let tool = Metadata { dangerous, requires_auth, ..tool };
        let mut verdict = set.evaluate(&input::converted(&input, 1)?)?;
        verdict.denials.extend(set.checks.unmet(&tool, &caller).map(|unmet| unmet.message()));
        verdict.denials.sort();
        Ok(verdict)
    }
}

impl Expectation {
    fn is_met_by(&self, verdict: &Verdict) -> bool {
        match self {
            Self::Allow => verdict.denials.is_empty() && verdict.approvals.is_empty(),
            Self::Deny(reasons) => reasons.are(&verdict.denials),
            Self::RequireApproval(reasons) => verdict.denials.is_empty() && reasons.are(&verdict.approvals),
        }
    }
}

impl Reasons {
    fn are(&self, given: &[String]) -> bool {
        match self {
            Self::One(reason) => given.contains(reason),
            Self::All(reasons) => !reasons.is_empty() && reasons.iter().eq(given),
        }
    }
}

fn described(verdict: &Verdict) -> String {
    match verdict {
        Verdict { denials, .. } if !denials.is_empty() => format!("denied: {}", denials.join("; ")),
        Verdict { approvals, .. } if !approvals.is_empty() => format!("approval required: {}", approvals.join("; ")),
        _ => "allowed".to_owned(),
    }
}

fn case_files(directory: &Path) -> Result<Vec<PathBuf>, PolicyError> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let unreadable = |error: std::io::Error| {
        PolicyError::new(directory.display().to_string(), None, format!("cannot be read: {error}"))
    };
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(unreadable)?;
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).filter(is_yaml).collect();
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Vec<Case>, PolicyError> {
    let name = path.display().to_string();
    let text =
        fs::read_to_string(path).map_err(|error| PolicyError::new(&name, None, format!("cannot be read: {error}")))?;
    // Otherwise a tool called `y` would be a boolean.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| {
        let line = error.location().and_then(|location| u32::try_from(location.line()).ok());
        PolicyError::new(&name, line, error.to_string())
    })
}

/// The input of an ordinary call, made by the same code as a real one so that no field is missing.
fn example(metadata: &Metadata) -> Result<Json, String> {
    let caller = Arc::new(Caller::new("alice", "default", Vec::new()));
    let call = CallContext::new(&metadata.name, caller.clone(), Via::Rest);
    let mut input = input::complete(&input::subject(metadata, &[], &caller), &call, &Arguments::new(), Reads::ALL)?;
    let sent = SentCall { destination: Destination::local(&metadata.source), arguments: &Arguments::new() };
    input::add_sent(&mut input, &sent)?;
    flow::add_to(&mut input, None)?;
    let input = input.to_json_str().map_err(|error| error.to_string())?;
    serde_json::from_str(&input).map_err(|error| error.to_string())
}

/// Merges the input of a case into the example.
/// Errors: a name that the input does not have: the case would not test its subject.
fn fill_in(example: &mut Json, given: &Json, place: &str) -> Result<(), String> {
    let Json::Object(given) = given else {
        return if given.is_null() { Ok(()) } else { Err(format!("`{place}` must be a mapping")) };
    };
    let Json::Object(fields) = example else { return Err(format!("`{place}` has no fields")) };
    for (name, value) in given {
        let place = format!("{place}.{name}");
        let field = fields.get_mut(name).ok_or_else(|| format!("the policy input has no `{place}`"))?;
        match (place.as_str(), &mut *field) {
            ("input.arguments" | "input.argument_labels" | "input.sent.arguments" | "input.sent.meta", _) => {
                *field = value.clone();
            }
            ("input.session", Json::Null) => {
                *field = example_session()?;
                fill_in(field, value, &place)?;
            }
            (_, Json::Object(_)) => fill_in(field, value, &place)?,
            _ => *field = value.clone(),
        }
    }
    Ok(())
}

fn example_session() -> Result<Json, String> {
    let session: Value = input::session("session-1", 0, Decimal::ZERO);
    let text = session.to_json_str().map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}
