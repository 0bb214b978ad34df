//! One call that a person must approve: the data for the decision, and the forms with it.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::json;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::approvals::{path_of, status};
use super::effects::{self, STRIKE_FIELD};
use super::frame::{self, Head, Section};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{TOKEN_FIELD, Visit};
use super::{Console, error_page, format, redirect, tools, try_it};
use sekisho_api::list::Page;
use sekisho_api::{ApprovalBody, DecisionBody};
use sekisho_core::approval::{ApprovalScope, ApprovalState};
use sekisho_core::error::CallError;
use sekisho_gateway::APPROVER;

/// The field with the digest of the arguments that the page shows.
const SEEN_FIELD: &str = "arguments_sha256";

/// The fields with the ids of others that are decided, too.
const WITH_FIELD: &str = "with";

/// The fields with the ids of all others that the page shows, for the buttons that decide about all of them.
const SHOWN_FIELD: &str = "shown";

/// `GET /console/approvals/{id}`: the address that a refused caller gets.
pub(super) async fn page(State(console): State<Arc<Console>>, visit: Visit, Path(id): Path<String>) -> Response {
    let found = find(&console, &visit, &id).await;
    visit.answer(found.map(|(approval, next)| show(&visit, &approval, next.as_deref())))
}

/// `POST /console/approvals/{id}`: approves or denies, as the button's value says.
pub(super) async fn act(State(console): State<Arc<Console>>, Path(id): Path<String>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::DecideApprovals).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    match decide(&console, &form, &id).await {
        Ok(()) => redirect(&path_of(&id)),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// The approval, and for approvers the id of the next one that waits.
async fn find(console: &Console, visit: &Visit, id: &str) -> Result<(ApprovalBody, Option<String>), CallError> {
    visit.require(Act::SeeApprovals)?;
    let approval: ApprovalBody = visit.fetch(console, &route_of(id)).await?;
    let next = if decides(visit) { next_waiting(console, visit, &approval).await? } else { None };
    Ok((approval, next))
}

/// The next older one that waits; after the oldest, the latest.
async fn next_waiting(console: &Console, visit: &Visit, approval: &ApprovalBody) -> Result<Option<String>, CallError> {
    for after in [approval.created_at.as_str(), ""] {
        let path = with_query("/approvals", [("status", "pending"), ("limit", "1"), ("after", after)]);
        let found: Page<ApprovalBody> = visit.fetch(console, &path).await?;
        if let Some(next) = found.items.into_iter().find(|other| other.id != approval.id) {
            return Ok(Some(next.id));
        }
    }
    Ok(None)
}

/// Whether the caller may decide: the role of the console by itself does not give it.
pub(super) fn decides(visit: &Visit) -> bool {
    visit.may(Act::DecideApprovals) && visit.caller.has_role(APPROVER)
}

async fn decide(console: &Console, form: &Submitted, id: &str) -> Result<(), CallError> {
    let reason = form.field("reason");
    let (act, with, rest) = others(form);
    let (act, body) = match act {
        "approve" => {
            let (scope, minutes) = extent(form)?;
            let seen = form.text(SEEN_FIELD);
            let strike = form.all(STRIKE_FIELD).map(str::parse::<u32>).collect::<Result<Vec<_>, _>>();
            let strike = strike
                .map_err(|_| CallError::invalid("the form names an effect that is no number; open the page again"))?;
            let body = json!({
                "reason": reason, "scope": scope, "minutes": minutes, "strike": strike, "arguments_sha256": seen, "with": with,
                "deny": rest,
            });
            ("approve", body)
        }
        "deny" => ("deny", json!({"reason": reason, "with": with})),
        _ => return Err(CallError::invalid("the form says nothing to decide; open the page again")),
    };
    let route = format!("{}/{act}", route_of(id));
    form.visit.change(console, Method::POST, &route, Some(&body)).await.map(|_| ())
}

/// The act of the button, and the ids of others: to decide alike, and to deny.
fn others(form: &Submitted) -> (&str, Vec<&str>, Vec<&str>) {
    let act = form.field("act");
    let (chosen, shown) = (form.all(WITH_FIELD).collect::<Vec<_>>(), form.all(SHOWN_FIELD));
    if let Some(act) = act.strip_suffix("-chosen") {
        let (with, rest) = shown.partition(|id| chosen.contains(id));
        return (act, with, rest);
    }
    match act.strip_suffix("-all") {
        Some(act) => (act, shown.collect(), Vec::new()),
        None => (act, chosen, Vec::new()),
    }
}

/// The wanted extent of an approval. The field with the minutes is filled for other scopes too.
fn extent(form: &Submitted) -> Result<(&str, Option<u32>), CallError> {
    match form.text("scope").unwrap_or(ApprovalScope::Once.as_str()) {
        "minutes" => {
            let minutes = form.field("minutes").parse::<u32>();
            let minutes =
                minutes.map_err(|_| CallError::invalid("the minutes must be a number; go back and write it there"))?;
            Ok(("minutes", Some(minutes)))
        }
        scope => Ok((scope, None)),
    }
}

fn route_of(id: &str) -> String {
    format!("/approvals/{}", encoded(id))
}

fn show(visit: &Visit, approval: &ApprovalBody, next: Option<&str>) -> Markup {
    let texts = visit.texts();
    let title = texts.with("call-title", [("tool", format::text(&approval.tool).into_owned().into())]);
    let given = approval.decisions.iter().filter(|decision| decision.approved).count();
    let counts = [("given", given.into()), ("needed", u32::from(approval.approvals_needed).into())];
    let state = html! { (status(&texts, approval.status)) " · " (texts.with("approval-given", counts)) };
    let action =
        next.map(|next| html! { a.button href=(path_of(next)) data-key="n" { (texts.get("approval-next")) " →" } });
    let head = Head { state: Some(state), action, ..Head::new(&title) };
    let token = visit.form_token().filter(|_| decides(visit));
    frame::page(
        visit,
        Some(Section::Inbox),
        &head,
        &html! {
            (facts(&texts, approval))
            section aria-labelledby="reasons" {
                h2 #reasons { (texts.get("approval-reasons")) }
                ul.plain.notes { @for reason in &approval.reasons { li { (format::text(reason)) } } }
            }
            @if !approval.questions.is_empty() { (questions(&texts, approval)) }
            @if approval.kind == effects::KIND { (effects::list(&texts, approval)) }
            (request(&texts, approval))
            (arguments(visit, approval))
            @if !approval.with.is_empty() { (waiting_with(visit, approval)) }
            @if approval.status == ApprovalState::Unknown { div.notice.warn { p { (texts.get("approval-unknown-help")) } } }
            @if let Some(token) = &token { (forms(&texts, token, approval)) }
            (decisions(&texts, approval))
            (details(&texts, approval))
            p { a href="/console/approvals" { "← " (texts.get("nav-approvals")) } }
        },
    )
}

/// The caller, the tool, and until when it can be decided.
fn facts(texts: &Texts, approval: &ApprovalBody) -> Markup {
    html! {
        dl.facts {
            div { dt { (texts.get("call-caller")) } dd { code { (format::text(&approval.caller.id)) } } }
            div { dt { (texts.get("approval-person")) } dd { code { (format::text(&approval.caller.person)) } } }
            div { dt { (texts.get("call-tenant")) } dd { code { (format::text(&approval.caller.tenant)) } } }
            div { dt { (texts.get("tool-name")) } dd { a href=(tools::path_of(&approval.tool)) { code { (format::text(&approval.tool)) } } } }
            @if let Some(target) = &approval.target { div { dt { (texts.get("approval-target")) } dd { code { (format::text(target)) } } } }
            div { dt { (texts.get("approval-asked")) } dd { (format::moment(texts, &approval.created_at)) } }
            div { dt { (texts.get("approval-expires")) } dd { (format::moment(texts, &approval.expires_at)) } }
        }
    }
}

/// The request to the agent that makes the call.
fn request(texts: &Texts, approval: &ApprovalBody) -> Markup {
    html! {
        @if let Some(request) = &approval.request {
            section aria-labelledby="request" {
                h2 #request { (texts.get("approval-request")) }
                blockquote.prose { (format::text(request)) }
            }
        }
    }
}

/// The values that strangers may have written, each with its sentence.
fn questions(texts: &Texts, approval: &ApprovalBody) -> Markup {
    html! {
        section aria-labelledby="questions" {
            h2 #questions { (texts.get("approval-questions")) }
            (question_texts(approval))
        }
    }
}

pub(super) fn question_texts(approval: &ApprovalBody) -> Markup {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    html! {
        @for question in &approval.questions {
            p {
                code { (format::text(&text(&question["argument"]))) } " "
                code { (format::text(&text(&question["value"]))) } " "
                span.quiet { (format::text(&text(&question["new"]))) }
            }
            @if question["sentence"].is_string() {
                blockquote { (format::text(&text(&question["sentence"]))) }
                p.quiet { code { (format::text(&text(&question["origin"]["tool"]))) " " (format::text(&text(&question["origin"]["call"]))) } }
            }
        }
    }
}

/// The other calls of its run or session that wait, each with all that a person decides by.
fn waiting_with(visit: &Visit, approval: &ApprovalBody) -> Markup {
    let texts = visit.texts();
    html! {
        section aria-labelledby="with" {
            h2 #with { (texts.get("approval-with")) }
            @for (number, other) in numbered(approval) {
                h3 { (number) ". " a href=(path_of(&other.id)) { (format::name(&other.tool)) } }
                ul.plain.notes { @for reason in &other.reasons { li { (format::text(reason)) } } }
                (question_texts(other))
                (argument_texts(visit, other))
            }
        }
    }
}

/// The other calls, each with its number: this one is the first.
fn numbered(approval: &ApprovalBody) -> impl Iterator<Item = (usize, &ApprovalBody)> {
    approval.with.iter().enumerate().map(|(at, other)| (at + 2, other))
}

/// The fields that choose others to decide with it.
fn with_fields(texts: &Texts, approval: &ApprovalBody, act: &str) -> Markup {
    html! {
        @for (number, other) in numbered(approval) {
            @let id = format!("{act}-{}", other.id);
            div.field {
                label for=(id) {
                    input #(id) type="checkbox" name=(WITH_FIELD) value=(other.id);
                    " " (texts.get("approval-with-one")) " " (number) ". " (format::name(&other.tool))
                }
            }
        }
    }
}

/// The arguments as the route shows them: all of them, since a person decides by them.
fn arguments(visit: &Visit, approval: &ApprovalBody) -> Markup {
    let texts = visit.texts();
    html! {
        section aria-labelledby="arguments" {
            h2 #arguments { (texts.get("schema-title")) }
            (argument_texts(visit, approval))
            @if approval.arguments.is_some() { p.help { (texts.get("approval-arguments-help")) } }
        }
    }
}

pub(super) fn argument_texts(visit: &Visit, approval: &ApprovalBody) -> Markup {
    let texts = visit.texts();
    html! {
        @match &approval.arguments {
            Some(arguments) => pre tabindex="0" { code { (format::text(&try_it::pretty(arguments))) } },
            None if visit.caller.has_role(APPROVER) => div.notice.bad { p { (texts.get("approval-sealed")) } },
            None => p.quiet { (texts.get("approval-for-approvers")) },
        }
        @if let Some(changed) = &approval.changed_arguments {
            p { (texts.get("approval-changed")) }
            pre tabindex="0" { code { (format::text(&try_it::pretty(changed))) } }
        }
        @if let Some(sent) = &approval.sent {
            p { (texts.get("approval-sent")) }
            pre tabindex="0" { code { (format::text(&try_it::pretty(sent))) } }
        }
    }
}

/// The forms for decisions that can still be made.
fn forms(texts: &Texts, token: &str, approval: &ApprovalBody) -> Markup {
    let path = path_of(&approval.id);
    let can_approve = approval.status == ApprovalState::Pending && approval.arguments.is_some();
    let deny = match approval.status {
        ApprovalState::Pending => Some("approval-deny"),
        ApprovalState::Approved => Some("approval-take-back"),
        _ => None,
    };
    html! {
        div.columns {
            @if can_approve {
                section.panel aria-labelledby="approve" {
                    h2 #approve { (texts.get("approval-approve")) }
                    form.stack method="post" action=(path) {
                        input type="hidden" name=(TOKEN_FIELD) value=(token);
                        @if let Some(seen) = &approval.arguments_sha256 { input type="hidden" name=(SEEN_FIELD) value=(seen); }
                        (reason_field(texts, "approve-reason", "a", None))
                        @if approval.kind == effects::KIND { (effects::strike_fields(texts, approval)) }
                        @else { (extent_fields(texts, approval.session_id.is_some())) }
                        (with_fields(texts, approval, "approve"))
                        div.buttons {
                            button.main name="act" value="approve" { (texts.get("approval-approve")) }
                            (button_for_all(texts, approval, "approve-all", "approval-approve-all"))
                            @if approval.calls > 1 { button name="act" value="approve-chosen" { (texts.get("approval-approve-chosen")) } }
                        }
                    }
                }
            }
            @if let Some(deny) = deny {
                section.panel aria-labelledby="deny" {
                    h2 #deny { (texts.get(deny)) }
                    form.stack method="post" action=(path) {
                        input type="hidden" name=(TOKEN_FIELD) value=(token);
                        (reason_field(texts, "deny-reason", "d", Some("approval-deny-help")))
                        (with_fields(texts, approval, "deny"))
                        div.buttons {
                            button.danger name="act" value="deny" { (texts.get(deny)) }
                            (button_for_all(texts, approval, "deny-all", "approval-deny-all"))
                        }
                    }
                }
            }
        }
    }
}

/// The button that decides about all calls that the page shows, and about no others.
fn button_for_all(texts: &Texts, approval: &ApprovalBody, act: &str, text: &str) -> Markup {
    html! {
        @if approval.calls > 1 {
            @for other in &approval.with { input type="hidden" name=(SHOWN_FIELD) value=(other.id); }
            button name="act" value=(act) { (texts.with(text, [("calls", approval.calls.into())])) }
        }
    }
}

/// The field with the approver's reason; `key` leads to it.
pub(super) fn reason_field(texts: &Texts, id: &str, key: &str, help: Option<&str>) -> Markup {
    html! {
        div.field {
            label for=(id) { (texts.get("policies-reason")) }
            input #(id) name="reason" maxlength="1000" autocomplete="off" data-key=(key)
                aria-describedby=[help.map(|_| format!("{id}-help"))];
            @if let Some(help) = help { p.help #{ (id) "-help" } { (texts.get(help)) } }
        }
    }
}

/// The fields with the extent of the approval.
fn extent_fields(texts: &Texts, has_session: bool) -> Markup {
    let scopes = [ApprovalScope::Once, ApprovalScope::Minutes, ApprovalScope::Session];
    html! {
        div.field {
            label for="scope" { (texts.get("approval-scope")) }
            select #scope name="scope" {
                @for scope in scopes.into_iter().filter(|scope| has_session || *scope != ApprovalScope::Session) {
                    option value=(scope.as_str()) { (texts.get(scope_text(scope))) }
                }
            }
        }
        div.field {
            label for="minutes" { (texts.get("approval-minutes")) }
            input #minutes name="minutes" type="number" min="1" max="1440" value="15" aria-describedby="minutes-help";
            p.help #minutes-help { (texts.get("approval-minutes-help")) }
        }
    }
}

/// The id of the text for a scope.
fn scope_text(scope: ApprovalScope) -> &'static str {
    match scope {
        ApprovalScope::Once => "approval-scope-once",
        ApprovalScope::Minutes => "approval-scope-minutes",
        ApprovalScope::Session => "approval-scope-session",
    }
}

