//! The requests of a program to tools, read.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::errors::{error_json, invalid_json};
use sekisho_calls::journals::JournalQuestion;
use sekisho_core::call::Arguments;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;
use sekisho_guest_protocol::ToolQuestion;

#[derive(Debug)]
pub(super) enum Wanted {
    Call(WantedCall),
    /// A question that is no call.
    Inquiry(ToolQuestion),
}

/// A call that a program that proposes its effects asked for, with its arguments or why they are wrong.
#[derive(Debug)]
pub(super) struct ListedCall {
    /// From 1.
    pub(super) position: u32,
    pub(super) tool: String,
    /// `Err`: the JSON of the error.
    pub(super) arguments: Result<Arguments, String>,
}

#[derive(Debug)]
pub(super) struct WantedCall {
    pub(super) ordinal: u32,
    pub(super) tool: String,
    pub(super) arguments: Result<Arguments, CallError>,
    /// The digest of the arguments, also of wrong ones.
    digest: [u8; 32],
}

impl Wanted {
    pub(super) fn of(question: ToolQuestion) -> Self {
        match question {
            ToolQuestion::Call { ordinal, tool, arguments } => {
                let read = read(&arguments);
                let digest = read.as_ref().map_or_else(|_| Sha256::digest(&arguments).into(), json::digest);
                Self::Call(WantedCall { ordinal, tool, arguments: read, digest })
            }
            inquiry => Self::Inquiry(inquiry),
        }
    }

    /// A call at this position, from 0.
    pub(super) fn call(ordinal: u32, tool: String, arguments: Arguments) -> Self {
        let digest = json::digest(&arguments);
        Self::Call(WantedCall { ordinal, tool, arguments: Ok(arguments), digest })
    }

    /// The call, to list it.
    pub(super) fn as_call(&self) -> Option<ListedCall> {
        let Self::Call(WantedCall { ordinal, tool, arguments, .. }) = self else { return None };
        let arguments = arguments.as_ref().cloned().map_err(error_json);
        Some(ListedCall { position: ordinal.saturating_add(1), tool: tool.clone(), arguments })
    }

    /// As the journal has it.
    pub(super) fn question(&self) -> JournalQuestion {
        match self {
            Self::Call(WantedCall { ordinal, tool, digest, .. }) => {
                JournalQuestion::Call { ordinal: *ordinal, tool: tool.clone(), arguments: *digest }
            }
            Self::Inquiry(question) => {
                let text = format!("{question:?}");
                JournalQuestion::Other(Sha256::digest(text).into())
            }
        }
    }

    /// The tool that is called.
    pub(super) fn tool(&self) -> &str {
        match self {
            Self::Call(call) => &call.tool,
            Self::Inquiry(_) => "a tool",
        }
    }

    /// For the caller.
    pub(super) fn described(&self) -> String {
        match self {
            Self::Call(WantedCall { ordinal, tool, .. }) => {
                let shown: String = tool.chars().take(64).collect();
                format!("its call number {} of {shown:?} was another one, or there was none", ordinal + 1)
            }
            Self::Inquiry(_) => "it asked something else about tools".to_owned(),
        }
    }
}

fn read(arguments: &str) -> Result<Arguments, CallError> {
    match json::parse(arguments.as_bytes()) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(CallError::new(ErrorCode::InvalidArguments, "the arguments of a tool are an object")),
        Err(error) => Err(invalid_json(&error)),
    }
}
