//! The tools of a step. If the step was begun before and interrupted, answered calls are not sent again.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use super::state::CallMade;
use crate::toolbox::{RecordedCall, ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_calls::budget::DeferredCharges;
use sekisho_core::call::Caller;
use sekisho_gateway::Gateway;

/// The text for the model in place of the answer of a sent call that did not arrive.
pub(super) const MAY_HAVE_HAPPENED: &str = "The call was sent before the step was interrupted, and its answer did not arrive: it \
                                            may have happened. Check that before you make it again.";

/// Answers each call that the interrupted run made already, once: with its answer, or if it has none and its tool is not
/// idempotent, by saying so. All others are sent, those that are repeated under their key.
pub(super) struct StepToolbox {
    pub(super) toolbox: Arc<dyn Toolbox>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) caller: Arc<Caller>,
    /// The id of the step's attempt: keys of calls are made of it.
    pub(super) attempt: String,
    /// Who stores the charges of calls, unless a journal does.
    pub(super) charges: Option<Arc<DeferredCharges>>,
    /// The calls of the interrupted run that were not made again yet.
    pub(super) calls: Mutex<Vec<CallMade>>,
}

impl StepToolbox {
    fn recorded(&self, call: ToolboxCall, key: Option<Arc<str>>) -> ToolboxCall {
        let key = key.unwrap_or_else(|| RecordedCall::key_of(&self.attempt, &call.id));
        let charges = match &call.record.charges {
            Some(of_journal) => Some(of_journal.with_key(Arc::clone(&key))),
            None => self.charges.as_ref().map(|charges| charges.of_call(Arc::clone(&key))),
        };
        ToolboxCall { record: RecordedCall { key: Some(key), charges }, ..call }
    }

    fn take(&self, call: &ToolboxCall) -> Option<CallMade> {
        let mut calls = self.calls.lock();
        let arguments = Value::Object(call.arguments.clone());
        let position = calls.iter().position(|made| made.is_of(&call.tool, &arguments))?;
        Some(calls.remove(position))
    }

    fn is_idempotent(&self, tool: &str) -> bool {
        let found = self.gateway.pipeline.registry.find(tool, &self.caller);
        found.is_ok_and(|tool| tool.metadata.idempotent)
    }
}

impl Toolbox for StepToolbox {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        self.toolbox.list()
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(async move {
            let (success, text) = match self.take(&call) {
                Some(CallMade { answer: Some(text), failed, .. }) => (!failed, text),
                Some(_) if !self.is_idempotent(&call.tool) => (false, MAY_HAVE_HAPPENED.to_owned()),
                made => {
                    let call = self.recorded(call, made.and_then(|made| made.key));
                    return self.toolbox.call(call).await;
                }
            };
            ToolAnswer { success, text, error_info: None, images: Vec::new() }
        })
    }
}

impl fmt::Debug for StepToolbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StepToolbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::state::StepRun;
    use sekisho_config::Config;

    /// Counts the sent calls.
    #[derive(Default)]
    struct Sent(Mutex<Vec<(String, Arc<str>)>>);

    impl Toolbox for Sent {
        fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
            self.0.lock().push((call.tool, call.record.key.unwrap()));
            Box::pin(async { ToolAnswer { success: true, text: "new".into(), error_info: None, images: Vec::new() } })
        }
    }

    fn made(id: &str, tool: &str, arguments: &str, answer: Option<&str>, failed: bool) -> CallMade {
        let (id, tool, arguments) = (id.to_owned(), tool.to_owned(), arguments.to_owned());
        let key = Some(format!("key of {id}").into());
        CallMade { id, key, tool, arguments, answer: answer.map(str::to_owned), failed, earlier: false }
    }

    #[tokio::test]
    async fn what_an_interrupted_run_sent_is_not_sent_again() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { state_directory: Some(folder.path().to_owned()), ..Config::default() };
        let gateway = Gateway::start(config).await.unwrap();
        let caller = Arc::new(Caller::new("ann", "acme", Vec::new()));
        let sent = Arc::new(Sent::default());
        let calls = vec![
            made("1", "pay", r#"{"to":"bob","sum":3}"#, Some("paid"), false),
            made("2", "pay", r#"{"to":"eve","sum":3}"#, Some("no such account"), true),
            made("3", "pay", r#"{"to":"joe","sum":3}"#, None, false),
            made("4", "calculator", "{}", None, false),
        ];
        let attempt = "plan/1".to_owned();
        let toolbox =
            StepToolbox { toolbox: sent.clone(), gateway, caller, attempt, charges: None, calls: Mutex::new(calls) };
        let mut answers = Vec::new();
        for (tool, arguments) in [
            ("pay", json!({"sum": 3, "to": "bob"})),
            ("pay", json!({"to": "bob", "sum": 3})),
            ("pay", json!({"to": "eve", "sum": 3})),
            ("pay", json!({"to": "joe", "sum": 3})),
            ("calculator", json!({})),
        ] {
            let Value::Object(arguments) = arguments else { panic!() };
            let call = ToolboxCall::new("x", tool, arguments);
            let answer = toolbox.call(call).await;
            answers.push((answer.success, answer.text));
        }
        let expected =
            [(true, "paid"), (true, "new"), (false, "no such account"), (false, MAY_HAVE_HAPPENED), (true, "new")];
        assert_eq!(answers, expected.map(|(success, text)| (success, text.to_owned())));
        assert_eq!(
            *sent.0.lock(),
            [("pay".to_owned(), RecordedCall::key_of("plan/1", "x")), ("calculator".to_owned(), "key of 4".into())],
            "a second payment that is meant, and a call that does no harm, under its key"
        );
    }

    #[test]
    fn a_call_that_is_made_again_is_one_call() {
        let interrupted = StepRun {
            begun: true,
            calls: vec![made("1", "pay", r#"{"a":1,"b":2}"#, Some("paid"), false), made("2", "pay", "{}", None, false)],
            ..StepRun::default()
        };
        let mut run = StepRun::after(interrupted);
        run.add(made("3", "pay", r#"{"b":2,"a":1}"#, None, false));
        run.add(made("4", "pay", r#"{"b":2,"a":1}"#, None, false));
        let calls: Vec<_> =
            run.calls.iter().map(|call| (call.id.as_str(), call.answer.as_deref(), call.earlier)).collect();
        assert_eq!(calls, [("2", None, true), ("3", Some("paid"), false), ("4", None, false)]);
    }
}
