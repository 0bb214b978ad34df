//! Subscriptions to resources of one server: one per session, shared by all its clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Server;
use super::output;
use super::session::{Session, listen};
use super::session_owner::OwnerKey;
use crate::core::call::{CallContext, Deadline};
use crate::core::caller::Owner;
use crate::core::error::{CallError, ErrorCode};
use crate::core::share::{Lease, Share};
use crate::sources::mcp::changes::ResourceOwner;

/// Resources of one server that may be subscribed to at once, divided between callers; and over one session.
const MAX_SUBSCRIPTIONS: u64 = 1_000;
const MAX_SUBSCRIPTIONS_OF_SESSION: usize = 250;

/// Timeout to end or to renew a subscription at the server.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Subscriptions {
    resources: Mutex<HashMap<Resource, Subscribed>>,
    places: Arc<Share>,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { resources: Mutex::default(), places: Share::new(MAX_SUBSCRIPTIONS) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Resource {
    /// Whose session tells of it.
    owner: Option<OwnerKey>,
    /// The server's own.
    uri: String,
}

#[derive(Debug)]
struct Subscribed {
    clients: usize,
    /// Of the caller that subscribed first.
    _place: Lease,
    /// Ends the listening, in revisions where a subscription is one.
    listening: Option<DropGuard>,
}

impl Subscriptions {
    /// Whether anything is subscribed to over the owner's session.
    pub(crate) fn has_any(&self, owner: &OwnerKey) -> bool {
        self.lock().keys().any(|resource| resource.owner.as_ref() == Some(owner))
    }

    /// The owner's client has gone: nobody is left to be told.
    pub(crate) fn forget(&self, owner: &OwnerKey) {
        self.lock().retain(|resource, _| resource.owner.as_ref() != Some(owner));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Resource, Subscribed>> {
        self.resources.lock()
    }

    /// Counts one more client; `true` for the first.
    fn add(&self, caller: &Owner, resource: &Resource) -> Result<bool, CallError> {
        let mut subscribed = self.lock();
        if let Some(known) = subscribed.get_mut(resource) {
            known.clients += 1;
            return Ok(false);
        }
        let of_session = subscribed.keys().filter(|known| known.owner == resource.owner).count();
        let has_room = resource.owner.is_none() || of_session < MAX_SUBSCRIPTIONS_OF_SESSION;
        let place = self.places.try_acquire(caller, 1).filter(|_| has_room).ok_or_else(|| {
            let problem = "too many resources of this MCP server are subscribed to; end some of your subscriptions";
            CallError::new(ErrorCode::Overloaded, problem)
        })?;
        subscribed.insert(resource.clone(), Subscribed { clients: 1, _place: place, listening: None });
        Ok(true)
    }

    /// Counts one client less; `true` for the last.
    fn remove(&self, resource: &Resource) -> bool {
        let mut subscribed = self.lock();
        let Some(known) = subscribed.get_mut(resource) else { return false };
        known.clients -= 1;
        let last = known.clients == 0;
        if last {
            subscribed.remove(resource);
        }
        last
    }
}

/// A client that is counted for a resource while its request is with the server. If the request is dropped there, it is counted
/// no more: its place would be taken for ever.
struct Subscribing<'a> {
    server: &'a Arc<Server>,
    resource: &'a Resource,
    has_ended: bool,
}

impl Drop for Subscribing<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.server.unsubscribe_later(self.resource);
        }
    }
}

