//! The calls that a person must approve, each with the data for the decision: caller, request of the agent, tool, price and
//! arguments.

use maud::{Markup, html};

use super::{CHOSEN_FIELD, PATH};
use crate::acts::Act;
use crate::approval::{argument_texts, decides, question_texts, reason_field};
use crate::approvals::path_of;
use crate::effects;
use crate::list;
use crate::text::Texts;
use crate::visit::{TOKEN_FIELD, Visit};
use crate::{Console, format, tools};
use sekisho_api::ApprovalBody;
use sekisho_api::list::Page;
use sekisho_core::error::CallError;

/// Maximum calls of the page, and of one decision.
pub(super) const MAX: usize = 20;

/// The calls that wait, the latest first. Approvers get a form with them; others see that theirs wait.
/// Errors: the error of the route.
pub(super) async fn section(console: &Console, visit: &Visit) -> Result<Markup, CallError> {
    let (texts, limit) = (visit.texts(), MAX.to_string());
    let fields = [("status", "pending"), ("limit", &*limit)];
    let found: Page<ApprovalBody> = list::fetch(console, visit, Act::SeeApprovals, &fields).await?;
    let token = visit.form_token().filter(|_| decides(visit));
    let mut shown = Vec::new();
    for approval in found.items {
        // The list has no arguments.
        let route = format!("/approvals/{}", approval.id);
        shown.push(if token.is_some() { visit.fetch(console, &route).await? } else { approval });
    }
    let cards = html! {
        ul.plain.stack data-rows { @for approval in &shown { li.panel { (card(console, visit, approval, token.is_some())) } } }
    };
    Ok(html! {
        section aria-labelledby="approvals" {
            h2 #approvals { (texts.get("nav-approvals")) }
            @match &token {
                _ if shown.is_empty() => p.quiet { "✓ " (texts.get("inbox-no-approvals")) },
                Some(token) => (form(&texts, token, &cards)),
                None => { p.quiet { (texts.get("approval-for-approvers")) } (cards) },
            }
            @if found.next.is_some() { p { a href="/console/approvals" { (texts.get("inbox-more-approvals")) } } }
        }
    })
}

fn form(texts: &Texts, token: &str, cards: &Markup) -> Markup {
    html! {
        form method="post" action=(PATH) {
            input type="hidden" name=(TOKEN_FIELD) value=(token);
            // The first button is the button of the Enter key: in the field of the reason it decides nothing.
            button.unseen disabled tabindex="-1" aria-hidden="true" {}
            (cards)
            div.inline.decide {
                (reason_field(texts, "reason", "r", Some("approval-deny-help")))
                div.buttons {
                    button.main name="act" value="approve" data-key="a" { (texts.get("inbox-approve")) }
                    button.danger name="act" value="deny" data-key="d" { (texts.get("inbox-deny")) }
                }
            }
            p.help { (texts.get("inbox-keys")) }
        }
    }
}

/// Whether the card shows all that it is decided by. Effects and calls that wait together have more on their own page.
fn is_chosen_here(approval: &ApprovalBody) -> bool {
    approval.kind != effects::KIND && approval.calls == 1 && approval.arguments_sha256.is_some()
}

fn card(console: &Console, visit: &Visit, approval: &ApprovalBody, may_decide: bool) -> Markup {
    let (texts, id) = (visit.texts(), format!("call-{}", approval.id));
    let can_choose = may_decide && is_chosen_here(approval);
    let chosen = format!("{} {}", approval.id, approval.arguments_sha256.as_deref().unwrap_or_default());
    html! {
        div.choose {
            @if can_choose { input type="checkbox" name=(CHOSEN_FIELD) value=(chosen) aria-labelledby=(id) autocomplete="off"; }
            div {
                p {
                    a #(id) href=(path_of(&approval.id)) { (format::name(&approval.tool)) } " "
                    (format::text(&approval.caller.id)) " " span.quiet { (format::text(&approval.caller.tenant)) " · "
                        (format::moment(&texts, &approval.created_at)) " · " (texts.get("approval-expires")) " " (format::moment(&texts, &approval.expires_at)) }
                }
                @if let Some(request) = &approval.request {
                    p.who-says { (texts.get("approval-request")) }
                    blockquote.prose { (format::text(request)) }
                }
                (tool(console, visit, &approval.tool))
                @if let Some(target) = &approval.target { p { (texts.get("approval-target")) " " code { (format::text(target)) } } }
                ul.plain.notes { @for reason in &approval.reasons { li { (format::text(reason)) } } }
                @if !approval.questions.is_empty() {
                    p.who-says { (texts.get("approval-questions")) }
                    (question_texts(approval))
                }
                @if may_decide && !can_choose {
                    p { a.button href=(path_of(&approval.id)) { (texts.with("inbox-open", [("calls", approval.calls.into())])) } }
                } @else if may_decide { (argument_texts(visit, approval)) }
            }
        }
    }
}

/// Description and price of the tool, as far as the visitor may see it.
fn tool(console: &Console, visit: &Visit, name: &str) -> Markup {
    let texts = visit.texts();
    let found = console.gateway.pipeline.registry.find(name, &visit.caller).ok();
    html! {
        @if let Some(tool) = found {
            p.quiet.small {
                (tools::tags(&texts, &tool.metadata)) (format::first_line(&tool.metadata.description)) " · "
                (texts.get("limit-price")) " " (format::money(tool.metadata.cost_per_use))
            }
        }
    }
}
