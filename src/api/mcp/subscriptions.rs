//! Notifies clients of changes: to lists of tools, resources and prompts, and to resources that they subscribed to.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam};
use rmcp::service::{Peer, ServiceError, SubscriptionContext, SubscriptionSendError};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::McpServer;
use super::handler::{error_data, run_operation};
use super::running_request::log;
use super::sessions::SessionState;
use crate::core::call::{CallContext, Caller};
use crate::core::error::CallError;
use crate::core::peer::ClientSession;
use crate::gateway::Gateway;
use crate::sources::mcp::{Change, McpServers, ResourceOwner};

/// Maximum number of resources that one client may watch.
const MAX_SUBSCRIPTIONS: usize = 256;

/// The resources that a client subscribed to.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    by_uri: Mutex<HashMap<String, Subscribed>>,
}

/// One resource: its subscriber, and the owner of the server session that reports its changes.
#[derive(Debug)]
struct Subscribed {
    caller: Arc<Caller>,
    owner: ResourceOwner,
}

impl Subscriptions {
    /// # Errors
    /// The resource does not exist, the caller may not read it, its server refuses, or the client watches too many.
    pub(super) async fn add(&self, gateway: &Gateway, call: CallContext, uri: String) -> Result<(), ErrorData> {
        {
            let by_uri = self.by_uri.lock().unwrap_or_else(PoisonError::into_inner);
            if by_uri.contains_key(&uri) {
                return Ok(());
            }
            if by_uri.len() >= MAX_SUBSCRIPTIONS {
                let message = format!("{MAX_SUBSCRIPTIONS} resources are watched already; unsubscribe from one first");
                return Err(ErrorData::invalid_request(message, None));
            }
        }
        let owner = subscribe(gateway, &call, &uri).await.map_err(|error| error_data(&error))?;
        let subscribed = Subscribed { caller: call.caller, owner };
        let before = self.by_uri.lock().unwrap_or_else(PoisonError::into_inner).insert(uri.clone(), subscribed);
        // Two concurrent requests: one subscription is superfluous.
        if let Some(before) = before {
            before.unsubscribe(gateway.mcp_servers(), &uri).await.map_err(|error| error_data(&error))?;
        }
        Ok(())
    }

    pub(super) async fn remove(&self, servers: &McpServers, uri: &str) -> Result<(), ErrorData> {
        let subscribed = self.by_uri.lock().unwrap_or_else(PoisonError::into_inner).remove(uri);
        match subscribed {
            Some(subscribed) => subscribed.unsubscribe(servers, uri).await.map_err(|error| error_data(&error)),
            None => Ok(()),
        }
    }

    /// Whether the client subscribed to the resource, through the server session that reports the change.
    fn hold(&self, uri: &str, owner: &ResourceOwner) -> bool {
        let by_uri = self.by_uri.lock().unwrap_or_else(PoisonError::into_inner);
        by_uri.get(uri).is_some_and(|subscribed| subscribed.owner == *owner)
    }

    async fn end(&self, servers: &McpServers) {
        let all = std::mem::take(&mut *self.by_uri.lock().unwrap_or_else(PoisonError::into_inner));
        for (uri, subscribed) in all {
            if let Err(error) = subscribed.unsubscribe(servers, &uri).await {
                tracing::debug!(%error, uri, "a subscription of a disconnected client could not be ended at its server");
            }
        }
    }
}

impl Subscribed {
    async fn unsubscribe(&self, servers: &McpServers, uri: &str) -> Result<(), CallError> {
        servers.unsubscribe(&self.caller, uri, &self.owner).await
    }
}

/// Subscribes to a resource at its server, through the session whose owner is returned. Limits and policies treat it
/// as a read of the resource.
async fn subscribe(gateway: &Gateway, call: &CallContext, uri: &str) -> Result<ResourceOwner, CallError> {
    let servers = gateway.mcp_servers();
    run_operation(gateway, call.repeated(), servers.subscribe(&call.caller, uri)).await?;
    servers.subscriber(&call.repeated(), uri).await
}

/// Changes to a client's lists: the registry and the policies for tools, and the MCP servers.
struct Watch {
    shared: Arc<McpServer>,
    caller: Arc<Caller>,
    tools: watch::Receiver<()>,
    policies: watch::Receiver<()>,
    servers: Receiver<Change>,
    /// Digest of the tools that were last listed to the caller, if known.
    listed: Option<u64>,
}

impl Watch {
    async fn new(shared: &Arc<McpServer>, caller: &Arc<Caller>) -> Self {
        let gateway = &shared.gateway;
        let (tools, policies) = (gateway.pipeline.registry.changes(), gateway.pipeline.policy.changes());
        let servers = gateway.mcp_servers().changes();
        let mut watch =
            Self { shared: Arc::clone(shared), caller: Arc::clone(caller), tools, policies, servers, listed: None };
        watch.has_changed().await;
        if watch.tools.has_changed().unwrap_or(true) || watch.policies.has_changed().unwrap_or(true) {
            // The client may have read its list before this change, and the digest was made after it.
            watch.listed = None;
        }
        watch
    }

