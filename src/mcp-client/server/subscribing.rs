//! The requests to a server when callers subscribe to its resources.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Server;
use super::output;
use super::session::{Session, listen};
use super::subscriptions::{Resource, Subscribed, Turn};
use crate::changes::ResourceOwner;
use crate::transport::message::Failure;
use sekisho_core::call::{CallContext, Deadline};
use sekisho_core::error::{Blame, CallError, ErrorCode};

/// Timeout to end or to renew a subscription at the server.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// A client that is counted for a resource while its request is with the server. If the request fails or is dropped there, it
/// is counted no more: its place would be taken for ever.
struct Subscribing<'a> {
    server: &'a Arc<Server>,
    resource: &'a Resource,
    has_begun: bool,
}

impl Drop for Subscribing<'_> {
    fn drop(&mut self) {
        if !self.has_begun {
            drop(self.server.unsubscribe_later(self.resource));
        }
    }
}

impl Server {
    /// Subscribes over the session for the call. If the call has an [`Undo`](sekisho_core::call::Undo), the subscription ends
    /// with that, unless its caller keeps it.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        call: &CallContext,
        deadline: Deadline,
        uri: &str,
    ) -> Result<(), CallError> {
        let session = self.session(call).await?;
        let resource = Resource { owner: session.owner.clone(), uri: uri.to_owned() };
        let turn = self.subscriptions.add(&call.caller.owner, &resource)?;
        let mut subscribing = Subscribing { server: self, resource: &resource, has_begun: false };
        // Boxed, because it is large and rare.
        let ask = Box::pin(async {
            if session.is_modern() {
                self.listen_to(&session, &resource);
                return Ok(());
            }
            self.ask_over(&session, call, deadline, "resources/subscribe", params(&resource.uri)).await.map(drop)
        });
        // Others may be asking about it until the call's deadline.
        let begun = call.within(deadline, self.subscriptions.begin(&resource, &turn, ask)).await;
        begun.unwrap_or_else(|| {
            let problem = format!("the MCP server {} did not answer in time", self.name());
            Err(CallError::new(ErrorCode::Timeout, problem).blaming(Blame::Network))
        })?;
        subscribing.has_begun = true;
        drop(subscribing);
        if let Some(undo) = &call.client.undo {
            let server = Arc::clone(self);
            undo.add(move || drop(server.unsubscribe_later(&resource)));
        }
        Ok(())
    }

    /// Counts one client less, which cannot wait. After the last one the server is told by a task, which is returned.
    fn unsubscribe_later(self: &Arc<Self>, resource: &Resource) -> Option<JoinHandle<Result<(), CallError>>> {
        let turn = self.subscriptions.remove(resource)?;
        let runtime = Handle::try_current().ok()?;
        let (server, resource) = (Arc::clone(self), resource.clone());
        Some(runtime.spawn(async move {
            let ended = server.subscriptions.end(&resource, &turn, server.ask_to_end(&resource)).await;
            if let Err(error) = &ended {
                tracing::debug!(%error, "a subscription that nobody waits for could not be ended at its server");
            }
            ended
        }))
    }

    /// The owner of the session that reports changes of the call's subscription.
    pub(crate) async fn resource_owner(self: &Arc<Self>, call: &CallContext) -> Result<ResourceOwner, CallError> {
        Ok(ResourceOwner(self.session(call).await?.owner.clone()))
    }

    /// Counts one client less. After the last one, tells the server.
    /// Errors: the server's own, and `timeout` without an answer. The subscription is over here all the same.
    pub(crate) async fn unsubscribe(self: &Arc<Self>, uri: &str, owner: &ResourceOwner) -> Result<(), CallError> {
        let resource = Resource { owner: owner.0.clone(), uri: uri.to_owned() };
        // In a task: if this is dropped, the place must become free nevertheless.
        match self.unsubscribe_later(&resource) {
            Some(ending) => ending.await.map_err(CallError::internal)?,
            None => Ok(()),
        }
    }

    /// Tells the server that nobody wants to know of a resource any more.
    async fn ask_to_end(&self, resource: &Resource) -> Result<(), CallError> {
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
        let is_wanted = |resource: &Resource, known: &Subscribed| known.clients > 0 && resource.owner == session.owner;
        let resources: Vec<_> = {
            let subscribed = self.subscriptions.lock();
            let wanted = subscribed.iter().filter(|(resource, known)| is_wanted(resource, known));
            wanted.map(|(resource, known)| (resource.clone(), Arc::clone(&known.turn))).collect()
        };
        for (resource, turn) in resources {
            let renew = self.renew(session, &resource, &turn);
            if !matches!(tokio::time::timeout(SUBSCRIBE_TIMEOUT, renew).await, Ok(Ok(()))) {
                tracing::warn!(server = self.name(), "a resource of an MCP server could not be subscribed to again");
            }
        }
    }

    /// Renews one subscription, if somebody has it still.
    async fn renew(&self, session: &Arc<Session>, resource: &Resource, turn: &Turn) -> Result<(), Failure> {
        let _turn = turn.lock().await;
        if self.subscriptions.with(resource, turn, |known| known.clients).unwrap_or_default() == 0 {
            return Ok(());
        }
        if session.is_modern() {
            self.listen_to(session, resource);
            return Ok(());
        }
        session.ask("resources/subscribe", params(&resource.uri)).await.map(drop)
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
