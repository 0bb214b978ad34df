//! Which tools of the same source find the effect of a call, and what their results say about it.
//!
//! A tool that reads is found by the setting `found_by`, by its address (a `GET` of the collection that a `POST` adds to), or, of an MCP
//! server, by its name: a verb that reads, and the things that the call is about. Words are data (`rules.json`).

mod evidence;

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::Value;

pub use self::evidence::{Found, found_in};

use crate::registry::Snapshot;
use crate::tool::Tool;
use sekisho_core::call::{Arguments, CallContext};

/// Tools that are asked for one effect.
const MAX_READS: usize = 3;

/// The words of `rules.json`.
#[derive(Debug, Deserialize)]
struct Rules {
    /// First words of names of tools that read.
    reading_verbs: HashSet<String>,
    /// Arguments by which a client names the new thing, each once. Ids that may be of another thing are none.
    keys: HashSet<String>,
    /// Members that say when something was made.
    moments: HashSet<String>,
    /// Members that say that a list goes on, or is not whole.
    more: HashSet<String>,
}

#[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
static RULES: LazyLock<Rules> =
    LazyLock::new(|| serde_json::from_str(include_str!("effects/rules.json")).expect("a test reads the rules"));

/// A call that may show the effect of another one.
#[derive(Debug)]
pub struct PairedRead {
    pub tool: Arc<Tool>,
    pub arguments: Arguments,
}

/// The calls by which the effect of a call with these arguments may be found, the surest first.
pub fn paired_reads(snapshot: &Snapshot, call: &CallContext, tool: &Tool, arguments: &Arguments) -> Vec<PairedRead> {
    let readers = readers(snapshot, call, tool).into_iter();
    let reads = readers.filter_map(|tool| {
        let arguments = arguments_of(&tool, arguments)?;
        Some(PairedRead { tool, arguments })
    });
    reads.take(MAX_READS).collect()
}

/// The tools by which effects of a tool may be found, the surest first.
pub fn readers(snapshot: &Snapshot, call: &CallContext, tool: &Tool) -> Vec<Arc<Tool>> {
    if let Some(name) = &tool.metadata.found_by {
        // One that is looked for itself would be called to find its own effects.
        let finds = |reader: &&Arc<Tool>| reader.id != tool.id && reader.metadata.found_by.is_none();
        let named = snapshot.get(name).filter(|reader| reader.metadata.source == tool.metadata.source);
        return named.filter(finds).cloned().into_iter().collect();
    }
    let of_source = snapshot.tools().iter().filter(|other| {
        other.metadata.source == tool.metadata.source && other.id != tool.id && other.metadata.only_reads()
    });
    let mut ranked: Vec<_> = of_source.filter_map(|other| Some((rank(call, tool, other)?, other))).collect();
    ranked.sort_by_key(|(rank, other)| (*rank, other.name().len()));
    ranked.into_iter().map(|(_, reader)| Arc::clone(reader)).collect()
}

/// How sure a tool that reads finds effects of the other one: the less, the surer. `None`: it does not.
fn rank(call: &CallContext, tool: &Tool, reader: &Tool) -> Option<usize> {
    let none = Arguments::new();
    let (effect, read) = (tool.sent_call(call, &none).destination, reader.sent_call(call, &none).destination);
    if read.method == "GET" {
        if effect.method != "POST" {
            return None;
        }
        let rest = read.address.strip_prefix(&*effect.address)?;
        let is_by_id = rest.starts_with("/{") && rest.ends_with('}') && rest.matches('/').count() == 1;
        return match rest {
            "" => Some(0),
            _ => is_by_id.then_some(1),
        };
    }
    rank_by_name(tool.name(), reader.name())
}

/// By the things that both names have: all of the effect's, or its last one.
fn rank_by_name(effect: &str, reader: &str) -> Option<usize> {
    let (effect, reader) = (words_of(effect), words_of(reader));
    let (_, things) = effect.split_first()?;
    let (verb, read) = reader.split_first()?;
    if !RULES.reading_verbs.contains(verb) {
        return None;
    }
    let last = things.last()?;
    match things.iter().all(|thing| read.contains(thing)) {
        true => Some(0),
        false => read.contains(last).then_some(1),
    }
}

/// The words of a tool's own name, in lower case and singular.
fn words_of(name: &str) -> Vec<String> {
    let own = name.rsplit_once("__").map_or(name, |(_, own)| own);
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in own.chars() {
        if !character.is_alphanumeric() || (character.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
        was_lower = character.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words.into_iter().map(singular).collect()
}

fn singular(word: String) -> String {
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 1) {
        return format!("{stem}y");
    }
    match word.strip_suffix('s').filter(|stem| stem.len() > 2 && !stem.ends_with('s')) {
        Some(stem) => stem.to_owned(),
        None => word,
    }
}

/// The required arguments of the reader, as the effect has them; `None` where one is missing.
fn arguments_of(reader: &Tool, given: &Arguments) -> Option<Arguments> {
    let required = reader.input.document().get("required").and_then(Value::as_array);
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| Some((name.to_owned(), given.get(name)?.clone()))).collect()
}

/// As names are compared: `createdAt` as `created_at`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for character in name.chars() {
        if character.is_uppercase() && was_lower {
            snake.push('_');
        }
        was_lower = character.is_lowercase();
        let character = if character == '-' { '_' } else { character };
        snake.extend(character.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::Metadata;
    use crate::tool::tests::tool_with;

    #[test]
    fn the_rules_are_read_and_their_words_are_as_they_are_compared() {
        let Rules { reading_verbs, keys, moments, more } = &*RULES;
        for words in [reading_verbs, keys, moments, more] {
            assert!(!words.is_empty() && words.iter().all(|word| snake_case(word) == *word), "{words:?}");
        }
    }

    #[test]
    fn a_reader_has_a_verb_that_reads_and_the_things_of_the_effect() {
        for (effect, reader, rank) in [
            ("mail__send_email", "mail__list_emails", Some(0)),
            ("mail__sendEmail", "mail__searchEmails", Some(0)),
            ("s__create_calendar_event", "s__get_day_calendar_events", Some(0)),
            ("s__create_calendar_event", "s__find_events", Some(1)),
            ("s__add_category", "s__list_categories", Some(0)),
            ("s__create_calendar_event", "s__list_calendars", None),
            ("mail__send_email", "mail__delete_emails", None),
            ("mail__send", "mail__list_emails", None),
        ] {
            assert_eq!(rank_by_name(effect, reader), rank, "{effect} {reader}");
        }
    }

    #[test]
    fn a_reader_gets_what_it_requires_or_is_not_asked() {
        let schema = json!({"type": "object", "required": ["account"], "properties": {"account": {}, "limit": {}}});
        let reader = tool_with(Metadata::default(), schema, None);
        let given = |value: Value| value.as_object().cloned().unwrap();
        let sent = given(json!({"account": 7, "limit": 3, "amount": 1}));
        assert_eq!(arguments_of(&reader, &sent), Some(given(json!({"account": 7}))));
        assert_eq!(arguments_of(&reader, &given(json!({"amount": 1}))), None);
    }
}
