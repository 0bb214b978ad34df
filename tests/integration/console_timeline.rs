//! Runs of agents as timelines, and two of them side by side.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::console::{Browser, HostileTools, check_markup};
use crate::console_agents::{TALK, configuration, hostile_talk, page_with, submitted};
use crate::console_runs::SLOW;

async fn app(talk: &str) -> TestApp {
    let directory = TempDir::new().unwrap();
    // Another agent, which calculates something else.
    let other = directory.path().join("other.yaml");
    std::fs::write(&other, talk.replace("6*7", "6*8").replace("It is 42.", "It is 48.")).unwrap();
    let yaml =
        format!("{}    other: {{provider: replay, model: '{}'}}\n", configuration(&directory, talk), other.display());
    TestApp::in_directory(directory, &yaml).await
}

/// Asks an agent something in a conversation of its own; the page of the run, once it has this text.
async fn ran(browser: &Browser<'_>, agent: &str, text: &str) -> (String, String) {
    let new = [("user_input", "What is 6 times 7?"), ("title", ""), ("agent", agent)];
    let address = submitted(browser, "/console/conversations", &new).await;
    let (conversation, run) = address.split_once("?run=").unwrap();
    let path = format!("/console/runs/{run}");
    // The conversation leads to it once it has begun.
    page_with(browser, conversation, &format!("href=\"{path}\"")).await;
    let page = page_with(browser, &path, text).await;
    (path, page)
}

/// The steps of a run: depth, state, and tool or number.
async fn steps(app: &TestApp, path: &str, query: &str) -> (Vec<(u64, String, String)>, Value) {
    let route = path.replace("/console/", "/api/");
    let (status, found) = answer(app.get(&format!("{route}/timeline{query}")).bearer_auth("key-of-ann")).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    let step = |step: &Value| {
        let name = step["work"]["tool"].as_str().map_or_else(|| step["work"]["number"].to_string(), str::to_owned);
        (step["depth"].as_u64().unwrap(), step["state"].as_str().unwrap().to_owned(), name)
    };
    (found["items"].as_array().unwrap().iter().map(step).collect(), found)
}

