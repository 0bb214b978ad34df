//! Subscriptions to resources of one server: one per session, shared by all its clients.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::DropGuard;

use super::session_owner::OwnerKey;
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::share::{Lease, Share};

/// Resources of one server that may be subscribed to at once, divided between callers; and over one session.
const MAX_SUBSCRIPTIONS: u64 = 1_000;
const MAX_SUBSCRIPTIONS_OF_SESSION: usize = 250;

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
pub(super) struct Resource {
    /// Whose session tells of it.
    pub(super) owner: Option<OwnerKey>,
    /// The server's own.
    pub(super) uri: String,
}

#[derive(Debug)]
pub(super) struct Subscribed {
    pub(super) clients: usize,
    /// The place of the caller that subscribed first.
    _place: Lease,
    pub(super) turn: Turn,
    asked: Asked,
    /// Ends the listening, in revisions where a subscription is one.
    pub(super) listening: Option<DropGuard>,
}

/// Held while the server is asked about a resource. Requests to subscribe and to unsubscribe would overtake each other
/// otherwise, and the server would not report although somebody waits for it.
pub(super) type Turn = Arc<AsyncMutex<()>>;

/// Whether the server has been asked to report changes of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// The answer is not known, or nobody waited for it.
    Perhaps,
    Yes,
}

impl Subscriptions {
    /// Whether anything is subscribed to over the owner's session.
    pub(crate) fn has_any(&self, owner: &OwnerKey) -> bool {
        let is_of_owner = |resource: &Resource| resource.owner.as_ref() == Some(owner);
        self.lock().iter().any(|(resource, known)| known.clients > 0 && is_of_owner(resource))
    }

