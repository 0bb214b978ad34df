//! One case: the arguments of a call, and the expected parts of its reply.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::cli::call::explain;
use sekisho_core::call::Arguments;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    /// The name of the tool, without the file's name.
    tool: String,
    #[serde(default)]
    pub(super) arguments: Arguments,
    /// The result of the function; without it any result, but no failure.
    #[serde(default, deserialize_with = "given")]
    output: Option<Value>,
    /// For a call that fails: the code of its error, or a part of the message.
    error: Option<String>,
    max_seconds: Option<f64>,
    max_memory_mb: Option<u64>,
}

/// Whether a case passes, and the usage of its function.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    pub(super) wall_ms: Option<f64>,
    pub(super) peak_memory_bytes: Option<u64>,
}

impl Case {
    /// Errors: the text is no list of cases, with the line.
    pub(super) fn read(text: &str) -> Result<Vec<Self>, String> {
        // Otherwise an argument `y` would be a boolean.
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
    }

    pub(super) fn tool_of(&self, file: &str) -> String {
        format!("{file}__{}", self.tool)
    }

    /// `reply`: the reply of the call.
    pub(super) fn verdict(&self, reply: &Value) -> Verdict {
        let metadata = &reply["metadata"];
        let (wall_ms, peak_memory_bytes) = (metadata["wall_ms"].as_f64(), metadata["peak_memory_bytes"].as_u64());
        let problem = self.problem(reply).or_else(|| self.used_too_much(wall_ms, peak_memory_bytes));
        Verdict { ok: problem.is_none(), problem, wall_ms, peak_memory_bytes }
    }

    fn problem(&self, reply: &Value) -> Option<String> {
        let (output, has_failed) = (&reply["output"], reply["success"] != true);
        match (&self.error, &self.output) {
            (Some(_), _) if !has_failed => Some(format!("it returned {output}, and should have failed")),
            (Some(error), _) => {
                let is_code = reply["error_info"]["code"] == error.as_str();
                let is_said = reply["error"].as_str().is_some_and(|message| message.contains(error));
                (!is_code && !is_said).then(|| format!("it failed in another way: {}", explain(reply)))
            }
            (None, _) if has_failed => Some(explain(reply)),
            (None, Some(expected)) if !is_same(expected, output) => {
                Some(format!("it returned {output}, and not {expected}"))
            }
            _ => None,
        }
    }

    fn used_too_much(&self, wall_ms: Option<f64>, memory_bytes: Option<u64>) -> Option<String> {
        let (seconds, memory) = (wall_ms.map(|time| time / 1_000.0), memory_bytes.map(|bytes| bytes >> 20));
        if let (Some(limit), Some(seconds)) = (self.max_seconds, seconds)
            && seconds > limit
        {
            return Some(format!("it took {seconds:.3} s, and should take {limit} at most"));
        }
        if let (Some(limit), Some(memory)) = (self.max_memory_mb, memory)
            && memory > limit
        {
            return Some(format!("it used {memory} MiB, and should use {limit} at most"));
        }
        None
    }
}

/// An `output` that is null is one.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Numbers are the same however they are written: 1 and 1.0.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in_other =
                |(name, value): (&String, &Value)| other.get(name).is_some_and(|found| is_same(value, found));
            one.len() == other.len() && one.iter().all(is_in_other)
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reply_is_compared_with_what_the_case_says() {
        let returned = |output: Value| json!({"success": true, "output": output, "metadata": {"wall_ms": 1500.0, "peak_memory_bytes": 70 << 20}});
        let failed = json!({"success": false, "error": "no such city", "error_info": {"code": "tool_error"}});
        for (case, reply, problem) in [
            ("output: {a: [1, 2.0]}", returned(json!({"a": [1.0, 2]})), None),
            (
                "output: {a: 1}",
                returned(json!({"a": 1, "b": 2})),
                Some("it returned {\"a\":1,\"b\":2}, and not {\"a\":1}"),
            ),
            ("output: null", returned(json!(1)), Some("and not null")),
            ("max_seconds: 2", returned(json!(1)), None),
            ("max_seconds: 1.2", returned(json!(1)), Some("it took 1.500 s, and should take 1.2 at most")),
            ("max_memory_mb: 64", returned(json!(1)), Some("it used 70 MiB")),
            ("error: tool_error", failed.clone(), None),
            ("error: such city", failed.clone(), None),
            ("error: denied", failed.clone(), Some("it failed in another way: tool_error: no such city")),
            ("error: denied", returned(json!(1)), Some("it returned 1, and should have failed")),
            ("arguments: {}", failed, Some("tool_error: no such city")),
        ] {
            let cases = Case::read(&format!("- name: one\n  tool: now\n  {case}\n")).unwrap();
            let verdict = cases[0].verdict(&reply);
            match (problem, &verdict.problem) {
                (None, None) => assert!(verdict.ok, "{case}"),
                (Some(expected), Some(problem)) => {
                    assert!(!verdict.ok && problem.contains(expected), "{case}: {problem}");
                }
                (expected, found) => panic!("{case}: {expected:?} {found:?}"),
            }
        }
    }
}
