//! The calls of a trail, the newest first, a page at a time. Reads from the end, as far as it has to, and for a bounded time.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::chain::MAX_LINE;
use super::error::AuditError;
use super::search::{FoundLine, fits};
use super::segments::closing_time;
use super::verify::files;

/// Bytes that are read at once; more where a line is longer.
const BLOCK: u64 = 256 << 10;

/// How much later than a line with a later time a line may be written: refusals that are counted together have the time of a call, and are
/// written when their window ends.
const OUT_OF_ORDER: SignedDuration = SignedDuration::from_secs(10);

/// Lines between two readings of the clock.
const LINES_PER_CLOCK_READ: usize = 64;

/// The calls that fit each criterion that is set.
#[derive(Debug, Clone, Default)]
pub struct HistoryFilter {
    pub tenant: Option<String>,
    pub tool: Option<String>,
    pub caller: Option<String>,
    pub status: Option<String>,
    /// An error code, such as `denied`.
    pub code: Option<String>,
    pub call_id: Option<String>,
    /// The first moment.
    pub since: Option<Timestamp>,
    /// The moment after the last one.
    pub until: Option<Timestamp>,
    /// Only lines before the one with this number.
    pub before: Option<u64>,
}

/// Calls, the newest first.
#[derive(Debug, Default)]
pub struct HistoryPage {
    pub calls: Vec<PastCall>,
    /// For `before`, where there may be older ones.
    pub next: Option<u64>,
    /// The time of the oldest line that was looked at.
    pub searched_to: Option<String>,
}

/// What the trail says about a call. It has no times of the stages and no reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastCall {
    /// The number of its line.
    pub seq: u64,
    /// RFC 3339, UTC.
    pub time: String,
    pub call_id: String,
    pub tenant: String,
    pub caller: String,
    pub via: String,
    pub request_id: Option<String>,
    pub depth: u32,
    pub dry_run: bool,
    pub tool: String,
    pub status: String,
    pub code: Option<String>,
    /// The stage that refused the call or failed.
    pub stage: Option<String>,
    pub policy_version: Option<String>,
    /// USD.
    #[schema(value_type = String)]
    pub cost_usd: Decimal,
    pub tokens: u64,
    pub attempts: u32,
    pub duration_us: u64,
    pub trace_id: Option<String>,
    /// Of calls that were refused alike and have this line together: how many.
    pub calls: Option<u64>,
    /// Of a tool with `audit_arguments: full`. In no list.
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    pub arguments: LineArguments,
}

/// The arguments that a line has, as JSON.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct LineArguments(pub Option<Box<RawValue>>);

impl PartialEq for LineArguments {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_deref().map(RawValue::get) == other.0.as_deref().map(RawValue::get)
    }
}

impl Eq for LineArguments {}

/// Without them, as they must be in no log.
impl fmt::Debug for LineArguments {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LineArguments({} bytes)", self.0.as_deref().map_or(0, |text| text.get().len()))
    }
}

/// The newest calls that are wanted, at most `limit`. After `within` it ends with what was found so far, and the place to go on
/// from. The trail may be in use; a line that cannot be read is passed over. Verifies nothing.
/// Errors: there is no trail, or it cannot be read.
pub fn newest(file: &Path, filter: &HistoryFilter, limit: usize, within: Duration) -> Result<HistoryPage, AuditError> {
    let mut search = Search { filter, limit, until: Instant::now() + within, lines: 0, page: HistoryPage::default() };
    for (path, segment) in files(file)?.into_iter().rev() {
        if filter.since.is_some_and(|since| closing_time(file, &path).is_some_and(|closed| closed < since)) {
            break;
        }
        if search.segment(&segment).map_err(AuditError::unusable(&path))? {
            break;
        }
    }
    Ok(search.page)
}

struct Search<'a> {
    filter: &'a HistoryFilter,
    limit: usize,
    until: Instant,
    lines: usize,
    page: HistoryPage,
}