fn decisions(texts: &Texts, approval: &ApprovalBody) -> Markup {
    html! {
        section aria-labelledby="decisions" {
            h2 #decisions { (texts.get("policies-decisions")) }
            @if approval.decisions.is_empty() { p.quiet { (texts.get("approval-undecided")) } }
            @else {
                div.scroll tabindex="0" role="region" aria-label=(texts.get("policies-decisions")) { table.list {
                    thead { tr {
                        th scope="col" { (texts.get("approval-approver")) }
                        th scope="col" { (texts.get("policies-decision")) }
                        th scope="col" { (texts.get("policies-reason")) }
                        th scope="col" { (texts.get("call-time")) }
                    } }
                    tbody { @for decision in &approval.decisions { (one_decision(texts, decision)) } }
                } }
            }
        }
    }
}

fn one_decision(texts: &Texts, decision: &DecisionBody) -> Markup {
    html! {
        tr {
            th scope="row" { (format::name(&decision.approver)) " " span.quiet { (format::text(&decision.person)) } }
            td {
                @if decision.approved {
                    (status(texts, ApprovalState::Approved)) " " (texts.get(scope_text(decision.scope)))
                    @if let Some(minutes) = decision.minutes { " · " (texts.get("approval-minutes")) " " (minutes) }
                } @else { (status(texts, ApprovalState::Denied)) }
            }
            td.text { (format::text(&decision.reason)) }
            td { (format::moment(texts, &decision.at)) }
        }
    }
}

/// The rest of the record.
fn details(texts: &Texts, approval: &ApprovalBody) -> Markup {
    let covers = approval.scope.map(|scope| texts.get(scope_text(scope)).into_owned());
    let facts = [
        ("server-kind", approval.kind.clone()),
        ("call-via", approval.via.clone()),
        ("approval-session", approval.session_id.clone().unwrap_or_else(|| "–".to_owned())),
        ("approval-scope", covers.unwrap_or_else(|| "–".to_owned())),
        ("approval-uses", approval.uses.to_string()),
        ("call-policy", approval.policy_version.clone()),
        ("approval-schema", approval.schema_hash.clone()),
    ];
    html! {
        dl.facts {
            @for (name, value) in facts { div { dt { (texts.get(name)) } dd { code { (format::text(&value)) } } } }
            div { dt { (texts.get("call-id")) } dd { a href={ "/console/calls/" (encoded(&approval.call_id)) } { code { (format::text(&approval.call_id)) } } } }
        }
    }
}
