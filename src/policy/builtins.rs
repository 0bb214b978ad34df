//! Bounds on Rego's builtins. A builtin is not interrupted, so `policy.timeout_ms` does not hold inside
//! one: whatever could return more than it was given, or take longer than it takes to read that, is
//! replaced by one that errs beyond a bound. An error denies.
//!
//! The test names every builtin there is and why it is bounded, so that a new one is not overlooked.

mod checks;
mod measure;
mod own;
mod search;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::LazyLock;

use regorus::unstable::{BUILTINS, Expr, Ref, Span};
use regorus::{Engine, Source, Value};

use super::load::PolicyError;

/// Elements a builtin may return.
const MAX_ELEMENTS: usize = 10_000;

/// Bytes a builtin may return where that is more than its arguments have.
const MAX_BYTES: usize = 64 << 10;

/// Bytes a builtin may read where it reads its arguments more than once: some 30 ms.
const MAX_BYTES_READ: usize = 32 << 20;

/// Values a builtin may compare or copy where it does so more than once: some 30 ms.
const MAX_VALUES_VISITED: usize = 1 << 20;

/// Objects and arrays within one another, as many as arguments may have.
const MAX_DEPTH: usize = 128;

/// Bytes of a glob or a regular expression. What regorus lets through (100 KiB compiled) is hardly ever longer.
const MAX_PATTERN_BYTES: usize = 4 << 10;

/// Why a builtin is not run. Becomes the error of the rule that calls it, which denies.
type Checked<T> = Result<T, String>;

#[derive(Debug, Clone, Copy)]
enum Bound {
    /// Regorus' own function runs once the arguments were found to be harmless.
    Check(fn(&[Value]) -> Checked<()>),
    /// A function of ours runs.
    Replace(fn(&[Value]) -> Checked<Value>),
}

use Bound::{Check, Replace};

/// The bounded builtins, with the number of their arguments.
const BOUNDED: [(&str, u8, Bound); 40] = [
    ("bits.lsh", 2, Replace(own::shift_left)),
    ("concat", 2, Check(checks::concat)),
    ("glob.match", 3, Check(checks::glob)),
    ("glob.quote_meta", 1, Check(checks::glob)),
    ("graph.reachable_paths", 2, Check(checks::reachable_paths)),
    ("indexof", 2, Replace(own::index_of)),
    ("indexof_n", 2, Replace(own::indexes_of)),
    ("json.filter", 2, Check(checks::paths)),
    ("json.is_valid", 1, Replace(own::is_json)),
    ("json.marshal_with_options", 2, Check(checks::indentation)),
    ("json.remove", 2, Check(checks::paths)),
    ("json.unmarshal", 1, Replace(own::parse_json)),
    ("net.cidr_expand", 1, Check(checks::addresses)),
    ("numbers.range", 2, Replace(own::range)),
    ("numbers.range_step", 3, Replace(own::range)),
    ("object.subset", 2, Check(checks::subset)),
    ("object.union_n", 1, Check(checks::union_of_all)),
    ("product", 1, Check(checks::product)),
    ("regex.find_all_string_submatch_n", 3, Replace(search::find_submatches)),
    ("regex.find_n", 3, Replace(search::find)),
    ("regex.is_valid", 1, Check(checks::pattern)),
    ("regex.match", 2, Check(checks::pattern)),
    ("regex.replace", 3, Replace(search::replace)),
    ("regex.split", 2, Replace(search::split)),
    ("regex.template_match", 4, Check(checks::pattern)),
    ("replace", 3, Check(checks::replace)),
    ("split", 2, Check(checks::split)),
    ("sprintf", 2, Check(checks::padding)),
    ("strings.any_prefix_match", 2, Check(checks::any_match)),
    ("strings.any_suffix_match", 2, Check(checks::any_match)),
    ("strings.count", 2, Replace(own::count_of)),
    ("strings.replace_n", 2, Replace(own::replace_all)),
    ("to_number", 1, Replace(own::to_number)),
    ("trim", 2, Check(checks::trim)),
    ("trim_left", 2, Check(checks::trim)),
    ("trim_right", 2, Check(checks::trim)),
    ("union", 1, Check(checks::union_of_all)),
    ("units.parse", 1, Check(checks::number_text)),
    ("units.parse_bytes", 1, Check(checks::number_text)),
    ("walk", 1, Check(checks::walk)),
];

/// Puts the bounded builtins in the place of regorus' own: an extension goes before a builtin of its name.
/// Only those in use, since every evaluation copies the list.
///
/// # Errors
/// Never, as long as each builtin is named once.
pub(super) fn bound(engine: &mut Engine, is_used: impl Fn(&str) -> bool) -> Result<(), PolicyError> {
    for (name, arguments, bound) in BOUNDED.into_iter().filter(|(name, ..)| is_used(name)) {
        engine
            .add_extension(name.to_owned(), arguments, Box::new(extension(name, bound)))
            .map_err(|error| PolicyError::from_regorus(name, &error))?;
    }
    Ok(())
}

fn extension<E: From<io::Error>>(
    name: &'static str,
    bound: Bound,
) -> impl FnMut(Vec<Value>) -> Result<Value, E> + Clone + Send + Sync {
    move |arguments| {
        let outcome = match bound {
            Check(check) => check(&arguments).and_then(|()| original(name, &arguments)),
            Replace(run) => run(&arguments),
        };
        Ok(outcome.map_err(|problem| io::Error::other(format!("{name}: {problem}")))?)
    }
}

/// What regorus' own function wants to know of the place it is called from, which an extension is not
/// told. The interpreter adds the real one to an error.
static CALLED_FROM: LazyLock<Option<(Span, Vec<Ref<Expr>>)>> = LazyLock::new(|| {
    let source = Source::from_contents("builtin".to_owned(), String::new()).ok()?;
    let span = Span { source, line: 1, col: 1, start: 0, end: 0 };
    let most_arguments = BOUNDED.iter().map(|(_, arguments, _)| *arguments).max()?;
    let argument = Ref::new(Expr::Null { span: span.clone(), value: Value::Null, eidx: 0 });
    Some((span, vec![argument; most_arguments.into()]))
});

/// Regorus' own function of this name.
fn original(name: &str, arguments: &[Value]) -> Checked<Value> {
    let (Some((function, _)), Some((span, expressions))) = (BUILTINS.get(name), &*CALLED_FROM) else {
        return Err("there is no such function".to_owned());
    };
    let strict = true;
    function(span, expressions, arguments, strict).map_err(|error| PolicyError::from_regorus(name, &error).message)
}

/// # Errors
/// A result of so many bytes, from arguments of so many, is too large.
fn allow_bytes(result: usize, arguments: usize) -> Checked<()> {
    // Arguments that hold one text many times are larger than the memory they take.
    if result <= MAX_BYTES.max(arguments.min(MAX_BYTES_READ)) {
        return Ok(());
    }
    Err(format!("the result would have {result} bytes; the limit is {MAX_BYTES}, or the size of the arguments"))
}

/// # Errors
/// A result of so many elements is too large.
fn allow_elements(result: usize) -> Checked<()> {
    if result <= MAX_ELEMENTS {
        return Ok(());
    }
    Err(format!("the result would have more than {MAX_ELEMENTS} elements"))
}

/// # Errors
/// So much work is too much.
fn allow_work(steps: usize, most: usize) -> Checked<()> {
    if steps <= most { Ok(()) } else { Err("the arguments are too large to be compared with one another".to_owned()) }
}
