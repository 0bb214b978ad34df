//! The console's pages of calls that a person must approve.

use reqwest::StatusCode;
use reqwest::header::ORIGIN;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};
use crate::approvals::runs::{agent_with, paused};
use crate::approvals::{ASKS, KEYS, ask, call, show};
use crate::console::{Browser, check_markup, markup};
use crate::console_agents::{page_with, submit, submitted};
use crate::policy::with_policy_and;

/// Vic is a viewer in the tenant of the approver Boss.
fn keys() -> String {
    let viewer = "    - {id: vic, key: key-of-vic, tenant: acme, roles: [support]}\n";
    format!("{KEYS}{viewer}console: {{roles: {{viewer: [support]}}}}\n")
}

async fn app() -> TestApp {
    TestApp::with(&format!("{}{ASKS}", keys())).await
}

fn path_of(id: &str) -> String {
    format!("/console/approvals/{id}")
}

async fn status_of(app: &TestApp, id: &str) -> Value {
    show(app, "key-of-boss", id).await.1["status"].clone()
}

#[tokio::test]
async fn an_approver_decides_where_the_refused_call_leads() {
    let app = app().await;
    let arguments = json!({"to": "ann\u{202e}\u{200b}", "amount": 7, "text": "<script>alert(1)</script>"});
    let (_, refused) = answer(call(&app, "key-of-ann", &arguments)).await;
    let needed = &refused["error_info"]["approval"];
    let id = needed["id"].as_str().unwrap();
    let (_, rest) = needed["url"].as_str().unwrap().split_once("/console/").unwrap();
    let path = format!("/console/{rest}");
    let boss = Browser::signed_in(&app, "key-of-boss").await;
    let list = boss.page("/console/approvals").await;
    check_markup(&list);
    assert!(list.contains(&format!("href=\"{path}\"")) && list.contains("One call here waits"), "{list}");
    assert!(!list.contains("amount"), "{list}");
    let page = boss.page(&path).await;
    check_markup(&page);
    // As the route shows them.
    let (_, shown) = show(&app, "key-of-boss", id).await;
    for line in serde_json::to_string_pretty(&shown["arguments"]).unwrap().lines() {
        let line = line.replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        assert!(page.contains(&line), "{line} is not in {page}");
    }
    assert!(page.contains("ann\\\\u202e\\\\u200b") && !page.contains(['\u{202e}', '\u{200b}']), "{page}");
    for text in ["echo always needs approval", "0 of 1 approvals", "Nobody has decided yet", "in 59 min"] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    assert!(page.contains("value=\"approve\"") && page.contains("value=\"deny\""), "{page}");
    assert!(!page.contains("value=\"session\""), "the call is in no session: {page}");
    assert_eq!(status_of(&app, id).await, "pending", "reading changes nothing");

    let wide = [("act", "approve"), ("scope", "minutes"), ("minutes", "")];
    for fields in [&wide[..], &[("act", "approve"), ("scope", "all")], &[("act", "read")], &[]] {
        assert_eq!(submit(&boss, &path, fields).await.status(), StatusCode::BAD_REQUEST, "{fields:?}");
    }
    // The minutes of the form are for their scope alone.
    let fields = [("act", "approve"), ("reason", "fine"), ("scope", "once"), ("minutes", "15")];
    assert_eq!(submitted(&boss, &path, &fields).await, path);
    let page = boss.page(&path).await;
    check_markup(&page);
    assert!(page.contains("1 of 1 approvals") && page.contains("fine") && page.contains("Take the approval back"));
    assert!(!page.contains("value=\"approve\""), "{page}");
    let (status, reply) = answer(call(&app, "key-of-ann", &arguments).header("x-approval-id", id)).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let page = boss.page(&path).await;
    assert!(page.contains("✓ done") && !page.contains("name=\"act\""), "{page}");
}

