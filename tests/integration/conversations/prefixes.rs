//! Requests of a conversation begin with the bytes of the one before, whatever happens between two messages. The model server fails
//! the test at the first changed byte.

use std::sync::Arc;

use reqwest::StatusCode;
use sekisho_core::database_clock::DatabaseClock;
use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::model_server::ModelServer;
use crate::openapi::document;

const AUTH: &str = "auth: {anonymous: never, api_keys: [{id: ada, key: key-of-ada, roles: [admin, operator]}]}";

/// At noon, so that the date is the same in most time zones.
const FIRST_DAY: &str = "2026-12-01T12:00:00Z";
const SECOND_DAY: &str = "2026-12-02T12:00:00Z";

pub(super) struct Talk {
    pub(super) app: TestApp,
    pub(super) model: ModelServer,
    clock: Arc<DatabaseClock>,
    pub(super) id: String,
    yaml: String,
}

impl Talk {
    /// `keys`: of the agent's profile.
    pub(super) async fn begin(keys: &str) -> Self {
        Self::with_agents(keys, "").await
    }

    /// With more agents than `main`.
    pub(super) async fn with_agents(keys: &str, others: &str) -> Self {
        let model = ModelServer::start().await;
        let clock = Arc::new(DatabaseClock::new());
        clock.set(FIRST_DAY.parse().unwrap());
        let profiles = format!("main: {{{}{keys}}}{others}", model.profile);
        let yaml = format!(
            "{AUTH}\noutbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\n\
             agent: {{default_profile: main, profiles: {{{profiles}}}}}"
        );
        let app = TestApp::by_clock(&yaml, Arc::clone(&clock)).await;
        let created = app.post("/api/conversations").bearer_auth("key-of-ada").json(&json!({"workspace": true}));
        let (status, created) = answer(created).await;
        assert_eq!(status, StatusCode::CREATED, "{created}");
        let id = created["id"].as_str().unwrap().to_owned();
        Self { app, model, clock, id, yaml }
    }

    /// The same conversation in another process, by the clock of the machine.
    pub(super) async fn restarted(self) -> Self {
        let app = TestApp::in_directory(self.app.stop().await, &self.yaml).await;
        Self { app, ..self }
    }

    async fn ran(&self, body: Value) -> Value {
        let path = format!("/api/conversations/{}/execute", self.id);
        let (status, reply) = answer(self.app.post(&path).bearer_auth("key-of-ada").json(&body)).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        reply
    }

    pub(super) async fn say(&self, input: &str) -> Value {
        self.ran(json!({"user_input": input})).await
    }

    /// The text of the last message of the user in the last request of a turn.
    fn last_text(&self) -> String {
        let requests = self.model.requests();
        let messages = requests.last().unwrap()["messages"].as_array().unwrap().clone();
        let last = messages.iter().rev().find(|message| message["role"] == "user").unwrap();
        last["content"].as_array().into_iter().flatten().filter_map(|block| block["text"].as_str()).collect()
    }
}

#[tokio::test]
async fn forty_messages_with_files_tools_and_a_midnight_are_read_from_the_cache() {
    let talk = Talk::begin("").await;
    let upstream = TestApp::start().await;
    for number in 0..40 {
        let said = match number {
            3 | 15 | 30 => {
                let arguments = json!({"path": format!("notes-{number}.md"), "content": "a\n"});
                format!("talk-a {number}: call file_write {arguments}")
            }
            10 => {
                let document = document(&upstream.url).to_string();
                let body = json!({"name": "itself", "spec_inline": document});
                let registered = talk.app.post("/tools/openapi/register").bearer_auth("key-of-ada").json(&body);
                assert_eq!(answer(registered).await.0, StatusCode::OK);
                "talk-a 10: what is new?".to_owned()
            }
            11 => r#"talk-a 11: call CallTool {"tool": "itself__tools", "arguments": {}}"#.to_owned(),
            20 => {
                talk.clock.set(SECOND_DAY.parse().unwrap());
                "talk-a 20: good morning".to_owned()
            }
            _ => format!("talk-a {number}: and then?"),
        };
        let reply = talk.say(&said).await;
        assert_eq!(reply["status"], "succeeded", "{number}: {reply}");
        let news = talk.last_text();
        let expected = match number {
            4 => Some("New files in the workspace: \"notes-3.md\"."),
            10 => Some("- itself__tools: "),
            20 => Some("Today is 2026-12-02."),
            _ => None,
        };
        assert!(expected.is_none_or(|part| news.contains(part)), "{number}: {news}");
    }
    let bill = talk.model.bill();
    assert!(bill.cached * 10 >= bill.all * 9, "{bill:?}");
    let calls = answer(talk.app.get("/api/logs/tool_executions").bearer_auth("key-of-ada")).await.1;
    assert!(calls.to_string().contains("\"itself__tools\""), "the tool that came is called: {calls}");
    let metrics = talk.app.get("/metrics").bearer_auth("key-of-ada").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("agent_cache_read_ratio_count{agent=\"main\"} 40"), "{metrics}");
}