#[tokio::test]
async fn a_run_is_shown_as_steps_in_time_to_its_caller_alone() {
    let app = app(TALK).await;
    let (ann, ola) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-ola").await);
    let (path, page) = ran(&ann, "talk", "✓ success").await;
    check_markup(&page);
    let (found, body) = steps(&app, &path, "").await;
    let expected =
        [(0, "succeeded", "1"), (1, "succeeded", "calculator"), (1, "failed", "calculator"), (0, "succeeded", "2")]
            .map(|(depth, state, name)| (depth, state.to_owned(), name.to_owned()));
    assert_eq!(found, expected, "{body}");
    assert_eq!((&body["turns"], &body["calls"], &body["next"]), (&json!(2), &json!(2), &Value::Null), "{body}");
    let moments: Vec<_> = body["items"].as_array().unwrap().iter().map(|step| step["begun_at"].as_str()).collect();
    assert!(moments.iter().all(Option::is_some) && body["items"][3]["ended_at"].is_string(), "{body}");
    // A row and a bar for each step; texts open; a call leads to its page, and has its cost.
    assert_eq!(
        (page.matches("<td class=\"drawn\">").count(), page.matches("<rect class=\"bad\"").count()),
        (4, 1),
        "{page}"
    );
    for part in ["Turn 2", "It is 42.", "$0.25", "Cost of tools", "&quot;expression&quot;: &quot;6*7&quot;"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let run = path.rsplit('/').next().unwrap();
    let (_, list) = answer(app.get(&format!("/admin/calls?run={run}")).bearer_auth("key-of-ann")).await;
    assert_eq!(list["calls"].as_array().unwrap().len(), 2, "{list}");
    for call in list["calls"].as_array().unwrap() {
        assert!(page.contains(&format!("href=\"/console/calls/{}\"", call["call_id"].as_str().unwrap())), "{page}");
    }
    assert!(!page.contains("<live-page") && page.contains("href=\"/console/conversations/"), "{page}");
    assert!(ann.page(&format!("{path}?lang=ja")).await.contains("タイムライン"));
    // The conversation leads there, and the search does.
    let conversation = body["run"]["conversation_id"].as_str().unwrap();
    let page = ann.page(&format!("/console/conversations/{conversation}")).await;
    assert!(page.contains(&format!("href=\"{path}\"")), "{page}");
    let opened = ann.get(&format!("/console/search?q={run}&open=1")).send().await.unwrap();
    assert_eq!(opened.headers()["location"], *path);
    for path in [path.clone(), format!("{path}/compare?with={run}")] {
        assert_eq!(ola.get(&path).send().await.unwrap().status(), StatusCode::NOT_FOUND, "{path}");
    }
    let route = path.replace("/console/", "/api/") + "/timeline";
    assert_eq!(answer(app.get(&route).bearer_auth("key-of-root")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_run_that_is_on_is_followed() {
    let app = app(SLOW).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let (path, page) = ran(&ann, "talk", "sleep</code>").await;
    check_markup(&page);
    assert!(page.contains(&format!("<live-page src=\"{path}/events\"")) && page.contains("goes on"), "{page}");
    let (found, body) = steps(&app, &path, "").await;
    assert_eq!(found[1..], [(1, "running".to_owned(), "sleep".to_owned())], "{body}");
    let run = path.rsplit('/').next().unwrap();
    let conversation = format!("/console/conversations/{}", body["run"]["conversation_id"].as_str().unwrap());
    submitted(&ann, &conversation, &[("act", "cancel"), ("run", run)]).await;
    let page = page_with(&ann, &path, "– cancelled").await;
    assert!(!page.contains("<live-page"), "{page}");
    let (found, body) = steps(&app, &path, "").await;
    assert_eq!(found[1], (1, "unknown".to_owned(), "sleep".to_owned()), "{body}");
}

#[tokio::test]
async fn two_runs_are_compared_up_to_their_first_difference() {
    let app = app(TALK).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let (one, _) = ran(&ann, "talk", "✓ success").await;
    let (same, _) = ran(&ann, "talk", "✓ success").await;
    let (other, _) = ran(&ann, "other", "✓ success").await;
    let with = |path: &str| format!("{one}/compare?with={}", path.rsplit('/').next().unwrap());
    let page = ann.page(&with(&same)).await;
    check_markup(&page);
    assert!(page.contains("Their steps are equal.") && !page.contains("First difference"), "{page}");
    let page = ann.page(&with(&other)).await;
    check_markup(&page);
    for part in ["First difference: step 2", "6*7", "6*8", "It is 42.", "It is 48."] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let place = format!("href=\"{other}?after=0#s1\"");
    assert!(page.contains(&place) && ann.page(&other).await.contains("<tr id=\"s1\">"), "{page}");
    for wrong in ["nothing", "%3Cscript%3E"] {
        let page = ann.get(&format!("{one}/compare?with={wrong}")).send().await.unwrap();
        assert_eq!(page.status(), StatusCode::NOT_FOUND, "{wrong}");
    }
}

#[tokio::test]
async fn a_long_run_has_pages() {
    let turn = |n: u32| {
        let arguments = json!({"expression": format!("{n}+1")}).to_string();
        json!({"text": [format!("Step {n}.")], "calls": [{"id": "a", "tool": "calculator", "arguments": arguments}]})
    };
    let turns: Vec<_> = (0..51).map(turn).chain([json!({"text": ["It is done."]})]).collect();
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("long.yaml");
    std::fs::write(&script, json!({"turns": turns}).to_string()).unwrap();
    let yaml = format!(
        "{}    long: {{provider: replay, model: '{}', max_turns: 60, max_tool_calls: 60}}\n",
        configuration(&directory, TALK),
        script.display()
    );
    let app = TestApp::in_directory(directory, &yaml).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let (path, page) = ran(&ann, "long", "✓ success").await;
    assert!(page.contains("<tr id=\"s99\">") && !page.contains("<tr id=\"s100\">"), "{page}");
    assert!(page.contains(&format!("rel=\"next\" href=\"{path}?after=100#steps\"")), "{page}");
    let page = ann.page(&format!("{path}?after=100")).await;
    check_markup(&page);
    assert!(page.contains("<tr id=\"s100\">") && page.contains("It is done."), "{page}");
    assert!(
        page.contains(&format!("rel=\"prev\" href=\"{path}?after=0#steps\"")) && !page.contains("rel=\"next\""),
        "{page}"
    );
    let (found, body) = steps(&app, &path, "?limit=2&after=101").await;
    let names: Vec<_> = found.iter().map(|(_, _, name)| &**name).collect();
    assert_eq!((names, &body["next"], &body["turns"]), (vec!["calculator", "52"], &Value::Null, &json!(52)), "{body}");
    assert_eq!(steps(&app, &path, "?limit=2&after=100").await.1["next"], "102");
}

#[tokio::test]
async fn no_text_of_a_run_becomes_markup() {
    let directory = TempDir::new().unwrap();
    let yaml = configuration(&directory, &hostile_talk());
    let app = TestApp::with_tools_of(directory, &yaml, vec![Box::new(HostileTools)]).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let (path, page) = ran(&ann, "talk", "✓ success").await;
    check_markup(&page);
    check_markup(&ann.page(&format!("{path}/compare?with={}", path.rsplit('/').next().unwrap())).await);
}
