//! Finds lines of a trail, in all its segments.

use std::borrow::Cow;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;

use super::error::AuditError;
use super::lines::{Lines, Next};
use super::segments::closing_time;
use super::verify::files;

/// Which lines are wanted: those that fit each criterion that is set.
#[derive(Debug, Clone, Default)]
pub struct LineFilter {
    pub tool: Option<String>,
    pub caller: Option<String>,
    /// An error code, such as `denied`.
    pub code: Option<String>,
    pub call_id: Option<String>,
    pub request_id: Option<String>,
    /// The first moment.
    pub since: Option<Timestamp>,
    /// The moment after the last one.
    pub until: Option<Timestamp>,
}

/// The fields of a line that are searched and shown.
#[derive(Debug, Deserialize)]
pub struct FoundLine<'a> {
    /// RFC 3339, UTC.
    #[serde(borrow)]
    pub time: Cow<'a, str>,
    /// Of a line that is not about a call.
    pub event: Option<Cow<'a, str>>,
    pub success: Option<bool>,
    pub subject: Option<Cow<'a, str>>,
    pub tool: Option<Cow<'a, str>>,
    pub caller: Option<Cow<'a, str>>,
    pub status: Option<Cow<'a, str>>,
    pub code: Option<Cow<'a, str>>,
    pub call_id: Option<Cow<'a, str>>,
    pub last_call_id: Option<Cow<'a, str>>,
    pub request_id: Option<Cow<'a, str>>,
}

/// Calls `found` with the text and the fields of each line that is wanted, in the order of the trail, until it returns
/// `false`. The trail may be in use. Verifies nothing.
///
/// # Errors
/// There is no trail, it cannot be read, or it has a line that is none.
pub fn search(
    file: &Path,
    filter: &LineFilter,
    mut found: impl FnMut(&str, &FoundLine<'_>) -> bool,
) -> Result<(), AuditError> {
    for (path, opened) in files(file)? {
        if filter.since.is_some_and(|since| closing_time(file, &path).is_some_and(|closed| closed < since)) {
            continue;
        }
        let unusable = AuditError::unusable(&path);
        (&opened).seek(SeekFrom::Start(0)).map_err(&unusable)?;
        let mut lines = Lines::new(BufReader::new(opened));
        let mut number = 0;
        while let Next::Line(line) = lines.next().map_err(&unusable)? {
            number += 1;
            let malformed = || AuditError::in_segment(&path)(AuditError::Malformed { line: number });
            let text = std::str::from_utf8(line).map_err(|_| malformed())?;
            let fields: FoundLine<'_> = serde_json::from_str(text).map_err(|_| malformed())?;
            if filter.wants(&fields) && !found(text, &fields) {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl LineFilter {
    fn wants(&self, line: &FoundLine<'_>) -> bool {
        let fits = |wanted: &Option<String>, field: &Option<Cow<'_, str>>| {
            wanted.as_ref().is_none_or(|wanted| field.as_ref().is_some_and(|field| field == wanted))
        };
        let is_call =
            self.call_id.is_none() || fits(&self.call_id, &line.call_id) || fits(&self.call_id, &line.last_call_id);
        is_call
            && fits(&self.tool, &line.tool)
            && fits(&self.caller, &line.caller)
            && fits(&self.code, &line.code)
            && fits(&self.request_id, &line.request_id)
            && self.covers(&line.time)
    }

    fn covers(&self, time: &str) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        let Ok(time) = time.parse::<Timestamp>() else { return true };
        self.since.is_none_or(|since| time >= since) && self.until.is_none_or(|until| time < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"time":"2026-01-31T10:00:00.000000Z","tool":"t","caller":"ann","status":"refused","code":"denied","call_id":"c-1","last_call_id":"c-9","request_id":"r"}"#;
    const EVENT: &str =
        r#"{"time":"2026-01-31T11:00:00.000000Z","event":"unauthenticated","success":false,"caller":null}"#;

    fn filter(set: impl FnOnce(&mut LineFilter)) -> LineFilter {
        let mut filter = LineFilter::default();
        set(&mut filter);
        filter
    }

    #[test]
    fn a_line_must_fit_each_criterion() {
        let text = |text: &str| Some(text.to_owned());
        let time = |text: &str| Some(text.parse().unwrap());
        for (filter, call, event) in [
            (LineFilter::default(), true, true),
            (filter(|f| f.tool = text("t")), true, false),
            (filter(|f| f.tool = text("other")), false, false),
            (filter(|f| f.caller = text("ann")), true, false),
            (filter(|f| f.code = text("denied")), true, false),
            (filter(|f| (f.code, f.caller) = (text("denied"), text("bob"))), false, false),
            (filter(|f| f.call_id = text("c-1")), true, false),
            (filter(|f| f.call_id = text("c-9")), true, false),
            (filter(|f| f.request_id = text("r")), true, false),
            (filter(|f| f.since = time("2026-01-31T10:30:00Z")), false, true),
            (filter(|f| f.since = time("2026-01-31T10:00:00Z")), true, true),
            (filter(|f| f.until = time("2026-01-31T11:00:00Z")), true, false),
        ] {
            let wants = |line: &str| filter.wants(&serde_json::from_str(line).unwrap());
            assert_eq!((wants(CALL), wants(EVENT)), (call, event), "{filter:?}");
        }
    }
}
