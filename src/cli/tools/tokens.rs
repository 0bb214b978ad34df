//! `sekisho tools --tokens`: the tokens that the tools take in a list for a model, and those that `server.mcp.tools: auto` saves.

use serde_json::{Value, json};

use crate::cli::client::{Remote, Unanswered};
use crate::cli::{Common, Exit, present, with_config};
use sekisho_calls::tool::{ListedTokens, ModelText};

/// The names of tools, with their tokens.
type Measured = Vec<(String, ListedTokens)>;

pub(super) fn run(common: &Common) -> Exit {
    match &common.server {
        Some(server) => Remote::at(server)
            .and_then(|remote| remote.get(&["tools", "schemas"], &[]))
            .map_or_else(Unanswered::report, |answer| show(common, measured(&answer), None)),
        None => with_config(common, |config| {
            let Some(offered) = super::reported_tools(&config) else { return Exit::Misconfigured };
            let tools = offered.snapshot.tools().iter().filter(|tool| !tool.metadata.reads_results());
            let measured = tools.map(|tool| (tool.name().to_owned(), tool.listed_tokens()));
            show(common, measured.collect(), Some(config.server.mcp.max_listed_tokens))
        }),
    }
}

/// The tools of `GET /tools/schemas`.
fn measured(answer: &Value) -> Measured {
    let tools = answer.as_array().into_iter().flatten().map(|tool| {
        let text = |name: &str| tool[name].as_str().unwrap_or_default();
        let listed = ModelText { name: text("name"), description: text("description"), schema: &tool["parameters"] };
        (listed.name.to_owned(), listed.listed_tokens())
    });
    tools.collect()
}

/// The largest first. Only the configuration of this machine has the `budget` of `auto`.
fn show(common: &Common, mut tools: Measured, budget: Option<usize>) -> Exit {
    tools.sort_by_key(|(_, tokens)| std::cmp::Reverse(tokens.whole));
    let all: ListedTokens = tools.iter().map(|(_, tokens)| *tokens).sum();
    let auto = budget.map(|budget| all.of_auto(budget));
    if common.json {
        let listed = tools
            .iter()
            .map(|(name, tokens)| json!({"name": name, "tokens": tokens.whole, "short_tokens": tokens.short}));
        let mut answer = json!({"tools": listed.collect::<Vec<_>>(), "tokens": all.whole, "short_tokens": all.short});
        if let Some(auto) = auto {
            answer["auto_tokens"] = auto.into();
            answer["saved_tokens"] = (all.whole - auto).into();
        }
        return present::json(&answer);
    }
    let row = |(name, tokens): &(String, ListedTokens)| {
        vec![name.clone(), tokens.whole.to_string(), tokens.short.to_string()]
    };
    present::table(&["tool", "tokens", "short form"], tools.iter().map(row).collect());
    let ListedTokens { whole, short } = all;
    present::info(&format!(
        "{} tools: {whole} tokens, in the short form {short}, by an estimate of 4 bytes a token",
        tools.len()
    ));
    if let Some(auto) = auto {
        let saved = whole - auto;
        present::info(&format!("`server.mcp.tools: auto` lists at most {auto} of them, and saves {saved}"));
    }
    Exit::Done
}
