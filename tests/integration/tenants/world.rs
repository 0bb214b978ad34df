//! A gateway with two tenants, and what its callers have there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::callers::{ADA, CALLERS, Caller, EVE, GIL, MAX, ROOT};
use super::matrix::{Cell, Thing};
use crate::app::{TestApp, answer};
use crate::checkout::checkout;

/// A gateway, and the ids of what was made there, by kind and owner.
pub(super) struct World {
    pub app: TestApp,
    made: RefCell<HashMap<(Thing, Caller), String>>,
    asked: RefCell<u32>,
}

/// What stands in a request for the thing of a cell.
pub(super) struct Place {
    id: String,
    owner: Caller,
    key: &'static str,
    document: String,
}

impl World {
    /// Everything that is offered is in `tools.lock` as it was approved.
    pub(super) async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let script = directory.path().join("talk.yaml");
        let turns: Vec<_> = (0..20).map(|turn| format!("{{text: [answer {turn}]}}")).collect();
        std::fs::write(&script, format!("turns: [{}]", turns.join(", "))).unwrap();
        let lock = directory.path().join("tools.lock");
        std::fs::write(&lock, r#"{"version": 1, "tools": {}}"#).unwrap();
        let mut keys = String::new();
        for Caller { id, key, tenant, roles, .. } in
            CALLERS.into_iter().chain([MAX, EVE, GIL]).filter(|one| !one.key.is_empty())
        {
            writeln!(keys, "    - {{id: {id}, key: {key}, tenant: {tenant}, roles: [{roles}]}}").unwrap();
        }
        let yaml = format!(
            "auth:\n  anonymous: never\n  api_keys:\n{keys}\
             console: {{roles: {{viewer: [support], approver: [approver], operator: [on-call], admin: [admin]}}}}\n\
             limits: {{caller_rate_limit: 1000000, tenant_rate_limit: 1000000}}\n\
             outbound: {{openapi_allowed_domains: [bank.example, other.example], mcp_allowed_domains: [bank.example]}}\n\
             tools:\n  lock: {lock}\n  overrides:\n    echo: {{approval: always}}\n    \
             file_write: {{roles: [], dangerous: false}}\n    calculator: {{rate_limit: 1000000}}\n    \
             json_query: {{rate_limit: 1000000}}\n\
             agent:\n  default_profile: talk\n  profiles:\n    talk: {{provider: replay, model: {script}}}\n    \
             planned: {{provider: replay, model: {plan}, planner: {{preset: steps}}}}\n",
            lock = lock.display(),
            script = script.display(),
            plan = checkout().join("config/examples/plan.yaml").display(),
        );
        let app = TestApp::in_directory(directory, &yaml).await;
        let world = Self { app, made: RefCell::default(), asked: RefCell::default() };
        for owner in [MAX, EVE, ROOT] {
            for thing in [Thing::Tenant, Thing::Model, Thing::Skill, Thing::Server, Thing::Function] {
                world.make(thing, owner).await;
            }
        }
        world.approve_all().await;
        world
    }

    /// An OpenAPI document of one operation, which nobody calls.
    pub(super) fn document(&self) -> String {
        let pay =
            json!({"operationId": "balance", "summary": "The balance.", "responses": {"200": {"description": "ok"}}});
        let document = json!({"openapi": "3.1.0", "info": {"title": "Bank", "version": "1"},
            "servers": [{"url": "https://bank.example"}], "paths": {"/balance": {"get": pay}}});
        document.to_string()
    }

    /// Registers a collection by an administrator of this tenant, in the place of an earlier one.
    async fn register(&self, tenant: &str) -> String {
        let (name, by) = (of(tenant), administrator(tenant));
        let body = json!({"name": name, "spec_inline": self.document()});
        let (status, reply) = self.send(by, Method::POST, "/tools/openapi/register", &body).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        name
    }

