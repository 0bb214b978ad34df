//! Forks, and the logs of runs.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{create, get, hello, ran, said};
use crate::agents::with_scripts;
use crate::app::{TestApp, answer, code};

const TALK: &str = "turns: [{text: [one]}, {text: [two]}, {text: [three]}]";

async fn forked(app: &TestApp, id: &str, body: Value) -> String {
    let (status, fork) = answer(app.post(&format!("/api/conversations/{id}/fork")).json(&body)).await;
    assert_eq!(status, StatusCode::CREATED, "{fork}");
    fork["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_fork_goes_on_from_a_message_and_leaves_the_original_as_it_is() {
    let app = with_scripts(&[("talk", TALK)]).await;
    let id = create(&app, json!({"agent": "talk"})).await;
    ran(&app, &id, json!({"user_input": "a"})).await;
    ran(&app, &id, json!({"user_input": "b"})).await;
    let messages = get(&app, &format!("/api/conversations/{id}/messages")).await;
    let second = messages["messages"][1]["id"].as_str().unwrap();
    let fork = forked(&app, &id, json!({"message_id": second, "title": "Other"})).await;
    assert_eq!(said(&app, &fork).await, ["user: a", "assistant: one"]);
    assert_eq!(ran(&app, &fork, json!({"user_input": "c"})).await["result"], "two");
    let whole = forked(&app, &id, json!({})).await;
    assert_eq!(ran(&app, &whole, json!({"user_input": "c"})).await["result"], "three");
    assert_eq!(said(&app, &id).await, ["user: a", "assistant: one", "user: b", "assistant: two"]);
    for unknown in ["x", "x:1", &format!("{second}9")] {
        let body = json!({"message_id": unknown});
        let (status, reply) = answer(app.post(&format!("/api/conversations/{id}/fork")).json(&body)).await;
        assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_result"));
    }
    let page = get(&app, "/api/conversations?limit=2").await;
    let listed: Vec<_> =
        page["conversations"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!((listed, page["next"].as_str()), (vec![&*whole, &*fork], Some(&*fork)));
    let rest = get(&app, &format!("/api/conversations?before={fork}")).await;
    assert_eq!((&rest["conversations"][0]["id"], &rest["next"]), (&json!(id), &Value::Null));
}

#[tokio::test]
async fn a_fork_inside_a_turn_is_still_valid_for_the_model() {
    let app = with_scripts(&[]).await;
    let id = create(&app, json!({})).await;
    ran(&app, &id, hello()).await;
    let messages = get(&app, &format!("/api/conversations/{id}/messages")).await;
    // The turn with the call, without its result.
    let fork = forked(&app, &id, json!({"message_id": messages["messages"][1]["id"]})).await;
    assert_eq!(ran(&app, &fork, json!({"user_input": "Go on."})).await["status"], "succeeded");
    let said = said(&app, &fork).await;
    assert!(said[2].contains("may have happened"), "{said:?}");
}

#[tokio::test]
async fn logs_are_read_in_pages_and_exported() {
    let app = with_scripts(&[]).await;
    let id = create(&app, json!({})).await;
    let run = ran(&app, &id, hello()).await["run_id"].clone();
    let usage = get(&app, "/api/logs/usage").await;
    assert_eq!(
        (&usage["rows"][0]["run_id"], &usage["rows"][0]["input_tokens"], &usage["next"]),
        (&run, &json!(290), &Value::Null)
    );
    let first = get(&app, "/api/logs/messages?limit=3").await;
    assert_eq!(first["rows"].as_array().unwrap().len(), 3);
    let after = first["next"].as_str().unwrap();
    let rest = get(&app, &format!("/api/logs/messages?limit=3&after={after}")).await;
    assert_eq!((rest["rows"].as_array().unwrap().len(), &rest["rows"][0]["position"]), (1, &json!(3)));
    let export = async |path: &str| {
        let response = app.get(path).send().await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        (kind, response.text().await.unwrap())
    };
    let (kind, csv) = export("/api/logs/tool_executions?format=csv").await;
    let (header, row) = csv.split_once("\r\n").unwrap();
    assert_eq!(kind, "text/csv; charset=utf-8");
    let columns = "conversation_id,run_id,position,run_begun_at,tenant,caller,provider,model,tool_use_id,tool_name";
    assert!(header.starts_with(columns), "{header}");
    assert!(row.contains("calculator") && row.contains("70.7"), "{row}");
    let (kind, lines) = export("/api/logs/messages?format=jsonl").await;
    assert_eq!((kind.as_str(), lines.lines().count()), ("application/jsonl", 4));
    for line in lines.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let begun: jiff::Timestamp = row["run_begun_at"].as_str().unwrap().parse().unwrap();
        assert!(begun <= jiff::Timestamp::now(), "{row}");
        assert_eq!((&row["incomplete"], &row["tenant"]), (&json!(false), &usage["rows"][0]["tenant"]), "{row}");
        assert_eq!((&row["provider"], &usage["rows"][0]["provider"]), (&json!("replay"), &json!("replay")), "{row}");
        assert_eq!((&row["model"], &row["caller"]), (&usage["rows"][0]["model"], &usage["rows"][0]["caller"]), "{row}");
        assert!(!row["caller"].as_str().unwrap().is_empty() && !row["model"].as_str().unwrap().is_empty(), "{row}");
    }
    let (status, reply) = answer(app.get("/api/logs/other")).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_result"));
    for bad in ["limit=0", "limit=501", "after=x", "format=xml"] {
        assert_eq!(answer(app.get(&format!("/api/logs/usage?{bad}"))).await.0, StatusCode::BAD_REQUEST, "{bad}");
    }
}
