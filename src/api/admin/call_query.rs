//! The query of calls: which, in which order, in which form. Routes and the console's page have the same.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rust_decimal::Decimal;
use serde::Deserialize;
use utoipa::IntoParams;

use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::MAX_TEXT;
use sekisho_store::{CallOrder, IndexFilter};

/// Empty texts are as none: a form sends them.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct CallQuery {
    /// A name, or the beginning of names with `*` at its end.
    pub tool: Option<String>,
    /// A server or collection: the part of names before two underscores.
    pub server: Option<String>,
    /// The id of a caller.
    pub caller: Option<String>,
    pub tenant: Option<String>,
    /// The id of a managed key.
    pub key: Option<String>,
    /// A session, or the conversation of an agent.
    pub session: Option<String>,
    /// `success`, `error`, `refused` or `cancelled`.
    pub status: Option<String>,
    /// An error code, such as `denied`.
    pub code: Option<String>,
    /// The stage that refused the call or failed.
    pub stage: Option<String>,
    /// `rest`, `mcp`, `agent` or `sandbox`.
    pub via: Option<String>,
    /// The upstream that was called.
    pub upstream: Option<String>,
    /// The status of the upstream's answer, of calls that failed by it.
    pub http_status: Option<String>,
    /// `true` or `false`.
    pub dry_run: Option<String>,
    pub call_id: Option<String>,
    /// The run of an agent or program that made it.
    pub run: Option<String>,
    /// SHA-256 of the program that made it.
    pub program: Option<String>,
    /// The approval by which it was made, or that it needs.
    pub approval: Option<String>,
    pub request_id: Option<String>,
    /// The id that an agent's run has for it.
    pub agent_call_id: Option<String>,
    /// The id of the call whose tool made it.
    pub parent: Option<String>,
    pub min_seconds: Option<String>,
    /// USD.
    pub min_cost: Option<String>,
    /// The first moment, as RFC 3339, or so long ago: `15m`, `24h`, `7d`.
    pub since: Option<String>,
    /// The moment after the last one, in the same forms.
    pub until: Option<String>,
    /// One of its ids, or a part of the text that says why it was refused, or of the tool's name.
    pub q: Option<String>,
    /// `time` (the latest first), or `duration` or `cost` (the largest first, of the latest fifty thousand).
    pub sort: Option<String>,
}

impl CallQuery {
    /// The calls that are wanted.
    /// Errors: `invalid_request`: a number or a time cannot be read.
    pub fn filter(&self) -> Result<IndexFilter, CallError> {
        let now = Timestamp::now();
        let listed = |id: &Option<String>| set(id).into_iter().collect();
        Ok(IndexFilter {
            tenant: set(&self.tenant),
            owner: None,
            caller: set(&self.caller),
            tool: set(&self.tool),
            server: set(&self.server),
            key: set(&self.key),
            session: set(&self.session),
            status: set(&self.status),
            code: set(&self.code),
            stage: set(&self.stage),
            via: set(&self.via),
            upstream: set(&self.upstream),
            http_status: read("http_status", &self.http_status, |text| text.parse().ok(), "a number such as 503")?,
            dry_run: read("dry_run", &self.dry_run, |text| text.parse().ok(), "true or false")?,
            call_id: set(&self.call_id).map(|id| id.to_ascii_lowercase()),
            request_id: set(&self.request_id),
            run: set(&self.run),
            program: set(&self.program),
            approval: set(&self.approval),
            agent_calls: listed(&self.agent_call_id),
            parents: listed(&self.parent),
            min_duration: read("min_seconds", &self.min_seconds, seconds, "a number such as 0.5")?,
            min_cost: read("min_cost", &self.min_cost, |text| text.parse::<Decimal>().ok(), "an amount such as 0.01")?,
            since: moment("since", &self.since, now)?,
            until: moment("until", &self.until, now)?,
            text: read("q", &self.q, |text| (text.len() <= MAX_TEXT).then(|| text.to_owned()), "at most 256 bytes")?,
        })
    }

    /// Errors: `invalid_request`: there is no such order.
    pub fn order(&self) -> Result<CallOrder, CallError> {
        let order = read("sort", &self.sort, |text| text.parse().ok(), "`time`, `duration` or `cost`")?;
        Ok(order.unwrap_or_default())
    }

