//! The tools of a step that was begun before and interrupted: what was answered is not sent again.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use super::state::CallMade;
use crate::agent::toolbox::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use crate::core::call::Caller;
use crate::gateway::Gateway;

/// What the model is told of a call that was sent, and whose answer did not arrive.
const MAY_HAVE_HAPPENED: &str = "The call was sent before the step was interrupted, and its answer did not arrive: it may \
                                 have happened. Check that before you make it again.";

/// Answers each call that the interrupted run made already, once: with its answer, or if it has none and its tool is not
/// idempotent, by saying so. All others are sent.
pub(super) struct Interrupted {
    toolbox: Arc<dyn Toolbox>,
    gateway: Arc<Gateway>,
    caller: Arc<Caller>,
    /// Those that were not made again yet.
    calls: Mutex<Vec<CallMade>>,
}

impl Interrupted {
    /// `calls`: of the interrupted run.
    pub(super) fn new(
        toolbox: Arc<dyn Toolbox>,
        gateway: Arc<Gateway>,
        caller: Arc<Caller>,
        calls: Vec<CallMade>,
    ) -> Self {
        Self { toolbox, gateway, caller, calls: Mutex::new(calls) }
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

impl Toolbox for Interrupted {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        self.toolbox.list()
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(async move {
            let (success, text) = match self.take(&call) {
                Some(CallMade { answer: Some(text), failed, .. }) => (!failed, text),
                Some(_) if !self.is_idempotent(&call.tool) => (false, MAY_HAVE_HAPPENED.to_owned()),
                Some(_) | None => return self.toolbox.call(call).await,
            };
            ToolAnswer { success, text, error_info: None, images: Vec::new() }
        })
    }
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Interrupted").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::plan::state::StepRun;
    use crate::config::Config;

    /// Counts what is sent.
    #[derive(Default)]
    struct Sent(Mutex<Vec<String>>);

    impl Toolbox for Sent {
        fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
            self.0.lock().push(call.tool);
            Box::pin(async { ToolAnswer { success: true, text: "new".into(), error_info: None, images: Vec::new() } })
        }
    }

    fn made(id: &str, tool: &str, arguments: &str, answer: Option<&str>, failed: bool) -> CallMade {
        let (id, tool, arguments) = (id.to_owned(), tool.to_owned(), arguments.to_owned());
        CallMade { id, tool, arguments, answer: answer.map(str::to_owned), failed, earlier: false }
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
        let toolbox = Interrupted::new(sent.clone(), gateway, caller, calls);
        let mut answers = Vec::new();
        for (tool, arguments) in [
            ("pay", json!({"sum": 3, "to": "bob"})),
            ("pay", json!({"to": "bob", "sum": 3})),
            ("pay", json!({"to": "eve", "sum": 3})),
            ("pay", json!({"to": "joe", "sum": 3})),
            ("calculator", json!({})),
        ] {
            let Value::Object(arguments) = arguments else { panic!() };
            let call = ToolboxCall { id: "x".into(), tool: tool.into(), arguments, corrections: Vec::new() };
            let answer = toolbox.call(call).await;
            answers.push((answer.success, answer.text));
        }
        let expected =
            [(true, "paid"), (true, "new"), (false, "no such account"), (false, MAY_HAVE_HAPPENED), (true, "new")];
        assert_eq!(answers, expected.map(|(success, text)| (success, text.to_owned())));
        assert_eq!(
            *sent.0.lock(),
            ["pay", "calculator"],
            "a second payment that is meant, and a call that does no harm"
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
