//! The tools of a session: the model is offered the same ones in each run. By one of them it reaches those that came since, and by
//! another one it waits.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_config::{CALL_TOOL, WAIT};
use sekisho_core::call::Arguments;

/// A toolbox that lists the tools of the session, whatever there is now. A call of a tool that is gone fails as any call of an
/// unknown tool.
pub struct Frozen {
    tools: Vec<ToolDescription>,
    toolbox: Arc<dyn Toolbox>,
    /// The beginning of the run.
    begun: Instant,
}

/// The longest wait of one call, in seconds; the run's own limit may be shorter.
const MAX_WAIT: f64 = 300.0;

impl Frozen {
    pub fn new(tools: Vec<ToolDescription>, toolbox: Arc<dyn Toolbox>) -> Self {
        Self { tools, toolbox, begun: Instant::now() }
    }

    /// Waits as long as the arguments say. The answers of two such calls differ, so that they are no repetition.
    async fn wait(&self, arguments: &Arguments) -> ToolAnswer {
        let wait = arguments.get("seconds").and_then(Value::as_f64).filter(|wait| *wait > 0.0 && *wait <= MAX_WAIT);
        let (success, text) = match wait {
            Some(wait) => {
                sleep(Duration::from_secs_f64(wait)).await;
                (true, format!("Waited {wait} s; the run has taken {} s.", self.begun.elapsed().as_secs()))
            }
            None => (false, format!("`seconds` of `{WAIT}` must be above 0 and at most {MAX_WAIT}")),
        };
        ToolAnswer { success, text, error_info: None, images: Vec::new() }
    }
}

/// The description of `Wait` for the model.
pub(crate) fn wait() -> ToolDescription {
    let description =
        "Waits, for example until a job has gone on. Ask for its state again after it, with longer waits each time.";
    let parameters = Arc::new(json!({
        "type": "object",
        "properties": {
            "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_WAIT},
        },
        "required": ["seconds"],
        "additionalProperties": false,
    }));
    ToolDescription { name: WAIT.to_owned(), description: description.to_owned(), parameters, is_deferred: false }
}

/// The description of `CallTool` for the model.
pub(crate) fn call_tool() -> ToolDescription {
    let description = "Calls a tool that is not in your list: one of which you were informed in the course of the conversation. \
                       Tools of your list are called directly.";
    let parameters = Arc::new(json!({
        "type": "object",
        "properties": {
            "tool": {"type": "string", "description": "The name of the tool."},
            "arguments": {"type": "object", "description": "The arguments of the tool, as its parameters describe them."},
        },
        "required": ["tool", "arguments"],
        "additionalProperties": false,
    }));
    ToolDescription { name: CALL_TOOL.to_owned(), description: description.to_owned(), parameters, is_deferred: false }
}

/// The tool and the arguments in arguments of `CallTool`.
pub(crate) fn called(arguments: &Value) -> Option<(&str, Option<&Value>)> {
    Some((arguments["tool"].as_str()?, arguments.get("arguments")))
}

/// The call in a call of `CallTool`.
/// Errors: a sentence for the model.
fn inner(mut call: ToolboxCall) -> Result<ToolboxCall, String> {
    let (tool, arguments) = (call.arguments.remove("tool"), call.arguments.remove("arguments"));
    let Some(Value::String(tool)) = tool.filter(|tool| tool != CALL_TOOL) else {
        return Err(format!("`{CALL_TOOL}` needs the name of another tool as `tool`"));
    };
    let arguments = match arguments {
        None => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(_) => {
            return Err(format!("the `arguments` of `{CALL_TOOL}` are no object; send those of `{tool}` as one"));
        }
    };
    Ok(ToolboxCall { tool, arguments, ..call })
}

impl Toolbox for Frozen {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(self.tools.clone()) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        if call.tool == WAIT {
            return Box::pin(async move { self.wait(&call.arguments).await });
        }
        if call.tool != CALL_TOOL {
            return self.toolbox.call(call);
        }
        match inner(call) {
            Ok(call) => self.toolbox.call(call),
            Err(text) => Box::pin(ready(ToolAnswer { success: false, text, error_info: None, images: Vec::new() })),
        }
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Frozen").field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each call with its tool and its arguments.
    struct Echo;

    impl Toolbox for Echo {
        fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
            let text = format!("{} {}", call.tool, Value::Object(call.arguments));
            Box::pin(async { ToolAnswer { success: true, text, error_info: None, images: Vec::new() } })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_takes_its_time_and_no_two_answers_are_the_same() {
        let toolbox = Frozen::new(vec![wait()], Arc::new(Echo));
        let mut texts = Vec::new();
        for seconds in [json!(2), json!(2), json!(0), json!(301), json!("2")] {
            let arguments = Arguments::from_iter([("seconds".to_owned(), seconds)]);
            texts.push(toolbox.call(ToolboxCall::new("id", WAIT, arguments)).await.text);
        }
        let refused = "`seconds` of `Wait` must be above 0 and at most 300";
        let expected =
            ["Waited 2 s; the run has taken 2 s.", "Waited 2 s; the run has taken 4 s.", refused, refused, refused];
        assert_eq!(texts, expected);
    }

    #[tokio::test]
    async fn the_list_stays_and_a_tool_that_came_is_called_by_another() {
        let toolbox = Frozen::new(vec![call_tool()], Arc::new(Echo));
        assert_eq!(toolbox.list().await.unwrap(), [call_tool()]);
        for (tool, arguments, expected) in [
            ("add", json!({"a": 1}), Ok(r#"add {"a":1}"#)),
            (CALL_TOOL, json!({"tool": "add", "arguments": {"a": 1}}), Ok(r#"add {"a":1}"#)),
            (CALL_TOOL, json!({"tool": "now"}), Ok("now {}")),
            (CALL_TOOL, json!({"tool": CALL_TOOL, "arguments": {}}), Err("another tool")),
            (CALL_TOOL, json!({"arguments": {}}), Err("another tool")),
            (CALL_TOOL, json!({"tool": "add", "arguments": "a"}), Err("no object")),
        ] {
            let arguments: Arguments = arguments.as_object().unwrap().clone();
            let answer = toolbox.call(ToolboxCall::new("id", tool, arguments)).await;
            match expected {
                Ok(text) => assert_eq!((answer.success, &*answer.text), (true, text)),
                Err(part) => assert!(!answer.success && answer.text.contains(part), "{answer:?}"),
            }
        }
    }
}
