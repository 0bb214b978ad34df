//! The gateway as a library: a tool of your own, registered beside the built-in ones, and a call of it that passes every
//! stage. Run it with `cargo run --example embed`.

#![expect(clippy::print_stdout, reason = "it shows what the call gave")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use sekisho::{
    Arguments, Attempt, CallContext, CallError, Caller, Config, Execution, Executor, Gateway, Metadata, Source,
    SourceTools, ToolDefinition, Via,
};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    // First: the sandboxes of MCP servers that are programs are set up by copies of this program.
    sekisho::run_if_sandbox_helper();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let state = std::env::temp_dir().join(format!("sekisho-embed-{}", std::process::id()));
    let answer = count_words(&state, "the quick brown fox").await;
    std::fs::remove_dir_all(&state)?;
    println!("{:#}", answer?);
    Ok(())
}

/// Starts a gateway with its state in a folder, and calls the tool in the name of a caller.
pub(crate) async fn count_words(state: &Path, text: &str) -> Result<Value, Box<dyn Error>> {
    let config = Config { state_directory: Some(state.to_owned()), ..Config::default() };
    let gateway = Gateway::with_sources(config, vec![Box::new(Texts)]).await?;

    let caller = Arc::new(Caller::new("ann", "default", vec!["writer".to_owned()]));
    let call = CallContext::new("word_count", caller, Via::Rest);
    let arguments = Arguments::from_iter([("text".to_owned(), json!(text))]);
    let reply = gateway.pipeline.call(call, arguments).await.reply;

    gateway.close().await;
    Ok(serde_json::to_value(&*reply)?)
}

/// Where the tool comes from.
struct Texts;

impl Source for Texts {
    fn name(&self) -> &str {
        "texts"
    }

    fn tools(&self) -> SourceTools {
        let metadata = Metadata {
            name: "word_count".to_owned(),
            description: "Counts the words of a text.".to_owned(),
            source: self.name().to_owned(),
            roles: vec!["writer".to_owned()],
            ..Metadata::default()
        };
        let parameters = json!({
            "type": "object",
            "required": ["text"],
            "properties": {"text": {"type": "string", "minLength": 1}},
            "additionalProperties": false,
        });
        let output_schema = Some(json!({"type": "object", "properties": {"words": {"type": "integer"}}}));
        let tool =
            ToolDefinition { metadata, parameters: parameters.into(), output_schema, executor: Arc::new(WordCount) };
        SourceTools { tools: vec![tool], unavailable: Vec::new() }
    }
}

/// What runs. Its arguments have passed the schema, and the caller the policies, before it is asked.
struct WordCount;

impl Executor for WordCount {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let text = arguments.get("text").and_then(Value::as_str);
            let text = text.ok_or_else(|| CallError::tool("there is no text"))?;
            Ok(json!({"words": text.split_whitespace().count()}).into())
        })
    }
}
