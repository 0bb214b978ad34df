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
        match command {
            None if common.json => return Ok(present::json(&remote.get(&["admin", "cluster"], &[])?)),
            None => present::list::<ReplicaBody>(&remote.get_all(&["admin", "cluster"], &[])?),
            Some(ClusterCommand::Release { replica }) => {
                let path = ["admin", "cluster", "replicas", replica, "release"];
                let answer = remote.send(Method::POST, &path, None)?;
                if common.json {
                    return Ok(present::json(&answer));
                }
                present::list::<ReleasedLeaseBody>(present::entries(&answer["released"]));
            }
        }
        Ok(Exit::Done)
    })
}
