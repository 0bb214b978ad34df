//! Branches of conversations: another profile, prompt or model from a message on.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::prefixes::Talk;
use crate::app::{answer, code};
use crate::model_server::ModelServer;

async fn branch(talk: &Talk, run: &Value, body: Value) -> (StatusCode, Value) {
    let path = format!("/api/runs/{}/branch", run.as_str().unwrap());
    answer(talk.app.post(&path).bearer_auth("key-of-ada").json(&body)).await
}

async fn conversation(talk: &Talk, id: &str) -> Value {
    answer(talk.app.get(&format!("/api/conversations/{id}")).bearer_auth("key-of-ada")).await.1
}

fn last(model: &ModelServer) -> Value {
    model.requests().last().unwrap().clone()
}

/// The model server of the branch refuses thoughts that are bound to another beginning; the one of the original any changed byte.
#[tokio::test]
async fn a_branch_has_a_session_and_a_beginning_of_its_own() {
    let second = ModelServer::start().await;
    let others = format!(", careful: {{{}, prompt: {{append: Be careful.}}}}", second.profile);
    let mut talk = Talk::with_agents("", &others).await;
    let first = talk.say("talk-a 1").await;
    talk.say("talk-a 2").await;
    let (status, branched) = branch(&talk, &first["run_id"], json!({"profile": "careful", "title": "Careful"})).await;
    assert_eq!(status, StatusCode::CREATED, "{branched}");
    let original = std::mem::replace(&mut talk.id, branched["id"].as_str().unwrap().to_owned());
    let shown = conversation(&talk, &talk.id).await;
    assert_eq!((&shown["agent"], &shown["title"]), (&json!("careful"), &json!("Careful")));
    assert_eq!(
        (&shown["branch"]["run_id"], &shown["earlier_session_id"]),
        (&first["run_id"], &first["session_id"]),
        "{shown}"
    );
    let reply = talk.say("talk-a 3").await;
    assert_eq!((&reply["status"], &reply["session_id"]), (&json!("succeeded"), &shown["session_id"]));
    assert_ne!(reply["session_id"], first["session_id"]);
    let request = last(&second);
    let said = request["messages"].to_string();
    assert!(said.contains("talk-a 1") && said.contains("talk-a 3") && !said.contains("talk-a 2"), "{said}");
    assert!(request["system"].to_string().contains("Be careful.") && !said.contains("Summary of"), "{request}");
    talk.say("talk-a 4").await;
    talk.id = original;
    talk.say("talk-a 3").await;
}

#[tokio::test]
async fn a_branch_has_another_prompt_or_the_model_of_another_profile() {
    let second = ModelServer::start().await;
    let others = format!(", other: {{{}, prompt: {{replace: Be the other.}}}}", second.profile);
    let mut talk = Talk::with_agents(", prompt: {append: Be the first.}", &others).await;
    let first = talk.say("talk-b 1").await;
    // The server tells conversations apart by a word, which the branch has, too.
    talk.model.forget();
    let prompt = json!({"prompt": {"replace": "Be brief."}, "model": "other"});
    let (status, branched) = branch(&talk, &first["run_id"], prompt).await;
    assert_eq!(status, StatusCode::CREATED, "{branched}");
    talk.id = branched["id"].as_str().unwrap().to_owned();
    let reply = talk.say("talk-b 2").await;
    assert_eq!(last(&second)["system"].to_string().matches("Be brief.").count(), 1);
    assert_eq!(talk.model.requests().len(), 1, "the other model answers");
    // A branch of the branch has the same prompt, but its own model.
    let (_, again) = branch(&talk, &reply["run_id"], json!({"model": "main"})).await;
    assert_eq!(again["branch"]["prompt"], json!({"replace": "Be brief.", "append": null}));
    talk.id = again["id"].as_str().unwrap().to_owned();
    talk.say("talk-b 3").await;
    assert!(last(&talk.model)["system"].to_string().contains("Be brief."));
    assert_eq!(second.requests().len(), 1);
}

/// Without a difference it continues the session, with the same bytes.
#[tokio::test]
async fn a_branch_without_a_difference_is_a_fork_and_wrong_ones_are_refused() {
    let mut talk = Talk::with_agents("", "").await;
    let first = talk.say("talk-c 1").await;
    let second = talk.say("talk-c 2").await;
    let messages = answer(talk.app.get(&format!("/api/conversations/{}/messages", talk.id)).bearer_auth("key-of-ada"));
    let messages = messages.await.1;
    let of_second = &messages["items"].as_array().unwrap().last().unwrap()["id"];
    let long = "x".repeat(65_537);
    for (run, body, expected, words) in [
        (json!("none"), json!({}), StatusCode::NOT_FOUND, "no run"),
        (first["run_id"].clone(), json!({"at": of_second}), StatusCode::BAD_REQUEST, "no message of this run"),
        (first["run_id"].clone(), json!({"profile": "none"}), StatusCode::BAD_REQUEST, "no model"),
        (first["run_id"].clone(), json!({"model": "none"}), StatusCode::BAD_REQUEST, "no model"),
        (first["run_id"].clone(), json!({"prompt": {"append": long}}), StatusCode::BAD_REQUEST, "65536"),
    ] {
        let (status, reply) = branch(&talk, &run, body).await;
        assert!(status == expected && reply.to_string().contains(words), "{words}: {reply}");
    }
    let missing = json!({"at": format!("{}:99", second["run_id"].as_str().unwrap())});
    let (status, reply) = branch(&talk, &second["run_id"], missing).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_result"));
    let (_, fork) = branch(&talk, &second["run_id"], json!({"at": of_second})).await;
    assert_eq!(fork["session_id"], second["session_id"]);
    talk.id = fork["id"].as_str().unwrap().to_owned();
    talk.say("talk-c 3").await;
}
