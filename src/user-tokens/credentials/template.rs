//! Headers in which `${name}` is replaced by the caller's own tokens.

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use thiserror::Error;

use sekisho_core::error::{CallError, ErrorCode};

/// Why a header cannot be filled in from tokens.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TemplateError {
    #[error("`{0}` is not a header; use letters, digits and `-` in its name")]
    Header(String),
    #[error("`{0}` has a `${{` without `}}`")]
    Unclosed(String),
}

/// One header.
#[derive(Debug, Clone)]
pub struct Template {
    pub header: HeaderName,
    /// Texts, each with the token that follows it; the last has none.
    parts: Vec<(String, Option<String>)>,
}

impl Template {
    /// Errors: the name is not a valid header name, or a `${` is not closed.
    pub fn parse(name: &str, text: &str) -> Result<Self, TemplateError> {
        let header = HeaderName::try_from(name).map_err(|_| TemplateError::Header(name.to_owned()))?;
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (token, left) = after.split_once('}').ok_or_else(|| TemplateError::Unclosed(name.to_owned()))?;
            parts.push((before.to_owned(), Some(token.to_owned())));
            rest = left;
        }
        parts.push((rest.to_owned(), None));
        Ok(Self { header, parts })
    }

    /// Errors: `invalid_request` with the name of the missing token. It never contains the value of a token.
    pub fn fill(&self, tokens: Option<&Map<String, Value>>) -> Result<HeaderValue, CallError> {
        let mut text = String::new();
        for (before, token) in &self.parts {
            text.push_str(before);
            if let Some(name) = token {
                let value = tokens.and_then(|tokens| tokens.get(name)).and_then(Value::as_str);
                text.push_str(value.ok_or_else(|| missing(name))?);
            }
        }
        let mut value = HeaderValue::try_from(text).map_err(|_| {
            let header = &self.header;
            CallError::new(ErrorCode::InvalidRequest, format!("a token for `{header}` is not valid in a header"))
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

fn missing(name: &str) -> CallError {
    CallError::new(
        ErrorCode::InvalidRequest,
        format!(
            "this tool needs the caller's token `{name}`; send it as session_context.tool_parameters.tokens.{name}, over \
             /mcp in the header `X-Sekisho-Tokens: {name}=…`, for the run of a conversation in `tokens`"
        ),
    )
}
