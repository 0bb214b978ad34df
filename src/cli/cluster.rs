//! `sekisho cluster`: the replicas that share the database of a running gateway, and the leases of lost ones.

use clap::Subcommand;
use http::Method;

use super::local_gateway::with_remote;
use super::{Common, Exit, present};
use sekisho_api::{ReleasedLeaseBody, ReplicaBody};

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
        match command {
            _ if common.json => return Ok(present::json(&answer)),
            None => present::list::<ReplicaBody>(present::entries(&answer["replicas"])),
            Some(ClusterCommand::Release { .. }) => {
                present::list::<ReleasedLeaseBody>(present::entries(&answer["released"]));
            }
        }
        Ok(Exit::Done)
    })
}
