//! `sekisho mcp login`: a user's sign-in to an MCP server of a running gateway.

use serde_json::json;

use super::client::{Remote, Unanswered, sentence};
use super::{Common, Exit, present};

pub(super) fn run(common: &Common, name: &str) -> Exit {
    let Some(server) = &common.server else {
        present::problem("a running gateway stores the sign-in: set it with --server URL");
        return Exit::Misconfigured;
    };
    let begun = Remote::new(server).and_then(|remote| {
        let reply = remote.post(&["tools", "mcp", name, "sign_in"], &json!({}))?;
        let address = reply["authorization_url"].as_str().map(str::to_owned);
        address.map(|address| (address, reply.clone())).ok_or_else(|| Unanswered::Refused(sentence(&reply)))
    });
    match begun {
        Ok((_, reply)) if common.json => {
            let _done = present::json(&reply);
            Exit::Done
        }
        Ok((address, reply)) => {
            let minutes = reply["expires_in"].as_u64().unwrap_or_default() / 60;
            present::line(&format!("Open this address in a browser within {minutes} minutes and sign in:\n{address}"));
            Exit::Done
        }
        Err(unanswered) => unanswered.report(),
    }
}
