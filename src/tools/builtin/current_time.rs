//! `current_time`: the time now, in any time zone.
//!
//! The IANA time zone database is embedded in the binary, so that results do not depend on the machine.

use std::sync::Arc;

use jiff::fmt::strtime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::read_arguments;
use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::{Attempt, Execution, Executor, ToolDefinition};
use sekisho_core::call::{Arguments, ToolOutput};
use sekisho_core::error::CallError;

pub(super) fn definition() -> ToolDefinition {
    definition_at(Timestamp::now)
}

fn definition_at(now: fn() -> Timestamp) -> ToolDefinition {
    ToolDefinition {
        metadata: Metadata {
            name: "current_time".into(),
            description: "Returns the current date, time and weekday in a time zone (UTC when none is named).".into(),
            category: "data".into(),
            rate_limit: 600,
            timeout_seconds: 5,
            idempotent: true,
            ..Metadata::default()
        },
        parameters: json!({
            "type": "object",
            "properties": {
                "timezone": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_ZONE_BYTES,
                    "description": "IANA time zone name, e.g. \"Europe/Berlin\" or \"Asia/Tokyo\". Default: \"UTC\"."
                },
                "format": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_FORMAT_BYTES,
                    "description": "Adds `formatted`, the time written this way (strftime), e.g. \"%d %B %Y, %H:%M\"."
                }
            },
            "additionalProperties": false
        })
        .into(),
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "iso8601": {"type": "string", "description": "RFC 3339 with the zone's offset."},
                "timezone": {"type": "string"},
                "unix_seconds": {"type": "integer"},
                "weekday": {"type": "string", "description": "In English, e.g. \"Monday\"."},
                "formatted": {"type": "string"}
            },
            "required": ["iso8601", "timezone", "unix_seconds", "weekday"],
            "additionalProperties": false
        })),
        executor: Arc::new(CurrentTime { zones: TimeZoneDatabase::bundled(), now }),
    }
}

/// The longest name in the database has 32 bytes.
const MAX_ZONE_BYTES: usize = 64;
const MAX_FORMAT_BYTES: usize = 256;

#[derive(Debug)]
struct CurrentTime {
    zones: TimeZoneDatabase,
    now: fn() -> Timestamp,
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow)]
    timezone: Option<&'a str>,
    #[serde(borrow)]
    format: Option<&'a str>,
}

impl Executor for CurrentTime {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move { self.answer(&read_arguments(arguments)?) })
    }
}

impl CurrentTime {
    fn answer(&self, input: &Input<'_>) -> Result<ToolOutput, CallError> {
        let zone = self.zone(input.timezone.unwrap_or("UTC"))?;
        let now = (self.now)().to_zoned(zone);
        let iso8601 = now.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
        let weekday = now.strftime("%A").to_string();
        let name = now.time_zone().iana_name().unwrap_or("UTC");
        let mut text = format!("{weekday}, {iso8601} ({name})");
        let mut value = Map::from_iter([
            ("iso8601".to_owned(), Value::from(iso8601)),
            ("timezone".to_owned(), Value::from(name)),
            ("unix_seconds".to_owned(), Value::from(now.timestamp().as_second())),
            ("weekday".to_owned(), Value::from(weekday)),
        ]);
        if let Some(format) = input.format {
            text = formatted(&now, format)?;
            value.insert("formatted".into(), Value::from(text.clone()));
        }
        Ok(ToolOutput { value: Value::Object(value), text: Some(text), ..ToolOutput::default() })
    }

    fn zone(&self, name: &str) -> Result<TimeZone, CallError> {
        self.zones.get(name).map_err(|_| {
            let near = self.nearest(name);
            let hint = match near.as_slice() {
                [] => "IANA names look like \"Europe/Berlin\"".to_owned(),
                near => format!("did you mean {}?", near.join(" or ")),
            };
            CallError::tool(format!("there is no time zone {name:?}; {hint}"))
        })
    }