#[tokio::test]
async fn a_denial_and_an_approval_for_minutes_say_so_to_the_caller() {
    let app = app().await;
    let boss = Browser::signed_in(&app, "key-of-boss").await;
    let denied = ask(&app, "key-of-ann", &json!({"n": 1})).await;
    submitted(&boss, &path_of(&denied), &[("act", "deny"), ("reason", "not today")]).await;
    let (_, reply) = answer(call(&app, "key-of-ann", &json!({"n": 1})).header("x-approval-id", &denied)).await;
    assert_eq!(code(&reply), "approval_denied", "{reply}");
    assert!(boss.page(&path_of(&denied)).await.contains("not today"));
    let approved = ask(&app, "key-of-ann", &json!({"n": 2})).await;
    let fields = [("act", "approve"), ("scope", "minutes"), ("minutes", "5")];
    submitted(&boss, &path_of(&approved), &fields).await;
    for _ in 0..2 {
        let (status, reply) = answer(call(&app, "key-of-ann", &json!({"n": 2}))).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    }
    // One that is not used up can be taken back.
    submitted(&boss, &path_of(&approved), &[("act", "deny")]).await;
    assert_eq!(status_of(&app, &approved).await, "denied");
}

/// The digest of the arguments that the page shows, as its form sends it.
fn shown_arguments(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"arguments_sha256\" value=\"").unwrap_or_else(|| panic!("{page}"));
    rest.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn the_second_approver_approves_the_arguments_that_its_page_shows() {
    let app = agent_with("tools: {overrides: {echo: {approval: always, approvals_needed: 2}}}\n").await;
    let (_, id) = paused(&app).await;
    let eve = Browser::signed_in(&app, "key-of-eve").await;
    let before = shown_arguments(&eve.page(&path_of(&id)).await);
    let approve = app.post(&format!("/approvals/{id}/approve")).bearer_auth("key-of-boss");
    let (_, changed) = answer(approve.json(&json!({"arguments": {"n": 0}}))).await;
    assert_eq!(changed["status"], "pending", "{changed}");
    for fields in [&[("act", "approve")][..], &[("act", "approve"), ("arguments_sha256", before.as_str())]] {
        let refused = submit(&eve, &path_of(&id), fields).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{fields:?}");
        let page = refused.text().await.unwrap();
        assert!(page.contains("another approver has changed"), "{page}");
    }
    assert_eq!(status_of(&app, &id).await, "pending");
    let after = shown_arguments(&eve.page(&path_of(&id)).await);
    submitted(&eve, &path_of(&id), &[("act", "approve"), ("arguments_sha256", after.as_str())]).await;
    assert_eq!(status_of(&app, &id).await, "approved");
}

#[tokio::test]
async fn a_call_that_was_made_again_once_it_was_approved_hides_no_other_one_of_its_run() {
    let ora = "    - {id: ora, key: key-of-ora, tenant: acme, roles: [on-call]}\n";
    let app = agent_with(&format!("{ora}console: {{roles: {{operator: [on-call]}}}}\n{ASKS}")).await;
    let ora = Browser::signed_in(&app, "key-of-ora").await;
    let new = [("user_input", "Pay."), ("title", ""), ("agent", "")];
    let address = submitted(&ora, "/console/conversations", &new).await;
    let (conversation, run) = address.split_once("?run=").unwrap();
    let run = format!("/console/runs/{run}");
    // The conversation leads to it once it has begun.
    page_with(&ora, conversation, &format!("href=\"{run}\"")).await;
    page_with(&ora, &run, "It waits for a person").await;
    let (_, list) = answer(app.get("/approvals").bearer_auth("key-of-boss")).await;
    let approve = format!("/approvals/{}/approve", list["items"][0]["id"].as_str().unwrap());
    let (status, approved) = answer(app.post(&approve).bearer_auth("key-of-boss").json(&json!({}))).await;
    assert_eq!(status, StatusCode::OK, "{approved}");
    let execute = format!("{}/execute", conversation.replace("/console/", "/api/"));
    let (_, reply) = answer(app.post(&execute).bearer_auth("key-of-ora").json(&json!({}))).await;
    assert_eq!(reply["result"], "Done.", "{reply}");
    // The calculator, and the call that was refused first and then made, by its last outcome.
    let page = ora.page(&run).await;
    assert_eq!(page.matches("href=\"/console/calls/").count(), 2, "{page}");
    let (_, calls) = answer(app.get("/admin/calls?tool=echo").bearer_auth("key-of-ora")).await;
    let made = calls["items"].as_array().unwrap().iter().find(|call| call["status"] == "success").unwrap();
    assert!(page.contains(&format!("href=\"/console/calls/{}\"", made["call_id"].as_str().unwrap())), "{page}");
}