impl Search<'_> {
    /// Returns whether the search is over.
    fn segment(&mut self, file: &File) -> io::Result<bool> {
        let mut end = self.end_in(file)?;
        let mut block = Vec::new();
        while end > 0 {
            let start = read_lines_before(file, end, &mut block)?;
            for line in block.split(|byte| *byte == b'\n').rev().filter(|line| !line.is_empty()) {
                if self.line(line) {
                    return Ok(true);
                }
            }
            end = start;
        }
        Ok(false)
    }

    /// Where the first line begins that is not wanted for its number or its time.
    fn end_in(&self, file: &File) -> io::Result<u64> {
        let (before, until) =
            (self.filter.before, self.filter.until.and_then(|until| until.checked_add(OUT_OF_ORDER).ok()));
        if before.is_none() && until.is_none() {
            return Ok(file.metadata()?.len());
        }
        first_line_where(file, |found| {
            before.is_some_and(|before| found.seq >= before)
                || until.is_some_and(|until| is_at_least(&found.time, until))
        })
    }

    fn line(&mut self, line: &[u8]) -> bool {
        let Ok(found) = serde_json::from_slice::<FoundLine<'_>>(line) else { return false };
        let first = self.filter.since.and_then(|since| since.checked_sub(OUT_OF_ORDER).ok());
        if first.is_some_and(|first| !is_at_least(&found.time, first)) {
            return true;
        }
        self.lines += 1;
        self.page.searched_to = Some(found.time.clone().into_owned());
        let is_late = self.lines.is_multiple_of(LINES_PER_CLOCK_READ) && Instant::now() >= self.until;
        if self.filter.wants(&found)
            && let Ok(call) = serde_json::from_slice::<PastCall>(line)
        {
            self.page.calls.push(call);
        }
        let is_over = is_late || self.page.calls.len() >= self.limit;
        self.page.next = (is_over && found.seq > 1).then_some(found.seq);
        is_over
    }
}

impl HistoryFilter {
    fn wants(&self, line: &FoundLine<'_>) -> bool {
        line.call_id.is_some()
            && self.since.is_none_or(|since| is_at_least(&line.time, since))
            && self.until.is_none_or(|until| !is_at_least(&line.time, until))
            && (fits(&self.call_id, &line.call_id) || fits(&self.call_id, &line.last_call_id))
            && fits(&self.tenant, &line.tenant)
            && fits(&self.tool, &line.tool)
            && fits(&self.caller, &line.caller)
            && fits(&self.status, &line.status)
            && fits(&self.code, &line.code)
    }
}

/// Whether a line's time is this moment or later; a time that cannot be read is.
fn is_at_least(time: &str, moment: Timestamp) -> bool {
    time.parse::<Timestamp>().map_or(true, |time| time >= moment)
}

/// Reads whole lines that end at byte `end`, and returns where the first of them begins.
fn read_lines_before(mut file: &File, end: u64, block: &mut Vec<u8>) -> io::Result<u64> {
    let mut size = BLOCK;
    loop {
        let start = end.saturating_sub(size);
        block.clear();
        file.seek(SeekFrom::Start(start))?;
        file.take(end - start).read_to_end(block)?;
        if start == 0 {
            return Ok(0);
        }
        // The line that the block begins with may have begun before it.
        match block.iter().position(|byte| *byte == b'\n') {
            Some(newline) if newline + 1 < block.len() => {
                block.drain(..=newline);
                return Ok(start + newline as u64 + 1);
            }
            _ if size >= 2 * MAX_LINE as u64 => return Ok(start),
            _ => size *= 2,
        }
    }
}

/// Where the first line begins that `is_beyond`; all lines after it are, too. The end of the file where none is.
fn first_line_where(file: &File, is_beyond: impl Fn(&FoundLine<'_>) -> bool) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let (mut low, mut high) = (0, size);
    let mut line = Vec::new();
    while low < high {
        let middle = low + (high - low) / 2;
        let (start, end) = line_at(file, middle, &mut line)?;
        match serde_json::from_slice::<FoundLine<'_>>(&line) {
            _ if start >= high => high = middle,
            Ok(found) if is_beyond(&found) => high = middle,
            _ => low = end,
        }
    }
    Ok(line_at(file, low.min(size), &mut line)?.0.min(size))
}

