//! Resources of one server that clients want to hear of: asked for once, however many clients there are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::SubscriptionFilter;
use serde_json::{Map, Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::handler::News;
use super::server::Server;
use super::session::Session;
use crate::call::{CallContext, Deadline};
use crate::error::{CallError, ErrorCode};

/// Resources of one server that may be subscribed to at once.
const MOST: usize = 1_000;

/// By the server's own URI.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Mutex<HashMap<String, Subscribed>>);

#[derive(Debug, Default)]
struct Subscribed {
    clients: usize,
    /// Ends the listening, in revisions where a subscription is one.
    listening: Option<DropGuard>,
}

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Subscribed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more client; `true` for the first.
    fn add(&self, uri: &str) -> Result<bool, CallError> {
        let mut subscribed = self.lock();
        if subscribed.len() >= MOST && !subscribed.contains_key(uri) {
            let problem = "too many resources of this MCP server are subscribed to";
            return Err(CallError::new(ErrorCode::Overloaded, problem));
        }
        let known = subscribed.entry(uri.to_owned()).or_default();
        known.clients += 1;
        Ok(known.clients == 1)
    }

    /// Counts one client less; `true` for the last.
    fn remove(&self, uri: &str) -> bool {
        let mut subscribed = self.lock();
        let Some(known) = subscribed.get_mut(uri) else { return false };
        known.clients -= 1;
        let last = known.clients == 0;
        if last {
            subscribed.remove(uri);
        }
        last
    }
}

impl Server {
    pub(super) async fn subscribe(&self, call: &CallContext, deadline: Deadline, uri: &str) -> Result<(), CallError> {
        let capability = self.subscribable(call, deadline).await?;
        if !self.subscriptions.add(uri)? {
            return Ok(());
        }
        let asked = match capability {
            Subscribing::Listening(session) => {
                self.listen_to(&session, uri);
                Ok(())
            }
            Subscribing::Request => self.ask(call, deadline, "resources/subscribe", params(uri)).await.map(drop),
        };
        asked.inspect_err(|_| {
            self.subscriptions.remove(uri);
        })
    }

    pub(super) async fn unsubscribe(&self, call: &CallContext, uri: &str) -> Result<(), CallError> {
        if !self.subscriptions.remove(uri) {
            return Ok(());
        }
        let deadline = self.deadline_of(call);
        match self.subscribable(call, deadline).await? {
            Subscribing::Listening(_) => Ok(()),
            Subscribing::Request => self.ask(call, deadline, "resources/unsubscribe", params(uri)).await.map(drop),
        }
    }

    /// Asks a new connection for what the one before it was asked for.
    pub(super) async fn subscribe_again(&self, session: &Arc<Session>) {
        let uris: Vec<_> = self.subscriptions.lock().keys().cloned().collect();
        for uri in uris {
            if session.is_modern() {
                self.listen_to(session, &uri);
            } else if session.ask("resources/subscribe", params(&uri)).await.is_err() {
                tracing::warn!(server = self.name(), "a resource of an MCP server could not be subscribed to again");
            }
        }
    }

    async fn subscribable(&self, call: &CallContext, deadline: Deadline) -> Result<Subscribing, CallError> {
        let session = self.session(call, deadline).await?;
        Ok(if session.is_modern() { Subscribing::Listening(session) } else { Subscribing::Request })
    }

    fn listen_to(&self, session: &Arc<Session>, uri: &str) {
        let stop = CancellationToken::new();
        let listening = listen(Arc::clone(session), Arc::clone(&self.connector.news), uri.to_owned());
        tokio::spawn({
            let stop = stop.clone();
            async move { stop.run_until_cancelled(listening).await }
        });
        if let Some(known) = self.subscriptions.lock().get_mut(uri) {
            known.listening = Some(stop.drop_guard());
        }
    }
}

enum Subscribing {
    Request,
    Listening(Arc<Session>),
}

/// Passes on what is told of one resource, for as long as the connection holds.
async fn listen(session: Arc<Session>, news: Arc<News>, uri: String) {
    let filter = serde_json::from_value::<SubscriptionFilter>(json!({"resourceSubscriptions": [uri]}));
    let Ok(filter) = filter else { return };
    let peer = session.peer.clone();
    // Whoever listens must not keep the connection.
    drop(session);
    let Ok(mut subscription) = peer.listen(filter).await else { return };
    while let Ok(Some(notification)) = subscription.next().await {
        news.hear(&notification);
    }
}

fn params(uri: &str) -> Map<String, Value> {
    Map::from_iter([("uri".to_owned(), Value::String(uri.to_owned()))])
}
