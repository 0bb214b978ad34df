//! Subscriptions to resources of one server: one per session, shared by all its clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Server;
use super::output;
use super::session::{Session, listen};
use super::session_owner::OwnerKey;
use crate::core::call::{CallContext, Deadline};
use crate::core::error::{CallError, ErrorCode};
use crate::sources::mcp::changes::ResourceOwner;

/// Resources of one server that may be subscribed to at once, over all sessions and over one.
const MAX_SUBSCRIPTIONS: usize = 1_000;
const MAX_SUBSCRIPTIONS_OF_SESSION: usize = 250;

/// Timeout to end or to renew a subscription at the server.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<Resource, Subscribed>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Resource {
    /// Whose session tells of it.
    owner: Option<OwnerKey>,
    /// The server's own.
    uri: String,
}

#[derive(Debug, Default)]
struct Subscribed {
    clients: usize,
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
        self.0.lock()
    }

    /// Counts one more client; `true` for the first.
    fn add(&self, resource: &Resource) -> Result<bool, CallError> {
        let mut subscribed = self.lock();
        if !subscribed.contains_key(resource) {
            let of_session = subscribed.keys().filter(|known| known.owner == resource.owner).count();
            let is_shared = resource.owner.is_none();
            if subscribed.len() >= MAX_SUBSCRIPTIONS || (!is_shared && of_session >= MAX_SUBSCRIPTIONS_OF_SESSION) {
                let problem = "too many resources of this MCP server are subscribed to";
                return Err(CallError::new(ErrorCode::Overloaded, problem));
            }
        }
        let known = subscribed.entry(resource.clone()).or_default();
        known.clients += 1;
        Ok(known.clients == 1)
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

impl Server {
    /// Subscribes over the session for the call.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        call: &CallContext,
        deadline: Deadline,
        uri: &str,
    ) -> Result<(), CallError> {
        let session = self.session(call).await?;
        let resource = Resource { owner: session.owner.clone(), uri: uri.to_owned() };
        if !self.subscriptions.add(&resource)? {
            return Ok(());
        }
        if session.is_modern() {
            self.listen_to(&session, &resource);
            return Ok(());
        }
        let asked = self.ask_over(&session, call, deadline, "resources/subscribe", params(uri)).await;
        asked.map(drop).inspect_err(|_| {
            self.subscriptions.remove(&resource);
        })
    }

    /// Whose session tells of what the call subscribes to.
    pub(crate) async fn resource_owner(self: &Arc<Self>, call: &CallContext) -> Result<ResourceOwner, CallError> {
        Ok(ResourceOwner(self.session(call).await?.owner.clone()))
    }

    pub(crate) async fn unsubscribe(&self, uri: &str, owner: &ResourceOwner) -> Result<(), CallError> {
        let resource = Resource { owner: owner.0.clone(), uri: uri.to_owned() };
        if !self.subscriptions.remove(&resource) {
            return Ok(());
        }
        // A session that has ended tells nothing any more.
        let Some(session) = self.known_of(resource.owner.as_ref()).filter(|session| !session.is_modern()) else {
            return Ok(());
        };
        let asked = session.ask("resources/unsubscribe", params(uri));
        match tokio::time::timeout(SUBSCRIBE_TIMEOUT, asked).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                let refused = output::refused(self.name(), error);
                Err(refused.redacted(&self.connector.secrets(&session.sent)))
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
