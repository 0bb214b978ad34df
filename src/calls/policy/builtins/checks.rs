//! Checks of arguments before regorus' own function runs. Arguments of a wrong type are left to that function,
//! which refuses them.

use std::collections::BTreeSet;

use ipnet::IpNet;
use regorus::Value;
use serde::de::IgnoredAny;

use super::measure::{bits, bytes, has_at_most, items, values};
use super::{
    Checked, MAX_BYTES, MAX_BYTES_READ, MAX_DEPTH, MAX_ELEMENTS, MAX_PATTERN_BYTES, MAX_VALUES_VISITED, allow_bytes,
    allow_elements, allow_work,
};

/// The delimiter is inserted between any two items.
pub(super) fn concat(arguments: &[Value]) -> Checked<()> {
    let [Value::String(delimiter), list] = arguments else { return Ok(()) };
    let items = items(list);
    let (texts, delimiters) = (items.iter().map(|item| bytes(item)).sum::<usize>(), items.len().saturating_sub(1));
    allow_bytes(texts.saturating_add(delimiters.saturating_mul(delimiter.len())), texts + delimiter.len())
}

pub(super) fn replace(arguments: &[Value]) -> Checked<()> {
    let [Value::String(text), Value::String(old), Value::String(new)] = arguments else { return Ok(()) };
    if new.len() <= old.len() {
        return Ok(());
    }
    let added = text.matches(&**old).count().saturating_mul(new.len() - old.len());
    allow_bytes(text.len().saturating_add(added), text.len() + old.len() + new.len())
}

pub(super) fn split(arguments: &[Value]) -> Checked<()> {
    let [Value::String(text), Value::String(delimiter)] = arguments else { return Ok(()) };
    if text.len() < MAX_ELEMENTS {
        return Ok(());
    }
    allow_elements(text.matches(&**delimiter).take(MAX_ELEMENTS).count() + 1)
}

/// The widths and precisions of a format, `%9s` or `%.9f`. The printed value is no larger than that.
/// A sign that is printed (`%%9`) counts as well: whether it is one depends on the arguments.
pub(super) fn padding(arguments: &[Value]) -> Checked<()> {
    let Some(Value::String(format)) = arguments.first() else { return Ok(()) };
    allow_work(arguments.iter().map(bytes).fold(0, usize::saturating_add), MAX_BYTES_READ)?;
    let mut total = 0_usize;
    for after in format.split('%').skip(1) {
        let width = after.strip_prefix('.').unwrap_or(after);
        let end = width.find(|character: char| !character.is_numeric()).unwrap_or(width.len());
        let (digits, _) = width.split_at(end);
        if !digits.is_empty() {
            let digits: usize = digits.parse().map_err(|_| "a width of the format is not a number of 64 bits")?;
            total = total.saturating_add(digits);
        }
    }
    if total < MAX_BYTES { Ok(()) } else { Err(format!("the format pads to {total} bytes; the limit is {MAX_BYTES}")) }
}

/// Groups of alternatives, `{a,b}`, in a glob.
const MAX_ALTERNATIVES: usize = 64;

/// A pattern that is compiled, and the text it is matched with.
pub(super) fn glob(arguments: &[Value]) -> Checked<()> {
    pattern(arguments)?;
    // Nested alternatives are parsed recursively.
    if let Some(Value::String(pattern)) = arguments.first()
        && pattern.matches('{').count() > MAX_ALTERNATIVES
    {
        return Err(format!("the pattern has more than {MAX_ALTERNATIVES} groups of alternatives"));
    }
    // Regorus marks each delimiter in the text, once for each time it is listed.
    let distinct = |delimiters: &[Value]| delimiters.iter().collect::<BTreeSet<_>>().len() == delimiters.len();
    match arguments {
        [_, Value::Array(delimiters), _] if delimiters.len() > MAX_ELEMENTS || !distinct(delimiters.as_slice()) => {
            Err("duplicate delimiter".to_owned())
        }
        [pattern, Value::Array(delimiters), text] => {
            allow_work(delimiters.len().saturating_mul(bytes(pattern) + bytes(text)), MAX_BYTES_READ)
        }
        _ => Ok(()),
    }
}