impl Server {
    /// Subscribes over the session for the call. If the call has an [`Undo`](crate::core::call::Undo), the subscription ends
    /// with that, unless its caller keeps it.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        call: &CallContext,
        deadline: Deadline,
        uri: &str,
    ) -> Result<(), CallError> {
        let session = self.session(call).await?;
        let resource = Resource { owner: session.owner.clone(), uri: uri.to_owned() };
        if self.subscriptions.add(&call.caller.owner, &resource)? {
            self.begin_subscription(&session, call, deadline, &resource).await?;
        }
        if let Some(undo) = &call.undo {
            let server = Arc::clone(self);
            undo.add(move || server.unsubscribe_later(&resource));
        }
        Ok(())
    }

    /// Has the server tell of a resource, for the first client that wants it.
    async fn begin_subscription(
        self: &Arc<Self>,
        session: &Arc<Session>,
        call: &CallContext,
        deadline: Deadline,
        resource: &Resource,
    ) -> Result<(), CallError> {
        if session.is_modern() {
            self.listen_to(session, resource);
            return Ok(());
        }
        let mut subscribing = Subscribing { server: self, resource, has_ended: false };
        let asked = self.ask_over(session, call, deadline, "resources/subscribe", params(&resource.uri)).await;
        subscribing.has_ended = true;
        asked.map(drop).inspect_err(|_| {
            self.subscriptions.remove(resource);
        })
    }

    /// Counts one client less, which cannot wait. After the last one the server is told in the background.
    fn unsubscribe_later(self: &Arc<Self>, resource: &Resource) {
        if self.subscriptions.remove(resource)
            && let Ok(runtime) = Handle::try_current()
        {
            let (server, resource) = (Arc::clone(self), resource.clone());
            runtime.spawn(async move {
                if let Err(error) = server.end_subscription(&resource).await {
                    tracing::debug!(%error, "a subscription that nobody waits for could not be ended at its server");
                }
            });
        }
    }

    /// Whose session tells of what the call subscribes to.
    pub(crate) async fn resource_owner(self: &Arc<Self>, call: &CallContext) -> Result<ResourceOwner, CallError> {
        Ok(ResourceOwner(self.session(call).await?.owner.clone()))
    }

    pub(crate) async fn unsubscribe(&self, uri: &str, owner: &ResourceOwner) -> Result<(), CallError> {
        let resource = Resource { owner: owner.0.clone(), uri: uri.to_owned() };
        match self.subscriptions.remove(&resource) {
            true => self.end_subscription(&resource).await,
            false => Ok(()),
        }
    }

    /// Tells the server that nobody wants to know of a resource any more.
    async fn end_subscription(&self, resource: &Resource) -> Result<(), CallError> {
        // A session that has ended tells nothing any more.
        let Some(session) = self.known_of(resource.owner.as_ref()).filter(|session| !session.is_modern()) else {
            return Ok(());
        };
        let asked = session.ask("resources/unsubscribe", params(&resource.uri));
        match tokio::time::timeout(SUBSCRIBE_TIMEOUT, asked).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                let refused = output::refused(self.name(), error);
                Err(refused.redacted(&self.connector.secrets_of(&session)))
            }
            Err(_) => Err(CallError::new(ErrorCode::Timeout, "the MCP server did not answer in time")),
        }
    }

    /// Renews the subscriptions of a lost session over a new one.
    pub(crate) async fn subscribe_again(&self, session: &Arc<Session>) {
        let resources: Vec<_> =
            self.subscriptions.lock().keys().filter(|resource| resource.owner == session.owner).cloned().collect();
        for resource in resources {
            if session.is_modern() {
                self.listen_to(session, &resource);
                continue;
            }
            let asked = session.ask("resources/subscribe", params(&resource.uri));
            if !matches!(tokio::time::timeout(SUBSCRIBE_TIMEOUT, asked).await, Ok(Ok(_))) {
                tracing::warn!(server = self.name(), "a resource of an MCP server could not be subscribed to again");
            }
        }
    }

    fn listen_to(&self, session: &Arc<Session>, resource: &Resource) {
        let stop = CancellationToken::new();
        // The session would be kept by a reference to it.
        let (connection, uri) = (Arc::clone(&session.connection), resource.uri.clone());
        tokio::spawn({
            let stop = stop.clone();
            async move { stop.run_until_cancelled(listen(&connection, json!({"resourceSubscriptions": [uri]}))).await }
        });
        if let Some(known) = self.subscriptions.lock().get_mut(resource) {
            known.listening = Some(stop.drop_guard());
        }
    }
}

fn params(uri: &str) -> Map<String, Value> {
    Map::from_iter([("uri".to_owned(), Value::String(uri.to_owned()))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::call::Caller;

    #[test]
    fn a_caller_that_subscribes_to_everything_leaves_places_to_others() {
        let subscriptions = Subscriptions::default();
        let caller = |tenant: &str| Caller::new("a", tenant, Vec::new()).owner;
        let (greedy, other) = (caller("greedy"), caller("other"));
        let resource = |n: u64| Resource { owner: None, uri: n.to_string() };
        assert_eq!(subscriptions.add(&other, &resource(0)).ok(), Some(true));
        let taken = (1..=MAX_SUBSCRIPTIONS).filter(|n| subscriptions.add(&greedy, &resource(*n)).is_ok()).count();
        assert_eq!(taken, 750);
        assert_eq!(subscriptions.add(&other, &resource(5_000)).ok(), Some(true));
        assert_eq!(subscriptions.add(&other, &resource(1)).ok(), Some(false), "it is subscribed to already");
        assert!(!subscriptions.remove(&resource(1)) && subscriptions.remove(&resource(1)));
        assert_eq!(subscriptions.add(&greedy, &resource(6_000)).ok(), Some(true), "its place is free again");
    }
}
