//! Why a call failed or was refused: what to do next, the words of its tool, its attempts, the rules, and who used its limit up.

use std::time::{Duration, SystemTime};

use maud::{Markup, html};

use super::{PATH, caller_of};
use crate::address::with_query;
use crate::format;
use crate::text::Texts;
use sekisho_core::record::{AttemptNote, CallSummary, FailureNotes};
use sekisho_gateway::NextStep;
use sekisho_store::CountedUse;

/// What a page says about a call that did not succeed.
#[derive(Debug)]
pub(super) struct Why<'a> {
    pub call: &'a CallSummary,
    /// The words of its tool, for a visitor who may see them.
    pub words: Option<&'a str>,
    /// Who used its limit up.
    pub uses: &'a [CountedUse],
}

impl Why<'_> {
    pub(super) fn draw(&self, texts: &Texts) -> Markup {
        let call = self.call;
        html! {
            @if let Some(step) = NextStep::of(call) {
                p.notice { strong { (texts.get("call-next")) ": " } (texts.get(next(step))) }
            }
            @if let Some(wait) = call.failure.as_ref().and_then(|notes| notes.retry_after_ms) {
                p { (texts.with("call-retry-after", [("time", format::duration(Duration::from_millis(wait)).into())])) }
            }
            @if let Some(words) = self.words {
                section aria-labelledby="words" { h2 #words { (texts.get("call-words")) } pre.value tabindex="0" { code { (format::text(words)) } } }
            }
            @if let Some(FailureNotes { attempts, rules, .. }) = call.failure.as_deref() {
                @if !attempts.is_empty() { (attempts_of(texts, call, attempts)) }
                @if !rules.is_empty() { (rules_of(texts, rules)) }
            }
            @if !self.uses.is_empty() { (self.uses(texts)) }
            @if !call.violations.is_empty() {
                section aria-labelledby="violations" {
                    h2 #violations { (texts.get("call-violations")) }
                    ul { @for violated in &*call.violations {
                        li { code { (format::text(&violated.rule)) } " " span.quiet { (format::text(&violated.path)) } }
                    } }
                }
            }
        }
    }

    fn uses(&self, texts: &Texts) -> Markup {
        let rule = self.call.failure.as_ref().and_then(|notes| notes.limit.as_ref()?.rule.as_deref());
        html! {
            section aria-labelledby="used-up" {
                h2 #used-up { (texts.get("call-used-up")) }
                @if let Some(rule) = rule { p { (texts.get("call-limit-rule")) " " code { (format::text(rule)) } } }
                div.scroll tabindex="0" role="group" aria-label=(texts.get("call-used-up")) {
                    table.list {
                        thead { tr {
                            th scope="col" { (texts.get("call-caller")) }
                            th scope="col" { (texts.get("tool-name")) }
                            th.number scope="col" { (texts.get("nav-calls")) }
                            th.number scope="col" { (texts.get("call-cost")) }
                        } }
                        tbody { @for CountedUse { tenant, caller, tool, calls, cost_usd } in self.uses {
                            tr {
                                th scope="row" { a href=(with_query(PATH, [("tenant", &**tenant), ("caller", &**caller), ("tool", &**tool)])) { (caller_of(caller, tenant)) } }
                                td { (format::name(tool)) }
                                td.number { (format::count(*calls)) }
                                td.number { (format::money(*cost_usd)) }
                            }
                        } }
                    }
                }
            }
        }
    }
}

fn attempts_of(texts: &Texts, call: &CallSummary, attempts: &[AttemptNote]) -> Markup {
    let arrived = call.time.checked_sub(call.duration).unwrap_or(SystemTime::UNIX_EPOCH);
    // Of more attempts, the last ones are kept.
    let first = usize::try_from(call.attempts).unwrap_or_default().saturating_sub(attempts.len());
    html! {
        section aria-labelledby="attempts" {
            h2 #attempts { (texts.get("call-attempts")) }
            div.scroll tabindex="0" role="group" aria-label=(texts.get("call-attempts")) {
                table.list {
                    thead { tr {
                        th scope="col" { (texts.get("call-attempt")) }
                        th scope="col" { (texts.get("call-time")) }
                        th.number scope="col" { (texts.get("call-after")) }
                        th.number scope="col" { (texts.get("call-duration")) }
                        th scope="col" { (texts.get("call-code")) }
                        th scope="col" { (texts.get("call-http-status")) }
                    } }
                    tbody { @for (at, AttemptNote { began_us, took_us, code, http_status }) in attempts.iter().enumerate() {
                        @let began = Duration::from_micros(*began_us);
                        tr {
                            th scope="row" { (first + at + 1) }
                            td { (format::time(texts, arrived.checked_add(began).unwrap_or(arrived))) }
                            td.number { (format::duration(began)) }
                            td.number { (format::duration(Duration::from_micros(*took_us))) }
                            td { code { (code.as_str()) } }
                            td { @match http_status { Some(status) => (status), None => "–" } }
                        }
                    } }
                }
            }
        }
    }
}

fn rules_of(texts: &Texts, rules: &[String]) -> Markup {
    html! {
        section aria-labelledby="rules" {
            h2 #rules { (texts.get("call-rules")) }
            ul { @for rule in rules { li { code { (format::text(rule)) } } } }
            p { a href="/console/policies" { (texts.get("nav-policies")) } }
        }
    }
}

/// The text of a step.
fn next(step: NextStep) -> &'static str {
    match step {
        NextStep::CheckName => "next-check-name",
        NextStep::CorrectArguments => "next-correct-arguments",
        NextStep::ChangeRule => "next-change-rule",
        NextStep::GiveRole => "next-give-role",
        NextStep::ChangeGuard => "next-change-guard",
        NextStep::SendCredentials => "next-send-credentials",
        NextStep::SignIn => "next-sign-in",
        NextStep::Decide => "next-decide",
        NextStep::AskAgain => "next-ask-again",
        NextStep::RaiseLimit => "next-raise-limit",
        NextStep::RaiseBudget => "next-raise-budget",
        NextStep::AddSlots => "next-add-slots",
        NextStep::RepairUpstream => "next-repair-upstream",
        NextStep::GiveCredentials => "next-give-credentials",
        NextStep::CallLessOften => "next-call-less-often",
        NextStep::RaiseTimeout => "next-raise-timeout",
        NextStep::ReadWords => "next-read-words",
        NextStep::NarrowOutput => "next-narrow-output",
        NextStep::CorrectSchema => "next-correct-schema",
        NextStep::WaitAndRepeat => "next-wait-and-repeat",
        NextStep::CheckOutcome => "next-check-outcome",
        NextStep::ReadLog => "next-read-log",
    }
}