/// The changed prompt counts when it is asked for, and thoughts that are bound to the earlier one are no longer sent.
#[tokio::test]
async fn a_refreshed_session_has_the_prompt_of_today() {
    let talk = Talk::begin("").await;
    talk.say("talk-b 1").await;
    talk.clock.set(SECOND_DAY.parse().unwrap());
    talk.say("talk-b 2").await;
    let system = |request: &Value| request["system"].to_string();
    assert!(talk.model.requests().iter().all(|request| system(request).contains("2026-12-01")));
    talk.model.forget();
    talk.ran(json!({"user_input": "talk-b 3", "refresh": true})).await;
    talk.say("talk-b 4").await;
    let requests = talk.model.requests();
    assert!(requests[2..].iter().all(|request| system(request).contains("2026-12-02")), "{requests:#?}");
    assert!(!talk.last_text().contains("Today is"), "nothing is news any more");
}

/// The model's window has room for 180 000 characters of a session, with its prompt and its tool.
#[tokio::test]
async fn a_session_that_is_too_long_is_continued_by_another_with_its_own_prefix() {
    let talk = Talk::begin(", context_tokens: 60000, tools: {include: [calculator]}").await;
    let mut sessions = Vec::new();
    for number in 0..26 {
        let reply = talk.say(&format!("talk-c {number}: {}", "word ".repeat(1_600))).await;
        assert_eq!(reply["status"], "succeeded", "{number}: {reply}");
        sessions.push(reply["session_id"].clone());
    }
    sessions.dedup();
    assert!(sessions.len() >= 2, "{sessions:?}");
    let last = talk.model.requests().last().unwrap().to_string();
    assert!(last.contains("In short: "), "the summary is handed over");
}

/// Both of a conversation that goes on after a fork, and of the fork.
#[tokio::test]
async fn a_fork_begins_with_the_bytes_of_the_original() {
    let mut talk = Talk::begin("").await;
    talk.say("talk-d 1").await;
    talk.clock.set(SECOND_DAY.parse().unwrap());
    talk.say("talk-d 2").await;
    let fork = talk.app.post(&format!("/api/conversations/{}/fork", talk.id)).bearer_auth("key-of-ada");
    let fork = answer(fork.json(&json!({}))).await.1;
    talk.id = fork["id"].as_str().unwrap().to_owned();
    talk.say("talk-d 3").await;
    let first = &talk.model.requests()[0];
    let last = talk.model.requests().last().unwrap().clone();
    assert_eq!((&last["tools"], &last["system"]), (&first["tools"], &first["system"]));
}

#[tokio::test]
async fn a_restart_and_a_run_that_failed_change_nothing_before() {
    let talk = Talk::begin("").await;
    let arguments = json!({"expression": "6*7"});
    talk.say(&format!("talk-e 1: call calculator {arguments}")).await;
    let path = format!("/api/conversations/{}/execute", talk.id);
    for number in [2, 3] {
        let body = json!({"user_input": format!("talk-e {number}: please fail")});
        let (status, reply) = answer(talk.app.post(&path).bearer_auth("key-of-ada").json(&body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
    }
    let talk = talk.restarted().await;
    talk.say("talk-e 4: and now?").await;
    assert!(talk.last_text().starts_with("talk-e 2: please fail\n\n"), "{}", talk.last_text());
    talk.say("talk-e 5: thanks").await;
}

/// The other agent has a model, a prompt and thoughts of its own.
#[tokio::test]
async fn another_agent_in_between_changes_nothing_for_the_first() {
    let second = ModelServer::start().await;
    let talk = Talk::with_agents("", &format!(", other: {{{}, prompt: {{append: Be brief.}}}}", second.profile)).await;
    talk.say("talk-f 1").await;
    talk.ran(json!({"user_input": "talk-f 2", "model": "other"})).await;
    talk.clock.set(SECOND_DAY.parse().unwrap());
    talk.say("talk-f 3").await;
    talk.ran(json!({"user_input": "talk-f 4", "model": "other"})).await;
    let systems =
        |model: &ModelServer| model.requests().iter().map(|request| request["system"].to_string()).collect::<Vec<_>>();
    let (first, other) = (systems(&talk.model), systems(&second));
    assert_eq!((first.len(), other.len()), (2, 2));
    assert!(other[0].contains("Be brief.") && !first[1].contains("Be brief."));
}
