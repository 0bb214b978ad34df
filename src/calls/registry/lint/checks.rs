//! The findings about one tool that no other tool is needed for.

use serde_json::{Value, json};

use super::enumerations::undeclared;
use super::rules::{RULES, Rule};
use super::{Described, LintFinding};
use sekisho_flow::{SinkKind, verb_of};
use sekisho_tool_search::stems;

/// Parameters that a finding names.
const MAX_NAMED: usize = 5;

pub(super) fn find(tool: &Described<'_>) -> Vec<LintFinding> {
    let checks = [description, undescribed_parameters, ambiguous_name, large_schema, wrong_annotation];
    let mut found: Vec<_> = checks.into_iter().filter_map(|check| check(tool)).collect();
    found.extend(undeclared_enums(tool));
    found
}

fn description(tool: &Described<'_>) -> Option<LintFinding> {
    let text = tool.description.trim();
    if text.is_empty() {
        return Some(LintFinding::new(Rule::NoDescription, "it has no description".to_owned()));
    }
    let words: Vec<_> = stems(text).into_iter().filter(|word| !RULES.articles.contains(word)).collect();
    if words.len() < RULES.min_description_words {
        return Some(LintFinding::new(Rule::ShortDescription, format!("its description has {} words", words.len())));
    }
    let name = stems(tool.name);
    if words.iter().all(|word| name.contains(word)) {
        return Some(LintFinding::new(Rule::ShortDescription, "its description only repeats its name".to_owned()));
    }
    let (length, most) = (text.chars().count(), RULES.max_description_characters);
    if length <= most {
        return None;
    }
    let problem = format!("its description has {length} characters, of {most} that some model APIs take");
    Some(LintFinding::new(Rule::LongDescription, problem).fixed_by("description", json!(first_sentences(text, most))))
}

/// The first whole lines and sentences of a text; where it has none, its first characters.
fn first_sentences(text: &str, characters: usize) -> &str {
    let beginning = text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end]);
    let ends = [beginning.rfind('\n'), beginning.rfind(". ").map(|at| at + 1)];
    let end = ends.into_iter().flatten().max().filter(|end| *end > 0);
    beginning[..end.unwrap_or(beginning.len())].trim_end()
}

/// The parameters of a tool, with their schemas.
fn parameters<'a>(tool: &Described<'a>) -> impl Iterator<Item = (&'a String, &'a Value)> {
    tool.parameters.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn undescribed_parameters(tool: &Described<'_>) -> Option<LintFinding> {
    let all: Vec<_> = parameters(tool).collect();
    let is_described = |schema: &Value| {
        let shared = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        let shared = shared.and_then(|pointer| tool.parameters.pointer(pointer));
        let texts = [Some(schema), shared].into_iter().flatten().filter_map(|schema| schema.get("description"));
        texts.filter_map(Value::as_str).any(|text| !text.trim().is_empty())
    };
    let lacking: Vec<_> =
        all.iter().filter(|(_, schema)| !is_described(schema)).map(|(name, _)| name.as_str()).collect();
    let named = lacking.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if lacking.len() > MAX_NAMED { ", …" } else { "" };
    let problem = format!("{} of {} parameters have no description: {named}{more}", lacking.len(), all.len());
    (!lacking.is_empty()).then(|| LintFinding::new(Rule::UndescribedParameters, problem))
}

fn undeclared_enums(tool: &Described<'_>) -> Vec<LintFinding> {
    let listed = parameters(tool).map(|(name, schema)| (name, undeclared(schema)));
    let found = listed.filter(|(_, values)| !values.is_empty()).map(|(name, values)| {
        let problem = format!("the description of `{name}` lists values, its schema does not: {}", values.join(", "));
        LintFinding::new(Rule::UndeclaredEnum, problem)
    });
    found.collect()
}

fn ambiguous_name(tool: &Described<'_>) -> Option<LintFinding> {
    let (_, own) = tool.parts_of_name();
    let mut words = own.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    let is_generic = |word: &str| {
        let word = word.to_lowercase();
        RULES.generic_words.contains(&word) || word.chars().all(|character| character.is_ascii_digit())
    };
    let problem = || format!("the name `{own}` says neither what is done nor with which things");
    words.all(is_generic).then(|| LintFinding::new(Rule::AmbiguousName, problem()))
}

fn large_schema(tool: &Described<'_>) -> Option<LintFinding> {
    let lines = serde_json::to_string_pretty(tool.parameters).map_or(0, |text| text.lines().count());
    let problem = format!("its schema has {lines} lines, more than {}", RULES.max_schema_lines);
    (lines > RULES.max_schema_lines).then(|| LintFinding::new(Rule::LargeSchema, problem))
}

/// A claim that calls change nothing, of a tool whose name or description says the opposite.
fn wrong_annotation(tool: &Described<'_>) -> Option<LintFinding> {
    if tool.has_sink {
        return None;
    }
    let (kind, place, verb) = effect_in_name(tool).or_else(|| effect_in_description(tool))?;
    let claim = match (tool.http_method.as_deref(), tool.read_only, tool.destructive) {
        (Some(method @ ("GET" | "HEAD")), ..) => format!("its operation is {method}"),
        (_, true, _) => "it is annotated as read-only".to_owned(),
        (.., Some(false)) if kind == SinkKind::Delete => "it is annotated as not destructive".to_owned(),
        _ => return None,
    };
    let kind_name: &'static str = kind.into();
    let finding = LintFinding::new(Rule::WrongAnnotation, format!("{claim}, and its {place} says `{verb}`"))
        .fixed_by("sink", json!({"kind": kind_name}));
    Some(match kind {
        SinkKind::Delete | SinkKind::Pay => finding.fixed_by("dangerous", json!(true)),
        _ => finding,
    })
}

fn effect_in_name(tool: &Described<'_>) -> Option<(SinkKind, &'static str, String)> {
    let (kind, verb) = changing(tool.parts_of_name().1)?;
    Some((kind, "name", verb))
}

/// The effect that the first word of the description says, where that is a verb.
fn effect_in_description(tool: &Described<'_>) -> Option<(SinkKind, &'static str, String)> {
    let mut words = tool.description.split_whitespace();
    let (first, second) = (words.next()?.to_lowercase(), words.next()?.to_lowercase());
    if !RULES.determiners.contains(&second) {
        return None;
    }
    let forms = [Some(&*first), first.strip_suffix('s'), first.strip_suffix("es")];
    let (kind, _) = forms.into_iter().flatten().find_map(changing)?;
    Some((kind, "description", first))
}

/// The effect of a verb that no read has.
fn changing(text: &str) -> Option<(SinkKind, String)> {
    let (kind, verb) = verb_of(text)?;
    let kind = kind.filter(|kind| match kind {
        SinkKind::Fetch => false,
        SinkKind::Write => RULES.changing_verbs.contains(&verb),
        SinkKind::Send | SinkKind::Pay | SinkKind::Delete | SinkKind::Publish => true,
    })?;
    Some((kind, verb))
}