/// One search with a regular expression takes time in proportion to pattern and text; regorus bounds the compiled size
/// of a pattern.
pub(super) fn pattern(arguments: &[Value]) -> Checked<()> {
    if arguments.first().is_some_and(|pattern| bytes(pattern) > MAX_PATTERN_BYTES) {
        return Err(format!("the pattern has more than {MAX_PATTERN_BYTES} bytes"));
    }
    Ok(())
}

/// Each leading (or trailing) character is searched among the characters to trim.
pub(super) fn trim(arguments: &[Value]) -> Checked<()> {
    const FEW: usize = 32;
    match arguments {
        [Value::String(text), Value::String(characters)] if characters.len() > FEW => {
            allow_work(text.len().saturating_mul(characters.len()), MAX_BYTES_READ)
        }
        _ => Ok(()),
    }
}

/// Each text is compared with each prefix (or suffix).
pub(super) fn any_match(arguments: &[Value]) -> Checked<()> {
    let [texts, parts] = arguments else { return Ok(()) };
    let (texts, parts) = (items(texts).len().max(1), items(parts).len() + bytes(parts));
    allow_work(texts.saturating_mul(parts), MAX_BYTES_READ)
}

/// Arrays are compared from each position on.
pub(super) fn subset(arguments: &[Value]) -> Checked<()> {
    fn steps(whole: &Value, part: &Value) -> usize {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => {
                let inner = part.iter().filter_map(|(key, part)| Some(steps(whole.get(key)?, part)));
                inner.fold(part.len(), usize::saturating_add)
            }
            (Value::Array(whole), Value::Array(_)) => whole.len().saturating_mul(values(part)),
            _ => 0,
        }
    }
    let [whole, part] = arguments else { return Ok(()) };
    allow_work(steps(whole, part), MAX_VALUES_VISITED)
}

/// A path becomes nested objects, which are dropped recursively; a name in it is parsed as
/// JSON where there is an array.
pub(super) fn paths(arguments: &[Value]) -> Checked<()> {
    let Some(paths) = arguments.get(1) else { return Ok(()) };
    for path in items(paths) {
        let (length, is_value) = match path {
            Value::String(text) => (text.split('/').count(), text.split('/').any(is_json_value)),
            Value::Array(names) => {
                let is_value = |name: &Value| matches!(name, Value::String(text) if is_json_value(text));
                (names.len(), names.iter().any(is_value))
            }
            _ => (0, false),
        };
        if length > MAX_DEPTH {
            return Err(format!("a path has more than {MAX_DEPTH} names"));
        }
        if is_value {
            return Err("a name in a path is a JSON array or object".to_owned());
        }
    }
    Ok(())
}

fn is_json_value(name: &str) -> bool {
    name.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(name).is_ok()
}

/// The union so far is copied for every further object.
pub(super) fn union_of_all(arguments: &[Value]) -> Checked<()> {
    let Some(all) = arguments.first() else { return Ok(()) };
    allow_work(items(all).len().saturating_mul(values(all)), MAX_VALUES_VISITED)
}

/// A product has as many bits as its factors together.
pub(super) fn product(arguments: &[Value]) -> Checked<()> {
    let bits = arguments.iter().flat_map(items).map(bits).fold(0_u64, u64::saturating_add);
    allow_bytes(usize::try_from(bits / 8).unwrap_or(usize::MAX), 0)
}

