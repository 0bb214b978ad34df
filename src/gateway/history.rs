//! Calls of the audit trail, as far as a caller may see them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{CallIndex, Configuration, Reach};
use sekisho_audit::{HistoryFilter, HistoryPage, NoReceipt, PastCall, newest, receipt_of_line};
use sekisho_calls::pipeline::Pipeline;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::share::Share;

/// Maximum duration of one search.
const WITHIN: Duration = Duration::from_millis(1_500);

/// Times from the arrival of a call, which its id has, to its line: the time of most calls, and the longest.
const CALL_DURATIONS: [SignedDuration; 2] = [SignedDuration::from_secs(10), SignedDuration::from_hours(2)];

/// How long a receipt is awaited: the line is written within 50 ms after its call, and signed a second later.
const SIGNATURE_TIMEOUT: Duration = Duration::from_secs(3);
const LINE_DELAY: Duration = Duration::from_millis(150);

/// Readings of the trail for receipts at once, each of which takes a processor for as long as a search or a segment does; and those
/// that wait, and for how long.
const MAX_READINGS: u64 = 1;
const MAX_WAITING_READINGS: usize = 64;
const READING_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls, as far as a caller may see them: calls of the index, calls of the audit trail, the decisions of the policies
/// about them, and their decision about a further call.
#[derive(Debug)]
pub struct History {
    pub(super) configuration: Arc<Configuration>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) index: Arc<CallIndex>,
    /// Any caller may ask for a receipt.
    readings: Arc<Share>,
}

impl History {
    pub(super) fn new(configuration: &Arc<Configuration>, pipeline: &Arc<Pipeline>, index: &Arc<CallIndex>) -> Self {
        let (configuration, pipeline, index) = (Arc::clone(configuration), Arc::clone(pipeline), Arc::clone(index));
        Self { configuration, pipeline, index, readings: Share::new(MAX_READINGS) }
    }

    /// The wanted calls of the audit trail that the caller may see, the newest first.
    /// Errors: `denied` without a role of the console; internal: the trail cannot be read.
    pub async fn search(&self, caller: &Caller, filter: HistoryFilter, limit: usize) -> Result<HistoryPage, CallError> {
        let tenant = match self.configuration.reach(caller) {
            Reach::AllTenants => None,
            Reach::Tenant => Some(caller.tenant.to_string()),
            Reach::Own => {
                let message = "to search older calls requires a role of the console (`console.roles`)";
                return Err(CallError::new(ErrorCode::Denied, message));
            }
        };
        let filter = around_call(HistoryFilter { tenant, ..filter });
        let file = self.configuration.started_with().audit_file();
        let searched = tokio::task::spawn_blocking(move || newest(&file, &filter, limit, WITHIN)).await;
        searched.map_err(CallError::internal)?.map_err(CallError::internal)
    }

    /// A call of the trail.
    /// Errors: `not_found`: there is none, or none that the caller may see; and the errors of [`search`](Self::search).
    pub async fn past_call(&self, caller: &Caller, id: &str) -> Result<PastCall, CallError> {
        let search = |filter| self.search(caller, filter, 1);
        one_call(id, &HistoryFilter::default(), search).await
    }

