//! The differences between the arguments and the results of two calls.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::{content, outcome, page_of};
use crate::acts::Act;
use crate::frame::{self, Head, Section};
use crate::text::Texts;
use crate::visit::{Address, Visit};
use crate::{Console, format};
use sekisho_core::error::CallError;
use sekisho_gateway::OpenedContent;

/// Maximum differences on the page.
const MAX_DIFFERENCES: usize = 200;

/// The field of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Compared {
    /// The id of the other call.
    with: String,
}

/// A value that the two calls do not share.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    /// Where it is, as a JSON pointer.
    path: String,
    one: String,
    other: String,
}

/// `GET /console/calls/{id}/compare`.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path(id): Path<String>,
    Address(compared): Address<Compared>,
) -> Response {
    let page = match open_both(&console, &visit, &id, compared.with.trim()).await {
        Ok([one, other]) => Ok(show(&visit, &one, &other)),
        Err(error) => Err(error),
    };
    visit.answer(page)
}

async fn open_both(console: &Console, visit: &Visit, one: &str, other: &str) -> Result<[OpenedContent; 2], CallError> {
    visit.require(Act::SeeCalls)?;
    Ok([content::open(console, visit, one).await?, content::open(console, visit, other).await?])
}

fn show(visit: &Visit, one: &OpenedContent, other: &OpenedContent) -> Markup {
    let texts = visit.texts();
    let title = texts.get("call-compare-title");
    let mut differences = Vec::new();
    for (path, one, other) in [
        ("/arguments", &one.content.arguments, &other.content.arguments),
        ("/result", &one.content.result, &other.content.result),
    ] {
        compare(path, one.value().as_ref(), other.value().as_ref(), &mut differences);
    }
    let is_partial = [one, other]
        .iter()
        .any(|opened| opened.content.arguments.is_too_large() || opened.content.result.is_too_large());
    frame::page(
        visit,
        Some(Section::Calls),
        &Head::new(&title),
        &html! {
            @if is_partial { p.notice.warn { "▲ " (texts.get("call-content-too-large")) } }
            div.scroll tabindex="0" role="region" aria-label=(title) {
                table.compare {
                    thead { tr {
                        th scope="col" { (texts.get("call-compare-value")) }
                        th scope="col" { (head(&texts, one)) }
                        th scope="col" { (head(&texts, other)) }
                    } }
                    tbody { @for Difference { path, one, other } in differences.iter().take(MAX_DIFFERENCES) {
                        tr {
                            th scope="row" { code { (format::text(path)) } }
                            td.before { code { (format::text(one)) } }
                            td.after { code { (format::text(other)) } }
                        }
                    } }
                }
            }
            @if differences.is_empty() { p { (texts.get("call-compare-equal")) } }
            @if differences.len() > MAX_DIFFERENCES { p.quiet { (texts.get("call-compare-more")) } }
        },
    )
}

fn head(texts: &Texts, opened: &OpenedContent) -> Markup {
    let call = &*opened.found.call;
    html! {
        a href=(page_of(&call.id.to_string())) { (format::name(&call.tool)) } " "
        (outcome(texts, call)) " " (format::time(texts, call.time)) " " (format::duration(call.duration))
    }
}

/// Adds the differences, at most one more than the page shows.
fn compare(path: &str, one: Option<&Value>, other: Option<&Value>, found: &mut Vec<Difference>) {
    if found.len() > MAX_DIFFERENCES || one == other {
        return;
    }
    match (one, other) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            for (name, value) in one {
                compare(&below(path, name), Some(value), other.get(name), found);
            }
            for (name, value) in other.iter().filter(|(name, _)| !one.contains_key(*name)) {
                compare(&below(path, name), None, Some(value), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            for at in 0..one.len().max(other.len()) {
                compare(&format!("{path}/{at}"), one.get(at), other.get(at), found);
            }
        }
        _ => {
            let text = |value: Option<&Value>| {
                value.map_or_else(|| "–".to_owned(), |value| format::first_line(&value.to_string()))
            };
            found.push(Difference { path: path.to_owned(), one: text(one), other: text(other) });
        }
    }
}

fn below(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_differ_are_found_by_their_place() {
        let one = json!({"a": 1, "b": {"c/d": [1, 2]}, "only": true});
        let other = json!({"a": 1, "b": {"c/d": [1, 3, 4]}, "new": null});
        let mut found = Vec::new();
        compare("", Some(&one), Some(&other), &mut found);
        let found: Vec<_> = found.iter().map(|found| (&*found.path, &*found.one, &*found.other)).collect();
        let expected =
            [("/b/c~1d/1", "2", "3"), ("/b/c~1d/2", "–", "4"), ("/only", "true", "–"), ("/new", "–", "null")];
        assert_eq!(found, expected);
        let (one, other) = (json!(vec![0; 1_000]), json!(vec![1; 1_000]));
        let mut found = Vec::new();
        compare("", Some(&one), Some(&other), &mut found);
        assert_eq!(found.len(), MAX_DIFFERENCES + 1);
    }
}
