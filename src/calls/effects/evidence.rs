//! The evidence of a result about an effect: an entry of a list is the effect if it has all values of the call, and was made after the
//! call began or has the key that the client gave.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::{RULES, snake_case};
use sekisho_core::call::Arguments;

/// The clocks of gateway and upstream may differ by so much: an equal entry of that time may be the effect, or an earlier one.
const CLOCK_MARGIN: SignedDuration = SignedDuration::from_secs(60);

/// How deep lists are looked for.
const MAX_DEPTH: usize = 4;

/// The outcome of a call, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// This is its effect.
    Made(Value),
    /// A whole list lacks it.
    NotMade,
    Undecided,
}

/// The entries of a result.
#[derive(Debug, Default)]
struct Entries<'v> {
    entries: Vec<&'v Map<String, Value>>,
    has_list: bool,
    goes_on: bool,
}

/// The evidence of a reading tool's result about a call with these arguments, which began then. `shows_all`: the tool shows the
/// effects of the called tool only, and all of them.
pub fn found_in(result: &Value, arguments: &Arguments, began: Timestamp, shows_all: bool) -> Found {
    if let Some(text) = result.as_str() {
        let parsed = sekisho_core::json::parse(text.as_bytes());
        return parsed.map_or(Found::Undecided, |parsed| found_in_value(&parsed, arguments, began, shows_all));
    }
    found_in_value(result, arguments, began, shows_all)
}

fn found_in_value(result: &Value, arguments: &Arguments, began: Timestamp, shows_all: bool) -> Found {
    let mut entries = Entries::default();
    entries.add(result, MAX_DEPTH);
    let is_key = |(name, value): &(&String, &Value)| RULES.keys.contains(&snake_case(name)) && !texts(value).is_empty();
    let keys: Vec<_> = arguments.iter().filter(is_key).collect();
    let has_key = !keys.is_empty();
    let wanted = if has_key { keys } else { arguments.iter().collect() };
    let says_nothing = wanted.iter().all(|(_, value)| texts(value).is_empty());
    if says_nothing && !shows_all {
        return Found::Undecided;
    }
    let mut is_in_doubt = false;
    for entry in &entries.entries {
        let (is_equal, made) = (has_all(entry, &wanted), moment_of(entry, arguments));
        let is_old = made.is_some_and(|made| made.saturating_add(CLOCK_MARGIN).is_ok_and(|latest| latest < began));
        if is_equal && !is_old && (has_key || made.is_some_and(|made| made >= began)) {
            return Found::Made(Value::Object((*entry).clone()));
        }
        is_in_doubt |= match (has_key, is_old) {
            // An entry that does not show its key may have this one.
            (true, false) => !shows(entry, &wanted),
            (true, true) => is_equal,
            // An upstream may write a value in another way, or not at all.
            (false, false) => is_equal || has_one(entry, &wanted) || !shows(entry, &wanted),
            (false, true) => false,
        };
    }
    if shows_all && entries.has_list && !entries.goes_on && !is_in_doubt { Found::NotMade } else { Found::Undecided }
}

impl<'v> Entries<'v> {
    fn add(&mut self, value: &'v Value, depth: usize) {
        match value {
            Value::Array(list) => {
                self.has_list = true;
                for entry in list {
                    match entry {
                        Value::Object(entry) => self.entries.push(entry),
                        // A list of other things shows nothing.
                        _ => self.goes_on = true,
                    }
                }
            }
            Value::Object(members) => {
                let before = self.has_list;
                for (name, member) in members {
                    self.goes_on |= RULES.more.contains(&snake_case(name)) && says_more(member);
                    if depth > 0 && (member.is_object() || is_list_of_objects(member)) {
                        self.add(member, depth - 1);
                    }
                }
                if self.has_list == before {
                    self.entries.push(members);
                }
            }
            _ => {}
        }
    }
}

/// Also an empty one.
fn is_list_of_objects(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(Value::is_object))
}

fn says_more(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    }
}

