//! The resources that the client of one session subscribed to.

use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::ErrorData;

use super::{MAX_SUBSCRIPTIONS, subscribe};
use crate::mcp::methods::error_data;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::{CallContext, Caller};
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;
use sekisho_mcp_client::{McpServers, ResourceOwner};

/// The resources that a client subscribed to.
#[derive(Debug)]
pub(in crate::mcp) struct Subscriptions {
    /// `None` once the client has gone.
    by_uri: Mutex<Option<BoundedMap<String, Watched>>>,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { by_uri: Mutex::new(Some(BoundedMap::new(MAX_SUBSCRIPTIONS))) }
    }
}

/// A resource that is subscribed to, or will be.
#[derive(Debug, Default)]
struct Watched {
    /// The client's requests that subscribe to it now.
    pending: usize,
    subscribed: Option<Subscribed>,
}

/// The place of a resource while a request subscribes to it: freed when the request fails or is dropped.
#[derive(Debug)]
struct Reserved<'a> {
    subscriptions: &'a Subscriptions,
    uri: &'a str,
}

/// One resource: its subscriber, and the owner of the server session that reports its changes.
#[derive(Debug)]
struct Subscribed {
    caller: Arc<Caller>,
    owner: ResourceOwner,
}

impl Subscriptions {
    /// Errors: the resource does not exist, the caller may not read it, its server refuses, or the client watches too
    /// many.
    pub(in crate::mcp) async fn add(&self, gateway: &Gateway, call: CallContext, uri: String) -> Result<(), ErrorData> {
        let Some(place) = self.reserve(&uri)? else { return Ok(()) };
        let owner = subscribe(gateway, &call, &uri).await.map_err(|error| error_data(&error))?;
        if let Some(superfluous) = place.fill(Subscribed { caller: call.caller, owner }) {
            superfluous.unsubscribe(gateway.mcp_servers(), &uri).await.map_err(|error| error_data(&error))?;
        }
        Ok(())
    }

    /// A place for a resource, before its server is asked: as many requests as the client sends at once cannot take more
    /// places than there are. `None`: it is subscribed to already.
    fn reserve<'a>(&'a self, uri: &'a str) -> Result<Option<Reserved<'a>>, ErrorData> {
        let refused = |why: String| ErrorData::invalid_request(why, None);
        let mut by_uri = self.by_uri.lock();
        let by_uri = by_uri.as_mut().ok_or_else(|| refused("the session has ended".to_owned()))?;
        let watched = by_uri.get_or_try_insert_with(uri.to_owned(), Watched::default).ok_or_else(|| {
            refused(format!("{MAX_SUBSCRIPTIONS} resources are watched already; unsubscribe from one first"))
        })?;
        if watched.subscribed.is_some() {
            return Ok(None);
        }
        watched.pending += 1;
        Ok(Some(Reserved { subscriptions: self, uri }))
    }

    pub(in crate::mcp) async fn remove(&self, servers: &McpServers, uri: &str) -> Result<(), ErrorData> {
        match self.take(uri) {
            Some(subscribed) => subscribed.unsubscribe(servers, uri).await.map_err(|error| error_data(&error)),
            None => Ok(()),
        }
    }

    fn take(&self, uri: &str) -> Option<Subscribed> {
        let mut by_uri = self.by_uri.lock();
        let by_uri = by_uri.as_mut()?;
        let watched = by_uri.get_mut(uri)?;
        let subscribed = watched.subscribed.take();
        if watched.pending == 0 {
            by_uri.remove(uri);
        }
        subscribed
    }

    /// Whether the client subscribed to the resource, through the server session that reports the change.
    pub(super) fn hold(&self, uri: &str, owner: &ResourceOwner) -> bool {
        let by_uri = self.by_uri.lock();
        let subscribed = by_uri.as_ref().and_then(|by_uri| by_uri.get(uri)?.subscribed.as_ref());
        subscribed.is_some_and(|subscribed| subscribed.owner == *owner)
    }

