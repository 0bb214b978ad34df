//! `sekisho cluster`: the replicas that share the database of a running gateway.

use serde_json::Value;

use super::client::{Remote, Unanswered};
use super::{Common, Exit, local_gateway, present};

pub(super) fn run(common: &Common) -> Exit {
    let endpoint = match local_gateway::find_remote(common) {
        Ok(endpoint) => endpoint,
        Err(exit) => return exit,
    };
    let shown = Remote::new(&endpoint).and_then(|remote| remote.get(&["admin", "cluster"], &[]));
    match shown {
        Ok(cluster) if common.json => present::json(&cluster),
        Ok(cluster) => show(&cluster),
        Err(unanswered) => Unanswered::report(unanswered),
    }
}

fn show(cluster: &Value) -> Exit {
    let row = |replica: &Value| {
        let cells =
            ["id", "status", "host", "address", "version", "configuration", "policies", "started_at", "heartbeat_at"];
        let text = |name| present::harmless(replica[name].as_str().unwrap_or_default()).into_owned();
        let leased = format!("{} USD, {} tokens", replica["leased_usd"], replica["leased_tokens"]);
        cells.into_iter().map(text).chain([leased]).collect()
    };
    let rows = cluster["replicas"].as_array().into_iter().flatten().map(row).collect();
    let header = [
        "id",
        "status",
        "host",
        "address",
        "version",
        "configuration",
        "policies",
        "started",
        "last heartbeat",
        "leased",
    ];
    present::table(&header, rows);
    Exit::Done
}