/// The first line that begins at this byte or after it: where it begins and ends.
fn line_at(mut file: &File, byte: u64, line: &mut Vec<u8>) -> io::Result<(u64, u64)> {
    line.clear();
    let mut start = byte.saturating_sub(1);
    file.seek(SeekFrom::Start(start))?;
    let mut lines = BufReader::new(file);
    if byte > 0 {
        start += lines.by_ref().take(MAX_LINE as u64).read_until(b'\n', line)? as u64;
        line.clear();
    }
    let length = lines.take(MAX_LINE as u64).read_until(b'\n', line)? as u64;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok((start, start + length.max(1)))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn line(seq: u64, tool: &str, tenant: &str) -> String {
        format!(
            r#"{{"seq":{seq},"time":"2026-01-31T10:{:02}:{:02}.000000Z","call_id":"c-{seq}","tenant":"{tenant}","caller":"ann","anonymous":false,"via":"rest","request_id":null,"depth":0,"dry_run":false,"tool":"{tool}","status":"success","code":null,"stage":null,"policy_version":null,"cost_usd":"0.5","tokens":3,"attempts":1,"duration_us":12,"trace_id":null,"prev":"{}"}}"#,
            seq / 60,
            seq % 60,
            "0".repeat(usize::try_from(seq).unwrap() * 7 % 400),
        )
    }

    /// Two closed segments and the one that is written, with lines 1 to 900, of which the first of each segment is no call.
    fn trail() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("audit.jsonl");
        let names = [
            (1..301, "audit-000000000001-20260131T100500Z.jsonl"),
            (301..601, "audit-000000000301-20260131T101000Z.jsonl"),
            (601..901, "audit.jsonl"),
        ];
        for (lines, name) in names {
            let mut text = String::new();
            for seq in lines {
                let (minute, second) = (seq / 60, seq % 60);
                let mark = format!(
                    r#"{{"seq":{seq},"time":"2026-01-31T10:{minute:02}:{second:02}.000000Z","event":"segment","prev":""}}"#
                );
                let tool = if seq % 2 == 0 { "even" } else { "odd" };
                let tenant = if seq % 3 == 0 { "acme" } else { "other" };
                text.push_str(&if seq % 300 == 1 { mark } else { line(seq, tool, tenant) });
                text.push('\n');
            }
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        (folder, file)
    }

    fn found(file: &Path, filter: &HistoryFilter, limit: usize) -> (Vec<u64>, Option<u64>) {
        let page = newest(file, filter, limit, HOUR).unwrap();
        (page.calls.iter().map(|call| call.seq).collect(), page.next)
    }

    #[test]
    fn pages_follow_each_other_over_all_segments() {
        let (_folder, file) = trail();
        let (mut filter, mut all) = (HistoryFilter::default(), Vec::new());
        loop {
            let (page, next) = found(&file, &filter, 70);
            assert!(page.len() <= 70);
            all.extend(page);
            filter.before = next;
            if next.is_none() {
                break;
            }
        }
        let expected: Vec<_> = (1..901).rev().filter(|seq| seq % 300 != 1).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_call_must_fit_each_criterion() {
        let (_folder, file) = trail();
        let text = |text: &str| Some(text.to_owned());
        let time = |text: &str| Some(text.parse().unwrap());
        let odd = HistoryFilter { tool: text("odd"), tenant: text("acme"), ..HistoryFilter::default() };
        assert_eq!(found(&file, &odd, 2), (vec![897, 891], Some(891)));
        let one = HistoryFilter { call_id: text("c-17"), ..HistoryFilter::default() };
        assert_eq!(found(&file, &one, 1).0, [17]);
        let period = HistoryFilter {
            since: time("2026-01-31T10:04:58Z"),
            until: time("2026-01-31T10:05:03Z"),
            ..HistoryFilter::default()
        };
        assert_eq!(found(&file, &period, 50), (vec![302, 300, 299, 298], None));
        let nobody = HistoryFilter { caller: text("bob"), ..HistoryFilter::default() };
        assert_eq!(found(&file, &nobody, 1), (vec![], None));
        assert!(newest(Path::new("/none/audit.jsonl"), &nobody, 1, HOUR).is_err());
    }

    #[test]
    fn a_line_that_is_written_late_ends_no_search() {
        let (_folder, file) = trail();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}{}\n", line(895, "odd", "other"))).unwrap();
        let since = Some("2026-01-31T10:15:00Z".parse().unwrap());
        assert_eq!(found(&file, &HistoryFilter { since, ..HistoryFilter::default() }, 5), (vec![900], None));
    }

    #[test]
    fn a_search_ends_in_time_and_says_how_far_it_came() {
        let (_folder, file) = trail();
        let nobody = HistoryFilter { caller: Some("bob".into()), ..HistoryFilter::default() };
        let page = newest(&file, &nobody, 10, Duration::ZERO).unwrap();
        assert_eq!((page.calls.len(), page.next), (0, Some(900 - 63)));
        assert_eq!(page.searched_to.as_deref(), Some("2026-01-31T10:13:57.000000Z"));
    }

    #[test]
    fn lines_are_found_wherever_blocks_begin() {
        let (folder, _) = trail();
        let file = folder.path().join("long.jsonl");
        let mut text = String::new();
        for seq in 1..40_u64 {
            let long = if seq % 10 == 0 { MAX_LINE / 2 } else { 10 };
            _ = writeln!(text, "{}", line(seq, &"x".repeat(long), "acme"));
        }
        text.push_str(r#"{"seq":40,"time":"#);
        std::fs::write(&file, text).unwrap();
        let all = found(&file, &HistoryFilter::default(), 100).0;
        assert_eq!(all, (1..40).rev().collect::<Vec<_>>(), "also after a line that is not complete yet");
        let before = HistoryFilter { before: Some(20), ..HistoryFilter::default() };
        assert_eq!(found(&file, &before, 3).0, [19, 18, 17]);
    }
}
