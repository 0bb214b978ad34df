//! The tools of a session: the model is offered the same ones in each run, and reaches those that came since by one of them.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_config::CALL_TOOL;

/// A toolbox that lists the tools of the session, whatever there is now. A call of a tool that is gone fails as any call of an
/// unknown tool.
pub struct Frozen {
    pub tools: Vec<ToolDescription>,
    pub toolbox: Arc<dyn Toolbox>,
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
    ToolDescription { name: CALL_TOOL.to_owned(), description: description.to_owned(), parameters }
}

/// The tool and the arguments in arguments of `CallTool`.
pub(crate) fn called(arguments: &Value) -> Option<(&str, Option<&Value>)> {
    Some((arguments["tool"].as_str()?, arguments.get("arguments")))
}

/// The call in a call of `CallTool`.
///
/// # Errors
/// A sentence for the model.
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
    use sekisho_core::call::Arguments;

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

    #[tokio::test]
    async fn the_list_stays_and_a_tool_that_came_is_called_by_another() {
        let toolbox = Frozen { tools: vec![call_tool()], toolbox: Arc::new(Echo) };
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
