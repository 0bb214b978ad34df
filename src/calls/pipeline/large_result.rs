//! Results that are too large for the caller's model: stored, and answered by a preview. Everything else that happens to a
//! result (rules, schema) has happened before.

use std::sync::{Arc, Weak};

use serde_json::Value;

use super::Pipeline;
use super::accept::{BYTES_PER_TOKEN, Checked};
use crate::results::{LargeResult, ToolAccess};
use crate::tool::{Tool, how_to_read_on};
use sekisho_core::call::{CallContext, Caller, READ_RESULT, Via};
use sekisho_core::error::CallError;
use sekisho_core::json;

/// Bytes of a text up to which no summary takes its place.
const MIN_SUMMARISED_BYTES: usize = 1_024;

impl Pipeline {
    /// Stores the output of a call, if it is too large, and puts a preview in its place. Where it is not stored, the
    /// preview has no handle.
    /// Errors: the error of `checked`.
    pub(super) async fn shortened(
        &self,
        call: &CallContext,
        tool: &Tool,
        checked: Result<Checked, CallError>,
        max_text_tokens: u64,
    ) -> Result<Checked, CallError> {
        let mut checked = checked?;
        if let Some((large, handles)) = checked.large.take().zip(call.origin.handles.as_ref()) {
            let may_read = self.tools_for(&call.caller).find(READ_RESULT).is_ok();
            // Boxed, because few results are large.
            let is_stored = Box::pin(self.results.keep(call, &large, may_read, call.deadline(tool.timeout()))).await;
            let max_bytes = max_bytes(handles.max_inline_bytes, max_text_tokens);
            let handle = is_stored.then_some(&*large.handle);
            let rest = rest(call.via, tool, &large, is_stored);
            checked.show(large.preview(tool.summary(), handle, &rest, max_bytes));
        }
        Ok(checked)
    }
}

impl ToolAccess for Weak<Pipeline> {
    fn may_use(&self, caller: &Arc<Caller>, tool: &str) -> bool {
        self.upgrade().is_some_and(|pipeline| {
            let snapshot = pipeline.registry.snapshot();
            snapshot.get(tool).is_some_and(|tool| pipeline.policy.check_access(tool, caller).is_ok())
        })
    }
}

/// Whether a result is stored and answered by a preview: one of a tool that has a summary, or one whose text is too long, or for who
/// gets the value too, the value.
/// `text`: with its tokens, if the tool reports them.
pub(super) fn is_large(
    call: &CallContext,
    tool: &Tool,
    value: &Value,
    (text, tokens): (&str, Option<u64>),
    max_text_tokens: u64,
) -> bool {
    let Some(handles) = call.origin.handles.as_ref().filter(|_| !tool.metadata.reads_results()) else { return false };
    // An agent's model gets only the text.
    let gets_value = call.via != Via::Agent;
    (tool.summary().is_some() && text.len() > MIN_SUMMARISED_BYTES)
        || text.len() > max_bytes(handles.max_inline_bytes, max_text_tokens)
        || tokens.is_some_and(|tokens| tokens > max_text_tokens)
        || gets_value && json::approximate_size(value) > handles.max_inline_bytes
}

fn max_bytes(max_inline_bytes: usize, max_text_tokens: u64) -> usize {
    let of_tokens = max_text_tokens.saturating_mul(BYTES_PER_TOKEN);
    max_inline_bytes.min(usize::try_from(of_tokens).unwrap_or(usize::MAX))
}

