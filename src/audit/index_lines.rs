//! Lines of the trail as entries of the index, from which that is rebuilt. A line has no times of stages, no reason and no owner:
//! an entry that is made of it lacks them, and is seen only with a role of the console.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use sekisho_core::record::{CallSummary, EventRecord};

/// A line, for the index.
#[derive(Debug)]
pub enum LineRecord {
    /// So many calls, which were refused alike; mostly one.
    Call {
        call: Box<CallSummary>,
        calls: u64,
    },
    Event(Box<EventRecord>),
}

/// The entry of a line; `None` for a line about the trail itself, or one that cannot be read.
pub fn record_of_line(text: &str) -> Option<LineRecord> {
    let Ok(Value::Object(mut line)) = serde_json::from_str(text) else { return None };
    line.retain(|_, value| !value.is_null());
    let time: Timestamp = line.get("time")?.as_str()?.parse().ok()?;
    let since_epoch = Duration::from_micros(time.as_microsecond().try_into().ok()?);
    match line.contains_key("call_id") {
        true => call_of(line, since_epoch),
        false => event_of(&line, SystemTime::UNIX_EPOCH + since_epoch).map(|event| LineRecord::Event(Box::new(event))),
    }
}

fn call_of(mut line: Map<String, Value>, since_epoch: Duration) -> Option<LineRecord> {
    let calls = line.get("calls").and_then(Value::as_u64).unwrap_or(1);
    let nanos = line.get("duration_us").and_then(Value::as_u64).unwrap_or_default().saturating_mul(1_000);
    let trace = line.remove("trace_id").and_then(|text| hex::decode(text.as_str()?).ok());
    for (own, stored) in [("call_id", "id"), ("arguments_sha256", "arguments_digest")] {
        let value = line.remove(own)?;
        line.insert(stored.to_owned(), value);
    }
    let owner = json!({"tenant": line.get("tenant")?, "caller": ""});
    let time = json!({"secs_since_epoch": since_epoch.as_secs(), "nanos_since_epoch": since_epoch.subsec_nanos()});
    let made = [
        ("owner", owner),
        ("time", time),
        ("duration", nanos.into()),
        ("trace_id", trace.map_or(Value::Null, Into::into)),
    ];
    line.extend(made.map(|(name, value)| (name.to_owned(), value)));
    let call = serde_json::from_value(Value::Object(line)).ok()?;
    Some(LineRecord::Call { call, calls })
}

fn event_of(line: &Map<String, Value>, time: SystemTime) -> Option<EventRecord> {
    let text = |name: &str| line.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(EventRecord {
        time,
        // The lines about the trail itself have none.
        success: line.get("success")?.as_bool()?,
        event: text("event")?,
        tenant: text("tenant"),
        caller: text("caller"),
        key: text("key"),
        subject: text("subject"),
        detail: text("detail"),
        client: text("client"),
        request_id: text("request_id"),
        count: line.get("count").and_then(Value::as_u64).unwrap_or(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::record::Status;

    #[test]
    fn a_line_is_an_entry_of_the_index() {
        let digest = "00".repeat(32);
        let call = format!(
            r#"{{"seq":7,"time":"2026-01-31T10:00:00.000001Z","call_id":"0198c0de-0000-7000-8000-000000000001","tenant":"acme","caller":"ann",
            "anonymous":false,"claimed_user":null,"via":"rest","client":"127.0.0.1","request_id":null,"depth":0,"dry_run":false,"session":null,
            "tool":"crm__list","status":"refused","code":"rate_limited","stage":"limits","arguments_sha256":"{digest}","policy_version":null,
            "cost_usd":"0.25","tokens":3,"attempts":1,"duration_us":1500,"trace_id":"{}","calls":9,"prev":"x"}}"#,
            "01".repeat(16)
        );
        let Some(LineRecord::Call { call, calls }) = record_of_line(&call) else { panic!("{call}") };
        assert_eq!(
            (&*call.tool, call.status, call.duration, calls),
            ("crm__list", Status::Refused, Duration::from_micros(1_500), 9)
        );
        assert_eq!((call.trace_id, call.cost_usd.to_string()), (Some([1; 16]), "0.25".to_owned()));
        let event = r#"{"seq":8,"time":"2026-01-31T10:00:01.000000Z","event":"key_created","success":true,"subject":"k1","caller":"ann"}"#;
        let Some(LineRecord::Event(event)) = record_of_line(event) else { panic!("{event}") };
        assert_eq!((&*event.event, event.count, event.tenant.as_deref()), ("key_created", 1, None));
        for mark in [r#"{"seq":9,"time":"2026-01-31T10:00:01.000000Z","event":"segment"}"#, "{}", "x"] {
            assert!(record_of_line(mark).is_none(), "{mark}");
        }
    }
}
