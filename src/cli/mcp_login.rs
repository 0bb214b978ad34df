//! `sekisho mcp login`: a user's sign-in to an MCP server of a running gateway.

use serde_json::json;

use super::client::{Remote, Unanswered, sentence};
use super::{Common, Exit, local_gateway, present};

pub(super) fn run(common: &Common, name: &str) -> Exit {
    let gateway = match local_gateway::find_remote(common) {
        Ok(gateway) => gateway,
        Err(exit) => return exit,
    };
    let begun = Remote::new(&gateway).and_then(|remote| {
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
