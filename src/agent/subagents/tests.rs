//! Sub-agents of runs of the real service; scripts play the models.

use futures_util::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::FinishReason;
use crate::event::RunUsage;
use crate::service;
use crate::toolbox::InProcess;
use sekisho_config::{Config, Environment};
use sekisho_core::until::until;
use sekisho_gateway::Gateway;

/// A service whose profile `main` plays `main`, and the models `small` and `large` the other scripts.
struct Setup {
    agents: Arc<AgentService>,
    _directory: TempDir,
}

const TYPES: &str = "
    researcher: {description: Looks things up., prompt: 'You look things up.', model: small, max_turns: 3}
    clerk: {description: Calculates., prompt: 'You calculate.', tools: {include: [calculator]}, model: inherit}
    chief: {description: Delegates., prompt: 'You delegate.', model: delegating, subagents: ['*']}
";

async fn setup(main: &Value, others: &[(&str, Value)], more: &str) -> Setup {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, script: &Value| {
        let file = directory.path().join(format!("{name}.yaml"));
        std::fs::write(&file, script.to_string()).unwrap();
        file.display().to_string()
    };
    let profile = |name: &str, script: &Value, keys: &str| {
        let prices = "price_per_million_prompt_tokens: 1, price_per_million_completion_tokens: 2";
        format!("    {name}: {{provider: replay, model: '{}', {prices}, {keys}}}\n", write(name, script))
    };
    let mut yaml = format!(
        "agent:\n  default_profile: main\n  subagents: {{types: {{}}}}\n  profiles:\n{}",
        profile("main", main, "subagents: ['*']")
    );
    for (name, script) in others {
        yaml.push_str(&profile(name, script, ""));
    }
    yaml = yaml
        .replace("subagents: {types: {}}", &format!("subagents:\n    types:{}", TYPES.replace("\n    ", "\n      ")));
    yaml.push_str(more);
    let file = directory.path().join("sekisho.yaml");
    std::fs::write(&file, &yaml).unwrap();
    let config = Config::load(Some(&file), &Environment::default());
    let mut config = config.unwrap_or_else(|errors| panic!("{errors:?}\n{yaml}"));
    config.state_directory = Some(directory.path().join("state"));
    let agents = AgentService::new(&Gateway::start(config).await.unwrap()).unwrap();
    Setup { agents, _directory: directory }
}

impl Setup {
    fn request(&self, tenant: &str) -> AgentRequest {
        let gateway = self.agents.gateway();
        let profile = service::profile(&gateway.configuration().current().agent, "main").unwrap();
        let caller = Arc::new(Caller::new("ann", tenant, Vec::new()));
        let toolbox = Arc::new(InProcess::new(Arc::clone(gateway), Arc::clone(&caller)));
        let scopes = toolbox.scopes.clone();
        AgentRequest { scopes, ..AgentRequest::new("main", profile, caller, toolbox, vec![Message::User("go".into())]) }
    }

    async fn run(&self, request: AgentRequest) -> Vec<Event> {
        self.agents.begin(request).await.map_err(|error| error.to_string()).unwrap().collect().await
    }
}

fn task(id: &str, kind: &str, more: &Value) -> Value {
    let mut arguments = json!({"description": "a task", "prompt": "What is 6*7?", "subagent_type": kind});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"id": id, "tool": "Task", "arguments": arguments.to_string()})
}

fn tokens(prompt: u64, completion: u64) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion})
}

fn says(text: &str, usage: &Value) -> Value {
    json!({"text": [text], "usage": usage})
}

/// The results of the calls, and the errors.
fn results(events: &[Event]) -> Vec<(bool, String)> {
    let result = |event: &Event| match event {
        Event::ToolResult { result, .. } => Some((true, result.clone())),
        Event::ToolError { error, .. } => Some((false, error.clone())),
        _ => None,
    };
    events.iter().filter_map(result).collect()
}

fn usage(events: &[Event]) -> &RunUsage {
    let Some(Event::Usage(usage)) = events.last() else { panic!("{events:?}") };
    usage
}

