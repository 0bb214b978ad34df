//! The arguments and the result of a call on its page, for a visitor who may open them.

use maud::{Markup, html};
use serde_json::Value;

use super::{PATH, page_of};
use crate::acts::Act;
use crate::address::with_query;
use crate::text::Texts;
use crate::visit::Visit;
use crate::{Console, connect, snippets, tools, try_it};
use sekisho_core::error::CallError;
use sekisho_core::record::{CallSummary, KeptValue};
use sekisho_gateway::OpenedContent;

/// The field of the address that opens them, and its value.
pub(super) const OPEN: (&str, &str) = ("content", "open");

/// The arguments and the result of a call.
#[derive(Debug)]
pub(super) enum Content {
    /// Or not for this visitor.
    NotKept,
    Closed,
    Opened(OpenedContent),
}

impl Content {
    /// Opens them only if the visitor wants it, as the audit trail has it.
    pub(super) async fn of(
        console: &Console,
        visit: &Visit,
        call: &CallSummary,
        is_wanted: bool,
    ) -> Result<Self, CallError> {
        let history = console.gateway.history();
        if !history.has_content(&visit.caller, call).await? {
            return Ok(Self::NotKept);
        }
        if !is_wanted {
            return Ok(Self::Closed);
        }
        open(console, visit, &call.id.to_string()).await.map(Self::Opened)
    }

    pub(super) fn draw(&self, console: &Console, visit: &Visit, call: &CallSummary) -> Markup {
        let texts = &visit.texts();
        let id = call.id.to_string();
        let opened = match self {
            Self::NotKept => return html! { p.quiet { (texts.get("call-no-arguments")) } },
            Self::Closed => None,
            Self::Opened(opened) => Some(opened),
        };
        html! {
            section aria-labelledby="content" {
                h2 #content { (texts.get("call-content")) }
                @match opened {
                    Some(opened) => { (draw_opened(console, visit, call, &id, opened)) },
                    None => {
                        p { a.button href={ (with_query(&page_of(&id), [OPEN])) "#content" } { (texts.get("call-content-open")) } }
                        p.quiet { (texts.get("call-content-recorded")) }
                    },
                }
            }
        }
    }
}

/// Opens the arguments and the result of a call. The audit trail has it.
/// Errors: as [`open_content`](sekisho_gateway::History::open_content).
pub(crate) async fn open(console: &Console, visit: &Visit, id: &str) -> Result<OpenedContent, CallError> {
    console.gateway.history().open_content(&visit.caller, visit.guest.request.request.as_ref(), id).await
}

fn draw_opened(console: &Console, visit: &Visit, call: &CallSummary, id: &str, opened: &OpenedContent) -> Markup {
    let needs_key = connect::needs_key(&console.gateway.configuration().current());
    let texts = &visit.texts();
    let arguments = opened.content.arguments.value();
    html! {
        (kept(texts, "call-arguments", &opened.content.arguments))
        (kept(texts, "call-result", &opened.content.result))
        @if let Some(Value::Object(arguments)) = &arguments {
            @if visit.may(Act::TryTool) {
                p { a.button href={ (with_query(&tools::path_of(&call.tool), [("call", id)])) "#try" } { (texts.get("call-try-again")) } }
            }
            h3 { (texts.get("snippets-title")) }
            (snippets::show(texts, &visit.guest.request.server_url, needs_key, &call.tool, arguments))
        }
        form.filters method="get" action={ (PATH) "/" (id) "/compare" } {
            div.field {
                label for="with" { (texts.get("call-compare-with")) }
                input #with type="text" name="with" required autocomplete="off" spellcheck="false";
            }
            button { (texts.get("call-compare")) }
        }
    }
}

fn kept(texts: &Texts, title: &str, value: &KeptValue) -> Markup {
    html! {
        @if value.is_too_large() { p.quiet { (texts.get(title)) ": " (texts.get("call-content-too-large")) } }
        @if let Some(value) = value.value() { (try_it::shown(texts, title, &try_it::pretty(&value), true)) }
    }
}
