//! Plans whose steps use a real browser: Playwright's MCP server on a small shop. A script plays the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};

/// How long a browser may take for a plan.
const LONGEST: Duration = Duration::from_secs(120);

/// The shop's address, and the orders that it got.
struct Shop {
    url: String,
    orders: Arc<AtomicUsize>,
}

impl Shop {
    async fn start() -> Self {
        let orders = Arc::new(AtomicUsize::new(0));
        let ordered = Arc::clone(&orders);
        let order = move || {
            let number = ordered.fetch_add(1, Ordering::SeqCst) + 1;
            async move { format!("Order {number} is confirmed") }
        };
        let shoes = "<title>Shoes</title><h1>Shoes, 42 EUR</h1><button onclick=\"fetch('/order', {method: 'POST'})\
                     .then(r => r.text()).then(t => document.querySelector('p').textContent = t)\">Buy</button><p>In stock</p>";
        let router = Router::new()
            .route(
                "/",
                get(|| async {
                    Html("<title>Shop</title><h1>Shop</h1><a href=/shoes>Shoes</a><p>Hats are sold out</p>")
                }),
            )
            .route("/shoes", get(move || async move { Html(shoes) }))
            .route("/order", post(order))
            .fallback(|| async { Html("<title>Not found</title><h1>There is no such page</h1>") });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, orders }
    }
}

