//! The sender of a request, and the session and budgets of its calls.

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value, json};

use super::client::Client;
use super::session::McpSession;
use sekisho_config::{McpEndpoint, McpResults, McpToolListing};
use sekisho_core::call::{
    BudgetScopes, CallCharging, CallClient, CallContext, CallOrigin, Caller, ClientRequest, ResultHandles, TraceParent,
    Via,
};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::peer::ClientSession;
use sekisho_gateway::Gateway;

/// Header with the caller's own tokens for the services behind tools (C12): `name=token, name=token`.
const TOKENS: HeaderName = HeaderName::from_static("x-sekisho-tokens");

/// The sender of one request.
#[derive(Debug)]
pub(super) struct McpClientContext {
    pub caller: Arc<Caller>,
    /// Whether the client is a program of this machine's user.
    pub over_socket: bool,
    /// The virtual server of the request; `caller` has only its tools left.
    pub endpoint: Option<Arc<McpEndpoint>>,
    pub request: Option<Arc<ClientRequest>>,
    pub scopes: BudgetScopes,
    /// Its session.
    pub session: Option<Arc<McpSession>>,
    /// The id of the session, which is also the session of its calls.
    pub session_id: Option<String>,
    pub trace: Option<TraceParent>,
    /// The list of tools: all tools, or some in place of them.
    pub listing: McpToolListing,
    pub tokens: Tokens,
    /// The scopes that its token lacks for refused calls.
    pub needed_scopes: OnceLock<Vec<String>>,
}

/// The caller's own tokens, by name. They are sent only to the services that they are for.
#[derive(Default)]
pub(super) struct Tokens(Map<String, Value>);

impl McpClientContext {
    /// A sender with an identity only.
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        Self {
            caller,
            over_socket: false,
            endpoint: None,
            request: None,
            scopes: BudgetScopes::default(),
            session: None,
            session_id: None,
            trace: None,
            listing: McpToolListing::All,
            tokens: Tokens::default(),
            needed_scopes: OnceLock::new(),
        }
    }

    /// Keeps the missing scopes of a refusal, if only scopes are missing, so that the answer can ask for them.
    pub(super) fn was_refused(&self, error: &CallError) {
        if !error.scopes().is_empty() {
            _ = self.needed_scopes.set(error.scopes().to_vec());
        }
    }

    /// How its calls get large results, where its endpoint gives handles of them.
    pub(super) fn handles(&self, gateway: &Gateway) -> Option<ResultHandles> {
        self.has_handles().then(|| ResultHandles {
            max_inline_bytes: gateway.pipeline.results.max_inline_bytes(),
            session: self.session_id.as_deref().map(Into::into),
        })
    }

    pub(super) fn has_handles(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| endpoint.results == McpResults::Handles)
    }

    pub(super) fn call(&self, tool: String, client: Arc<Client>) -> CallContext {
        CallContext {
            origin: CallOrigin {
                request: self.request.clone(),
                trace: self.trace.clone(),
                values_of: self.session_id.as_deref().map(Into::into),
                tool_parameters: self.tokens.tool_parameters(),
                ..CallOrigin::default()
            },
            charging: CallCharging { scopes: self.scopes.clone(), ..CallCharging::default() },
            client: CallClient {
                peer: Some(client),
                session: self.session.clone().map(|session| session as Arc<dyn ClientSession>),
                ..CallClient::default()
            },
            ..CallContext::new(tool, Arc::clone(&self.caller), Via::Mcp)
        }
    }
}

impl Tokens {
    /// Errors: `invalid_request`: the header is malformed. The message does not repeat it.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, CallError> {
        let mut tokens = Map::new();
        for line in headers.get_all(&TOKENS) {
            let line = line.to_str().map_err(|_| unreadable())?;
            for pair in line.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                let (name, token) = pair.split_once('=').ok_or_else(unreadable)?;
                let (name, token) = (name.trim_end(), token.trim_start());
                if name.is_empty() || token.is_empty() || tokens.insert(name.to_owned(), token.into()).is_some() {
                    return Err(unreadable());
                }
            }
        }
        Ok(Self(tokens))
    }

    /// In the form of `session_context.tool_parameters` in the REST API.
    fn tool_parameters(&self) -> Map<String, Value> {
        match self.0.is_empty() {
            true => Map::new(),
            false => Map::from_iter([("tokens".to_owned(), json!(self.0))]),
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.keys()).finish()
    }
}

fn unreadable() -> CallError {
    let message = format!("the header {TOKENS} must be a list of tokens with unique names: `name=token, name=token`");
    CallError::new(ErrorCode::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(lines: &[&str]) -> Result<Tokens, CallError> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(TOKENS, line.parse().expect("a header"));
        }
        Tokens::of(&headers)
    }

    #[test]
    fn tokens_are_a_list_in_one_header_or_several() {
        for (lines, expected) in [
            (&[][..], json!({})),
            (&[""], json!({})),
            (&["a=b"], json!({"a": "b"})),
            (&["a=b=,  c = Bearer d ,"], json!({"a": "b=", "c": "Bearer d"})),
            (&["a=1, b=2", "c=3"], json!({"a": "1", "b": "2", "c": "3"})),
        ] {
            assert_eq!(json!(tokens(lines).expect("tokens").0), expected, "{lines:?}");
        }
        for lines in [&["hunter2"][..], &["=hunter2"], &["hunter2="], &["a=hunter2, a=hunter2"], &["a=1", "a=hunter2"]]
        {
            let error = tokens(lines).expect_err("no such list");
            assert_eq!(error.code(), ErrorCode::InvalidRequest, "{lines:?}");
            assert!(!error.message().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn tokens_are_not_shown() {
        assert_eq!(format!("{:?}", tokens(&["user=hunter2"]).expect("tokens")), r#"["user"]"#);
    }
}
