//! Finds lines of trails, in all their segments.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::vec;

use jiff::Timestamp;
use serde::Deserialize;

use super::error::AuditError;
use super::lines::{Lines, Next};
use super::segments::closing_time;
use super::verify::files;

/// The lines that fit each criterion that is set.
#[derive(Debug, Clone, Default)]
pub struct LineFilter {
    /// The event of a line that is not about a call, such as `unauthenticated`.
    pub event: Option<String>,
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
    /// The number of the line.
    pub seq: u64,
    /// RFC 3339, UTC.
    #[serde(borrow)]
    pub time: Cow<'a, str>,
    /// The event of a line that is not about a call.
    pub event: Option<Cow<'a, str>>,
    pub success: Option<bool>,
    pub subject: Option<Cow<'a, str>>,
    pub tool: Option<Cow<'a, str>>,
    pub tenant: Option<Cow<'a, str>>,
    pub caller: Option<Cow<'a, str>>,
    pub status: Option<Cow<'a, str>>,
    pub code: Option<Cow<'a, str>>,
    pub call_id: Option<Cow<'a, str>>,
    pub last_call_id: Option<Cow<'a, str>>,
    pub request_id: Option<Cow<'a, str>>,
}

/// Calls `found` with each line that is wanted, of all trails in the order of time, until it returns `false`. A trail may
/// be in use. Verifies nothing.
/// Errors: there is no trail, it cannot be read, or it has a line that is none.
pub fn search(trails: &[PathBuf], filter: &LineFilter, mut found: impl FnMut(&str) -> bool) -> Result<(), AuditError> {
    let mut searches = Vec::new();
    for trail in trails {
        let mut search = TrailSearch::new(trail, filter)?;
        search.advance()?;
        searches.push(search);
    }
    // RFC 3339 with the same number of digits: in the order of time.
    let earliest = |searches: &[TrailSearch<'_>]| {
        let times =
            searches.iter().enumerate().filter_map(|(at, search)| Some((search.found.as_ref()?.time.clone(), at)));
        times.min().map(|(_, at)| at)
    };
    while let Some(at) = earliest(&searches) {
        let search = &mut searches[at];
        let is_wanted = search.found.take().is_some_and(|line| found(&line.text));
        if !is_wanted {
            break;
        }
        search.advance()?;
    }
    Ok(())
}

/// Goes through the segments of one trail.
struct TrailSearch<'a> {
    filter: &'a LineFilter,
    segments: vec::IntoIter<(PathBuf, File)>,
    segment: Option<Segment>,
    /// The line that it has come to; `None` at the end.
    found: Option<Line>,
}

struct Segment {
    path: PathBuf,
    lines: Lines<BufReader<File>>,
    /// Lines read.
    number: u64,
}

struct Line {
    time: String,
    text: String,
}

impl<'a> TrailSearch<'a> {
    fn new(trail: &Path, filter: &'a LineFilter) -> Result<Self, AuditError> {
        let mut segments = files(trail)?;
        segments.retain(|(path, _)| {
            let closed = closing_time(trail, path);
            filter.since.is_none_or(|since| closed.is_none_or(|closed| closed >= since))
        });
        Ok(Self { filter, segments: segments.into_iter(), segment: None, found: None })
    }

    /// Goes to the next line that is wanted.
    fn advance(&mut self) -> Result<(), AuditError> {
        self.found = None;
        loop {
            let Some(segment) = &mut self.segment else {
                let Some((path, file)) = self.segments.next() else { return Ok(()) };
                (&file).seek(SeekFrom::Start(0)).map_err(AuditError::unusable(&path))?;
                self.segment = Some(Segment { path, lines: Lines::new(BufReader::new(file)), number: 0 });
                continue;
            };
            match segment.next(self.filter)? {
                Some(found) => {
                    self.found = Some(found);
                    return Ok(());
                }
                None => self.segment = None,
            }
        }
    }
}

impl Segment {
    fn next(&mut self, filter: &LineFilter) -> Result<Option<Line>, AuditError> {
        while let Next::Line(line) = self.lines.next().map_err(AuditError::unusable(&self.path))? {
            self.number += 1;
            let malformed = || AuditError::in_segment(&self.path)(AuditError::Malformed { line: self.number });
            let text = std::str::from_utf8(line).map_err(|_| malformed())?;
            let fields: FoundLine<'_> = serde_json::from_str(text).map_err(|_| malformed())?;
            if filter.wants(&fields) {
                return Ok(Some(Line { time: fields.time.into_owned(), text: text.to_owned() }));
            }
        }
        Ok(None)
    }
}

/// The code of requests without valid credentials, whose lines are events.
const UNAUTHENTICATED: &str = "unauthenticated";

/// Whether a line has this field, if one is wanted.
pub(super) fn fits(wanted: &Option<String>, field: &Option<Cow<'_, str>>) -> bool {
    wanted.as_ref().is_none_or(|wanted| field.as_ref().is_some_and(|field| field == wanted))
}

impl LineFilter {
    fn wants(&self, line: &FoundLine<'_>) -> bool {
        let is_call =
            self.call_id.is_none() || fits(&self.call_id, &line.call_id) || fits(&self.call_id, &line.last_call_id);
        let is_event = self.code.as_deref() == Some(UNAUTHENTICATED) && fits(&self.code, &line.event);
        is_call
            && (is_event || fits(&self.code, &line.code))
            && fits(&self.event, &line.event)
            && fits(&self.tool, &line.tool)
            && fits(&self.caller, &line.caller)
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

    const CALL: &str = r#"{"seq":1,"time":"2026-01-31T10:00:00.000000Z","tool":"t","caller":"ann","status":"refused","code":"denied","call_id":"c-1","last_call_id":"c-9","request_id":"r"}"#;
    const EVENT: &str =
        r#"{"seq":2,"time":"2026-01-31T11:00:00.000000Z","event":"unauthenticated","success":false,"caller":null}"#;

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
            (filter(|f| f.code = text("unauthenticated")), false, true),
            (filter(|f| f.event = text("unauthenticated")), false, true),
            (filter(|f| f.event = text("key_created")), false, false),
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