/// Whether an entry has these values: each in the member of the argument's name, or anywhere where it has no such member.
fn has_all(entry: &Map<String, Value>, wanted: &[(&String, &Value)]) -> bool {
    let mut everywhere = HashSet::new();
    entry.values().for_each(|value| add_texts(value, &mut everywhere));
    wanted.iter().all(|(name, value)| match entry.get(*name) {
        Some(member) => texts(value).is_subset(&texts(member)),
        None => texts(value).is_subset(&everywhere),
    })
}

/// Whether an entry has a member of the name of one of these arguments.
fn shows(members: &Map<String, Value>, wanted: &[(&String, &Value)]) -> bool {
    let has_name = wanted.iter().any(|(name, _)| members.contains_key(*name));
    has_name || members.values().filter_map(Value::as_object).any(|inner| shows(inner, wanted))
}

/// Whether an entry has one of these values.
fn has_one(entry: &Map<String, Value>, wanted: &[(&String, &Value)]) -> bool {
    let mut everywhere = HashSet::new();
    entry.values().for_each(|value| add_texts(value, &mut everywhere));
    wanted.iter().any(|(_, value)| !texts(value).is_disjoint(&everywhere))
}

/// Texts, numbers and truth values anywhere in a value, as they are compared.
fn texts(value: &Value) -> HashSet<String> {
    let mut texts = HashSet::new();
    add_texts(value, &mut texts);
    texts
}

fn add_texts(value: &Value, texts: &mut HashSet<String>) {
    match value {
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) => {
            // A number without a fraction is written in two ways.
            let text = value.to_string();
            texts.insert(text.strip_suffix(".0").unwrap_or(&text).to_owned());
        }
        Value::String(text) if text.trim().is_empty() => {}
        Value::String(text) => {
            texts.insert(text.trim().to_owned());
        }
        Value::Array(list) => list.iter().for_each(|one| add_texts(one, texts)),
        Value::Object(members) => members.values().for_each(|one| add_texts(one, texts)),
    }
}

/// When an entry was made: the latest of its moments that are no argument of the call.
fn moment_of(entry: &Map<String, Value>, arguments: &Arguments) -> Option<Timestamp> {
    let is_moment = |name: &str| !arguments.contains_key(name) && RULES.moments.contains(&snake_case(name));
    let moments = entry.iter().filter(|(name, _)| is_moment(name));
    moments.filter_map(|(_, value)| moment(value)).max()
}

