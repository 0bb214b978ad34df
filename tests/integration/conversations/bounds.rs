//! What a conversation may take: of a model's window, and of a store that is not available.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::agents::with_agents;
use super::{create, ended, events, get, names, ran, said, streamed};
use crate::agents::with_scripts;
use crate::app::{answer, code};

/// The model's window has room for 120 000 characters of a session, without tools. Its script counts the turns that it is sent.
#[tokio::test]
async fn a_long_session_is_read_from_a_summary_on_and_stays_in_the_log() {
    let turns: Vec<_> = (1..=9).map(|number| json!({"text": [number.to_string()]})).collect();
    let main = json!({"turns": turns, "context_summary": "Much was said.", "title": "Long"});
    let app = with_agents(
        &[("main", main, "context_tokens: 40000, tools: {exclude: ['*']}"), ("calculating", json!({"turns": []}), "")],
        "",
    )
    .await;
    let id = create(&app, json!({})).await;
    let input = json!({"user_input": "word ".repeat(5_000)});
    for number in 1..=5 {
        assert_eq!(ran(&app, &id, input.clone()).await["result"], number.to_string());
    }
    let sent = events(streamed(&app, &id, &input)).await;
    assert_eq!(names(&sent), ["system", "compacted", "text_delta", "result", "system"]);
    assert_eq!(
        (&sent[1].data["messages"], &sent[3].data["result"]),
        (&json!(6), &json!("3")),
        "the model is sent the last two runs: {sent:?}"
    );
    let (earlier, next) = (sent[1].data["earlier_session_id"].clone(), sent[0].data["session_id"].clone());
    assert_ne!(earlier, next, "another session continues the first one");
    let sent = events(streamed(&app, &id, &input)).await;
    assert_eq!(names(&sent), ["system", "text_delta", "result", "system"], "the summary is stored");
    assert_eq!((&sent[2].data["result"], &sent[0].data["session_id"]), (&json!("4"), &next));
    assert_eq!(said(&app, &id).await.len(), 14);

    let fork = answer(app.post(&format!("/api/conversations/{id}/fork")).json(&json!({}))).await.1;
    let fork = fork["id"].as_str().unwrap();
    assert_eq!(
        ran(&app, fork, json!({"user_input": "And here?"})).await["result"],
        "5",
        "it begins with the last two runs, too"
    );

    // The earlier one is there as it was: its own messages, of which the older ones are summarized once more.
    let path = format!("/api/conversations/{id}");
    let change = app.client.patch(format!("{}{path}", app.url)).json(&json!({"session_id": earlier}));
    assert_eq!(answer(change).await.0, StatusCode::OK);
    let sent = events(streamed(&app, &id, &json!({"user_input": "Back?"}))).await;
    assert_eq!(names(&sent)[..2], ["system", "compacted"], "{sent:?}");
    assert_eq!(sent[1].data["earlier_session_id"], earlier);
    let shown = get(&app, &path).await;
    assert_eq!((&shown["session_id"], &shown["earlier_session_id"]), (&sent[0].data["session_id"], &earlier));
}

#[tokio::test]
async fn while_the_store_is_away_conversations_answer_that_they_may_be_asked_again() {
    let app = with_scripts(&[("slow", "turns: [{text: [one], delay_seconds: 60}]")]).await;
    let id = create(&app, json!({"agent": "slow"})).await;
    app.gateway.close().await;
    for (request, what) in [
        (app.get("/api/conversations"), "conversations"),
        (app.get("/api/plans"), "plans"),
        (app.post(&format!("/api/conversations/{id}/execute")).json(&json!({"user_input": "a"})), "a run"),
        (app.post("/v1/chat/completions").json(&json!({"messages": [{"role": "user", "content": "a"}]})), "an agent"),
    ] {
        let response = request.send().await.unwrap();
        let (status, wait) = (response.status(), response.headers().get("retry-after").cloned());
        let reply: Value = response.json().await.unwrap();
        assert_eq!(
            (status, code(&reply), wait.is_some()),
            (StatusCode::SERVICE_UNAVAILABLE, "overloaded", true),
            "{what}: {reply}"
        );
        assert!(reply.to_string().contains("store is not available"), "{what}: {reply}");
    }
}

/// A run that is cut off pays for what it used until then, with its sub-agent's, and its rows say so.
#[tokio::test]
async fn the_usage_of_a_run_that_did_not_succeed_is_what_was_charged() {
    let task = json!({"description": "a sum", "prompt": "6*7?", "subagent_type": "clerk"}).to_string();
    let main = |last: Value| {
        let calls = json!([{"id": "t", "tool": "Task", "arguments": task}]);
        let usage = json!({"prompt_tokens": 101, "completion_tokens": 13});
        json!({"turns": [{"calls": calls, "usage": usage}, last]})
    };
    let clerk = json!({"turns": [{"text": ["42"], "usage": {"prompt_tokens": 17, "completion_tokens": 5}}]});
    let slow = json!({"text": ["so"], "delay_seconds": 60});
    let keys = "subagents: [clerk]";
    let scripts = [
        ("main", main(json!({"status": 400})), keys),
        ("slow", main(slow.clone()), "subagents: [clerk], max_run_seconds: 1"),
        ("cancelled", main(slow), keys),
        ("calculating", clerk, ""),
    ];
    let app = with_agents(&scripts, "budget: {max_cost_per_tenant_per_day: '1'}").await;
    let spent = async || {
        let metrics = app.metrics().await;
        let is_spent = |line: &&str| line.starts_with("shannon_budget_cost_usd{amount=\"spent\",caller=\"\"");
        let line = metrics.lines().find(is_spent).map_or("0", |line| line.rsplit(' ').next().unwrap());
        line.parse::<f64>().unwrap()
    };
    for (agent, status) in [("main", "failed"), ("slow", "timed_out"), ("cancelled", "cancelled")] {
        let before = spent().await;
        let id = create(&app, json!({"agent": agent})).await;
        let mut response = streamed(&app, &id, &json!({"user_input": "6*7?"})).send().await.unwrap();
        let run = response.headers()["x-run-id"].to_str().unwrap().to_owned();
        super::until(&mut response, |event| event.name == "tool_result").await;
        if agent == "cancelled" {
            let cancelled = app.post(&format!("/api/runs/{run}/cancel")).send().await.unwrap();
            assert_eq!(cancelled.status(), StatusCode::ACCEPTED);
        }
        assert_eq!(ended(&app, &run).await["status"], status);
        let stored = get(&app, &format!("/api/runs/{run}")).await;
        let rows = stored["usage"].as_array().unwrap();
        let agents: Vec<_> = rows.iter().map(|row| row["agent"].as_str().unwrap()).collect();
        assert_eq!(agents, [agent, "clerk"], "{stored}");
        let cost = |row: &Value| row["cost_usd"].to_string().trim_matches('"').parse::<f64>().unwrap();
        let (sum, charged) = (rows.iter().map(cost).sum::<f64>(), spent().await - before);
        assert!(sum > 0.000_4 && (sum - charged).abs() < 0.000_000_5, "{agent}: {sum} and {charged}: {stored}");
    }
    let (status, _) = answer(app.get("/api/logs/usage")).await;
    assert_eq!(status, StatusCode::OK);
}
