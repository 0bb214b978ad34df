//! An external policy: a service with the data API of Open Policy Agent
//! (<https://www.openpolicyagent.org/docs/rest-api#data-api>), asked about each call that the policy set does not deny.
//!
//! It only adds reasons, so that it cannot permit a call that the set or a check refuses. It gets the input of the
//! set's rules, with the SHA-256 of the arguments that are sent, and the arguments themselves only if it is configured
//! to. Without a usable answer in time the call is denied.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use regorus::Value;
use serde::{Deserialize, Serialize};

use super::needs_approval::Authorized;
use super::reads::Reads;
use super::set::{PolicySet, Verdict};
use super::{Decision, Permit, Policy, denied, input, input_of};
use crate::tool::{Tool, ValidArguments};
use sekisho_config::ExternalPolicyConfig;
use sekisho_core::call::{CallContext, Deadline, OnBehalf, SentFlag, ToolOutput};
use sekisho_core::error::CallError;
use sekisho_core::json;
use sekisho_observe::telemetry;
use sekisho_outbound::{Outbound, OutboundRequest, Trust, check_status};

/// Maximum bytes of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The reason that a caller gets without a usable answer.
const UNANSWERED: &str =
    "the external policy did not decide about this call, so it is refused; the reason is in the log";

/// The address of the external policy, and the client for its requests.
#[derive(Debug, Default)]
pub(super) struct ExternalPolicy {
    config: ArcSwapOption<ExternalPolicyConfig>,
    outbound: OnceLock<Outbound>,
}

#[derive(Serialize)]
struct Question {
    input: Value,
}

/// Other members are ignored, such as the id of the decision.
#[derive(Deserialize)]
struct Answer {
    result: Option<Reasons>,
}

/// The document of the package. `deny` must be there: a wrong address is not a permission.
#[derive(Deserialize)]
struct Reasons {
    deny: Vec<String>,
    #[serde(default)]
    require_approval: Vec<String>,
}

impl ExternalPolicy {
    pub(super) fn new(config: Option<&ExternalPolicyConfig>) -> Self {
        let external = Self::default();
        external.reconfigure(config);
        external
    }

    pub(super) fn reconfigure(&self, config: Option<&ExternalPolicyConfig>) {
        self.config.store(config.cloned().map(Arc::new));
    }

    pub(super) fn set_outbound(&self, outbound: &Outbound) {
        self.outbound.get_or_init(|| outbound.clone());
    }

    pub(super) fn is_configured(&self) -> bool {
        self.config.load().is_some()
    }

    /// Errors: why there is no usable answer.
    async fn ask(
        &self,
        config: &ExternalPolicyConfig,
        set: &PolicySet,
        call: &CallContext,
        tool: &Tool,
        arguments: &ValidArguments,
    ) -> Result<Verdict, String> {
        let input = Self::input(config, set, call, tool, arguments)?;
        self.ask_with(config, call, tool, input).await
    }

    fn input(
        config: &ExternalPolicyConfig,
        set: &PolicySet,
        call: &CallContext,
        tool: &Tool,
        arguments: &ValidArguments,
    ) -> Result<Value, String> {
        let reads = Reads { arguments: config.send_arguments, sent: config.send_arguments, ..Reads::ALL };
        let known = set.cache.known(tool, &call.caller);
        let mut input = input_of(&known, call, tool, arguments, reads)?;
        input::add_digest(&mut input, arguments.sent());
        Ok(input)
    }

    /// Errors: why there is no usable answer.
    async fn ask_with(
        &self,
        config: &ExternalPolicyConfig,
        call: &CallContext,
        tool: &Tool,
        input: Value,
    ) -> Result<Verdict, String> {
        // Not the call's own flag: it is not sent to its tool yet.
        let on_behalf =
            OnBehalf { owner: call.caller.owner.clone(), sent: SentFlag::default(), queueing: Arc::default() };
        let request = OutboundRequest {
            trace: telemetry::outgoing(call),
            on_behalf: Some(on_behalf),
            ..request(config, input, call.deadline(tool.timeout()).at_most(config.timeout()))?
        };
        self.send(request).await
    }

    async fn send(&self, request: OutboundRequest<'_>) -> Result<Verdict, String> {
        let outbound = self.outbound.get().ok_or("the gateway has no client for it")?;
        let answer = outbound.send(request).await.map_err(|error| error.to_string())?;
        check_status(&answer).map_err(|error| error.to_string())?;
        read(&answer.body)
    }
}

