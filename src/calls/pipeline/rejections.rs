//! Records requests with wrong or no credentials: in the log and the audit trail. A client that repeats them must not
//! fill the disk: for one address, [`MAX_LINES`] requests in [`WINDOW`] have lines of their own, and further ones have
//! one line when the window ends.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::refusals::WINDOW;
use sekisho_audit::{Audit, AuditEvent, AuditSlot, EventKind};
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::{ClientRequest, TraceParent};
use sekisho_core::error::CallError;

/// Lines of one address in one window.
const MAX_LINES: usize = 10;

/// Maximum addresses at once; further ones are counted together.
const MAX_ADDRESSES: usize = 1_000;

/// The rejected requests of the last moments.
#[derive(Debug)]
pub(super) struct Rejections {
    windows: Mutex<Windows>,
}

#[derive(Debug)]
struct Windows {
    by_address: BoundedMap<IpAddr, Window>,
    /// The window of requests without an address, and of the further addresses.
    others: Option<Window>,
}

#[derive(Debug)]
struct Window {
    ends: Instant,
    lines: usize,
    /// The further ones, as one.
    repeated: Option<AuditEvent>,
}

impl Default for Rejections {
    fn default() -> Self {
        let windows = Windows { by_address: BoundedMap::new(MAX_ADDRESSES), others: None };
        Self { windows: Mutex::new(windows) }
    }
}

impl Rejections {
    pub(super) fn count(
        &self,
        audit: &Audit,
        error: &CallError,
        request: Option<&Arc<ClientRequest>>,
        trace: Option<&TraceParent>,
    ) {
        let address = request.and_then(|request| request.address);
        let event = || AuditEvent {
            success: false,
            detail: Some(error.message().to_owned()),
            ..AuditEvent::new(EventKind::Unauthenticated).of_request(request, trace)
        };
        let mut windows = self.windows.lock();
        let Windows { by_address, others } = &mut *windows;
        let starting = || Window { ends: Instant::now() + WINDOW, lines: 0, repeated: None };
        let window = match address.and_then(|address| by_address.get_or_try_insert_with(address, starting)) {
            Some(window) => window,
            None => others.get_or_insert_with(starting),
        };
        let slot = if window.lines < MAX_LINES { audit.reserve().ok() } else { None };
        match (slot, &mut window.repeated) {
            (Some(slot), _) => {
                window.lines += 1;
                drop(windows);
                write(slot, event());
            }
            (None, Some(repeated)) => repeated.count += 1,
            (None, repeated) => *repeated = Some(event()),
        }
    }

    /// Writes the lines of the windows that have ended, or of all. A line that the trail cannot take waits.
    pub(super) fn write(&self, audit: &Audit, all: bool) {
        let now = Instant::now();
        let mut ended = Vec::new();
        let mut goes_on = |window: &mut Window| {
            if !all && window.ends > now {
                return true;
            }
            if window.repeated.is_some() {
                let Ok(slot) = audit.reserve() else { return true };
                ended.extend(window.repeated.take().map(|event| (slot, event)));
            }
            false
        };
        let mut windows = self.windows.lock();
        windows.by_address.retain(|_, window| goes_on(window));
        windows.others.take_if(|window| !goes_on(window));
        drop(windows);
        ended.into_iter().for_each(|(slot, event)| write(slot, event));
    }
}

fn write(slot: AuditSlot, event: AuditEvent) {
    let request = event.request.as_deref();
    tracing::info!(
        client = request.and_then(|request| request.address).map(tracing::field::display),
        request_id = request.map(|request| &*request.id),
        count = event.count,
        reason = event.detail,
        "a request without valid credentials was refused"
    );
    // The refused client has its answer already.
    let _ = slot.write_event(event);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;
    use sekisho_config::AuditConfig;
    use sekisho_core::error::ErrorCode;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_address_has_few_lines_and_hides_no_other_address() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        let audit = Audit::open(file.clone(), &AuditConfig::default(), Arc::default()).unwrap();
        let rejections = Rejections::default();
        let error = CallError::new(ErrorCode::Unauthenticated, "unknown API key");
        let request = |address: [u8; 4], id: usize| {
            Arc::new(ClientRequest { address: Some(address.into()), id: id.to_string().into() })
        };
        for n in 0..1_000 {
            rejections.count(&audit, &error, Some(&request([192, 0, 2, 1], n)), None);
        }
        rejections.count(&audit, &error, Some(&request([192, 0, 2, 2], 0)), None);
        rejections.write(&audit, false);
        tokio::time::advance(WINDOW).await;
        rejections.write(&audit, false);
        audit.close().await;
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |address: &str| lines.iter().filter(|line| line["client"] == address).collect::<Vec<_>>();
        assert_eq!((of("192.0.2.1").len(), of("192.0.2.2").len()), (11, 1));
        assert_eq!(of("192.0.2.1")[10]["count"], 990);
        assert_eq!(of("192.0.2.1")[10]["request_id"], "10", "the first of them");
        assert_eq!((&lines[0]["event"], &lines[0]["success"]), (&"unauthenticated".into(), &false.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_are_counted_together() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path().join("audit.jsonl"), &AuditConfig::default(), Arc::default()).unwrap();
        let (rejections, error) =
            (Rejections::default(), CallError::new(ErrorCode::Unauthenticated, "unknown API key"));
        for number in 0..u16::try_from(2 * MAX_ADDRESSES).unwrap() {
            let [high, low] = number.to_be_bytes();
            let request = ClientRequest { address: Some([10, 0, high, low].into()), id: "r".into() };
            rejections.count(&audit, &error, Some(&Arc::new(request)), None);
        }
        {
            let windows = rejections.windows.lock();
            let of_others = windows.others.as_ref().map(|window| (window.lines, window.repeated.is_some()));
            assert_eq!((windows.by_address.len(), of_others), (MAX_ADDRESSES, Some((MAX_LINES, true))));
        }
        tokio::time::advance(WINDOW).await;
        rejections.write(&audit, false);
        let windows = rejections.windows.lock();
        assert!(windows.by_address.len() == 0 && windows.others.is_none());
    }
}