#[tokio::test]
async fn nobody_but_an_approver_in_a_page_of_the_console_decides() {
    let app = app().await;
    let id = ask(&app, "key-of-ann", &json!({"amount": 7})).await;
    let path = path_of(&id);
    let (boss, vic) = (Browser::signed_in(&app, "key-of-boss").await, Browser::signed_in(&app, "key-of-vic").await);
    let page = vic.page(&path).await;
    check_markup(&page);
    assert!(page.contains("echo always needs approval") && page.contains("Only approvers see the arguments"), "{page}");
    assert!(!page.contains("amount") && !page.contains("name=\"act\""), "{page}");
    for act in ["approve", "deny"] {
        let token = boss.token().await;
        let fields = [("act", act), ("token", token.as_str())];
        for forged in [
            boss.post(&path, &[("act", act)]),
            boss.post_from(&path, &fields),
            boss.post_from(&path, &fields).header(ORIGIN, "http://evil.example"),
            boss.post(&path, &fields).header("sec-fetch-site", "cross-site"),
            vic.post(&path, &fields),
        ] {
            assert_eq!(forged.send().await.unwrap().status(), StatusCode::FORBIDDEN, "{act}");
        }
        assert_eq!(submit(&vic, &path, &[("act", act)]).await.status(), StatusCode::FORBIDDEN, "{act}");
    }
    // Nor by an address alone.
    for query in ["?act=approve", "?act=deny"] {
        boss.page(&format!("{path}{query}")).await;
    }
    assert_eq!(status_of(&app, &id).await, "pending");
    // The approver of another tenant, and who is not signed in.
    let far = Browser::signed_in(&app, "key-of-far").await;
    assert_eq!(far.get(&path).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(submit(&far, &path, &[("act", "deny")]).await.status(), StatusCode::NOT_FOUND);
    assert!(!far.page("/console/approvals").await.contains(&id));
    // An own call.
    let own = ask(&app, "key-of-boss", &json!({})).await;
    assert_eq!(submit(&boss, &path_of(&own), &[("act", "approve")]).await.status(), StatusCode::FORBIDDEN);
}

/// An administrator without the role `approver` sees what waits, and decides nothing.
#[tokio::test]
async fn a_role_of_the_console_alone_shows_no_arguments() {
    let root = "    - {id: root, key: key-of-root, roles: [admin]}\n";
    let app = TestApp::with(&format!("{KEYS}{root}{ASKS}")).await;
    let id = ask(&app, "key-of-ann", &json!({"amount": 7})).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    let page = root.page(&path_of(&id)).await;
    assert!(!page.contains("amount") && !page.contains("name=\"act\""), "{page}");
    assert_eq!(submit(&root, &path_of(&id), &[("act", "approve")]).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(status_of(&app, &id).await, "pending");
}

#[tokio::test]
async fn the_queue_has_filters_and_leads_from_one_to_the_next() {
    let app = app().await;
    let boss = Browser::signed_in(&app, "key-of-boss").await;
    let empty = boss.page("/console/approvals").await;
    assert!(empty.contains("No call here waits for a decision."), "{empty}");
    let first = ask(&app, "key-of-ann", &json!({"n": 1})).await;
    let second = ask(&app, "key-of-bob", &json!({"n": 2})).await;
    let third = ask(&app, "key-of-ann", &json!({"n": 3})).await;
    submitted(&boss, &path_of(&second), &[("act", "deny")]).await;
    for (query, shown) in [
        ("", &[&first, &third][..]),
        ("?status=denied", &[&second]),
        ("?status=any", &[&first, &second, &third]),
        ("?status=any&caller=bob", &[&second]),
        ("?caller=ann&tool=echo", &[&first, &third]),
        ("?tool=calculator", &[]),
    ] {
        let page = boss.page(&format!("/console/approvals{query}")).await;
        for id in [&first, &second, &third] {
            assert_eq!(page.contains(&path_of(id)), shown.contains(&id), "{query} {id}: {page}");
        }
    }
    // From the latest to the oldest, and round.
    for (id, next) in [(&third, &first), (&first, &third), (&second, &first)] {
        let page = boss.page(&path_of(id)).await;
        assert!(page.contains(&format!("href=\"{}\" data-key=\"n\"", path_of(next))), "{page}");
    }
    let csv = boss.page("/console/approvals?status=denied&format=csv").await;
    assert!(csv.starts_with("id,status,tool,caller,tenant,reasons,created_at,expires_at,uses,calls\r\n"), "{csv}");
    assert!(csv.contains(&format!("\"{second}\",\"denied\",\"echo\",\"bob\",\"acme\",")), "{csv}");
    let ja = boss.get("/console/approvals?lang=ja").send().await.unwrap().text().await.unwrap();
    assert!(ja.contains("<h1>承認</h1>"), "{ja}");
}

#[tokio::test]
async fn the_queue_has_pages() {
    let app = app().await;
    for n in 0..51 {
        ask(&app, "key-of-ann", &json!({"n": n})).await;
    }
    let boss = Browser::signed_in(&app, "key-of-boss").await;
    let page = boss.page("/console/approvals?caller=ann").await;
    assert_eq!(page.matches("<th scope=\"row\">").count(), 50, "{page}");
    let (_, rest) = page.split_once("rel=\"next\" href=\"").unwrap_or_else(|| panic!("{page}"));
    let address = rest.split('"').next().unwrap().replace("&amp;", "&");
    assert!(address.contains("caller=ann"), "{address}");
    let page = boss.page(&address).await;
    assert_eq!(page.matches("<th scope=\"row\">").count(), 1, "{page}");
}

#[tokio::test]
async fn what_a_policy_masks_is_not_in_the_page() {
    const RULES: &str = "package tools\ndeny[\"never\"] { false }\n\
                         require_approval[\"costly\"] { input.arguments.amount > 5 }\n\
                         mask[\"/token\"] { input.tool == \"echo\" }\n";
    let app = with_policy_and(RULES, KEYS).await;
    let id = ask(&app, "key-of-ann", &json!({"amount": 500, "token": "hunter2"})).await;
    let page = Browser::signed_in(&app, "key-of-boss").await.page(&path_of(&id)).await;
    assert!(page.contains("500") && page.contains("masked") && !page.contains("hunter2"), "{page}");
}

#[tokio::test]
async fn no_text_of_a_call_or_a_decision_becomes_markup() {
    let app = app().await;
    let boss = Browser::signed_in(&app, "key-of-boss").await;
    for text in markup().iter().take(20) {
        let id = ask(&app, "key-of-ann", &json!({"text": text, "all": markup(), text: 1})).await;
        check_markup(&boss.page(&path_of(&id)).await);
        let reason: String = text.chars().take(1_000).collect();
        submitted(&boss, &path_of(&id), &[("act", "deny"), ("reason", &reason)]).await;
        check_markup(&boss.page(&path_of(&id)).await);
    }
    for text in markup() {
        let fields = ["status", "tool", "caller", "before"].map(|name| (name, &*text));
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let response = boss.get(&format!("/console/approvals?{query}")).send().await.unwrap();
        check_markup(&response.text().await.unwrap());
    }
}
