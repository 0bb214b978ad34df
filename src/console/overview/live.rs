//! The overview and the map while they are open: the parts that have changed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::response::Response;
use futures_util::Stream;
use tokio::sync::Mutex;

use super::RANGE;
use super::parts::Parts;
use crate::Console;
use crate::acts::Act;
use crate::figures::Ranged;
use crate::map;
use crate::text::Language;
use crate::visit::{Address, Visit, Watcher};
use sekisho_api::event_stream::{COMMENT as KEEP_ALIVE_COMMENT, NamedEvent, respond_named};
use sekisho_core::error::CallError;
use sekisho_gateway::Reach;
use sekisho_store::TimeRange;

/// By whose figures, of which time and in which language: the second that a page was made in, and its parts.
type Kept = HashMap<(Arc<str>, &'static str, Language), (u64, Arc<Vec<Part>>)>;

/// The id of an element, and its content.
type Part = (&'static str, String);

/// The parts of this second: viewers who see the same share them.
#[derive(Default)]
pub(crate) struct LiveOverviews(Mutex<Kept>);

impl fmt::Debug for LiveOverviews {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LiveOverviews")
    }
}

/// What an open page follows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Followed {
    Overview(TimeRange),
    Map,
}

impl Followed {
    /// Its name among kept parts: no range has the name of the map.
    fn name(self) -> &'static str {
        match self {
            Self::Overview(range) => range.name,
            Self::Map => "map",
        }
    }

    fn interval(self) -> Duration {
        match self {
            Self::Overview(_) => Duration::from_secs(1),
            Self::Map => Duration::from_secs(5),
        }
    }
}

/// `GET /console/live`.
pub(crate) async fn live(
    State(console): State<Arc<Console>>,
    Watcher(visit): Watcher,
    Address(ranged): Address<Ranged>,
) -> Response {
    if let Err(error) = visit.require(Act::SeeOverview) {
        return visit.answer(Err(error));
    }
    follow(console, visit, Followed::Overview(ranged.or(RANGE)))
}

/// The parts of a page as they change, for a visitor who may see it.
pub(crate) fn follow(console: Arc<Console>, visit: Visit, followed: Followed) -> Response {
    respond_named(changes(console, visit, followed), KEEP_ALIVE_COMMENT)
}

/// The changes, until the session or the gateway ends.
fn changes(console: Arc<Console>, visit: Visit, followed: Followed) -> impl Stream<Item = NamedEvent> + Send + 'static {
    async_stream::stream! {
        let draining = console.gateway.draining().clone();
        let mut tick = tokio::time::interval(followed.interval());
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut shown: Arc<Vec<Part>> = Arc::default();
        while draining.run_until_cancelled(tick.tick()).await.is_some() && visit.is_still_open(&console) {
            // Tried again a second later.
            let Ok(parts) = console.overviews.now(&console, &visit, followed).await else { continue };
            let changed: Vec<&Part> = parts.iter().filter(|part| !shown.contains(part)).collect();
            if !changed.is_empty() {
                yield NamedEvent::new("parts", &changed);
            }
            shown = parts;
        }
    }
}

impl LiveOverviews {
    async fn now(&self, console: &Console, visit: &Visit, followed: Followed) -> Result<Arc<Vec<Part>>, CallError> {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let whose = match console.gateway.configuration().reach(&visit.caller) {
            // No tenant has an empty name.
            Reach::AllTenants => "".into(),
            // The servers of the map are those with a tool that the viewer may see.
            _ if matches!(followed, Followed::Map) => Arc::clone(&visit.caller.key),
            Reach::Tenant => Arc::clone(&visit.caller.tenant),
            Reach::Own => Arc::clone(&visit.caller.owner.caller),
        };
        let whose = (whose, followed.name(), visit.texts().language);
        // Held while they are made: all waiting pages get the same.
        let mut kept = self.0.lock().await;
        kept.retain(|_, (made, _)| *made == second);
        if let Some((_, parts)) = kept.get(&whose) {
            return Ok(Arc::clone(parts));
        }
        let parts = Arc::new(match followed {
            Followed::Overview(range) => {
                let overview = console.gateway.status().overview(&visit.caller, range).await?;
                Parts::of(&visit.texts(), &overview, visit.may(Act::SeeServers)).into_named()
            }
            Followed::Map => map::parts(console, visit).await?,
        });
        kept.insert(whose, (second, Arc::clone(&parts)));
        Ok(parts)
    }
}
