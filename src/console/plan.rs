//! One plan, as a checklist that fills.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::acts::Act;
use super::address::encoded;
use super::chat::Receipts;
use super::frame::{self, Head, Section};
use super::plans::{self, path_of};
use super::submitted::Submitted;
use super::text::Texts;
use super::timeline::Row;
use super::visit::{TOKEN_FIELD, Visit, Watcher};
use super::{Console, error_page, format, redirect, timeline};
use sekisho_agent::plan::{Entry, EntryKind, PlanStatus, Step, StepCall, StepStatus, Used};
use sekisho_agent_api::PlanReply;
use sekisho_core::error::{CallError, ErrorCode};

/// `GET /console/plans/{id}`.
pub(super) async fn page(State(console): State<Arc<Console>>, visit: Visit, Path(id): Path<String>) -> Response {
    let plan = match visit.require(Act::SeePlans) {
        Ok(()) => visit.fetch::<PlanReply>(&console, &format!("/api/plans/{}", encoded(&id))).await,
        Err(error) => Err(error),
    };
    let page = match plan {
        Ok(plan) => receipts(&console, &visit, &plan).await.map(|receipts| show(&visit, &receipts, &plan)),
        Err(error) => Err(error),
    };
    visit.answer(page)
}

/// `POST /console/plans/{id}`: the action on the plan is in the button's value.
pub(super) async fn act(State(console): State<Arc<Console>>, Path(id): Path<String>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::RunPlans).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let changed = match form.text("act") {
        Some(act @ ("pause" | "continue" | "approve" | "cancel")) => {
            form.visit.change(&console, Method::POST, &format!("/api/plans/{}/{act}", encoded(&id)), None).await
        }
        _ => Err(CallError::new(ErrorCode::InvalidRequest, "the form says nothing to do; open the page again")),
    };
    match changed {
        Ok(_) => redirect(&path_of(&id)),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// `GET /console/plans/{id}/events`: the events of a plan, as its route sends them.
pub(super) async fn events(
    State(console): State<Arc<Console>>,
    Watcher(visit): Watcher,
    Path(id): Path<String>,
) -> Response {
    let path = format!("/api/plans/{}/events", encoded(&id));
    let events = match visit.require(Act::SeePlans) {
        Ok(()) => console.api.send(&visit.guest.request, &visit.caller, (Method::GET, &path), None).await,
        Err(error) => Err(error),
    };
    match events {
        Ok(events) => visit.while_open(console, events),
        Err(error) => error_page::of_visit(&visit, &error),
    }
}

/// The records of the calls of the plan's steps.
async fn receipts(console: &Console, visit: &Visit, plan: &PlanReply) -> Result<Receipts, CallError> {
    let ids = plan.plan.iter().flat_map(|step| step.calls.iter().map(|call| call.id.clone()));
    console.gateway.history().calls_of_agent(&visit.caller, ids.collect()).await
}

fn show(visit: &Visit, receipts: &Receipts, plan: &PlanReply) -> Markup {
    let texts = visit.texts();
    let title = format::first_line(&plan.summary.goal);
    let head = Head::new(&title);
    let is_on = plan.summary.status == PlanStatus::Running;
    let token = visit.form_token().filter(|_| visit.may(Act::RunPlans));
    frame::page(
        visit,
        Some(Section::Plans),
        &head,
        &html! {
            @if is_on {
                live-page src={ (path_of(&plan.summary.id)) "/events" } data-live=(texts.get("live-live")) data-lost=(texts.get("live-lost")) {}
            }
            div #live {
                (state(&texts, plan))
                @if let Some(token) = &token { (buttons(&texts, token, plan)) }
                @if plan.summary.goal.trim() != title { div.prose { (format::text(&plan.summary.goal)) } }
                (steps(&texts, receipts, plan))
                @if !plan.reason.is_empty() { div.notice.warn { p { (format::text(&plan.reason)) } } }
                @if !plan.answer.is_empty() {
                    section aria-labelledby="answer" { h2 #answer { (texts.get("plan-answer")) } div.notice.good { div.prose { (format::text(&plan.answer)) } } }
                }
                (used(&texts, &plan.usage))
                (timeline::section(&texts, rows(&texts, receipts, plan)))
                (history(&texts, &plan.history))
            }
        },
    )
}

fn state(texts: &Texts, plan: &PlanReply) -> Markup {
    let done = plan.plan.iter().filter(|step| step.status == StepStatus::Completed).count();
    let counts = [("done", done.into()), ("all", plan.plan.len().into())];
    html! {
        p.state { (plans::status(texts, plan.summary.status)) " " code { (plan.summary.profile) } " · " (format::moment(texts, &plan.summary.changed_at))
            @if plan.attempts > 1 { " · " (texts.with("plan-attempt", [("n", plan.attempts.into()), ("max", plan.max_attempts.into())])) } }
        @if !plan.plan.is_empty() {
            div.progress {
                progress max=(plan.plan.len()) value=(done) aria-label=(texts.with("plan-progress", counts.clone())) {}
                span aria-hidden="true" { (texts.with("plan-progress", counts)) }
            }
        }
    }
}

fn buttons(texts: &Texts, token: &str, plan: &PlanReply) -> Markup {
    let (approve, go_on) = (("approve", "plan-act-approve"), ("continue", "plan-act-continue"));
    let (pause, cancel) = (("pause", "plan-act-pause"), ("cancel", "plan-act-cancel"));
    let acts = match plan.summary.status {
        PlanStatus::WaitingForApproval => &[approve, cancel][..],
        PlanStatus::Running => &[pause, cancel],
        PlanStatus::Paused | PlanStatus::Failed => &[go_on, cancel],
        _ => &[],
    };
    html! {
        @if !acts.is_empty() {
            form.buttons method="post" action=(path_of(&plan.summary.id)) {
                input type="hidden" name=(TOKEN_FIELD) value=(token);
                @for (act, text) in acts {
                    button.main[matches!(*act, "approve" | "continue")] name="act" value=(act) { (texts.get(text)) }
                }
            }
        }
    }
}

fn steps(texts: &Texts, receipts: &Receipts, plan: &PlanReply) -> Markup {
    let is_on = plan.summary.status == PlanStatus::Running;
    html! {
        section aria-labelledby="steps" {
            h2 #steps { (texts.get("plan-steps")) }
            @if plan.plan.is_empty() { p.quiet { (texts.get("plan-no-steps")) } }
            ol.steps { @for step in &plan.plan { (one_step(texts, receipts, step, is_on)) } }
            @if !plan.success_criteria.is_empty() { p.small.quiet { (texts.get("plan-criteria")) " " (format::text(&plan.success_criteria)) } }
        }
    }
}

fn one_step(texts: &Texts, receipts: &Receipts, step: &Step, is_on: bool) -> Markup {
    let (class, sign, text) = match step.status {
        StepStatus::Completed => ("completed", "✓", "step-completed"),
        StepStatus::Executing => ("executing", "…", "step-executing"),
        StepStatus::Failed => ("failed", "✕", "step-failed"),
        StepStatus::Pending => ("pending", "", "step-pending"),
    };
    html! {
        li class=(class) {
            span.sign aria-hidden="true" { (sign) }
            div {
                p.prose { span.unseen { (texts.get(text)) ": " } (format::text(&step.instruction)) }
                @if !step.expected.is_empty() { p.small.quiet { (texts.get("step-expected")) " " (format::text(&step.expected)) } }
                @if !step.calls.is_empty() {
                    ul.plain.calls aria-label=(texts.get("plan-calls")) {
                        @for call in step.calls.iter() { li { (one_call(texts, receipts, call, is_on)) } }
                    }
                }
                @if !step.result.is_empty() {
                    details { summary { (texts.get("step-result")) } div.prose { (format::text(&step.result)) } }
                }
            }
        }
    }
}

/// A tool call of a step, which leads to its receipt while the index has it.
fn one_call(texts: &Texts, receipts: &Receipts, call: &StepCall, is_on: bool) -> Markup {
    let (class, sign) = match call.failed {
        None if is_on => ("quiet", "…"),
        // No answer comes any more.
        None => ("warn-text", "?"),
        Some(true) => ("bad-text", "✕"),
        Some(false) => ("good-text", "✓"),
    };
    html! {
        span class=(class) { (sign) } " " (format::name(&call.tool))
        @match receipts.get(&*call.id) {
            Some(recent) => {
                span.quiet { " " (format::duration(recent.duration)) " · " }
                a href={ "/console/calls/" (recent.id) } { (texts.get("chat-receipt")) }
            },
            None => span.quiet.small { " " (texts.get("chat-no-receipt")) },
        }
    }
}

/// The entries of its history, each with the time since the one before, and the calls of its steps.
fn rows(texts: &Texts, receipts: &Receipts, plan: &PlanReply) -> Vec<Row> {
    let mut since = plan.summary.created_at.parse::<Timestamp>().ok();
    let step = |entry: &Entry| {
        let ended = entry.at.parse::<Timestamp>().ok()?;
        let begun = since.replace(ended).unwrap_or(ended).min(ended);
        let name = html! { span.tag { (texts.get(kind_text(entry.kind))) } " " (format::first_line(&entry.text)) };
        Some(Row { id: None, depth: 0, class: "turn", name, begun, ended: Some(ended), tokens: None, cost: None })
    };
    let entries: Vec<_> = plan.history.iter().filter_map(step).collect();
    let calls = receipts.values().map(|call| timeline::row_of_call(texts, call, 1));
    entries.into_iter().chain(calls).collect()
}

fn used(texts: &Texts, used: &Used) -> Markup {
    let rows = [
        ("plan-turns", format::count(used.turns.into())),
        ("plan-calls", format::count(used.tool_calls.into())),
        ("call-tokens", format::count(used.prompt_tokens + used.completion_tokens)),
        ("call-cost", format::money(used.cost_usd)),
    ];
    html! { dl.facts { @for (name, value) in rows { div { dt { (texts.get(name)) } dd { (value) } } } } }
}

fn history(texts: &Texts, entries: &[Entry]) -> Markup {
    html! {
        @if !entries.is_empty() {
            details #history {
                summary { (texts.with("plan-history", [("n", entries.len().into())])) }
                ol.history { @for entry in entries {
                    li { p.small.quiet { (texts.get(kind_text(entry.kind))) " · " (format::moment(texts, &entry.at)) } div.prose { (format::text(&entry.text)) } }
                } }
            }
        }
    }
}

/// The id of the text for a kind of entry.
fn kind_text(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Progress => "entry-progress",
        EntryKind::Plan => "entry-plan",
        EntryKind::Action => "entry-action",
        EntryKind::Observation => "entry-observation",
        EntryKind::Thought => "entry-thought",
    }
}
