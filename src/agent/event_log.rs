//! The events of runs, numbered and kept for a time, so that a client that reconnects misses none (`Last-Event-ID`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::per_owner::PerOwner;
use sekisho_core::share::{HeldBytes, Share};

/// Maximum bytes of kept events of one run; the oldest are dropped first.
const MAX_BYTES: usize = 1024 * 1024;

/// Bytes that a log takes at once of the memory for all logs.
const UNIT_BYTES: usize = 64 * 1024;

/// Units for the logs of all callers together, who share them fairly: 64 MiB.
const UNITS: u64 = 1_024;

/// The size of an event beside its data.
const EVENT_BYTES: usize = 64;

/// Maximum runs with kept events: of all callers, and of one.
const MAX_LOGS: usize = 1_000;
const MAX_LOGS_OF_CALLER: usize = 500;

/// How long the events of a run are kept after its end.
const RUN_EVENTS_TTL: Duration = Duration::from_mins(10);

/// The name of the event that stands for events that are no longer kept; its data has their count as `missed`.
pub const GAP: &str = "gap";

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEvent {
    /// From 1, without gaps.
    pub id: u64,
    pub name: &'static str,
    /// JSON on one line.
    pub data: String,
}

/// The events of one run. Clones share them. Whoever appends closes the log at the end, also after a failure.
#[derive(Debug, Clone)]
pub struct EventLog {
    log: Arc<Mutex<Log>>,
    /// Notified of each change.
    grown: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Log {
    events: VecDeque<Arc<LoggedEvent>>,
    bytes: usize,
    /// Id of the last event so far.
    last: u64,
    closed: Option<Instant>,
    /// Its share of the memory for all logs; `None` for one outside of them.
    memory: Option<HeldBytes>,
}

/// The next step after an event.
enum Next {
    Event(Arc<LoggedEvent>),
    NotYet,
    Nothing,
}

impl Default for EventLog {
    fn default() -> Self {
        Self { log: Arc::default(), grown: watch::Sender::new(()) }
    }
}

impl EventLog {
    /// Adds an event, and returns its id. A closed log takes no more: its last id is returned then.
    #[expect(clippy::needless_pass_by_value, reason = "callers build it for this")]
    pub fn append(&self, name: &'static str, data: Value) -> u64 {
        let id = self.log.lock().append(name, data.to_string());
        self.grown.send_replace(());
        id
    }

    /// Ends the log and its followers.
    pub fn close(&self) {
        self.log.lock().closed.get_or_insert_with(Instant::now);
        self.grown.send_replace(());
    }

    pub fn is_closed(&self) -> bool {
        self.log.lock().closed.is_some()
    }

    /// Id of the last event so far; 0 before the first.
    pub fn last_id(&self) -> u64 {
        self.log.lock().last
    }

    /// The events after the one with that id, or all, also those still to come; ends when the log is closed. Where events
    /// are no longer kept, a [`GAP`] stands for them.
    pub fn follow(&self, after: Option<u64>) -> impl Stream<Item = Arc<LoggedEvent>> + Send + use<> {
        let after = after.unwrap_or_default().min(self.last_id());
        let begin = (Arc::clone(&self.log), self.grown.subscribe(), after);
        stream::unfold(begin, async |(log, mut grown, last)| {
            loop {
                grown.mark_unchanged();
                let next = log.lock().after(last);
                match next {
                    Next::Event(event) => {
                        let last = event.id;
                        return Some((event, (log, grown, last)));
                    }
                    Next::NotYet => grown.changed().await.ok()?,
                    Next::Nothing => return None,
                }
            }
        })
    }

    fn is_expired(&self, now: Instant) -> bool {
        self.log.lock().closed.is_some_and(|closed| now.duration_since(closed) >= RUN_EVENTS_TTL)
    }
}

impl Log {
    fn append(&mut self, name: &'static str, data: String) -> u64 {
        if self.closed.is_some() {
            return self.last;
        }
        self.last += 1;
        self.bytes += data.len() + EVENT_BYTES;
        self.events.push_back(Arc::new(LoggedEvent { id: self.last, name, data }));
        // The newest stays, whatever its size: live followers are to get it.
        while (self.bytes > MAX_BYTES || !self.has_memory())
            && self.events.len() > 1
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.data.len() + EVENT_BYTES;
        }
        self.last
    }

    /// Whether the memory for all logs has room for the events. An event that is larger than the log is not counted in
    /// full.
    fn has_memory(&mut self) -> bool {
        let wanted = self.bytes.min(MAX_BYTES);
        self.memory.as_mut().is_none_or(|memory| memory.hold(wanted))
    }

