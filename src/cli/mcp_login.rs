//! `sekisho mcp login`: a user's sign-in to an MCP server of a running gateway.

use serde_json::json;

use super::client::{Unanswered, sentence};
use super::local_gateway::with_remote;
use super::{Common, Exit, present};

pub(super) fn run(common: &Common, name: &str) -> Exit {
    with_remote(common, |remote| {
        let reply = remote.post(&["tools", "mcp", name, "sign_in"], &json!({}))?;
        let Some(address) = reply["authorization_url"].as_str() else {
            return Err(Unanswered::Refused(sentence(&reply)));
        };
        if common.json {
            return Ok(present::json(&reply));
        }
        let minutes = reply["expires_in"].as_u64().unwrap_or_default() / 60;
        present::line(&format!("Open this address in a browser within {minutes} minutes and sign in:\n{address}"));
        Ok(Exit::Done)
    })
}