    fn nearest(&self, name: &str) -> Vec<String> {
        let input = name.to_lowercase();
        let mut near: Vec<_> = self
            .zones
            .available()
            .map(|zone| {
                let zone = zone.as_str().to_owned();
                let lower = zone.to_lowercase();
                // "berlin" should find "Europe/Berlin".
                let city = lower.rsplit('/').next().unwrap_or(&lower);
                let likeness = strsim::jaro_winkler(&lower, &input).max(strsim::jaro_winkler(city, &input));
                (likeness, zone)
            })
            .filter(|(likeness, _)| *likeness >= LIKELY_MEANT)
            .collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        near.into_iter().take(3).map(|(_, zone)| zone).collect()
    }
}

/// Jaro–Winkler similarity from which a zone is suggested.
const LIKELY_MEANT: f64 = 0.85;

/// Padding widths (`%9999d`) are refused by their length: a format could otherwise produce any amount of text.
fn formatted(now: &Zoned, format: &str) -> Result<String, CallError> {
    let widths = format.split(|character: char| !character.is_ascii_digit());
    if widths.into_iter().any(|digits| digits.len() > 2) {
        return Err(CallError::tool("`format` has a width of more than two digits; leave it out"));
    }
    strtime::format(format, now).map_err(|error| CallError::tool(format!("`format` cannot be used: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::tests::{run, run_error};
    use sekisho_core::error::ErrorCode;

    /// 2024-02-29, 23:30:05 UTC: a leap day, and the next day east of it.
    fn tool() -> ToolDefinition {
        definition_at(|| Timestamp::constant(1_709_249_405, 0))
    }

    #[tokio::test]
    async fn utc_is_the_default() {
        let output = run(&tool(), json!({})).await.unwrap();
        assert_eq!(
            output.value,
            json!({"iso8601": "2024-02-29T23:30:05+00:00", "timezone": "UTC", "unix_seconds": 1_709_249_405,
                   "weekday": "Thursday"})
        );
        assert_eq!(output.text.as_deref(), Some("Thursday, 2024-02-29T23:30:05+00:00 (UTC)"));
    }

    #[tokio::test]
    async fn a_zone_changes_the_day_and_the_offset() {
        for (zone, iso8601, weekday) in [
            ("Asia/Tokyo", "2024-03-01T08:30:05+09:00", "Friday"),
            ("asia/tokyo", "2024-03-01T08:30:05+09:00", "Friday"),
            ("America/New_York", "2024-02-29T18:30:05-05:00", "Thursday"),
            ("Asia/Kathmandu", "2024-03-01T05:15:05+05:45", "Friday"),
        ] {
            let output = run(&tool(), json!({"timezone": zone})).await.unwrap();
            assert_eq!((&output.value["iso8601"], &output.value["weekday"]), (&json!(iso8601), &json!(weekday)));
        }
    }

    #[tokio::test]
    async fn a_format_is_written_out() {
        let output = run(&tool(), json!({"format": "%d %B %Y, %H:%M"})).await.unwrap();
        assert_eq!(output.value["formatted"], "29 February 2024, 23:30");
    }

    #[tokio::test]
    async fn formats_that_cannot_be_used_are_explained() {
        for format in ["%", "%!", "%99999999d", "%999999999999999999999Y"] {
            let error = run_error(&tool(), json!({"format": format})).await;
            assert_eq!(error.code(), ErrorCode::ToolError, "{format}");
            assert!(error.message().contains("`format`"), "{format}: {}", error.message());
        }
    }

    #[tokio::test]
    async fn an_unknown_zone_is_answered_with_those_nearest() {
        for (input, meant) in [("Berlin", "Europe/Berlin"), ("Europe/Berlim", "Europe/Berlin"), ("tokio", "Asia/Tokyo")]
        {
            let error = run_error(&tool(), json!({"timezone": input})).await;
            assert_eq!(error.code(), ErrorCode::ToolError);
            assert!(error.message().contains(meant), "{}", error.message());
        }
        for odd in ["../../etc/passwd", "/etc/localtime", "\0", "::", "Nowhere/At_All"] {
            assert_eq!(run_error(&tool(), json!({"timezone": odd})).await.code(), ErrorCode::ToolError);
        }
    }

    #[tokio::test]
    async fn the_clock_runs() {
        let output = run(&definition(), json!({})).await.unwrap();
        assert!(output.value["unix_seconds"].as_i64().unwrap() > 1_700_000_000);
    }
}
