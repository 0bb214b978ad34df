//! The path of a call as a picture: each stage, its time, its decision and the reason. Drawn the same way everywhere.

use std::sync::Arc;
use std::time::Duration;

use maud::{Markup, html};

use super::format;
use super::text::Texts;
use sekisho_calls::pipeline::{Reply, StageVerdict};
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::{RateState, Stage};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::CallSummary;

/// The data of the picture.
#[derive(Debug)]
pub(super) struct CallPath<'a> {
    stages: &'a [(Stage, Duration)],
    /// The stage that ended the call.
    stopped: Option<Stage>,
    code: Option<&'static str>,
    /// Why it ended there, each reason in a line.
    reasons: Vec<&'a str>,
    /// Whether the page has the words of the tool itself.
    has_words: bool,
    policy_version: Option<&'a str>,
    policy_cached: bool,
    rate: Option<RateState>,
    breaker: Option<(Arc<str>, BreakerState)>,
    attempts: u32,
}

impl<'a> CallPath<'a> {
    pub(super) fn of_reply(reply: &'a Reply) -> Self {
        let error = reply.outcome.as_ref().err();
        let details = error.map(CallError::details).unwrap_or_default();
        let message = error.map(CallError::message);
        let new = details.iter().map(|detail| detail.message.as_str());
        let new = new.filter(|detail| !message.is_some_and(|message| message.contains(detail)));
        let receipt = &reply.receipt;
        Self {
            stages: &receipt.stages,
            stopped: error.and_then(CallError::stage),
            code: error.map(|error| error.code().as_str()),
            reasons: message.into_iter().chain(new).collect(),
            has_words: false,
            policy_version: receipt.policy.as_ref().map(|policy| &*policy.version),
            policy_cached: receipt.policy.as_ref().is_some_and(|policy| policy.cached),
            rate: receipt.rate,
            breaker: receipt.breaker.as_ref().map(|breaker| (Arc::clone(&breaker.upstream), breaker.state)),
            attempts: receipt.attempts,
        }
    }

    pub(super) fn of_recent(call: &'a CallSummary) -> Self {
        Self {
            stages: &call.stages,
            stopped: call.stage,
            code: call.code.map(ErrorCode::as_str),
            reasons: call.reason.as_deref().into_iter().collect(),
            has_words: false,
            policy_version: call.policy_version.as_deref(),
            policy_cached: false,
            rate: call.rate,
            breaker: call.breaker.clone(),
            attempts: call.attempts,
        }
    }

    pub(super) fn with_words(self, has_words: bool) -> Self {
        Self { has_words, ..self }
    }

    /// The same picture of a call that is not made: the verdict of each stage.
    pub(super) fn draw_verdicts(texts: &Texts, verdicts: &[StageVerdict]) -> Markup {
        let of = |stage: Stage| verdicts.iter().find(|verdict| verdict.stage == stage);
        html! {
            div.path-picture {
                ol.path aria-label=(texts.get("path-label")) {
                    @for stage in Stage::ALL.iter().copied() {
                        @let (class, sign, word) = match of(stage).and_then(|verdict| verdict.passes) {
                            Some(true) => ("passed", "✓", "path-passed"),
                            Some(false) => ("stopped", "✕", "path-would-stop"),
                            None => ("unreached", "·", "path-unreached"),
                        };
                        li class=(class) {
                            span.stage { (stage.as_str()) }
                            span.sign aria-hidden="true" { (sign) }
                            span.unseen { (texts.get(word)) }
                        }
                    }
                }
                dl.verdicts {
                    @for verdict in verdicts {
                        div {
                            dt { code { (verdict.stage.as_str()) } }
                            dd class=[(verdict.passes == Some(false)).then_some("bad-text")] { (format::text(&verdict.because)) }
                        }
                    }
                }
            }
        }
    }

    /// The picture. For a screen reader it is an ordered list.
    pub(super) fn draw(&self, texts: &Texts) -> Markup {
        html! {
            div.path-picture {
                ol.path aria-label=(texts.get("path-label")) {
                    @for stage in Stage::ALL.iter().copied() { (self.stage(texts, stage)) }
                }
                @if let Some(code) = self.code {
                    div.why {
                        p { strong.bad-text { (code) }
                            @if let Some(stage) = self.stopped { " " (texts.with("path-at", [("stage", stage.as_str().into())])) } }
                        @for reason in &self.reasons { p { (format::text(reason)) } }
                        @if self.reasons.is_empty() && !self.has_words { p.quiet { (texts.get("path-no-reason")) } }
                    }
                }
                (self.shares(texts))
            }
        }
    }

    fn stage(&self, texts: &Texts, stage: Stage) -> Markup {
        let took = self.stages.iter().find(|(passed, _)| *passed == stage).map(|(_, took)| *took);
        let (class, sign, word) = match took {
            _ if self.stopped == Some(stage) => ("stopped", "✕", "path-stopped"),
            Some(_) => ("passed", "✓", "path-passed"),
            None => ("unreached", "·", "path-unreached"),
        };
        html! {
            li class=(class) {
                span.stage { (stage.as_str()) }
                span.sign aria-hidden="true" { (sign) }
                span.unseen { (texts.get(word)) }
                span.took { @if let Some(took) = took { (format::duration(took)) } }
                @if let Some(decision) = self.decision(texts, stage) { span.note { (format::text(&decision)) } }
            }
        }
    }

    fn decision(&self, texts: &Texts, stage: Stage) -> Option<String> {
        match stage {
            Stage::Limits => self.rate.map(|rate| {
                let variables = [("left", rate.remaining.into()), ("limit", rate.limit.into())];
                texts.with("path-rate", variables).into_owned()
            }),
            Stage::Policy => self.policy_version.filter(|version| !version.is_empty()).map(|version| {
                let short: String = version.chars().take(8).collect();
                let id = if self.policy_cached { "path-policy-cached" } else { "path-policy" };
                texts.with(id, [("version", short.into())]).into_owned()
            }),
            Stage::Breaker => self.breaker.as_ref().map(|(upstream, state)| format!("{upstream}: {}", state.as_str())),
            Stage::Execute if self.attempts > 1 => {
                Some(texts.with("path-attempts", [("n", self.attempts.into())]).into_owned())
            }
            _ => None,
        }
    }

    /// The time of the call as a bar, whose parts are the shares of the stages.
    fn shares(&self, texts: &Texts) -> Markup {
        const WIDTH: f64 = 1_000.0;
        let total: Duration = self.stages.iter().map(|(_, took)| *took).sum();
        if total.is_zero() {
            return html! {};
        }
        let mut x = 0.0;
        let parts: Vec<_> = self
            .stages
            .iter()
            .map(|(stage, took)| {
                let width = took.as_secs_f64() / total.as_secs_f64() * WIDTH;
                let part = (*stage, *took, x, width);
                x += width;
                part
            })
            .collect();
        html! {
            svg.shares viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" {
                title { (texts.with("path-total", [("took", format::duration(total).into())])) }
                @for (stage, took, x, width) in parts {
                    rect class={ "s-" (stage.as_str()) } x=(format!("{x:.2}")) y="0" width=(format!("{width:.2}")) height="10" {
                        title { (stage.as_str()) " " (format::duration(took)) }
                    }
                }
            }
            p.quiet.small { (texts.with("path-total", [("took", format::duration(total).into())])) }
        }
    }
}
