//! What the calls were answered, by sort, and how the metrics must count them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::client::{Played, REPLAYED, SUCCESS};
use super::samples::Samples;
use super::sorts::{SORTS, Sort};

/// Surprises of one sort that are shown.
const MAX_EXAMPLES: usize = 3;

/// Of so many calls of a sort one may have the other answers that it admits.
const RARE: u64 = 20;

/// All calls so far.
#[derive(Default)]
pub(super) struct Tally {
    sorts: BTreeMap<&'static str, SortTally>,
    /// Calls of tools by how they ended: an error code, [`SUCCESS`] or [`REPLAYED`].
    settled: BTreeMap<String, u64>,
}

#[derive(Default)]
struct SortTally {
    calls: u64,
    wrong: u64,
    /// Calls that were answered otherwise than all, as the sort admits.
    others: u64,
    answers: BTreeMap<String, u64>,
    examples: Vec<String>,
}

impl Tally {
    pub(super) fn played(&mut self, sort: &Sort, played: Played) {
        let Played { answers, settled, surprise } = played;
        self.settled(settled);
        let of_sort = self.sorts.entry(sort.name).or_default();
        of_sort.calls += 1;
        of_sort.others += u64::from(surprise.is_none() && answers != sort.answers);
        for answer in answers {
            *of_sort.answers.entry(answer).or_default() += 1;
        }
        if let Some(surprise) = surprise {
            of_sort.wrong += 1;
            if of_sort.examples.len() < MAX_EXAMPLES {
                of_sort.examples.push(surprise);
            }
        }
    }

    /// Takes in calls that are of no sort.
    pub(super) fn settled(&mut self, settled: Vec<String>) {
        for code in settled {
            *self.settled.entry(code).or_default() += 1;
        }
    }

    /// Each sort with its calls, what it must be answered, and what it was answered.
    pub(super) fn table(&self) -> String {
        let mut table = format!("{:<28} {:>7} {:>5}  {:<44} answers", "sort", "calls", "wrong", "expected");
        for sort in SORTS {
            let Some(SortTally { calls, wrong, answers, .. }) = self.sorts.get(sort.name) else { continue };
            let expected =
                if sort.answers.is_empty() { "none: the client leaves".to_owned() } else { sort.answers.join(", ") };
            let answers: Vec<_> = answers.iter().map(|(answer, count)| format!("{answer} × {count}")).collect();
            let answers = answers.join(", ");
            write!(table, "\n{:<28} {calls:>7} {wrong:>5}  {expected:<44} {answers}", sort.name).unwrap();
        }
        table
    }

    /// Wrong answers, and rare ones that were not rare.
    pub(super) fn surprises(&self) -> Vec<String> {
        let mut surprises = Vec::new();
        for (name, SortTally { calls, wrong, others, examples, .. }) in &self.sorts {
            if *wrong > 0 {
                surprises.push(format!("{name}: {wrong} of {calls} wrong, such as\n  {}", examples.join("\n  ")));
            }
            if others * RARE > *calls {
                surprises.push(format!("{name}: {others} of {calls} were answered otherwise"));
            }
        }
        surprises
    }

    /// Where the metrics count other calls than were made.
    pub(super) fn differences(&self, before: &Samples, after: &Samples) -> Vec<String> {
        let counted = |metric: &str, label: &str| after.sum_with(metric, label) - before.sum_with(metric, label);
        let of_code = |code: &str| match code {
            SUCCESS => counted("shannon_tool_executions_total", "status=\"success\""),
            REPLAYED => counted("shannon_idempotent_replays_total", ""),
            code => counted("shannon_tool_errors_total", &format!("error_type=\"{code}\"")),
        };
        let calls: u64 = self.settled.iter().filter(|(code, _)| *code != REPLAYED).map(|(_, count)| count).sum();
        let all = ("all calls".to_owned(), calls, counted("shannon_tool_executions_total", ""));
        let by_code = self.settled.iter().map(|(code, count)| (code.clone(), *count, of_code(code)));
        let differ = by_code.chain([all]).filter(|(_, made, counted)| f64_of(*made) != *counted);
        differ
            .map(|(what, made, counted)| format!("{what}: {made} were made, and the metrics count {counted}"))
            .collect()
    }
}

/// As the metrics have it.
fn f64_of(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