    fn after(&self, id: u64) -> Next {
        let oldest = self.events.front().map_or(self.last + 1, |event| event.id);
        if id + 1 < oldest {
            let data = json!({"missed": oldest - id - 1}).to_string();
            return Next::Event(Arc::new(LoggedEvent { id: oldest - 1, name: GAP, data }));
        }
        let index = usize::try_from(id + 1 - oldest).unwrap_or(usize::MAX);
        match self.events.get(index) {
            Some(event) => Next::Event(Arc::clone(event)),
            None if self.closed.is_some() => Next::Nothing,
            None => Next::NotYet,
        }
    }
}

/// The logs of runs by their ids: of runs that are on, and of runs that ended in the last ten minutes.
#[derive(Debug)]
pub struct EventLogs {
    logs: PerOwner<Arc<str>, (Arc<str>, EventLog)>,
    memory: Arc<Share>,
}

impl Default for EventLogs {
    fn default() -> Self {
        Self { logs: PerOwner::new(MAX_LOGS, MAX_LOGS_OF_CALLER), memory: Share::new(UNITS) }
    }
}

impl EventLogs {
    /// A new log for a run. `key` is what [`find`](Self::find) must know: the key of the caller whose run it is. If there are
    /// too many, the log of a run that has ended goes.
    /// Errors: `overloaded`: all are of runs that are on.
    pub fn open(&self, owner: &Owner, key: &Arc<str>, run: &Arc<str>) -> Result<EventLog, CallError> {
        self.remove_expired();
        self.leave_half(owner);
        let log = EventLog::default();
        log.log.lock().memory = Some(HeldBytes::new(&self.memory, owner, UNIT_BYTES));
        let entry = (Arc::clone(key), log.clone());
        let gone = self.logs.insert(owner, Arc::clone(run), entry, |_, (_, log)| log.is_closed());
        gone.map_err(|_| CallError::new(ErrorCode::Overloaded, "too many runs are on at once; try again later"))?;
        Ok(log)
    }

    /// A new log for a run that goes on: its ids follow `last`, the id of the last event before.
    /// Errors: as [`open`](Self::open).
    pub fn open_after(&self, owner: &Owner, key: &Arc<str>, run: &Arc<str>, last: u64) -> Result<EventLog, CallError> {
        let log = self.open(owner, key, run)?;
        log.log.lock().last = last;
        Ok(log)
    }

    /// The log of a run of the caller with that key.
    pub fn find(&self, key: &str, run: &str) -> Option<EventLog> {
        self.remove_expired();
        self.logs.with(&run.into(), |(owner, log)| (**owner == *key).then(|| log.clone())).flatten()
    }

    /// Removes logs of runs of a caller that have ended, the least recently read first, while the logs of all callers
    /// take more than half of the memory: the rest is for runs that are on.
    fn leave_half(&self, owner: &Owner) {
        while self.memory.used() > self.memory.capacity() / 2
            && self.logs.remove_oldest_that(owner, |_, (_, log)| log.is_closed()).is_some()
        {}
    }

