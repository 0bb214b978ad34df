//! `sekisho console`: a link that opens the console of the running gateway for this machine's user.

use serde_json::json;

use super::client::{Endpoint, Remote, Unanswered, sentence};
use super::local_gateway::{self, with_remote};
use super::{Common, Exit, present};
use sekisho_api::NamedCaller;
use sekisho_config::Config;

/// Shows a link if the gateway of the state directory has the console.
pub(super) fn offer(config: &Config) {
    let Ok(Some(gateway)) = local_gateway::find(config, &NamedCaller::administrator()) else { return };
    match link(&gateway, false) {
        Some(url) => present::info(&format!("The console, once, within 30 seconds: {url}")),
        None => present::info("`sekisho console` prints a link to the console while `sekisho serve` runs."),
    }
}

/// Shows on the terminal where the gateway is started how its user opens the console.
pub(super) fn offer_at_start(config: &Config) {
    let Ok(Some(gateway)) = local_gateway::find(config, &NamedCaller::administrator()) else { return };
    if let Some(url) = link(&gateway, true) {
        present::info(&format!("  The console, once, within 10 minutes, signed in as this machine's user:\n  {url}\n"));
    }
}

fn link(gateway: &Endpoint, at_start: bool) -> Option<String> {
    let remote = Remote::new(gateway).ok()?;
    let reply = remote.post(&["console", "link"], &json!({"at_start": at_start})).ok()?;
    reply["url"].as_str().map(str::to_owned)
}

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