    /// The fields that are set, for an address.
    pub fn fields(&self) -> Vec<(&'static str, &str)> {
        let fields = [
            ("tool", &self.tool),
            ("server", &self.server),
            ("caller", &self.caller),
            ("tenant", &self.tenant),
            ("key", &self.key),
            ("session", &self.session),
            ("status", &self.status),
            ("code", &self.code),
            ("stage", &self.stage),
            ("via", &self.via),
            ("upstream", &self.upstream),
            ("http_status", &self.http_status),
            ("dry_run", &self.dry_run),
            ("call_id", &self.call_id),
            ("request_id", &self.request_id),
            ("run", &self.run),
            ("program", &self.program),
            ("approval", &self.approval),
            ("agent_call_id", &self.agent_call_id),
            ("parent", &self.parent),
            ("min_seconds", &self.min_seconds),
            ("min_cost", &self.min_cost),
            ("since", &self.since),
            ("until", &self.until),
            ("q", &self.q),
            ("sort", &self.sort),
        ];
        fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref().filter(|text| !text.is_empty())?)))
            .collect()
    }
}

fn set(text: &Option<String>) -> Option<String> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn read<T>(
    name: &str,
    text: &Option<String>,
    parse: impl Fn(&str) -> Option<T>,
    form: &str,
) -> Result<Option<T>, CallError> {
    let Some(text) = set(text) else { return Ok(None) };
    let wrong = || CallError::new(ErrorCode::InvalidRequest, format!("`{name}` is {text:?}; write {form}"));
    parse(&text).map(Some).ok_or_else(wrong)
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// A moment as RFC 3339, as a field for date and time has it (in UTC), or as a time from now backwards.
pub(super) fn moment(name: &str, text: &Option<String>, now: Timestamp) -> Result<Option<Timestamp>, CallError> {
    let parse = |text: &str| {
        let written = text.parse::<Timestamp>();
        let written = written.or_else(|_| format!("{text}Z").parse()).or_else(|_| format!("{text}:00Z").parse());
        written.ok().or_else(|| ago(text, now))
    };
    read(name, text, parse, "a time such as 2026-01-31T12:00:00Z, or 15m, 24h or 7d for a time ago")
}

fn ago(text: &str, now: Timestamp) -> Option<Timestamp> {
    let unit = text.chars().next_back()?;
    let minutes = match unit {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        _ => return None,
    };
    let count: u32 = text.strip_suffix(unit)?.parse().ok()?;
    now.checked_sub(SignedDuration::from_mins(i64::from(count) * minutes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_moment_or_a_time_ago() {
        let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2026-01-30T12:00:00+02:00", Some("2026-01-30T10:00:00Z")),
            ("2026-01-30T12:00", Some("2026-01-30T12:00:00Z")),
            ("15m", Some("2026-01-31T11:45:00Z")),
            ("7d", Some("2026-01-24T12:00:00Z")),
            ("x", None),
            ("12w", None),
            ("99999999999999d", None),
            ("4294967295d", None),
            ("-9223372036854775808m", None),
        ] {
            let read = moment("since", &Some(text.to_owned()), now);
            assert_eq!(read.ok().flatten(), expected.map(|moment| moment.parse().unwrap()), "{text}");
        }
        assert_eq!(moment("since", &Some(" ".to_owned()), now).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let text = |text: &str| Some(text.to_owned());
        for (query, name) in [
            (CallQuery { http_status: text("many"), ..CallQuery::default() }, "http_status"),
            (CallQuery { min_seconds: text("-1"), ..CallQuery::default() }, "min_seconds"),
            (CallQuery { min_cost: text("a"), ..CallQuery::default() }, "min_cost"),
            (CallQuery { until: text("soon"), ..CallQuery::default() }, "until"),
            (CallQuery { q: Some("x".repeat(MAX_TEXT + 1)), ..CallQuery::default() }, "q"),
        ] {
            assert!(query.filter().unwrap_err().message().contains(name), "{name}");
        }
        assert!(CallQuery { sort: text("size"), ..CallQuery::default() }.order().is_err());
    }
}
