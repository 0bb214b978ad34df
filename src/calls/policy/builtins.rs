//! Limits for Rego's builtins. A builtin cannot be interrupted, so `policy.timeout_ms` does not apply inside
//! one. Every builtin whose result or work can grow faster than its arguments is replaced by one that fails
//! beyond a limit. An error denies.
//!
//! A test lists every builtin and why it is bounded, so that a new one is not overlooked.

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

/// Maximum elements of a result.
const MAX_ELEMENTS: usize = 10_000;

/// Maximum bytes of a result that is larger than the arguments.
const MAX_BYTES: usize = 64 << 10;

/// Maximum bytes that a builtin reads if it reads its arguments more than once: about 30 ms.
const MAX_BYTES_READ: usize = 32 << 20;

/// Maximum values that a builtin compares or copies if it does so more than once: about 30 ms.
const MAX_VALUES_VISITED: usize = 1 << 20;

/// Maximum depth of nested objects and arrays, the same as for arguments.
const MAX_DEPTH: usize = 128;

/// Maximum bytes of a glob or a regular expression. Expressions that regorus accepts (100 KiB compiled) are rarely
/// longer.
const MAX_PATTERN_BYTES: usize = 4 << 10;

/// Why a builtin is not run. Becomes the error of the rule that calls it, which denies.
type Checked<T> = Result<T, String>;

#[derive(Debug, Clone, Copy)]
enum Bound {
    /// Checks the arguments, then runs regorus' own function.
    Check(fn(&[Value]) -> Checked<()>),
    /// Runs a function of this module.
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

/// Replaces regorus' builtins by the bounded ones: an extension takes precedence over a builtin of its name. Adds only
/// builtins in use, because every evaluation copies the list.
/// Errors: never, as long as each builtin is listed once.
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

/// A placeholder for the source position, which regorus' own functions require but extensions do not get.
/// The interpreter adds the real position to an error.
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

/// Errors: the result is too large for arguments of this size.
fn allow_bytes(result: usize, arguments: usize) -> Checked<()> {
    // Arguments may contain one string many times, so their size can exceed their memory.
    if result <= MAX_BYTES.max(arguments.min(MAX_BYTES_READ)) {
        return Ok(());
    }
    Err(format!("the result would have {result} bytes; the limit is {MAX_BYTES}, or the size of the arguments"))
}

/// Errors: the result has too many elements.
fn allow_elements(result: usize) -> Checked<()> {
    if result <= MAX_ELEMENTS {
        return Ok(());
    }
    Err(format!("the result would have more than {MAX_ELEMENTS} elements"))
}

/// Errors: the work exceeds the limit.
fn allow_work(steps: usize, max: usize) -> Checked<()> {
    if steps <= max { Ok(()) } else { Err("the arguments are too large to be compared with one another".to_owned()) }
}
