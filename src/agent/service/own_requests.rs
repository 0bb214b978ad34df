//! The service's own requests to a model beside the turns of its runs: for summaries, titles, and which tools to call.

use std::sync::Arc;

use tracing::Span;

use super::{AgentService, open};
use crate::meter::{Account, Meter, MeteredModel};
use crate::summary::{self, CompletedCall};
use crate::toolbox::{ToolboxCall, shortlist};
use crate::usage::UsageByAgent;
use crate::{Message, Summarizer, ToolDescription, run, selection};
use sekisho_config::AgentProfile;
use sekisho_core::call::{BudgetScopes, Caller};
use sekisho_gateway::Gateway;

impl AgentService {
    /// A summary of a reply's calls, in at most three items (A73); empty if the model fails.
    pub async fn sum_up(
        &self,
        payer: (&Arc<Caller>, &BudgetScopes),
        profile: &AgentProfile,
        question: &str,
        calls: &[CompletedCall<'_>],
    ) -> Vec<String> {
        let Some(model) = open(profile, &self.gateway).ok().filter(|_| !calls.is_empty()) else { return Vec::new() };
        let (meter, span) = (meter_of(&self.gateway, payer), Span::none());
        let model = MeteredModel { model: &*model, meter: &meter, profile, span: &span, end: None };
        let items = summary::of_calls(&model, profile, &self.prompts, question, calls).await;
        items.unwrap_or_else(|error| {
            tracing::warn!(%error, "the tool calls of a reply were not summarized");
            Vec::new()
        })
    }

    /// A title for a conversation (C32), by the model for summaries; `None` if it fails. Its usage is added to the
    /// run's.
    pub async fn title(
        &self,
        payer: (&Arc<Caller>, &BudgetScopes),
        profile: &AgentProfile,
        usage: (&Arc<str>, &UsageByAgent),
        exchange: [&str; 2],
    ) -> Option<String> {
        let profile = self.gateway.configuration().current().agent.summary_profile(profile);
        let model = open(&profile, &self.gateway).ok()?;
        let (meter, span) = (meter_of(&self.gateway, payer).of_agent(usage.0, usage.1), Span::none());
        let model = MeteredModel { model: &*model, meter: &meter, profile: &profile, span: &span, end: None };
        let title = summary::title(&model, &profile, &self.prompts, exchange).await;
        title.unwrap_or_else(|error| {
            tracing::warn!(%error, "a conversation has no title yet");
            None
        })
    }

    /// The calls that a profile's model selects for a task; `None` if there is no model, or it fails.
    pub async fn select(
        &self,
        payer: (&Arc<Caller>, &BudgetScopes),
        profile: &AgentProfile,
        task: String,
        tools: Vec<ToolDescription>,
    ) -> Option<Vec<ToolboxCall>> {
        let model = open(profile, &self.gateway).ok()?;
        let (meter, span) = (meter_of(&self.gateway, payer), Span::none());
        let model = MeteredModel { model: &*model, meter: &meter, profile, span: &span, end: None };
        let tools = shortlist(tools, profile.max_tools, &[Message::User(task.as_str().into())]);
        match selection::select(&model, profile, &self.prompts, task, tools).await {
            Ok(calls) => Some(calls).filter(|calls| !calls.is_empty()),
            Err(error) => {
                tracing::warn!(%error, "tools are selected by search instead");
                None
            }
        }
    }

    /// For conversations that are too long for the profile's model; `None` if the model for summaries cannot be used.
    pub(super) fn summarizer(&self, profile: &AgentProfile) -> Option<Summarizer> {
        let profile = self.gateway.configuration().current().agent.summary_profile(profile);
        let model = open(&profile, &self.gateway).ok()?;
        Some(Summarizer { model, profile: profile.into(), prompt: self.prompts.context_summary().into() })
    }

    /// The older part of a conversation in short, from the summary so far and the messages since; `None` if the model
    /// for summaries cannot be used, or fails. Its usage is added to the run's.
    pub(crate) async fn summarize_older(
        &self,
        payer: (&Arc<Caller>, &BudgetScopes),
        profile: &AgentProfile,
        usage: (&Arc<str>, &UsageByAgent),
        (old, messages): (Option<&str>, &[&Message]),
    ) -> Option<String> {
        let Summarizer { model, profile, prompt } = self.summarizer(profile)?;
        let (meter, span) = (meter_of(&self.gateway, payer).of_agent(usage.0, usage.1), Span::none());
        let model = MeteredModel { model: &*model, meter: &meter, profile: &profile, span: &span, end: None };
        let transcript = run::transcript(messages, run::transcript_characters(&profile));
        match summary::of_context(&model, &profile, &prompt, old, &transcript).await {
            Ok(text) => Some(text).filter(|text| !text.is_empty()),
            Err(error) => {
                tracing::warn!(%error, "the older part of a conversation is left out without a summary");
                None
            }
        }
    }
}

pub(super) fn meter_of(gateway: &Gateway, (caller, scopes): (&Arc<Caller>, &BudgetScopes)) -> Meter {
    let budgets = Arc::clone(&gateway.pipeline.budget);
    let metrics = Arc::clone(&gateway.pipeline.settlement.metrics);
    let account = Account { budgets, caller: Arc::clone(caller), scopes: scopes.clone(), metrics };
    Meter::paid_by(account).tracing_content(gateway.configuration().started_with().telemetry.model_content)
}