    pub(super) async fn end(&self, servers: &McpServers) {
        let all = self.by_uri.lock().take().map(|mut by_uri| by_uri.take()).unwrap_or_default();
        for (uri, watched) in all {
            // A subscription that is under way finds no place afterwards.
            let Some(subscribed) = watched.subscribed else { continue };
            if let Err(error) = subscribed.unsubscribe(servers, &uri).await {
                tracing::debug!(%error, uri, "a subscription of a disconnected client could not be ended at its server");
            }
        }
    }
}

impl Reserved<'_> {
    /// Returns a superfluous subscription: of two concurrent requests the first one, and this one when the client has
    /// gone.
    fn fill(&self, subscribed: Subscribed) -> Option<Subscribed> {
        match self.subscriptions.by_uri.lock().as_mut().and_then(|by_uri| by_uri.get_mut(self.uri)) {
            Some(watched) => watched.subscribed.replace(subscribed),
            None => Some(subscribed),
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut by_uri = self.subscriptions.by_uri.lock();
        let Some(by_uri) = by_uri.as_mut() else { return };
        let Some(watched) = by_uri.get_mut(self.uri) else { return };
        watched.pending -= 1;
        if watched.pending == 0 && watched.subscribed.is_none() {
            by_uri.remove(self.uri);
        }
    }
}

impl Subscribed {
    async fn unsubscribe(&self, servers: &McpServers, uri: &str) -> Result<(), CallError> {
        servers.unsubscribe(&self.caller, uri, &self.owner).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribed() -> Subscribed {
        Subscribed { caller: Arc::new(Caller::anonymous()), owner: ResourceOwner::default() }
    }

    #[test]
    fn requests_at_once_take_no_more_places_than_there_are() {
        let (subscriptions, uris) = (Subscriptions::default(), (0..MAX_SUBSCRIPTIONS).map(|n| n.to_string()));
        let uris: Vec<_> = uris.collect();
        let mut places: Vec<_> = uris.iter().map(|uri| subscriptions.reserve(uri).unwrap().unwrap()).collect();
        assert!(subscriptions.reserve("one too many").unwrap_err().message.contains("watched already"));
        let again = subscriptions.reserve("0").unwrap().expect("it is not subscribed to yet");
        assert!(again.fill(subscribed()).is_none() && subscriptions.reserve("0").unwrap().is_none());
        assert!(places[0].fill(subscribed()).is_some(), "one of the two is superfluous");
        // A request that failed, or whose client cancelled it.
        drop(places.pop());
        let next = subscriptions.reserve("next").unwrap().expect("its place is free");
        assert!(next.fill(subscribed()).is_none());
        drop((places, again, next));
        let mut by_uri = subscriptions.by_uri.lock();
        let mut left: Vec<_> = by_uri.as_mut().unwrap().take().into_keys().collect();
        left.sort_unstable();
        assert_eq!(left, ["0", "next"]);
    }

    #[test]
    fn what_is_unsubscribed_from_while_another_request_subscribes_has_one_place() {
        let subscriptions = Subscriptions::default();
        let (first, second) =
            (subscriptions.reserve("u").unwrap().unwrap(), subscriptions.reserve("u").unwrap().unwrap());
        assert!(first.fill(subscribed()).is_none());
        drop(first);
        assert!(subscriptions.hold("u", &ResourceOwner::default()) && subscriptions.take("u").is_some());
        assert!(!subscriptions.hold("u", &ResourceOwner::default()));
        assert!(second.fill(subscribed()).is_none());
        drop(second);
        assert!(subscriptions.take("u").is_some());
        assert_eq!(subscriptions.by_uri.lock().as_ref().unwrap().len(), 0);
    }

    #[test]
    fn nothing_is_kept_for_a_client_that_has_gone() {
        let subscriptions = Subscriptions::default();
        let place = subscriptions.reserve("u").unwrap().unwrap();
        *subscriptions.by_uri.lock() = None;
        assert!(place.fill(subscribed()).is_some(), "it has to be ended");
        drop(place);
        assert!(subscriptions.reserve("u").is_err());
    }
}
