//! `sekisho cluster`: the replicas that share the database of a running gateway, and the leases of lost ones.

use clap::Subcommand;
use http::Method;
use serde_json::Value;

use super::local_gateway::with_remote;
use super::{Common, Exit, present};

#[derive(Debug, Subcommand)]
pub(super) enum ClusterCommand {
    /// Give back what a lost replica leases of the budgets of a day, at the earliest 60 s after its last heartbeat.
    ///
    /// It counts as spent otherwise until the day ends or the replica comes back. What the replica spent in its last second
    /// and could not write is not known, and may be spent once more.
    Release {
        /// Its id, as `sekisho cluster` lists it.
        replica: String,
    },
}

pub(super) fn run(common: &Common, command: Option<&ClusterCommand>) -> Exit {
    with_remote(common, |remote| {
        let answer = match command {
            None => remote.get(&["admin", "cluster"], &[])?,
            Some(ClusterCommand::Release { replica }) => {
                remote.send(Method::POST, &["admin", "cluster", "replicas", replica, "release"], None)?
            }
        };
        Ok(match command {
            _ if common.json => present::json(&answer),
            None => show(&answer),
            Some(ClusterCommand::Release { .. }) => show_released(&answer),
        })
    })
}

fn show(cluster: &Value) -> Exit {
    let row = |replica: &Value| {
        let cells =
            ["id", "status", "host", "address", "version", "configuration", "policies", "started_at", "heartbeat_at"];
        let text = |name| present::harmless(replica[name].as_str().unwrap_or_default()).into_owned();
        let leased = format!("{} USD, {} tokens", replica["leased_usd"], replica["leased_tokens"]);
        let degraded = replica["degraded"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let degraded = present::harmless(&degraded.collect::<Vec<_>>().join(", ")).into_owned();
        cells.into_iter().map(text).chain([leased, degraded]).collect()
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
        "degraded",
    ];
    present::table(&header, rows);
    Exit::Done
}

fn show_released(answer: &Value) -> Exit {
    let released = answer["released"].as_array().map(Vec::as_slice).unwrap_or_default();
    if released.is_empty() {
        present::line("it leased nothing");
        return Exit::Done;
    }
    let row = |lease: &Value| {
        let text = |name: &str| present::harmless(lease[name].as_str().unwrap_or_default()).into_owned();
        let amounts = ["usd", "tokens"].map(|name| lease[name].to_string());
        ["day", "tenant", "caller"].map(text).into_iter().chain(amounts).collect()
    };
    present::table(
        &["day", "tenant", "caller", "USD given back", "tokens given back"],
        released.iter().map(row).collect(),
    );
    Exit::Done
}
