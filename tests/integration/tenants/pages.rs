//! The pages of the console: none shows what is of another tenant, in a list, in a file of it or on a page of its own.

use std::collections::BTreeSet;

use reqwest::StatusCode;

use super::callers::{ADA, CALLERS, Caller, EVE, MAX};
use super::matrix::Thing;
use super::world::World;
use crate::checkout::checkout;
use crate::console::Browser;

/// Pages about one thing.
const OF_ONE: [(&str, Thing); 16] = [
    ("/console/tools/{name}", Thing::ServerTool),
    ("/console/calls/{id}", Thing::Call),
    ("/console/calls/{id}/compare", Thing::Call),
    ("/console/approvals/{id}", Thing::Approval),
    ("/console/servers/{kind}/{name}", Thing::Server),
    ("/console/keys/{id}", Thing::Key),
    ("/console/conversations/{id}", Thing::Conversation),
    ("/console/runs/{id}", Thing::Run),
    ("/console/runs/{id}/compare", Thing::Run),
    ("/console/runs/{id}/events", Thing::Run),
    ("/console/plans/{id}", Thing::Plan),
    ("/console/plans/{id}/events", Thing::Plan),
    ("/console/results/{handle}", Thing::Result),
    ("/console/models/{name}", Thing::Model),
    ("/console/skills/{name}", Thing::Skill),
    ("/console/tenants/{name}", Thing::Tenant),
];

/// Pages with a name in their address that are not tried here: a session, a run of a program and a file of functions need an
/// interpreter, and a sign-in to an upstream is found by its own random id.
const OTHERS: [&str; 8] = [
    // Of the configuration: each caller may ask for each.
    "/console/catalogue/{source}",
    "/console/configuration/changes/{id}",
    "/console/python-tools/{name}",
    "/console/sessions/{name}",
    "/console/program-runs/{id}",
    "/console/upstream-sign-in/{id}",
    "/console/static/{name}",
    "/console/{*path}",
];

/// The pages that the console routes, and the lists among them.
fn routed() -> (BTreeSet<String>, BTreeSet<String>) {
    let source = std::fs::read_to_string(checkout().join("src/console/lib.rs")).unwrap();
    let lines =
        source.lines().map(str::trim).filter(|line| line.starts_with(".route(\"/console") && line.contains("get("));
    let mut found: BTreeSet<_> = lines.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect();
    // As forms() of the matrix has them.
    for kind in ["models", "skills", "tenants"] {
        found.extend([format!("/console/{kind}"), format!("/console/{kind}/{{name}}")]);
    }
    found.into_iter().partition(|page| page.contains('{'))
}

/// Answers with event streams, which have no end.
const STREAMS: [&str; 3] = ["/console/live", "/console/map/live", "/console/calls/live"];

#[tokio::test]
async fn no_page_shows_what_is_of_another_tenant() {
    let (of_one, lists) = routed();
    let known = OF_ONE.iter().map(|(page, _)| *page).chain(OTHERS).map(str::to_owned);
    assert_eq!(of_one, known.collect::<BTreeSet<_>>());
    let world = World::start().await;
    for (_, thing) in OF_ONE {
        for owner in [MAX, EVE] {
            world.id_of(thing, owner).await;
        }
    }
    for caller in CALLERS.into_iter().filter(|caller| caller.signs_in && caller.tenant == MAX.tenant) {
        let browser = Browser::signed_in(&world.app, caller.key).await;
        let hidden = world.hidden_from(caller);
        for page in lists.iter().filter(|page| !STREAMS.contains(&&***page)) {
            for file in ["", "?format=csv", "?format=json"] {
                let text = browser.get(&format!("{page}{file}")).send().await.unwrap().text().await.unwrap();
                let shown: Vec<_> = hidden.iter().filter(|id| text.contains(*id)).collect();
                assert!(shown.is_empty(), "{page}{file} shows {shown:?} to {}", caller.id);
            }
        }
        for (page, thing) in OF_ONE {
            one_is_not_found(&world, &browser, caller, (page, thing)).await;
        }
    }
}

/// Of who has all roles of the console; of others it may be their role that lacks.
async fn one_is_not_found(world: &World, browser: &Browser<'_>, caller: Caller, (page, thing): (&str, Thing)) {
    let id = world.id_of(thing, EVE).await;
    let path = page.replace("{kind}", "openapi").replace("{id}", &id).replace("{name}", &id).replace("{handle}", &id);
    let response = browser.get(&path).send().await.unwrap();
    let status = response.status();
    let is_right = status == StatusCode::NOT_FOUND || (caller != ADA && status == StatusCode::FORBIDDEN);
    assert!(is_right, "{path} to {}: {status}", caller.id);
}
