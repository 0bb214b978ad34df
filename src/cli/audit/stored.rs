//! The audit trails of all replicas, in object storage.

use serde_json::json;

use super::report;
use crate::cli::{Common, Exit, present, serve};
use sekisho_config::Config;

pub(super) fn verify(common: &Common, config: &Config) -> Exit {
    let Some(runtime) = serve::runtime() else { return Exit::Failed };
    let trails = match runtime.block_on(sekisho_gateway::verify_stored_trails(config)) {
        Ok(Some(trails)) => trails,
        Ok(None) => {
            present::problem("`cluster.blobs` is not set: no segments are in object storage");
            return Exit::Misconfigured;
        }
        Err(problem) => {
            present::problem(&problem.to_string());
            return Exit::Failed;
        }
    };
    if trails.is_empty() && !common.json {
        present::line("no segment was copied to object storage yet");
    }
    let mut exit = Exit::Done;
    for trail in trails {
        let host = present::harmless(&trail.host).into_owned();
        let name = format!("{} of {host}", trail.trail);
        let found = trail.found.map_err(|error| error.to_string());
        let origin = json!({"trail": trail.trail, "host": host});
        if !matches!(report(common, origin, &name, found), Exit::Done) {
            exit = Exit::Failed;
        }
    }
    exit
}