/// Digits become an integer of any size, and so does an exponent.
pub(super) fn number_text(arguments: &[Value]) -> Checked<()> {
    const MAX_DIGITS: usize = 1_000;
    let Some(Value::String(text)) = arguments.first() else { return Ok(()) };
    let exponent = text.split_once(['e', 'E']).map_or("", |(_, exponent)| exponent);
    let exponent = exponent.trim_start_matches(['+', '-']);
    let digits = exponent.find(|character: char| !character.is_ascii_digit()).unwrap_or(exponent.len());
    let exponent = exponent.get(..digits).filter(|digits| !digits.is_empty()).map_or(Ok(0), str::parse::<usize>);
    if text.len() > MAX_DIGITS || exponent.is_ok_and(|exponent| exponent > MAX_DIGITS) {
        return Err(format!("the number has more than {MAX_DIGITS} digits"));
    }
    Ok(())
}

pub(super) fn addresses(arguments: &[Value]) -> Checked<()> {
    let Some(Value::String(network)) = arguments.first() else { return Ok(()) };
    let network: IpNet = network.parse().map_err(|error| format!("{network} is not a network: {error}"))?;
    let free_bits = u32::from(network.max_prefix_len() - network.prefix_len());
    allow_elements(1_usize.checked_shl(free_bits).unwrap_or(usize::MAX))
}

/// A pair of path and value for everything in the argument.
pub(super) fn walk(arguments: &[Value]) -> Checked<()> {
    if arguments.iter().all(|value| has_at_most(value, MAX_ELEMENTS)) {
        return Ok(());
    }
    allow_elements(usize::MAX)
}

/// The indentation of `json.marshal_with_options`.
pub(super) fn indentation(arguments: &[Value]) -> Checked<()> {
    /// The lines of a value beyond its first, and the levels by which they are indented, together.
    fn lines(value: &Value, level: usize) -> (usize, usize) {
        let mut inner: Box<dyn Iterator<Item = &Value>> = match value {
            Value::Array(items) => Box::new(items.iter()),
            Value::Set(items) => Box::new(items.iter()),
            Value::Object(fields) => Box::new(fields.iter().map(|(_, value)| value)),
            _ => return (0, 0),
        };
        // The closing bracket has a line, too.
        inner
            .try_fold((1_usize, level), |(count, levels), value| {
                let (more, deeper) = lines(value, level + 1);
                Some((count + 1 + more, levels.saturating_add(level + 1).saturating_add(deeper)))
            })
            .unwrap_or((0, 0))
    }
    let [value, Value::Object(options)] = arguments else { return Ok(()) };
    let option = |name: &str| options.get(&Value::from(name)).map_or(0, bytes);
    let (count, levels) = lines(value, 0);
    // Regorus first indents by two spaces.
    let indented = levels.saturating_mul(option("indent").max(2));
    allow_bytes(indented.saturating_add((count + 1).saturating_mul(option("prefix"))), bytes(value))
}

/// All paths through a graph, whose number can be exponential, each as long as the graph is deep. Walks the
/// same paths without storing them.
pub(super) fn reachable_paths(arguments: &[Value]) -> Checked<()> {
    let [graph @ Value::Object(_), start] = arguments else { return Ok(()) };
    let mut ways = Ways { graph, path: Vec::new(), visits: 0, elements: 0 };
    items(start).into_iter().try_for_each(|node| ways.follow(node))
}

struct Ways<'a> {
    graph: &'a Value,
    path: Vec<&'a Value>,
    visits: usize,
    /// The number of elements of all paths found.
    elements: usize,
}

impl<'a> Ways<'a> {
    /// Longest path in nodes. Regorus recurses from one to the next.
    const MAX_DEPTH: usize = 256;

    fn follow(&mut self, node: &'a Value) -> Checked<()> {
        self.visits += 1;
        let Value::Object(graph) = self.graph else { return Ok(()) };
        let next = graph.get(node).map(items).filter(|_| !self.path.contains(&node)).unwrap_or_default();
        if next.is_empty() {
            self.elements += self.path.len() + 1;
        }
        allow_elements(self.elements.max(self.visits))?;
        if self.path.len() >= Self::MAX_DEPTH {
            return Err(format!("a path is longer than {} nodes", Self::MAX_DEPTH));
        }
        self.path.push(node);
        next.into_iter().try_for_each(|node| self.follow(node))?;
        self.path.pop();
        Ok(())
    }
}
