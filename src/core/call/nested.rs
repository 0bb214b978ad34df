//! Calls that a running tool makes.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::{Serialize, Serializer};

use super::CallId;
use crate::error::ErrorCode;

/// Maximum calls that are listed; further ones are only counted.
const MAX_LISTED: usize = 100;

/// Maximum bytes of a tool's name in the list.
const MAX_NAME: usize = 64;

/// The call whose tool makes a call.
#[derive(Debug)]
pub struct ParentCall {
    pub id: CallId,
    /// SHA-256 of the program that its tool runs; in a session, also of the programs before it.
    pub program: [u8; 32],
    /// How many calls all programs below one call from outside may still make together.
    pub calls_left: Arc<AtomicU32>,
}

/// The calls that a call's tool has made, for its receipt.
#[derive(Debug, Default)]
pub struct NestedCalls(Mutex<NestedCallList>);

/// The calls that a tool made: all of them are counted, and the first of them listed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NestedCallList {
    count: usize,
    /// The cost of all of them, and of the calls that their tools made.
    #[serde(serialize_with = "number")]
    cost_usd: Decimal,
    /// In the order in which they ended.
    calls: Vec<NestedCall>,
    /// Calls of an earlier part of the run, whose outcomes were given again.
    #[serde(skip_serializing_if = "is_zero")]
    replayed: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct NestedCall {
    pub call_id: CallId,
    pub tool: String,
    /// `None` for a success.
    pub code: Option<ErrorCode>,
    #[serde(serialize_with = "number")]
    pub cost_usd: Decimal,
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Duration,
    #[serde(skip_serializing_if = "NestedCallList::is_empty")]
    pub nested: NestedCallList,
}

impl ParentCall {
    /// Counts a call; false when no more may be made.
    pub fn take_call(&self) -> bool {
        self.calls_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl NestedCalls {
    pub fn add(&self, mut call: NestedCall) {
        call.tool.truncate(call.tool.floor_char_boundary(MAX_NAME));
        let mut list = self.0.lock();
        list.count += 1;
        list.cost_usd = list.cost_usd.saturating_add(call.cost_usd).saturating_add(call.nested.cost_usd);
        if list.calls.len() < MAX_LISTED {
            list.calls.push(call);
        }
    }

    /// Counts a call whose outcome was given again.
    pub fn add_replayed(&self) {
        self.0.lock().replayed += 1;
    }

    /// How many there are until now.
    pub fn count(&self) -> usize {
        self.0.lock().count
    }

    pub fn take(&self) -> NestedCallList {
        mem::take(&mut *self.0.lock())
    }
}

impl NestedCallList {
    /// The cost of all of them, and of the calls that their tools made.
    pub fn cost_usd(&self) -> Decimal {
        self.cost_usd
    }

    /// The number of all calls, also of calls that are not listed.
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.replayed == 0
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives the field by reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn number<S: Serializer>(amount: &Decimal, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(amount.to_f64().unwrap_or(f64::MAX))
}

fn milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_micros() as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(tool: &str, nested: NestedCallList) -> NestedCall {
        NestedCall {
            call_id: CallId::new(),
            tool: tool.to_owned(),
            code: (tool == "fail").then_some(ErrorCode::Denied),
            cost_usd: Decimal::new(1, 2),
            duration: Duration::from_micros(1_500),
            nested,
        }
    }

    #[test]
    fn the_first_calls_are_listed_and_all_are_counted_with_those_below_them() {
        let (outer, inner) = (NestedCalls::default(), NestedCalls::default());
        inner.add(call("inner", NestedCallList::default()));
        outer.add(call("fail", inner.take()));
        for _ in 0..MAX_LISTED {
            outer.add(call(&"é".repeat(60), NestedCallList::default()));
        }
        assert_eq!(outer.count(), 101);
        let list = serde_json::to_value(outer.take()).unwrap();
        assert_eq!((&list["count"], &list["cost_usd"]), (&json!(101), &json!(1.02)));
        let calls = list["calls"].as_array().unwrap();
        assert_eq!((calls.len(), &calls[0]["code"], &calls[0]["duration_ms"]), (100, &json!("denied"), &json!(1.5)));
        assert_eq!((&calls[0]["nested"]["calls"][0]["tool"], &calls[1]["nested"]), (&json!("inner"), &json!(null)));
        assert_eq!((&calls[1]["code"], calls[1]["tool"].as_str().unwrap().len()), (&json!(null), 64));
        assert!(outer.take().is_empty());
    }

    #[test]
    fn no_more_calls_are_made_than_all_programs_may_make_together() {
        let calls_left = Arc::new(AtomicU32::new(3));
        let parent =
            |program| ParentCall { id: CallId::new(), program: [program; 32], calls_left: Arc::clone(&calls_left) };
        let (one, other) = (parent(1), parent(2));
        assert_eq!([one.take_call(), other.take_call(), one.take_call(), other.take_call()], [true, true, true, false]);
        assert!(!one.take_call());
    }
}