    async fn approve_all(&self) {
        let (status, review) = self.send(ROOT, Method::GET, "/admin/lock", &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{review}");
        let seen = |found: &Value| json!({"tool": found["tool"], "hash": found["hash"]});
        let approvals: Vec<_> = review["differences"].as_array().unwrap().iter().map(seen).collect();
        assert!(!approvals.is_empty(), "{review}");
        let body = json!({"approvals": approvals});
        let (status, reply) = self.send(ROOT, Method::POST, "/admin/lock/approve", &body).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    }

    /// What a cell asks for, made if it is not there.
    pub(super) async fn place(&self, cell: &Cell<'_>) -> Place {
        let owner = cell.owner();
        let id = self.id_of(cell.group.thing.unwrap_or(Thing::Nothing), owner).await;
        Place { id, owner, key: cell.caller.key, document: self.document() }
    }

    /// A thing of this owner, made if it is not there.
    pub(super) async fn id_of(&self, thing: Thing, owner: Caller) -> String {
        let known = self.made.borrow().get(&(thing, owner)).cloned();
        match known {
            Some(id) => id,
            None => self.make(thing, owner).await,
        }
    }

    /// Makes what a request has used up.
    pub(super) async fn made_again(&self, cell: &Cell<'_>, outcome: &str) {
        if let (true, "ok", Some(thing)) = (cell.group.ends, outcome, cell.group.thing) {
            self.make(thing, cell.owner()).await;
        }
    }

    /// The ids that no answer to this caller has.
    pub(super) fn hidden_from(&self, caller: Caller) -> Vec<String> {
        let made = self.made.borrow();
        let hidden = made.iter().filter(|((thing, owner), _)| thing.is_hidden_from(caller, *owner));
        hidden.map(|(_, id)| id.clone()).collect()
    }

    async fn make(&self, thing: Thing, owner: Caller) -> String {
        let id = match thing {
            Thing::Nothing => "nothing".to_owned(),
            Thing::Tool => "calculator".to_owned(),
            Thing::Agent => "talk".to_owned(),
            Thing::Server => self.register(owner.tenant).await,
            Thing::ServerTool => format!("{}__balance", of(owner.tenant)),
            Thing::Function => {
                let (name, url) = (format!("f-{}", owner.tenant), "https://bank.example/f");
                let body = json!({"name": name, "url": url, "func_name": "f"});
                self.post(administrator(owner.tenant), "/tools/mcp/register", body).await;
                name
            }
            Thing::Tenant => self.put(ROOT, "tenants", owner.tenant.to_owned(), tenant(owner.tenant)).await,
            Thing::Model => {
                let by = administrator(owner.tenant);
                self.put(by, "models", of(owner.tenant), json!({"profile": "talk"})).await
            }
            Thing::Skill => {
                let (by, skill) =
                    (administrator(owner.tenant), json!({"description": "Helps.", "instructions": "Help."}));
                self.put(by, "skills", of(owner.tenant), skill).await
            }
            Thing::Key => {
                let key = self.post(ROOT, "/admin/keys", json!({"person": "p", "tenant": owner.tenant})).await;
                text(&key["key"]["id"])
            }
            of_caller => self.make_own(of_caller, owner).await,
        };
        self.made.borrow_mut().insert((thing, owner), id.clone());
        id
    }

    /// What a caller makes for itself.
    async fn make_own(&self, thing: Thing, owner: Caller) -> String {
        let secret = owner.secret();
        match thing {
            Thing::Plan => {
                let plan = json!({"goal": secret, "profile": "planned", "approve_plan": true});
                text(&self.post(owner, "/api/plans", plan).await["id"])
            }
            Thing::Result => {
                let rows =
                    json!({"query": format!("[].{{id: @, text: '{secret}'}}"), "data": (0..3_000).collect::<Vec<_>>()});
                let call = self.app.post("/tools/json_query/execute").bearer_auth(owner.key).header("prefer", "handle");
                let (_, reply) = answer(call.json(&json!({"arguments": rows}))).await;
                text(&reply["output"]["result_handle"])
            }
            Thing::Call => {
                let call = json!({"arguments": {"expression": "6*7"}});
                text(&self.post(owner, "/tools/calculator/execute", call).await["receipt"]["call_id"])
            }
            Thing::Approval => {
                let n = self.asked.replace_with(|asked| *asked + 1);
                let call = json!({"arguments": {"n": n}});
                let (_, refused) = self.send(owner, Method::POST, "/tools/echo/execute", &call).await;
                text(&refused["error_info"]["approval"]["id"])
            }
            _ => {
                let labels = json!({"agent": "talk", "labels": {"about": secret}});
                let conversation = text(&self.post(owner, "/api/conversations", labels).await["id"]);
                if thing != Thing::Run {
                    return conversation;
                }
                let path = format!("/api/conversations/{conversation}/execute");
                text(&self.post(owner, &path, json!({"user_input": secret})).await["run_id"])
            }
        }
    }

    /// Adds a resource, or makes it what it was.
    async fn put(&self, by: Caller, kind: &str, name: String, value: Value) -> String {
        let mut named = value.clone();
        named["name"] = json!(name);
        let (status, _) = self.send(by, Method::POST, &format!("/api/{kind}"), &named).await;
        if status != StatusCode::CREATED {
            let (status, reply) = self.send(by, Method::PUT, &format!("/api/{kind}/{name}"), &value).await;
            assert_eq!(status, StatusCode::OK, "{kind} {name}: {reply}");
        }
        name
    }

    async fn post(&self, by: Caller, path: &str, body: Value) -> Value {
        let (status, reply) = self.send(by, Method::POST, path, &body).await;
        assert!(status.is_success(), "{path} by {}: {status} {reply}", by.id);
        reply
    }

    async fn send(&self, by: Caller, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let request = self.app.client.request(method, format!("{}{path}", self.app.url)).bearer_auth(by.key);
        answer(if body.is_null() { request } else { request.json(body) }).await
    }
}

/// What the agents of a tenant may use: what is its own, and what all share.
fn tenant(name: &str) -> Value {
    let mut skills = vec![of(name)];
    skills.extend((name != "default").then(|| of("default")));
    let models: Vec<_> = ["talk".to_owned(), "planned".to_owned()].into_iter().chain(skills.clone()).collect();
    json!({"models": models, "skills": skills})
}

/// Who registers what is of a tenant; what is of `default` is shared.
fn administrator(tenant: &str) -> Caller {
    match tenant {
        "acme" => ADA,
        "globex" => GIL,
        _ => ROOT,
    }
}

fn of(tenant: &str) -> String {
    format!("of-{tenant}")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

impl Place {
    /// A path and a query with what they name.
    pub(super) fn path(&self, path: &str, query: &str) -> String {
        let mut path = path.replace("{kind}", "openapi").replace("{log}", "messages").replace("{path}", "note.txt");
        path = path.replace("{source}", &format!("mcp:{}", self.id));
        for name in ["{id}", "{name}", "{handle}"] {
            path = path.replace(name, &self.id);
        }
        match query {
            "" => path,
            query => format!("{path}?{}", self.text(query)),
        }
    }

    /// A body with the same.
    pub(super) fn filled(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.text(&text).into(),
            Value::Array(values) => values.into_iter().map(|value| self.filled(value)).collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(name, value)| (name, self.filled(value)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other,
        }
    }

    fn text(&self, text: &str) -> String {
        match text {
            "DOCUMENT" => self.document.clone(),
            "KEY" => self.key.to_owned(),
            text => text.replace("TENANT", self.owner.tenant).replace("OWNER", self.owner.id).replace("ID", &self.id),
        }
    }
}