/// How the rest is read, as a sentence for a model.
fn rest(via: Via, tool: &Tool, large: &LargeResult, is_stored: bool) -> String {
    let handle = &large.handle;
    match (is_stored, via) {
        (false, _) => format!("The rest is not stored; {}.", how_to_read_on(Some(tool.input.document()))),
        (true, Via::Rest) => format!("GET /results/{handle} reads the rest, by offset and limit, or by query or grep."),
        (true, _) => format!(
            "The tool `{READ_RESULT}` with the handle {handle} reads the rest, by `offset` and `limit`, or what you need \
             of it by `query` or `grep`."
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pipeline::tests::{Checkpoint, Scripted};
    use crate::tool::Metadata;
    use sekisho_config::Config;
    use sekisho_core::call::{Arguments, CallOrigin, ResultHandles, ToolOutput};

    fn checkpoint(output: ToolOutput) -> Checkpoint {
        Checkpoint::around(Scripted::answering(move |_| Ok(output.clone())))
    }

    fn call(via: Via) -> CallContext {
        let handles = Some(ResultHandles { max_inline_bytes: 2_000, session: None });
        CallContext {
            origin: CallOrigin { handles, ..CallOrigin::default() },
            ..CallContext::new("scripted", Arc::new(Caller::new("ann", "acme", Vec::new())), via)
        }
    }

    /// The output as it is answered, and the text.
    async fn answer(checkpoint: &Checkpoint, call: CallContext) -> (Value, String) {
        let reply = checkpoint.pipeline.call(call, Arguments::new()).await.reply;
        let shown = serde_json::to_value(&*reply).unwrap();
        (shown["output"].clone(), shown["text"].as_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn only_a_large_result_of_a_call_for_a_model_is_answered_by_a_preview() {
        let rows: Vec<_> = (0..500).map(|id| json!({"id": id})).collect();
        let large = checkpoint(json!({"rows": rows}).into());
        let whole = CallContext { origin: CallOrigin::default(), ..call(Via::Rest) };
        assert_eq!(answer(&large, whole).await.0, json!({"rows": rows}));
        // No tool reads it in this pipeline.
        let (output, text) = answer(&large, call(Via::Agent)).await;
        assert_eq!(output["shape"], "{rows: [500 × {id: number}]}");
        assert!(output.get("result_handle").is_none() && text.len() <= 2_000, "{text}");
        assert_eq!(output["note"], "The rest is not stored; call it again for less at a time to read the rest.");
        let small = checkpoint(json!({"rows": [1]}).into());
        assert_eq!(answer(&small, call(Via::Agent)).await.0, json!({"rows": [1]}));
    }

    #[tokio::test]
    async fn a_short_text_of_a_large_value_is_enough_for_an_agent() {
        let value = json!({"figure": "x".repeat(5_000)});
        let output = ToolOutput { text: Some("a figure".into()), ..ToolOutput::from(value.clone()) };
        let checkpoint = checkpoint(output);
        assert_eq!(answer(&checkpoint, call(Via::Agent)).await, (value, "a figure".to_owned()));
        let (output, _) = answer(&checkpoint, call(Via::Mcp)).await;
        assert_eq!(output["content_type"], "application/json", "a client of MCP gets the value too");
    }

    #[tokio::test]
    async fn results_are_for_who_may_use_the_tool_now() {
        let script = Scripted::answering(|_| Ok(ToolOutput::from(json!(1))));
        let metadata = Metadata { dangerous: true, ..Metadata::default() };
        let checkpoint = Checkpoint::with(&Config::default(), metadata, script);
        let access = Arc::downgrade(&checkpoint.pipeline);
        let wide = Caller::new("ann", "acme", vec!["operator".to_owned()]);
        let narrowed = |pattern: &str| Caller { tools: wide.tools.narrowed(vec![pattern.to_owned()]), ..wide.clone() };
        for (caller, tool, may_use) in [
            (wide.clone(), "scripted", true),
            (narrowed("script*"), "scripted", true),
            (narrowed("other"), "scripted", false),
            (Caller::new("ann", "acme", Vec::new()), "scripted", false),
            (wide.clone(), "removed", false),
        ] {
            assert_eq!(access.may_use(&Arc::new(caller.clone()), tool), may_use, "{tool} {caller:?}");
        }
    }

    #[tokio::test]
    async fn a_preview_costs_its_own_tokens() {
        let checkpoint =
            checkpoint(ToolOutput { tokens: Some(90_000), ..ToolOutput::from(json!("word ".repeat(20_000))) });
        let reply = checkpoint.pipeline.call(call(Via::Agent), Arguments::new()).await.reply;
        let text = reply.outcome.as_ref().unwrap().text.len() as u64;
        assert_eq!(reply.tokens, text.div_ceil(4));
        assert!(reply.tokens <= 500);
    }
}
