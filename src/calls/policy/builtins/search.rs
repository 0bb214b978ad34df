//! Builtins that search all matches of a regular expression. If each search reads the text to its end, the time grows
//! with the square of its length, so the clock is checked between two searches.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};
use regorus::Value;

use super::{Checked, MAX_BYTES, MAX_BYTES_READ, MAX_ELEMENTS, allow_bytes, allow_elements, allow_work, checks};
use sekisho_core::bounded::BoundedMap;
use sekisho_core::thread_clock::processor_time;

/// Maximum processor time of all searches of one call.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Maximum bytes of a compiled expression, the same as in regorus.
const MAX_COMPILED_BYTES: usize = 100 << 10;

/// Maximum number of cached expressions.
const MAX_KEPT: usize = 256;

/// Maximum number of groups, each of which may match the whole text.
const FEW_GROUPS: usize = 8;

/// `regex.find_n`, which may be called for all matches.
pub(super) fn find(arguments: &[Value]) -> Checked<Value> {
    let [Value::String(pattern), Value::String(text), wanted] = arguments else {
        return Err("takes two texts and a number".to_owned());
    };
    let expression = compiled(pattern)?;
    let found = expression.find_iter(text).take(number(wanted)?).map(|found| found.as_str().into());
    collected(found, MAX_ELEMENTS)
}

/// As [`find`], with the text of each group.
pub(super) fn find_submatches(arguments: &[Value]) -> Checked<Value> {
    let [Value::String(pattern), Value::String(text), wanted] = arguments else {
        return Err("takes two texts and a number".to_owned());
    };
    let expression = compiled(pattern)?;
    let groups = expression.captures_len();
    allow_bytes(groups.saturating_mul(text.len()), MAX_BYTES.max(text.len()).saturating_mul(FEW_GROUPS))?;
    let found = expression.captures_iter(text).take(number(wanted)?).map(|groups| {
        let groups = groups.iter().map(|group| Value::from(group.map_or("", |group| group.as_str())));
        groups.collect::<Vec<_>>().into()
    });
    collected(found, MAX_ELEMENTS / groups.min(MAX_ELEMENTS))
}

/// `regex.split`.
pub(super) fn split(arguments: &[Value]) -> Checked<Value> {
    let [Value::String(pattern), Value::String(text)] = arguments else { return Err("takes two texts".to_owned()) };
    collected(compiled(pattern)?.split(text).map(Value::from), MAX_ELEMENTS)
}

/// `regex.replace`, where `$1` or `$name` in the replacement is the match of a group.
pub(super) fn replace(arguments: &[Value]) -> Checked<Value> {
    let [Value::String(text), Value::String(pattern), Value::String(replacement)] = arguments else {
        return Err("takes three texts".to_owned());
    };
    let expression = compiled(pattern)?;
    let given = text.len() + pattern.len() + replacement.len();
    let references = replacement.matches('$').count();
    let clock = Clock::start();
    let (mut result, mut end) = (String::new(), 0);
    for groups in expression.captures_iter(text) {
        clock.check()?;
        let found = groups.get_match();
        result.push_str(text.get(end..found.start()).unwrap_or_default());
        allow_work(references.saturating_mul(found.len()), MAX_BYTES_READ)?;
        groups.expand(replacement, &mut result);
        end = found.end();
        allow_bytes(result.len() + text.len() - end, given)?;
    }
    result.push_str(text.get(end..).unwrap_or_default());
    Ok(result.into())
}

/// The requested number of matches; all if it is negative.
fn number(wanted: &Value) -> Checked<usize> {
    let number = if let Value::Number(number) = wanted { number.as_i64() } else { None };
    let number = number.ok_or("takes an integer of 64 bits as its number of matches")?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

fn collected(found: impl Iterator<Item = Value>, max: usize) -> Checked<Value> {
    let clock = Clock::start();
    let mut all = Vec::new();
    for one in found {
        clock.check()?;
        if all.len() >= max {
            allow_elements(usize::MAX)?;
        }
        all.push(one);
    }
    Ok(all.into())
}

/// When the searches began, by real time and by the processor time of the thread. The latter is slower to read.
struct Clock(Instant, Duration);

impl Clock {
    fn start() -> Self {
        Self(Instant::now(), processor_time())
    }

    fn check(&self) -> Checked<()> {
        if self.0.elapsed() <= TIMEOUT || processor_time().saturating_sub(self.1) <= TIMEOUT {
            return Ok(());
        }
        Err(format!("the search was stopped after {} ms of processor time", TIMEOUT.as_millis()))
    }
}

/// The expression, compiled as regorus does it.
fn compiled(pattern: &str) -> Checked<Regex> {
    static KEPT: LazyLock<Mutex<BoundedMap<String, Regex>>> = LazyLock::new(|| Mutex::new(BoundedMap::new(MAX_KEPT)));
    checks::pattern(&[pattern.into()])?;
    if let Some(expression) = KEPT.lock().get(pattern) {
        return Ok(expression.clone());
    }
    let compiled = RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).build();
    let compiled = compiled.map_err(|error| format!("the pattern is not a valid regular expression: {error}"))?;
    KEPT.lock().insert_or_clear(pattern.to_owned(), compiled.clone(), |_| false);
    Ok(compiled)
}