    /// Whether the caller's list of tools has changed.
    async fn has_changed(&mut self) -> bool {
        let (shared, caller) = (Arc::clone(&self.shared), Arc::clone(&self.caller));
        // Describing thousands of tools and evaluating the policies takes a while.
        let digest = move || shared.catalogues.present(&shared.gateway).digest_for(&caller, &shared.gateway);
        match tokio::task::spawn_blocking(digest).await {
            Ok(listed) => self.listed.replace(listed) != Some(listed),
            Err(error) => {
                tracing::error!(%error, "a client's list of tools could not be compared");
                true
            }
        }
    }

    /// `None` when no further change is possible.
    async fn next(&mut self) -> Option<Change> {
        loop {
            let change = tokio::select! {
                changed = self.tools.changed() => changed.map(|()| Change::Tools).map_err(|_| RecvError::Closed),
                changed = self.policies.changed() => changed.map(|()| Change::Tools).map_err(|_| RecvError::Closed),
                change = self.servers.recv() => match change {
                    // The registry notifies after the change is visible.
                    Ok(Change::Tools) => continue,
                    change => change,
                },
            };
            match change {
                Ok(Change::Tools) if !self.has_changed().await => {}
                Ok(change) => return Some(change),
                // A client that reads its lists again has missed nothing.
                Err(RecvError::Lagged(_)) => return Some(Change::Resources),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Notifies the client of a session until the session ends.
pub(super) async fn notify_session(
    shared: Arc<McpServer>,
    caller: Arc<Caller>,
    peer: Peer<RoleServer>,
    subscriptions: Arc<Subscriptions>,
    session: Arc<SessionState>,
) {
    let Some(mut logs) = session.client.connect(&peer) else { return };
    let telling = async {
        let mut watch = Watch::new(&shared, &caller).await;
        loop {
            let result = tokio::select! {
                change = watch.next() => match change {
                    Some(change) => notify(&peer, change, &subscriptions).await,
                    None => return,
                },
                Some(message) = logs.recv() => log(&peer, message).await,
            };
            if result.is_err() {
                return;
            }
        }
    };
    session.ended().run_until_cancelled(telling).await;
    subscriptions.end(shared.gateway.mcp_servers()).await;
}

async fn notify(peer: &Peer<RoleServer>, change: Change, subscriptions: &Subscriptions) -> Result<(), ServiceError> {
    match change {
        Change::Tools => peer.notify_tool_list_changed().await,
        Change::Resources => peer.notify_resource_list_changed().await,
        Change::Prompts => peer.notify_prompt_list_changed().await,
        Change::Resource { uri, owner } if subscriptions.hold(&uri, &owner) => {
            peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await
        }
        Change::Resource { .. } => Ok(()),
    }
}

/// Notifies a client of 2026-07-28 on the stream of its `subscriptions/listen`, until it disconnects or the service
/// stops.
pub(super) async fn notify_listener(
    shared: &Arc<McpServer>,
    subscription: SubscriptionContext,
    call: CallContext,
) -> Result<(), ErrorData> {
    let (servers, draining) = (shared.gateway.mcp_servers(), &shared.draining);
    let sink = subscription.sink().clone();
    let uris: BTreeSet<_> = sink.accepted().resource_subscriptions.clone().unwrap_or_default().into_iter().collect();
    let mut subscribed = Vec::new();
    for uri in uris.into_iter().take(MAX_SUBSCRIPTIONS) {
        // A resource that cannot be watched does not prevent notifications of the others.
        match subscribe(&shared.gateway, &call, &uri).await {
            Ok(owner) => subscribed.push((uri, owner)),
            Err(error) => tracing::debug!(%error, uri, "a resource cannot be watched"),
        }
    }
    let mut watch = Watch::new(shared, &call.caller).await;
    loop {
        let change = tokio::select! {
            () = subscription.cancelled() => break,
            () = draining.cancelled() => break,
            change = watch.next() => change,
        };
        let result = match change {
            None => break,
            Some(Change::Tools) => sink.notify_tool_list_changed().await,
            Some(Change::Resources) => sink.notify_resource_list_changed().await,
            Some(Change::Prompts) => sink.notify_prompt_list_changed().await,
            Some(Change::Resource { uri, owner }) => {
                let change = (uri, owner);
                match subscribed.contains(&change) {
                    true => sink.notify_resource_updated(change.0).await,
                    false => Ok(()),
                }
            }
        };
        match result {
            Ok(()) | Err(SubscriptionSendError::NotificationNotAccepted(_)) => {}
            Err(_) => break,
        }
    }
    for (uri, owner) in subscribed {
        _ = servers.unsubscribe(&call.caller, &uri, &owner).await;
    }
    Ok(())
}