    /// The receipt of a call: its line of the trail, with the proof that a signed checkpoint includes it. For a call of the caller,
    /// and for the calls that it may see with a role of the console.
    /// Errors: `not_found`: there is no such call, or none that the caller may see; `overloaded`: the trail is not
    /// signed, or too many wait; internal: it cannot be read, or was changed.
    pub async fn receipt(&self, caller: &Caller, id: &str) -> Result<String, CallError> {
        let began = Instant::now();
        let tenant = || Some(caller.tenant.to_string());
        let visible = match self.configuration.reach(caller) {
            Reach::AllTenants => HistoryFilter::default(),
            Reach::Tenant => HistoryFilter { tenant: tenant(), ..HistoryFilter::default() },
            Reach::Own => {
                HistoryFilter { tenant: tenant(), caller: Some(caller.id.to_string()), ..HistoryFilter::default() }
            }
        };
        let search = |filter: HistoryFilter| async move {
            let filter = around_call(filter);
            let searched = self.read_trail(caller, move |file| newest(file, &filter, 1, WITHIN)).await?;
            searched.map_err(CallError::internal)
        };
        let mut found = one_call(id, &visible, search).await;
        if found.as_ref().is_err_and(|error| error.code() == ErrorCode::NotFound) {
            // Its line may not be written yet.
            sleep(LINE_DELAY).await;
            found = one_call(id, &visible, search).await;
        }
        let line = found?.seq;
        loop {
            match self.read_trail(caller, move |file| receipt_of_line(file, line)).await? {
                Ok(receipt) => return Ok(receipt),
                Err(NoReceipt::NotSigned) if began.elapsed() < SIGNATURE_TIMEOUT => {
                    sleep(Duration::from_millis(200)).await;
                }
                Err(NoReceipt::NotSigned) => return Err(not_signed()),
                Err(problem) => return Err(CallError::internal(problem)),
            }
        }
    }

    /// Reads the trail once it is the caller's turn.
    async fn read_trail<T: Send + 'static>(
        &self,
        caller: &Caller,
        read: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let deadline = Instant::now() + READING_TIMEOUT;
        let turn = self.readings.acquire(&caller.owner, 1, MAX_WAITING_READINGS, deadline).await;
        let turn = turn.map_err(|_| {
            CallError::new(ErrorCode::Overloaded, "too many receipts are asked for at once")
                .retry_after(READING_TIMEOUT)
        })?;
        let file = self.configuration.started_with().audit_file();
        let reading = tokio::task::spawn_blocking(move || {
            // Kept until it ends, also when the caller has left.
            let _turn = turn;
            read(&file)
        });
        reading.await.map_err(CallError::internal)
    }
}

fn not_signed() -> CallError {
    let message =
        "the audit trail is not signed up to this call: ask again, and look for `audit_receipts` in `/readyz`";
    CallError::new(ErrorCode::Overloaded, message).retry_after(SIGNATURE_TIMEOUT)
}

/// The call with this id among those that fit, by a search of the trail.
async fn one_call<F: Future<Output = Result<HistoryPage, CallError>>>(
    id: &str,
    wanted: &HistoryFilter,
    search: impl Fn(HistoryFilter) -> F,
) -> Result<PastCall, CallError> {
    let unknown = || CallError::new(ErrorCode::NotFound, "there is no such call");
    let arrived = arrival(id).ok_or_else(unknown)?;
    for duration in CALL_DURATIONS {
        let filter =
            HistoryFilter { call_id: Some(id.to_owned()), until: arrived.checked_add(duration).ok(), ..wanted.clone() };
        let mut found = search(filter).await?;
        if let Some(call) = found.calls.pop() {
            return Ok(call);
        }
        if found.next.is_some() {
            let message = "too many calls ended after this one for a search: look for it by its tool and its time";
            return Err(CallError::new(ErrorCode::Timeout, message));
        }
    }
    Err(unknown())
}

/// The search for one call covers only the time in which it can have ended.
fn around_call(filter: HistoryFilter) -> HistoryFilter {
    let Some(arrived) = filter.call_id.as_deref().and_then(arrival) else { return filter };
    let ended_by = arrived.checked_add(CALL_DURATIONS[1]).ok();
    HistoryFilter { since: filter.since.or(Some(arrived)), until: filter.until.or(ended_by), ..filter }
}

/// When a call arrived, by its id (UUID version 7).
pub(super) fn arrival(id: &str) -> Option<jiff::Timestamp> {
    let (seconds, nanos) = id.parse::<Uuid>().ok()?.get_timestamp()?.to_unix();
    jiff::Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_call_says_when_it_arrived() {
        let id = sekisho_core::call::CallId::new().to_string();
        let age = jiff::Timestamp::now().duration_since(arrival(&id).unwrap());
        assert!((0..60).contains(&age.as_secs()), "{age}");
        assert_eq!(arrival("c-1"), None);
        assert_eq!(arrival("00000000-0000-4000-8000-000000000000"), None);
    }
}
