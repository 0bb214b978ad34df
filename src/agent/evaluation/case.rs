//! The form of a case: a script of a model's turns, with the member `case`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::{Message, ToolDescription};

/// Maximum bytes of a file.
const MAX_BYTES: u64 = 16 << 20;

/// The question to an agent, the answers of its tools, and the expectations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The message of the user.
    pub input: String,
    /// The conversation before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// The tools that the agent is offered.
    #[serde(default)]
    pub tools: Vec<ToolDescription>,
    #[serde(default)]
    pub answers: Vec<Answer>,
    #[serde(default)]
    pub expect: Expectation,
}

/// The answer of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    pub tool: String,
    /// Of the call; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
    pub text: String,
    /// The call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// The checks of an answer; each that is left out is not made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// All calls, in their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Vec<ExpectedCall>>,
    /// Parts of the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub text_contains: Vec<String>,
    /// The answer, which is JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
    /// A question about the answer, which a judge answers with yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedCall {
    pub tool: String,
    /// `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
}

/// Why a file is no case.
#[derive(Debug, Error)]
pub enum CaseError {
    #[error("{file}: cannot be read: {problem}; check the path and its permissions")]
    Unreadable { file: String, problem: std::io::Error },
    #[error("{file}: has more than 16 MiB; leave tools and answers out that the case does not need")]
    TooLong { file: String },
    #[error("{file}: is no case: {problem}; `sekisho runs save` writes one")]
    Malformed { file: String, problem: String },
}

impl Case {
    /// Errors: the file cannot be read, or is no case.
    pub fn open(path: &Path) -> Result<Self, CaseError> {
        let file = path.display().to_string();
        let unreadable = |problem| CaseError::Unreadable { file: file.clone(), problem };
        if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_BYTES {
            return Err(CaseError::TooLong { file });
        }
        Self::parse(&file, &std::fs::read_to_string(path).map_err(unreadable)?)
    }

    /// Errors: the text is no case.
    pub fn parse(file: &str, yaml: &str) -> Result<Self, CaseError> {
        let malformed = |problem: String| CaseError::Malformed { file: file.to_owned(), problem };
        let mut whole: Value = serde_saphyr::from_str(yaml).map_err(|problem| malformed(problem.to_string()))?;
        match whole.get_mut("case").map(Value::take) {
            Some(case) => serde_json::from_value(case).map_err(|problem| malformed(format!("`case`: {problem}"))),
            None => Err(malformed("it has no `case`".to_owned())),
        }
    }
}