    /// Removes logs of runs that ended ten minutes ago; run every minute.
    pub(super) fn remove_expired(&self) {
        let now = Instant::now();
        self.logs.take_if(|(_, log)| log.is_expired(now));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    async fn all(log: &EventLog, after: Option<u64>) -> Vec<(u64, String)> {
        log.follow(after).map(|event| (event.id, format!("{} {}", event.name, event.data))).collect().await
    }

    #[tokio::test]
    async fn a_follower_gets_what_is_kept_after_an_id_and_then_what_comes() {
        let log = EventLog::default();
        assert_eq!((log.append("a", json!(1)), log.append("b", json!({"x": 2})), log.last_id()), (1, 2, 2));
        let follower = tokio::spawn({
            let log = log.clone();
            async move { all(&log, Some(1)).await }
        });
        tokio::task::yield_now().await;
        log.append("c", json!(3));
        tokio::task::yield_now().await;
        log.close();
        let expected = [(2, "b {\"x\":2}".to_owned()), (3, "c 3".to_owned())];
        assert_eq!(follower.await.unwrap(), expected);
        assert_eq!(all(&log, Some(1)).await, expected, "also after its end");
        assert_eq!(all(&log, None).await.len(), 3);
        assert_eq!(all(&log, Some(99)).await, []);
        assert_eq!((log.append("d", json!(4)), log.last_id()), (3, 3), "a closed log takes no more");
    }

    #[tokio::test]
    async fn the_oldest_events_go_and_a_gap_stands_for_them() {
        let log = EventLog::default();
        let text = "x".repeat(300 * 1024);
        for _ in 0..5 {
            log.append("a", json!(text));
        }
        log.close();
        assert!(log.log.lock().bytes <= MAX_BYTES);
        let events: Vec<_> = all(&log, Some(1)).await.into_iter().map(|(id, text)| (id, text.len() > 100)).collect();
        assert_eq!(events, [(2, false), (3, true), (4, true), (5, true)]);
        assert_eq!(all(&log, Some(1)).await[0].1, "gap {\"missed\":1}");
        assert_eq!(all(&log, Some(2)).await.len(), 3);
    }

    #[tokio::test]
    async fn an_event_larger_than_the_log_is_still_sent() {
        let log = EventLog::default();
        log.append("a", json!(1));
        log.append("b", json!("x".repeat(2 * MAX_BYTES)));
        log.close();
        assert_eq!(all(&log, Some(1)).await.len(), 1);
    }

    #[tokio::test]
    async fn followers_end_with_the_last_handle_of_a_log() {
        let log = EventLog::default();
        let follower = log.follow(None);
        drop(log);
        assert_eq!(follower.count().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_is_found_by_its_owner_until_ten_minutes_after_its_end() {
        let logs = EventLogs::default();
        let owner = Owner { tenant: "t".into(), caller: "ann".into() };
        let log = logs.open(&owner, &"ann".into(), &"run".into()).unwrap();
        tokio::time::advance(RUN_EVENTS_TTL * 2).await;
        assert!(logs.find("ann", "run").is_some(), "it is on");
        log.close();
        tokio::time::advance(RUN_EVENTS_TTL - Duration::from_secs(1)).await;
        assert!(logs.find("ann", "run").is_some() && logs.find("bob", "run").is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(logs.find("ann", "run").is_none() && logs.logs.is_empty());
    }

    #[tokio::test]
    async fn the_log_of_a_run_that_goes_on_continues_its_ids() {
        let logs = EventLogs::default();
        let owner = Owner { tenant: "t".into(), caller: "ann".into() };
        let log = logs.open_after(&owner, &"ann".into(), &"run".into(), 7).unwrap();
        assert_eq!(log.append("a", json!(1)), 8);
        log.close();
        assert_eq!(all(&log, Some(7)).await, [(8, "a 1".to_owned())]);
        assert_eq!(all(&log, Some(5)).await[0], (7, "gap {\"missed\":2}".to_owned()));
    }

    #[tokio::test]
    async fn the_memory_of_all_logs_is_bounded_and_shared_by_callers() {
        let logs = EventLogs::default();
        let of = |caller: &str| Owner { tenant: caller.into(), caller: caller.into() };
        let open = |caller: &str, run: usize| {
            let log = logs.open(&of(caller), &caller.into(), &format!("{caller} {run}").into()).unwrap();
            (0..16).for_each(|_| _ = log.append("a", json!("x".repeat(60 * 1024))));
            log
        };
        let bytes = |logs: &[EventLog]| logs.iter().map(|log| log.log.lock().bytes).sum::<usize>();
        let live: Vec<_> = (0..80).map(|run| open("ann", run)).collect();
        let max = usize::try_from(UNITS).unwrap() * UNIT_BYTES;
        assert!(bytes(&live) <= max + 80 * UNIT_BYTES, "each keeps its newest event");
        assert_eq!(live[0].log.lock().events.len(), 16, "the contract of a run");
        live.iter().for_each(EventLog::close);
        drop(live);
        // Logs of ended runs make space for a run of their caller.
        let next = open("ann", 80);
        assert_eq!(next.log.lock().events.len(), 16);
        assert!(logs.memory.used() <= UNITS / 2 + 16 && logs.find("ann", "ann 0").is_none());
        // Another caller has a part of its own.
        let others: Vec<_> = (0..40).map(|run| open("ann", 100 + run)).collect();
        assert_eq!(open("bob", 0).log.lock().events.len(), 16, "beside {} of another caller", others.len());
    }

    #[tokio::test]
    async fn logs_of_ended_runs_make_space_and_those_of_others_do_not() {
        let logs = EventLogs::default();
        let owner = Owner { tenant: "t".into(), caller: "ann".into() };
        let open = |run: usize| logs.open(&owner, &"ann".into(), &run.to_string().into());
        let first: Vec<_> = (0..MAX_LOGS_OF_CALLER).map(|run| open(run).unwrap()).collect();
        assert_eq!(open(1_000).unwrap_err().code(), ErrorCode::Overloaded);
        first[3].close();
        open(1_001).unwrap();
        assert!(logs.find("ann", "3").is_none() && logs.find("ann", "2").is_some());
    }
}
