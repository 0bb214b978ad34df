//! `sekisho console`: a link that opens the console of the running gateway for this machine's user.

use serde_json::json;

use super::client::{Remote, Unanswered, sentence};
use super::{Common, Exit, local_gateway, present};

pub(super) fn run(common: &Common) -> Exit {
    let gateway = match local_gateway::find_remote(common) {
        Ok(gateway) => gateway,
        Err(exit) => return exit,
    };
    let created = Remote::new(&gateway).and_then(|remote| {
        let reply = remote.post(&["console", "link"], &json!({}))?;
        let url = reply["url"].as_str().map(str::to_owned);
        url.map(|url| (url, reply.clone())).ok_or_else(|| Unanswered::Refused(sentence(&reply)))
    });
    match created {
        Ok((_, reply)) if common.json => {
            let _done = present::json(&reply);
            Exit::Done
        }
        Ok((url, reply)) => {
            let seconds = reply["expires_in"].as_u64().unwrap_or_default();
            present::line(&format!(
                "Open this address in a browser on this machine within {seconds} seconds; it works once:\n{url}"
            ));
            Exit::Done
        }
        Err(unanswered) => unanswered.report(),
    }
}