    /// The owner's client has gone: nobody is left to be told.
    pub(crate) fn forget(&self, owner: &OwnerKey) {
        self.lock().retain(|resource, _| resource.owner.as_ref() != Some(owner));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Resource, Subscribed>> {
        self.resources.lock()
    }

    /// Counts one more client.
    pub(super) fn add(&self, caller: &Owner, resource: &Resource) -> Result<Turn, CallError> {
        let mut subscribed = self.lock();
        if let Some(known) = subscribed.get_mut(resource) {
            known.clients += 1;
            return Ok(Arc::clone(&known.turn));
        }
        let of_session = subscribed.keys().filter(|known| known.owner == resource.owner).count();
        let has_room = resource.owner.is_none() || of_session < MAX_SUBSCRIPTIONS_OF_SESSION;
        let place = self.places.try_acquire(caller, 1).filter(|_| has_room).ok_or_else(|| {
            let problem = "too many resources of this MCP server are subscribed to; end some of your subscriptions";
            CallError::new(ErrorCode::Overloaded, problem)
        })?;
        let turn = Turn::default();
        let known =
            Subscribed { clients: 1, _place: place, turn: Arc::clone(&turn), asked: Asked::No, listening: None };
        subscribed.insert(resource.clone(), known);
        Ok(turn)
    }

    /// Counts one client less. If that was the last one and the server may have been asked, it is to be asked to
    /// [`end`](Self::end), and the place stays taken until then.
    pub(super) fn remove(&self, resource: &Resource) -> Option<Turn> {
        let mut subscribed = self.lock();
        let known = subscribed.get_mut(resource)?;
        known.clients = known.clients.checked_sub(1)?;
        if known.clients > 0 {
            return None;
        }
        if known.asked != Asked::No {
            return Some(Arc::clone(&known.turn));
        }
        subscribed.remove(resource);
        None
    }

    /// Has the server asked to report by `ask`, unless it reports already.
    pub(super) async fn begin(
        &self,
        resource: &Resource,
        turn: &Turn,
        ask: impl Future<Output = Result<(), CallError>>,
    ) -> Result<(), CallError> {
        let _turn = turn.lock().await;
        if self.lock().get(resource).is_some_and(|known| known.asked == Asked::Yes || known.listening.is_some()) {
            return Ok(());
        }
        self.set_asked(resource, turn, Asked::Perhaps);
        let asked = ask.await;
        self.set_asked(resource, turn, if asked.is_ok() { Asked::Yes } else { Asked::No });
        asked
    }

    /// Has the server asked to report no more by `ask`, unless somebody has subscribed again meanwhile.
    pub(super) async fn end(
        &self,
        resource: &Resource,
        turn: &Turn,
        ask: impl Future<Output = Result<(), CallError>>,
    ) -> Result<(), CallError> {
        let _turn = turn.lock().await;
        if self.with(resource, turn, |known| known.clients) != Some(0) {
            return Ok(());
        }
        // Whoever subscribes now waits for the turn and then asks.
        self.set_asked(resource, turn, Asked::No);
        let asked = ask.await;
        let mut subscribed = self.lock();
        if subscribed.get(resource).is_some_and(|known| known.clients == 0 && Arc::ptr_eq(&known.turn, turn)) {
            subscribed.remove(resource);
        }
        asked
    }

    fn set_asked(&self, resource: &Resource, turn: &Turn, asked: Asked) {
        self.with(resource, turn, |known| known.asked = asked);
    }

    /// Changes the state of a resource, unless it was forgotten since `turn` was taken.
    pub(super) fn with<R>(
        &self,
        resource: &Resource,
        turn: &Turn,
        change: impl FnOnce(&mut Subscribed) -> R,
    ) -> Option<R> {
        self.lock().get_mut(resource).filter(|known| Arc::ptr_eq(&known.turn, turn)).map(change)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use sekisho_core::call::Caller;

    #[test]
    fn a_caller_that_subscribes_to_everything_leaves_places_to_others() {
        let subscriptions = Subscriptions::default();
        let caller = |tenant: &str| Caller::new("a", tenant, Vec::new()).owner;
        let (greedy, other) = (caller("greedy"), caller("other"));
        let resource = |n: u64| Resource { owner: None, uri: n.to_string() };
        assert!(subscriptions.add(&other, &resource(0)).is_ok());
        let taken = (1..=MAX_SUBSCRIPTIONS).filter(|n| subscriptions.add(&greedy, &resource(*n)).is_ok()).count();
        assert_eq!(taken, 750);
        assert!(subscriptions.add(&other, &resource(5_000)).is_ok());
        let (first, again) = (resource(1), subscriptions.add(&other, &resource(1)).unwrap());
        assert!(Arc::ptr_eq(&again, &subscriptions.lock()[&first].turn), "it is subscribed to already");
        for clients in [1, 0] {
            assert!(subscriptions.remove(&first).is_none(), "the server was not asked");
            assert_eq!(subscriptions.lock().get(&first).map_or(0, |known| known.clients), clients);
        }
        assert!(subscriptions.add(&greedy, &resource(6_000)).is_ok(), "its place is free again");
    }

    /// The requests to the server, in their order.
    #[derive(Default)]
    struct Requests(Mutex<Vec<&'static str>>);

    impl Requests {
        async fn ask(&self, request: &'static str) -> Result<(), CallError> {
            self.0.lock().push(request);
            // Others run before the answer comes.
            tokio::task::yield_now().await;
            Ok(())
        }

        fn take(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.0.lock())
        }
    }

    #[tokio::test]
    async fn what_ends_a_subscription_does_not_overtake_the_next_one() {
        let (subscriptions, requests) = (Subscriptions::default(), Requests::default());
        let caller = Caller::new("a", "t", Vec::new()).owner;
        let resource = Resource { owner: None, uri: "note://mine".to_owned() };
        let begin = async |turn: &Turn| subscriptions.begin(&resource, turn, requests.ask("subscribe")).await.unwrap();
        let end = async |turn: &Turn| subscriptions.end(&resource, turn, requests.ask("unsubscribe")).await.unwrap();
        // Its caller cancels it while the server has the request.
        let turn = subscriptions.add(&caller, &resource).unwrap();
        assert!(begin(&turn).now_or_never().is_none());
        let ending = subscriptions.remove(&resource).unwrap();
        // The caller asks again before the background task runs.
        let turn = subscriptions.add(&caller, &resource).unwrap();
        begin(&turn).await;
        end(&ending).await;
        assert_eq!(requests.take(), ["subscribe", "subscribe"]);
        // And while the server is asked to end it.
        let ending = subscriptions.remove(&resource).unwrap();
        let again = async {
            let turn = subscriptions.add(&caller, &resource).unwrap();
            begin(&turn).await;
        };
        tokio::join!(end(&ending), again);
        assert_eq!(requests.take(), ["unsubscribe", "subscribe"]);
        // A resource that nobody subscribes to again.
        let ending = subscriptions.remove(&resource).unwrap();
        end(&ending).await;
        assert_eq!((requests.take(), subscriptions.lock().len()), (vec!["unsubscribe"], 0));
        end(&ending).await;
        assert_eq!(requests.take(), Vec::<&str>::new(), "it is over");
    }

    #[tokio::test]
    async fn one_request_is_for_all_clients_and_one_that_failed_for_none() {
        let (subscriptions, requests) = (Subscriptions::default(), Requests::default());
        let caller = Caller::new("a", "t", Vec::new()).owner;
        let resource = Resource { owner: None, uri: "note://mine".to_owned() };
        let turn = subscriptions.add(&caller, &resource).unwrap();
        let refused = async {
            tokio::task::yield_now().await;
            Err(CallError::new(ErrorCode::UpstreamError, "no"))
        };
        let second = async {
            subscriptions.add(&caller, &resource).unwrap();
            subscriptions.begin(&resource, &turn, requests.ask("by the second")).await
        };
        let (first, second) = tokio::join!(subscriptions.begin(&resource, &turn, refused), second);
        assert!(first.is_err() && second.is_ok());
        assert!(subscriptions.remove(&resource).is_none(), "the second client has it");
        subscriptions.add(&caller, &resource).unwrap();
        subscriptions.begin(&resource, &turn, requests.ask("by the third")).await.unwrap();
        assert_eq!(requests.take(), ["by the second"]);
    }
}