/// A gateway with the browser and an agent that plans by the script.
async fn app(script: &Value) -> TestApp {
    let modules = std::env::var("PLAYWRIGHT").expect("PLAYWRIGHT names the folder of @playwright/mcp");
    let directory = TempDir::new().unwrap();
    let folder = directory.path();
    let model = folder.join("plan.yaml");
    std::fs::write(&model, script.to_string()).unwrap();
    let quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"];
    let chrome = folder.join("chrome.json");
    std::fs::write(&chrome, json!({"browser": {"launchOptions": {"args": quiet}}}).to_string()).unwrap();
    let arguments = json!([
        format!("{modules}/node_modules/@playwright/mcp/cli.js"),
        "--headless",
        "--isolated",
        "--no-sandbox",
        "--browser",
        "chromium",
        "--executable-path",
        "/usr/bin/chromium",
        "--config",
        chrome,
        "--output-dir",
        folder.join("out"),
    ]);
    let server = json!({"command": format!("{modules}/node_modules/.bin/node"), "args": arguments});
    let profile = json!({"provider": "replay", "model": model, "planner": {"preset": "plan_and_act", "evaluate": "when_unclear"}});
    let yaml = json!({
        "auth": {"api_keys": [{"id": "ann", "key": "a", "roles": ["operator", "admin"]}]},
        "mcp": {"servers": {"playwright": server}},
        "agent": {"default_profile": "shopper", "profiles": {"shopper": profile}},
    });
    let app = TestApp::in_directory(directory, &yaml.to_string()).await;
    let end = tokio::time::Instant::now() + LONGEST;
    while !answer(app.get("/tools/list").bearer_auth("a")).await.1.to_string().contains("playwright__browser_navigate")
    {
        assert!(tokio::time::Instant::now() < end, "{:?}", answer(app.get("/readyz").bearer_auth("a")).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    app
}

/// The plan, followed to its end, and its events.
async fn carried_out(app: &TestApp, goal: &str) -> (Value, String) {
    let body = json!({"goal": goal, "session_id": "shopping"});
    let (status, plan) = answer(app.post("/api/plans").bearer_auth("a").json(&body)).await;
    assert_eq!(status, 201, "{plan}");
    let path = format!("/api/plans/{}", plan["id"].as_str().unwrap());
    let follow =
        async { app.get(&format!("{path}/events")).bearer_auth("a").send().await.unwrap().text().await.unwrap() };
    let events = tokio::time::timeout(LONGEST, follow).await.unwrap();
    (answer(app.get(&path).bearer_auth("a")).await.1, events)
}

fn call(tool: &str, arguments: &Value) -> Value {
    json!({"calls": [{"id": "a", "tool": format!("playwright__browser_{tool}"), "arguments": arguments.to_string()}]})
}

fn text(text: &str) -> Value {
    json!({"text": [text]})
}

#[tokio::test]
#[ignore = "needs @playwright/mcp in the folder named by PLAYWRIGHT, and Chromium"]
async fn playwright_buys_what_a_changed_plan_finds() {
    let shop = Shop::start().await;
    let steps = |steps: &[&str]| json!({"steps": steps, "success_criteria": "The shop has confirmed the order."});
    let change =
        json!({"decision": "modify", "steps": ["Open the page of shoes", "Press the button Buy"], "reason": "no sale"});
    let script = json!({"turns": [], "plan": {
        "planner": [[text(&steps(&["Buy shoes in the sale"]).to_string())], [text(&change.to_string())]],
        "attempts": [
            [call("navigate", &json!({"url": format!("{}/sale", shop.url)})), text("ERROR: there is no such page")],
            [
                call("navigate", &json!({"url": format!("{}/shoes", shop.url)})),
                text("The page of shoes is open; they cost 42 EUR and are in stock there."),
            ],
            // A reference that was never on the page, then that of the button in the fresh snapshot.
            [
                call("click", &json!({"element": "Buy", "target": "e99"})),
                call("click", &json!({"element": "Buy", "target": BUTTON})),
                call("wait_for", &json!({"text": "is confirmed"})),
                call("snapshot", &json!({})),
                text("The button was pressed, and the shop says that order 1 is confirmed."),
            ],
        ],
        // A call of the last step failed.
        "evaluator": [[text(r#"{"passed": true}"#)]],
        "answer": [text("The shoes are ordered for 42 EUR.")],
    }});
    let app = app(&script).await;
    let (plan, events) = carried_out(&app, "Buy shoes").await;
    assert_eq!(plan["status"], "finished", "{plan}\n{events}");
    assert_eq!(shop.orders.load(Ordering::SeqCst), 1, "{events}");
    assert_eq!(plan["answer"], "The shoes are ordered for 42 EUR.");
    assert!(events.contains("\"node\":\"Planner_Replanning\"") && events.contains("a fresh snapshot"), "{events}");
    // The planner gets what it needs of the page, and the whole is in the workspace.
    let observation = plan["last_observation"].as_str().unwrap();
    assert!(observation.contains("Page Title: Shoes") && observation.contains("button \"Buy\""), "{observation}");
    let file = observation.split("in the file ").nth(1).unwrap().split(')').next().unwrap();
    let body = json!({"arguments": {"path": file}, "session_id": "shopping"});
    let (_, kept) = answer(app.post("/tools/file_read/execute").bearer_auth("a").json(&body)).await;
    assert!(kept.to_string().contains("Order 1 is confirmed"), "{kept}");
}

#[tokio::test]
#[ignore = "needs @playwright/mcp in the folder named by PLAYWRIGHT, and Chromium"]
async fn playwright_finds_that_a_goal_is_impossible() {
    let shop = Shop::start().await;
    let script = json!({"turns": [], "plan": {
        "planner": [
            [text(r#"{"steps": ["Buy a hat"]}"#)],
            [text(r#"{"decision": "impossible", "reason": "Hats are sold out."}"#)],
        ],
        "attempts": [[
            call("navigate", &json!({"url": shop.url})),
            call("snapshot", &json!({})),
            text("ERROR: hats are sold out"),
        ]],
        "answer": [text("Hats are sold out, so that none was ordered.")],
    }});
    let app = app(&script).await;
    let (plan, events) = carried_out(&app, "Buy a hat").await;
    assert_eq!((&plan["status"], &plan["reason"]), (&json!("impossible"), &json!("Hats are sold out.")), "{events}");
    assert_eq!(shop.orders.load(Ordering::SeqCst), 0);
    assert!(plan["last_observation"].as_str().unwrap().contains("Page Title: Shop"), "{plan}");
}

/// The reference that Playwright gives the shop's button.
const BUTTON: &str = "f1e3";