#[tokio::test]
async fn sub_agents_of_a_turn_run_in_parallel_with_events_and_usage_of_their_own() {
    let main = json!({"turns": [
        {"calls": [task("a", "researcher", &json!({})), task("b", "clerk", &json!({"model": "large"}))], "usage": tokens(100, 10)},
        says("done", &tokens(200, 20)),
    ]});
    let slow = |turn: Value| {
        let mut turn = turn;
        turn["delay_seconds"] = json!(0.3);
        turn
    };
    let small = json!({"turns": [slow(says("found it", &tokens(7, 3)))]});
    let calculates = json!({"calls": [{"id": "c", "tool": "calculator", "arguments": "{\"expression\": \"6*7\"}"}], "usage": tokens(11, 1), "text": ["Let me see."]});
    let large = json!({"turns": [slow(calculates), says("it is 42", &tokens(13, 5))]});
    let setup = setup(&main, &[("small", small), ("large", large)], "").await;
    let request = setup.request("acme");
    let (by_agent, caller) = (request.usage.clone(), Arc::clone(&request.caller));
    let events = setup.run(request).await;
    assert_eq!(results(&events), [(true, "found it".into()), (true, "it is 42".into())]);

    // Each begins before one ends, with the id of its call.
    let inputs = events.iter().filter_map(|event| match event {
        Event::ToolInput { id, tool_name, .. } if tool_name == TASK => Some(id.clone()),
        _ => None,
    });
    let inputs: Vec<String> = inputs.collect();
    let position = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).unwrap();
    let of = |id: &str| {
        let begin = position(&|event| matches!(event, Event::SubAgentBegin { tool_use_id, .. } if tool_use_id == id));
        let end = position(
            &|event| matches!(event, Event::SubAgentEnd { tool_use_id, success: true, .. } if tool_use_id == id),
        );
        let result = position(&|event| matches!(event, Event::ToolResult { id: of, .. } if of == id));
        (begin, end, result)
    };
    let (first, second) = (of(&inputs[0]), of(&inputs[1]));
    assert!(first.0.max(second.0) < first.1.min(second.1), "{events:?}");
    assert!(first.1 < first.2 && second.1 < second.2, "{events:?}");
    let Event::SubAgentEnd { subagent_type, usage: of_clerk, .. } = &events[second.1] else { panic!() };
    assert_eq!((&**subagent_type, of_clerk.prompt_tokens, of_clerk.tool_calls), ("clerk", 24, 1));

    // One row for each agent and model; the costs are the charges.
    let rows = by_agent.rows().into_iter().map(|row| {
        let model = row.model.rsplit('/').next().unwrap().trim_end_matches(".yaml").to_owned();
        (row.agent.to_string(), model, row.used.turns, row.used.prompt_tokens, row.used.completion_tokens)
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    let row = |agent: &str, model: &str, turns, prompt, completion| {
        (agent.to_owned(), model.to_owned(), turns, prompt, completion)
    };
    let expected =
        [row("clerk", "large", 2, 24, 6), row("main", "main", 2, 300, 30), row("researcher", "small", 1, 7, 3)];
    assert_eq!(rows, expected);
    let charged = setup.agents.gateway().pipeline.budget.of_today(10);
    let charged = charged.iter().find(|day| day.tenant == *caller.tenant && day.caller.is_none()).unwrap();
    assert_eq!((by_agent.total().cost_usd, charged.held.is_zero()), (charged.spent, true));
    assert_eq!(usage(&events).cost_usd, charged.spent);
    assert_eq!((usage(&events).prompt_tokens, usage(&events).turns), (331, 2));
}

#[tokio::test]
async fn a_sub_agent_has_the_tools_of_its_type_and_those_below_the_depth_have_no_task() {
    // Each level tries to start another; the fourth has no `Task`.
    let delegating = json!({"turns": [{"calls": [task("d", "chief", &json!({}))]}, says("delegated", &tokens(1, 1))]});
    let main = json!({"turns": [{"calls": [task("a", "chief", &json!({}))]}, says("done", &tokens(1, 1))]});
    let nested = setup(&main, &[("delegating", delegating), ("small", json!({"turns": []}))], "").await;
    let events = nested.run(nested.request("acme")).await;
    let begun = events.iter().filter(|event| matches!(event, Event::SubAgentBegin { .. })).count();
    assert_eq!((begun, results(&events)), (MAX_DEPTH as usize, vec![(true, "delegated".into())]), "{events:?}");

    let forbidden = json!({"turns": [
        {"calls": [{"id": "c", "tool": "current_time", "arguments": "{}"}]},
        says("no clock", &tokens(1, 1)),
    ]});
    let main =
        json!({"turns": [{"calls": [task("a", "clerk", &json!({"model": "small"}))]}, says("done", &tokens(1, 1))]});
    let filtered = setup(&main, &[("small", forbidden)], "").await;
    let request = filtered.request("acme");
    let usage = request.usage.clone();
    let events = filtered.run(request).await;
    assert_eq!(results(&events), [(true, "no clock".into())]);
    assert!(usage.rows().iter().any(|row| &*row.agent == "clerk" && row.used.tool_calls == 1));
}

#[tokio::test]
async fn what_is_not_there_is_named_to_the_model() {
    let calls = [
        task("a", "nobody", &json!({})),
        task("b", "researcher", &json!({"model": "opus"})),
        json!({"id": "c", "tool": "Task", "arguments": "{\"prompt\": \"x\"}"}),
        task("d", "researcher", &json!({})),
        task("e", "clerk", &json!({})),
    ];
    let main = json!({"turns": [{"calls": calls}, says("done", &tokens(1, 1))]});
    let more = "tenants: {small-only: {models: [main]}}\n";
    let setup = setup(&main, &[("small", json!({"turns": []}))], more).await;
    let found = results(&setup.run(setup.request("small-only")).await);
    for (index, words) in [
        (0, "there is no sub-agent type \"nobody\""),
        (1, "there is no model \"opus\" for this tenant"),
        (2, "the arguments of `Task` are invalid"),
        (3, "there is no model \"small\" for this tenant"),
    ] {
        assert!(!found[index].0 && found[index].1.contains(words), "{index}: {found:?}");
    }
    // `inherit` is the model of the run, which the tenant has: its script plays its first turn again, without the types.
    assert!(found[4].1.contains("the sub-agent did not finish") || found[4].0, "{found:?}");
    // For a tenant with all models the type's own is used, whose script has no turn.
    let found = results(&setup.run(setup.request("acme")).await);
    assert!(!found[3].0 && found[3].1.contains("the sub-agent did not finish"), "{found:?}");
}

#[tokio::test]
async fn the_variable_names_the_model_of_sub_agents_that_have_none() {
    let parent = AgentProfile { model: Some("large".into()), ..AgentProfile::default() };
    let main = json!({"turns": []});
    for (variable, name, expected) in [
        (None, None, Ok("large")),
        (Some("claude-haiku-4-5"), None, Ok("claude-haiku-4-5")),
        (Some("fast"), None, Ok("gpt-5-nano")),
        (Some("inherit"), None, Ok("large")),
        (Some("fast"), Some("openai"), Ok("gpt-4o-mini")),
        (None, Some("fast"), Ok("gpt-5-nano")),
        (None, Some("claude-haiku-4-5"), Err("there is no model")),
    ] {
        let models = "  models: {fast: {profile: openai, model: gpt-5-nano}}\n";
        let setup = setup(&main, &[("small", main.clone()), ("delegating", main.clone())], models).await;
        let mut config = Config::clone(&setup.agents.gateway().configuration().current());
        config.agent.subagents.model = variable.map(str::to_owned);
        setup.agents.gateway().reload(config).await;
        let found = setup.agents.catalog().model_of_subagent("acme", name, &parent).await;
        let found = found.map(|profile| profile.model().to_owned()).map_err(|error| error.message().to_owned());
        match expected {
            Ok(model) => assert_eq!(found.as_deref(), Ok(model), "{variable:?} {name:?}"),
            Err(words) => assert!(found.unwrap_err().contains(words)),
        }
    }
}

#[tokio::test]
async fn an_aborted_run_ends_its_sub_agents_and_counts_what_they_used() {
    let main = json!({"turns": [{"calls": [task("a", "researcher", &json!({}))], "usage": tokens(100, 10)}, says("done", &tokens(1, 1))]});
    let call = json!({"id": "c", "tool": "calculator", "arguments": "{\"expression\": \"6*7\"}"});
    let small = json!({"turns": [
        {"calls": [call], "usage": tokens(7, 3)},
        {"text": ["I look"], "delay_seconds": 600.0, "usage": tokens(7, 3)},
    ]});
    let setup = setup(&main, &[("small", small)], "").await;
    let request = setup.request("acme");
    let (usage, abort) = (request.usage.clone(), request.abort.clone());
    let events = setup.agents.begin(request).await.map_err(|error| error.to_string()).unwrap();
    let abort_in_its_turn = async {
        let has_begun = async || usage.rows().iter().any(|row| &*row.agent == "researcher");
        until("the sub-agent has begun", has_begun).await;
        abort.cancel();
    };
    let (seen, ()) = tokio::join!(events.collect::<Vec<_>>(), abort_in_its_turn);
    let end = seen.iter().position(|event| matches!(event, Event::SubAgentEnd { success: false, .. })).unwrap();
    let finished = seen.iter().position(|event| matches!(event, Event::Finished { reason: FinishReason::Aborted, .. }));
    assert!(finished.is_some_and(|finished| end < finished), "{seen:?}");
    let agents: Vec<_> = usage.rows().into_iter().map(|row| row.agent.to_string()).collect();
    assert_eq!(agents, ["main", "researcher"]);
    let budget = &setup.agents.gateway().pipeline.budget;
    until("nothing is held", async || budget.held().cost_usd.is_zero()).await;
}

#[tokio::test]
async fn a_layer_sees_the_task_and_the_calls_of_the_sub_agent() {
    use parking_lot::Mutex;

    struct Recording(Arc<dyn Toolbox>, Arc<Mutex<Vec<String>>>);
    impl Toolbox for Recording {
        fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
            self.0.list()
        }
        fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
            self.1.lock().push(call.tool.clone());
            self.0.call(call)
        }
    }

    let main =
        json!({"turns": [{"calls": [task("a", "clerk", &json!({"model": "small"}))]}, says("done", &tokens(1, 1))]});
    let small = json!({"turns": [
        {"calls": [{"id": "c", "tool": "calculator", "arguments": "{\"expression\": \"6*7\"}"}]},
        says("42", &tokens(1, 1)),
    ]});
    let setup = setup(&main, &[("small", small)], "").await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let layer =
        super::super::toolbox::ToolboxLayer::new(move |toolbox| Arc::new(Recording(toolbox, Arc::clone(&record))));
    setup.run(AgentRequest { layer: Some(layer), ..setup.request("acme") }).await;
    assert_eq!(*seen.lock(), ["Task", "calculator"]);
}
