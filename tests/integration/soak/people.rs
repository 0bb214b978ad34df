//! What persons do: approve and deny calls, look at pages of the console, create and revoke keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::{COOKIE, ORIGIN, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::client::{Answer, Client, Outcome, calculation};
use super::gateway::{PAUSE, key_of};
use crate::slack::slack;

const APPROVAL_REQUIRED: &str = "approval_required";

/// How long a call may take until it waits for its approver.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Pages that a viewer sees.
const PAGES: [&str; 4] = ["/console", "/console/tools", "/console/tools/calculator", "/console/calls"];

/// A call that needs an approval, and is not made.
pub(super) async fn asked(client: &mut Client) -> Outcome {
    ask(client).await.map(drop)
}

/// A call that the approver looks at and approves, and that is sent again.
pub(super) async fn approved(client: &mut Client) -> Outcome {
    let id = ask(client).await?;
    let shown = client.ask(client.get(&key_of("boss"), &format!("/approvals/{id}"))).await?;
    shown.require("/arguments/id", &json!(client.number.to_string()))?;
    decide(client, &id, "approve").await?;
    client.run(payment(client).header("x-approval-id", &id)).await.map(drop)
}

/// A call that the approver denies.
pub(super) async fn denied(client: &mut Client) -> Outcome {
    let id = ask(client).await?;
    decide(client, &id, "deny").await?;
    client.run(payment(client).header("x-approval-id", &id)).await.map(drop)
}

/// A call that waits until the approver has decided.
pub(super) async fn awaited(client: &mut Client) -> Outcome {
    let id = ask(client).await?;
    let gateway = Arc::clone(&client.gateway);
    let _alone = gateway.waits.lock().await;
    let (end, waiting) =
        (Instant::now() + slack(WAIT_TIMEOUT), tokio::spawn(payment(client).header("prefer", "wait=60").send()));
    while gateway.samples().await.sum("shannon_approval_waiters") == 0.0 {
        if Instant::now() > end {
            return Err("it does not wait for its approver".to_owned());
        }
        tokio::time::sleep(PAUSE).await;
    }
    // It was refused before it waited.
    client.settle(APPROVAL_REQUIRED);
    decide(client, &id, "approve").await?;
    let answered = waiting.await.map_err(|error| error.to_string())?;
    client.run_sent(answered).await.map(drop)
}

/// A sign-in, some pages, a stream of new calls that is dropped, and a sign-out.
pub(super) async fn console(client: &mut Client) -> Outcome {
    let key = client.own_key();
    let signed_in = client.ask(form(client, "/console/sign-in", &[("key", &key), ("to", "/console")])).await?;
    let cookie = signed_in.header(SET_COOKIE.as_str())?.split(';').next().unwrap_or_default().to_owned();
    let mut pages = Vec::new();
    for page in PAGES {
        pages.push(client.ask(client.request(Method::GET, page).header(COOKIE, &cookie)).await?);
    }
    let live = client.request(Method::GET, "/console/calls/live").header(COOKIE, &cookie);
    drop(client.open(live).await?);
    let token = token_in(&pages[0])?;
    let sign_out = form(client, "/console/sign-out", &[("token", token)]).header(COOKIE, &cookie);
    client.ask(sign_out).await.map(drop)
}

/// A key that is created, used, revoked, and refused from then on.
pub(super) async fn managed_key(client: &mut Client) -> Outcome {
    let root = key_of("root");
    let wanted = json!({"person": format!("guest-{}", client.lane)});
    let created = client.ask(client.post(&root, "/admin/keys", &wanted)).await?;
    let (token, id) = (created.text_at("/token")?, created.text_at("/key/id")?);
    client.run(client.execute(token, "calculator", &calculation())).await?;
    client.ask(client.request(Method::DELETE, &format!("/admin/keys/{id}")).bearer_auth(&root)).await?;
    // Who calls is not known, so that it is no call of a tool.
    client.ask(client.execute(token, "calculator", &calculation())).await.map(drop)
}

/// Asks for an approval, and gives its id.
async fn ask(client: &mut Client) -> Result<String, String> {
    let refused = client.run(payment(client)).await?;
    refused.text_at("/error_info/approval/id").map(str::to_owned)
}

/// A call that nobody else makes, so that it has an approval of its own.
fn payment(client: &Client) -> RequestBuilder {
    let body = json!({"arguments": {"id": client.number.to_string()}});
    client.execute(&client.own_key(), "shop__pay", &body)
}

async fn decide(client: &mut Client, id: &str, what: &str) -> Outcome {
    let request = client.post(&key_of("boss"), &format!("/approvals/{id}/{what}"), &json!({}));
    client.ask(request).await.map(drop)
}

/// A form as a page of the console sends it.
fn form(client: &Client, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = client.request(Method::POST, path).header(ORIGIN, client.gateway.url());
    request.header("content-type", "application/x-www-form-urlencoded").body(body)
}

/// The token of the forms on a page.
fn token_in(page: &Answer) -> Result<&str, String> {
    let rest = page.text.split_once("name=\"token\" value=\"").map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split('"').next()).ok_or_else(|| format!("no token: {}", page.shown()))
}