impl Policy {
    /// Sets the client by which the external policy is asked.
    pub fn set_outbound(&self, outbound: &Outbound) {
        self.external.set_outbound(outbound);
    }

    /// Whether an external policy decides too.
    pub fn asks_external(&self) -> bool {
        self.external.is_configured()
    }

    /// Adds the reasons of the external policy to the reasons of the set.
    /// Errors: `denied`, with all its reasons, or because it did not decide.
    pub async fn ask_external(
        &self,
        call: &CallContext,
        tool: &Tool,
        authorized: Authorized,
    ) -> Result<Authorized, CallError> {
        let Some(config) = self.external.config.load_full() else { return Ok(authorized) };
        let set = self.current.load_full();
        let asked = self.external.ask(&config, &set, call, tool, authorized.arguments()).await;
        let verdict = asked.map_err(|failure| undecided(&failure, authorized.version()))?;
        if !verdict.denials.is_empty() {
            return Err(denied(Decision::new(verdict, authorized.version(), false)));
        }
        authorized.requiring(verdict.approvals, &set, call, tool)
    }

    /// Whether the external policy is asked about answers too.
    pub(crate) fn sees_answers(&self) -> bool {
        self.external.config.load().as_ref().is_some_and(|config| config.send_answers)
    }

    /// Asks about an answer before anybody gets it. A reason to require approval withholds it: there is nothing left to approve.
    /// Errors: `denied`, with all its reasons, or because it did not decide.
    pub(crate) async fn ask_about_answer(
        &self,
        call: &CallContext,
        tool: &Tool,
        permit: &Permit,
        output: &ToolOutput,
    ) -> Result<(), CallError> {
        let config = self.external.config.load_full().filter(|config| config.send_answers);
        let Some(config) = config else { return Ok(()) };
        let set = self.current.load_full();
        let asked = match ExternalPolicy::input(&config, &set, call, tool, &permit.arguments) {
            Ok(mut input) => match input::add_answer(&mut input, output) {
                Ok(()) => self.external.ask_with(&config, call, tool, input).await,
                Err(problem) => Err(problem),
            },
            Err(problem) => Err(problem),
        };
        let Verdict { mut denials, approvals } = asked.map_err(|failure| undecided(&failure, &permit.version))?;
        denials.extend(approvals);
        if denials.is_empty() {
            return Ok(());
        }
        let verdict = Verdict { denials, approvals: Vec::new() };
        Err(denied(Decision::new(verdict, &permit.version, false)))
    }

    /// Asks the external policy about no call, to see whether it answers in the right form.
    /// Errors: why it has no usable answer.
    pub async fn probe_external(&self) -> Result<(), String> {
        let Some(config) = self.external.config.load_full() else { return Ok(()) };
        let deadline = Deadline::after(config.timeout());
        self.external.send(request(&config, Value::new_object(), deadline)?).await.map(|_| ())
    }
}

fn request(
    config: &ExternalPolicyConfig,
    input: Value,
    deadline: Deadline,
) -> Result<OutboundRequest<'static>, String> {
    let body = serde_json::to_vec(&Question { input }).map_err(|error| error.to_string())?;
    let mut request = OutboundRequest {
        method: Method::POST,
        body: Some(body.into()),
        max_response_bytes: MAX_ANSWER_BYTES,
        trust: Trust::Operator,
        ..OutboundRequest::get(config.url.clone(), deadline)
    };
    request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(request)
}

fn read(body: &[u8]) -> Result<Verdict, String> {
    let answer: Answer = json::parse_as(body)
        .map_err(|error| format!("its answer is not `{{\"result\": {{\"deny\": [REASON, …]}}}}`: {error}"))?;
    let reasons =
        answer.result.ok_or("its answer has no `result`: there is no document at the address of the setting")?;
    Ok(Verdict { denials: reasons.deny, approvals: reasons.require_approval })
}

fn undecided(failure: &str, version: &Arc<str>) -> CallError {
    let verdict = Verdict { denials: vec![UNANSWERED.to_owned()], approvals: Vec::new() };
    let failure = Some(format!("policy.external: {failure}"));
    denied(Decision { failure, ..Decision::new(verdict, version, false) })
}

#[cfg(test)]
mod tests;
