//! `sekisho console`: a link that opens the console of the running gateway for this machine's user.

use serde_json::json;

use super::client::{Unanswered, sentence};
use super::local_gateway::with_remote;
use super::{Common, Exit, present};

pub(super) fn run(common: &Common) -> Exit {
    with_remote(common, |remote| {
        let reply = remote.post(&["console", "link"], &json!({}))?;
        let Some(url) = reply["url"].as_str() else { return Err(Unanswered::Refused(sentence(&reply))) };
        if common.json {
            return Ok(present::json(&reply));
        }
        let seconds = reply["expires_in"].as_u64().unwrap_or_default();
        present::line(&format!(
            "Open this address in a browser on this machine within {seconds} seconds; it works once:\n{url}"
        ));
        Ok(Exit::Done)
    })
}
