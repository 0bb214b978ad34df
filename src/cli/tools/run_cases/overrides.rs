//! The cases of `tools.overrides`: results with the expected outputs, and arguments with the ones that are to be sent. Nothing is called; for
//! the schemas of arguments, the sources are asked.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Ran;
use super::case::{Verdict, is_same};
use crate::cli::tools::offered_tools;
use sekisho_calls::registry::Snapshot;
use sekisho_calls::tool::{MAX_STORED_BYTES, Metadata, Shape, enumerated_values};
use sekisho_config::{Config, OverrideCase, ToolOverride};
use sekisho_core::error::CallError;

pub(super) fn run(config: &Config) -> Vec<Ran> {
    let overrides = &config.tools.overrides;
    let has_arguments = |changes: &ToolOverride| changes.cases.iter().any(|case| case.arguments.is_some());
    let offered = overrides.values().any(has_arguments).then(|| offered_tools(config)).flatten();
    let snapshot = offered.as_ref().map(|offered| &offered.snapshot);
    let cases =
        overrides.iter().flat_map(|(tool, changes)| changes.cases.iter().map(move |case| (tool, changes, case)));
    let ran = cases.map(|(tool, changes, case)| {
        let problem = problem(tool, changes, case, snapshot);
        let verdict = Verdict { ok: problem.is_none(), problem, wall_ms: None, peak_memory_bytes: None };
        Ran { file: format!("tools.overrides.{tool}"), name: case.name.clone(), verdict }
    });
    ran.collect()
}

/// Why a case fails.
fn problem(tool: &str, changes: &ToolOverride, case: &OverrideCase, snapshot: Option<&Snapshot>) -> Option<String> {
    let output = || case.output.clone().unwrap_or_default();
    let (found, expected) = match (&case.enumerate, &case.result, &case.arguments) {
        (Some(argument), Some(answer), _) => (enumerated(tool, changes, argument, answer), output()),
        (_, Some(result), _) => (projection(tool, changes, result), output()),
        (_, None, arguments) => {
            let name = changes.rename.as_deref().unwrap_or(tool);
            let (given, expected) = (object(arguments.as_ref()), object(case.sent.as_ref()));
            (sent(name, given, snapshot), Value::Object(expected))
        }
    };
    match (found, &case.error) {
        (Ok(found), None) => (!is_same(&expected, &found)).then(|| format!("it gives {found}, and not {expected}")),
        (Ok(found), Some(_)) => Some(format!("it gives {found}, and should fail")),
        (Err(error), Some(part)) if error.contains(part.as_str()) => None,
        (Err(error), Some(_)) => Some(format!("it fails in another way: {error}")),
        (Err(error), None) => Some(error),
    }
}

fn object(members: Option<&BTreeMap<String, Value>>) -> Map<String, Value> {
    members.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn projection(tool: &str, changes: &ToolOverride, result: &Value) -> Result<Value, String> {
    let shape = Shape::compile(tool, changes, None).map_err(|error| error.to_string())?;
    let Some(shape) = shape else { return Ok(result.clone()) };
    let mebibytes = changes.memory_limit_mb.unwrap_or(Metadata::default().memory_limit_mb);
    let selected = shape.selected(result, mebibytes as usize * (1 << 20), MAX_STORED_BYTES);
    let selected = selected.map_err(|error| said(&error))?;
    Ok(selected.unwrap_or_else(|| result.clone()))
}

fn enumerated(tool: &str, changes: &ToolOverride, argument: &str, answer: &Value) -> Result<Value, String> {
    let from = changes.enumerate.get(argument).ok_or_else(|| format!("`enumerate` has no {argument}"))?;
    enumerated_values(tool, argument, from, answer).map(Value::Array)
}

fn sent(name: &str, arguments: Map<String, Value>, snapshot: Option<&Snapshot>) -> Result<Value, String> {
    let tool = snapshot.and_then(|snapshot| snapshot.get(name));
    let tool = tool.ok_or_else(|| format!("no source offers {name} now; `sekisho check` shows why"))?;
    let valid = tool.valid_arguments(arguments, &Map::new()).map_err(|error| said(&error))?;
    Ok(Value::Object(valid.sent().clone()))
}

fn said(error: &CallError) -> String {
    format!("{}: {}", error.code().as_str(), error.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(changes: &str) -> Vec<Option<String>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sekisho.yaml");
        std::fs::write(&file, format!("tools: {{overrides: {{calculator: {changes}}}}}")).unwrap();
        let config = Config::load(Some(&file), &sekisho_config::Environment::default()).unwrap();
        run(&config).into_iter().map(|ran| ran.verdict.problem).collect()
    }

    #[test]
    fn values_of_an_argument_are_compared_with_the_expected_ones() {
        let found = problems(
            "{enumerate: {expression: {tool: repos, path: '[*].name'}}, cases: [
                {name: one, enumerate: expression, result: '[{\"name\": \"a\"}, {\"name\": 2}, {\"name\": \"a\"}]', output: [a, 2]},
                {name: two, enumerate: expression, result: [{name: a}], output: [b]},
                {name: three, enumerate: expression, result: [], error: selects nothing},
                {name: four, enumerate: expression, result: [{name: {a: 1}}], error: something else},
                {name: five, enumerate: expression, result: {}, error: no list}]}",
        );
        assert_eq!(found[1].as_deref(), Some("it gives [\"a\"], and not [\"b\"]"));
        assert_eq!((&found[0], &found[2..]), (&None, &[None, None, None][..]));
    }

    #[test]
    fn results_are_compared_with_their_projections() {
        let found = problems(
            "{project: 'length(rows)', cases: [
                {name: one, result: {rows: [1, 2]}, output: 2},
                {name: two, result: {rows: [1]}, output: 2},
                {name: three, result: {}, error: invalid_output},
                {name: four, result: {}, output: 1},
                {name: five, result: '{\"rows\": []}', output: 0},
                {name: six, result: no rows, output: no rows}]}",
        );
        assert_eq!((&found[0], &found[2], &found[4], &found[5]), (&None, &None, &None, &None));
        assert_eq!(found[1].as_deref(), Some("it gives 1, and not 2"));
        let failed = found[3].as_deref().unwrap();
        for part in ["invalid_output: ", "\"calculator\"", "length(rows)"] {
            assert!(failed.contains(part), "{failed}");
        }
    }
}
