//! Lists the tools of a server that has no credentials but its callers': as the caller who has signed in last.
//!
//! Only tools are taken from such a list: resources and prompts may name objects of that caller.

use std::sync::Arc;
use std::time::Duration;

use super::connection_loop::{LIST_EVERY, wait_after};
use super::listing::Listing;
use super::session_owner::SessionOwner;
use super::{Server, State};
use sekisho_user_tokens::{User, UserSource};

/// Callers who are tried, if the server refuses one.
const MAX_USERS: u32 = 5;

/// How often it is looked whether a caller has signed in at another replica.
const SIGN_IN_POLL: Duration = Duration::from_secs(60);

/// How often tools that are listed are listed again: a server tells of changes only over sessions that there are.
const LIST_AGAIN: Duration = Duration::from_secs(3_600);

impl Server {
    /// Lists the tools now, and again after each sign-in, when a session of a caller tells of changes, and from time to time.
    pub(super) async fn list_for_callers(self: &Arc<Self>) {
        self.enter(State::OfCallers);
        let mut failures = 0;
        loop {
            let listed = match &self.connector.user_source {
                Some(source) => self.list_as_some_user(source).await,
                // For a program that only looks: tokens are used by gateways.
                None => Ok(()),
            };
            match listed {
                Ok(()) => {
                    failures = 0;
                    self.report_problem();
                }
                Err(reason) => {
                    failures += 1;
                    tracing::warn!(server = self.name(), reason, "the tools of an MCP server cannot be listed");
                    self.notify(|context, source| context.readiness.degrade(source, &reason));
                }
            }
            self.settled.send_replace(true);
            let wait = match (failures, self.listing.load().tools.is_empty()) {
                (0, true) => SIGN_IN_POLL,
                (0, false) => LIST_AGAIN,
                _ => wait_after(failures),
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.reconnect.notified() => {}
                () = self.connector.events.lists_changed.notified() => tokio::time::sleep(LIST_EVERY).await,
            }
        }
    }

    /// Without callers who have signed in, nothing is listed.
    async fn list_as_some_user(self: &Arc<Self>, source: &Arc<UserSource>) -> Result<(), String> {
        let users = source.users(MAX_USERS).await.map_err(|error| error.message().to_owned())?;
        let mut last = Ok(());
        for user in users {
            match self.list_as(user).await {
                Ok(listing) => {
                    self.take_over(listing);
                    return Ok(());
                }
                Err(reason) => last = Err(reason),
            }
        }
        last
    }

    /// Tries the stored credential of a caller: connects, and lists the tools.
    /// Errors: the reason, as a text for the caller.
    pub(crate) async fn try_as(&self, user: User) -> Result<(), String> {
        self.list_as(user).await.map(drop)
    }

    async fn list_as(&self, user: User) -> Result<Listing, String> {
        let session = self.connector.connect(&SessionOwner::listing_as(user)).await?;
        let Listing { tools, uncallable, tools_cut, left_out, .. } =
            self.connector.list(&session, self.most_tools).await?;
        Ok(Listing { tools, uncallable, tools_cut, left_out, ..Listing::default() })
    }
}