/// RFC 3339, or seconds or milliseconds since 1970. A moment of an unknown time zone says nothing.
fn moment(value: &Value) -> Option<Timestamp> {
    /// Milliseconds are more than that, until the year 5138 seconds are less.
    const MAX_SECONDS: f64 = 1e11;
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => {
            let number = number.as_f64().filter(|number| *number > 0.0)?;
            let seconds = if number < MAX_SECONDS { number } else { number / 1_000.0 };
            let since = SignedDuration::try_from_secs_f64(seconds).ok()?;
            Timestamp::UNIX_EPOCH.checked_add(since).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BEGAN: &str = "2026-03-04T10:00:00Z";

    fn found(result: &Value, arguments: &Value) -> Found {
        found_in(result, arguments.as_object().unwrap(), BEGAN.parse().unwrap(), true)
    }

    #[test]
    fn an_entry_with_all_values_that_was_made_since_is_the_effect() {
        let sent = json!({"to": ["bob@example.com"], "amount": 12, "note": ""});
        let entry = |at: &str| json!({"id": 7, "recipients": ["bob@example.com", "eve@example.com"], "amount": 12.0, "created_at": at});
        let (after, before) = (entry("2026-03-04T10:00:01Z"), entry("2026-03-04T09:58:00Z"));
        let made = Found::Made(after.clone());
        for result in [
            json!([before, after]),
            json!({"items": [after], "next": null}),
            json!({"data": {"page": [after], "has_more": true}}),
            json!(json!([after]).to_string()),
        ] {
            assert_eq!(found(&result, &sent), made, "{result}");
        }
        let milliseconds = json!([{"to": "bob@example.com", "amount": 12, "createdAt": 1_772_618_400_500_i64}]);
        assert!(matches!(found(&milliseconds, &sent), Found::Made(_)));
    }

    #[test]
    fn a_whole_list_without_it_says_that_it_was_not_made() {
        let sent = json!({"to": "bob", "amount": 12});
        let before = json!({"to": "bob", "amount": 12, "timestamp": "2026-03-04T09:58:00Z"});
        let other = json!({"to": "eve", "amount": 13});
        for result in [json!([]), json!({"items": []}), json!([other]), json!([before])] {
            assert_eq!(found(&result, &sent), Found::NotMade, "{result}");
            let in_part = found_in(&result, sent.as_object().unwrap(), BEGAN.parse().unwrap(), false);
            assert_eq!(in_part, Found::Undecided, "{result}");
        }
    }

    #[test]
    fn what_may_be_it_or_another_one_decides_nothing() {
        let sent = json!({"to": "bob", "amount": 12});
        for result in [
            json!([{"to": "bob", "amount": 12}]),
            json!([{"to": "BOB", "amount": 12}]),
            json!([{"to": "bob", "amount": 12, "timestamp": "2026-03-04T09:59:30Z"}]),
            json!([{"to": "bob", "amount": 12, "timestamp": "yesterday"}]),
            json!([{"id": 7, "timestamp": "2026-03-04T10:00:01Z"}]),
            json!({"items": [], "next_cursor": "x"}),
            json!({"items": [], "errors": [{"message": "one part is out of reach"}]}),
            json!({"to": "eve", "amount": 12}),
            json!(["bob"]),
            json!("no list"),
            json!(null),
        ] {
            assert_eq!(found(&result, &sent), Found::Undecided, "{result}");
        }
        let since = json!([{"timestamp": "2026-03-04T10:00:01Z"}]);
        assert!(matches!(found(&since, &json!({})), Found::Made(_)));
        let of_others = found_in(&since, &Arguments::new(), BEGAN.parse().unwrap(), false);
        assert_eq!(of_others, Found::Undecided, "nothing tells it from others");
    }

    #[test]
    fn a_moment_that_the_call_names_is_not_when_it_was_made() {
        let sent = json!({"created": "2027-01-01T00:00:00Z"});
        assert_eq!(found(&json!([sent]), &sent), Found::Undecided);
    }

    #[test]
    fn a_key_of_the_client_decides_alone() {
        let sent = json!({"clientRequestId": "r-1", "amount": 12});
        let entry = json!({"clientRequestId": "r-1", "amount": "12 EUR"});
        assert_eq!(found(&json!([entry]), &sent), Found::Made(entry.clone()));
        assert_eq!(found(&entry, &sent), Found::Made(entry));
        assert_eq!(found(&json!([{"clientRequestId": "r-2", "amount": 12}]), &sent), Found::NotMade);
        let earlier = json!([{"clientRequestId": "r-1", "created_at": "2026-03-04T09:58:00Z"}]);
        for undecided in [json!([{"amount": 13}]), earlier] {
            assert_eq!(found(&undecided, &sent), Found::Undecided, "{undecided}");
        }
    }

    #[test]
    fn the_id_of_another_thing_is_no_key() {
        let sent = json!({"client_id": 42, "amount": 12});
        let before = json!([{"client_id": 42, "amount": 5, "created_at": "2026-03-01T10:00:00Z"}]);
        assert_eq!(found(&before, &sent), Found::NotMade);
    }

    #[test]
    fn hostile_bytes_as_a_result() {
        let seeds: [&[u8]; 2] =
            [br#"{"items": [{"to": "bob", "timestamp": 1e300}], "next": ""}"#, br#""[{\"to\": \"bob\"}]""#];
        sekisho_core::fuzz::feed(&seeds, |bytes| {
            if let Ok(result) = sekisho_core::json::parse(bytes) {
                let _ = found(&result, &json!({"to": "bob"}));
            }
        });
    }
}
