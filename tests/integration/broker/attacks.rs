//! Known attacks on authorization servers and on proxies of them, as attacks.yaml states them: each is an honest request, changed.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use reqwest::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::documents::{Document, DocumentServer, Trap};
use super::provider::{DETAIL, Provider, SECRET, Shape};
use super::run::{Answer, REDIRECT, Run, STAGES, Sent, Stage, World};

const ATTACKS: &str = include_str!("attacks.yaml");
/// So many gateways at once.
const AT_ONCE: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attack {
    name: String,
    /// The provider has the shape of Google, otherwise of Entra.
    #[serde(default)]
    google: bool,
    /// Of the provider, from the start.
    #[serde(default)]
    provider: Vec<Manner>,
    /// Further settings of `auth.broker`.
    #[serde(default)]
    settings: String,
    /// The metadata of a client that are served over https, as `${document}`.
    document: Option<Document>,
    /// Everything before this stage is honest.
    stage: Stage,
    /// What happens after those.
    #[serde(default)]
    after: Vec<Event>,
    /// Put over the fields of the honest request; null leaves one out.
    #[serde(default)]
    send: Map<String, Value>,
    bearer: Option<String>,
    /// The page that makes the browser send it.
    origin: Option<String>,
    #[serde(default)]
    by_other_browser: bool,
    /// It is sent so often at most, until it is answered with the status.
    #[serde(default)]
    flood: usize,
    /// The statuses of which it is answered with one.
    status: Vec<u16>,
    /// The error in the JSON of the answer, or in the address of the client that the browser is sent to.
    error: Option<String>,
    /// Members of the JSON of the answer.
    #[serde(default)]
    has: Map<String, Value>,
    /// The browser is sent to the client, without a code, and otherwise nowhere.
    #[serde(default)]
    leads_to_client: bool,
    #[serde(default)]
    then: Vec<Consequence>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Manner {
    Denies,
    NamesItself,
    AnswersAsAnother,
    SignsForAnother,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    /// The user has been through all stages in this browser.
    SignedIn,
    CodeUsed,
    Refreshed,
    Revoked,
    Ended,
    /// The access token is older than its lifetime.
    Expired,
    UserRemoved,
    ProviderDown,
    OtherRegistered,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Consequence {
    FamilyEnded,
    FamilyLives,
    /// Clients that were registered before sign users in.
    ClientsAreKnown,
    /// The user goes on with the honest request.
    HonestGoesOn,
}

fn attacks() -> Vec<Attack> {
    serde_saphyr::from_str(ATTACKS).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_on_authorization_servers_are_refused() {
    let attacks = attacks();
    let mut names: Vec<_> = attacks.iter().map(|attack| &attack.name).collect();
    names.sort();
    names.dedup();
    assert!(names.len() == attacks.len() && names.len() >= 60, "{} of {}", names.len(), attacks.len());
    let mut wrong = Vec::new();
    for some in attacks.chunks(AT_ONCE) {
        let complaints = join_all(some.iter().map(|attack| Box::pin(complaints(attack)))).await;
        wrong.extend(complaints.into_iter().flatten());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Otherwise a refusal would say nothing.
#[tokio::test]
async fn the_honest_request_of_each_stage_succeeds() {
    for shape in [Shape::Entra, Shape::Google] {
        for stage in &STAGES {
            let world = World::start(shape).await;
            let mut run = Run::new(&world);
            run.reach(*stage).await;
            run.pass(*stage).await;
        }
    }
}

#[test]
fn every_stage_of_a_sign_in_is_attacked() {
    let attacks = attacks();
    let missing = STAGES.iter().find(|stage| !attacks.iter().any(|attack| attack.stage == **stage));
    assert_eq!(missing, None);
}

/// What is wrong about the answer to an attack.
async fn complaints(attack: &Attack) -> Vec<String> {
    let (world, server, _folder) = world(attack).await;
    let trap = Trap::start().await;
    let mut run = Run::new(&world);
    run.values.insert("trap", trap.port.to_string());
    if let Some(server) = &server {
        run.values.insert("document", server.url.clone());
    }
    run.reach(attack.stage).await;
    // A registration, too, has clients before it.
    if attack.stage == Stage::Register {
        run.pass(Stage::Register).await;
    }
    for event in &attack.after {
        pass(&mut run, attack.stage, *event).await;
    }
    if attack.stage == Stage::Use {
        forge(&mut run, attack).await;
    }
    let sent = changed(&run, attack);
    let mut answer = run.send(&sent).await;
    for _ in 1..attack.flood {
        if attack.status.contains(&answer.status) {
            break;
        }
        answer = run.send(&sent).await;
    }
    let mut wrong = judge(attack, &run, &answer);
    if trap.visits() > 0 {
        wrong.push("an address that must not be reached was reached".to_owned());
    }
    for consequence in &attack.then {
        if !holds(&mut run, attack.stage, *consequence).await {
            wrong.push(format!("{consequence:?} is not so after {answer:?}"));
        }
    }
    wrong.into_iter().map(|complaint| format!("{}: {complaint}", attack.name)).collect()
}

async fn world(attack: &Attack) -> (World, Option<DocumentServer>, TempDir) {
    let provider = Provider::start(if attack.google { Shape::Google } else { Shape::Entra }).await;
    for manner in &attack.provider {
        let mut behaviour = provider.behave();
        match manner {
            Manner::Denies => behaviour.denies = true,
            Manner::NamesItself => behaviour.names_itself = true,
            Manner::AnswersAsAnother => behaviour.issuer_in_answer = Some("https://evil.example".to_owned()),
            Manner::SignsForAnother => behaviour.claims = json!({"aud": "another-client"}),
        }
    }
    // Of the certificate, which outlives the folder of the state.
    let folder = TempDir::new().unwrap();
    let (mut server, mut topics) = (None, String::new());
    if let Some(document) = &attack.document {
        let started = DocumentServer::start(document, &folder).await;
        topics.clone_from(&started.settings);
        server = Some(started);
    }
    let world = World::with(provider, &attack.settings, &topics, TempDir::new().unwrap()).await;
    (world, server, folder)
}

async fn pass(run: &mut Run<'_>, stage: Stage, event: Event) {
    match event {
        Event::SignedIn => {
            let rest = STAGES.iter().skip_while(|next| **next != stage).take_while(|next| **next != Stage::Refresh);
            for next in rest {
                run.pass(*next).await;
            }
        }
        Event::CodeUsed => _ = run.pass(Stage::Token).await,
        Event::Refreshed => _ = run.pass(Stage::Refresh).await,
        Event::Revoked => _ = run.pass(Stage::Revoke).await,
        Event::Ended => {
            run.pass(Stage::Sessions).await;
            run.pass(Stage::End).await;
        }
        Event::Expired => tokio::time::sleep(Duration::from_secs(3)).await,
        Event::UserRemoved => _ = run.world.provider.behave().removed.insert("ann"),
        Event::ProviderDown => run.world.provider.behave().is_down = true,
        Event::OtherRegistered => run.register_other().await,
    }
}

/// Tokens that are no access tokens of this gateway.
async fn forge(run: &mut Run<'_>, attack: &Attack) {
    let provider = &run.world.provider;
    let mut parts = run.value("access_token").split('.').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(parts.len(), 3, "a JSON Web Token");
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&parts[1]).unwrap()).unwrap();
    run.values.insert("forged_token", provider.sign(&claims));
    run.values.insert("id_token", provider.id_token("ann", None));
    let of_provider = provider.behave().tokens[0].clone();
    run.values.insert("token_of_the_provider", of_provider);
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"at+jwt"}"#);
    run.values.insert("unsigned_token", format!("{none}.{}.", parts[1]));
    claims["sub"] = "root".into();
    parts[1] = URL_SAFE_NO_PAD.encode(claims.to_string());
    run.values.insert("changed_token", parts.join("."));
    if attack.bearer.as_deref() == Some("${foreign_token}") {
        let other = World::with(provider.clone(), "", "", TempDir::new().unwrap()).await;
        let mut elsewhere = Run::new(&other);
        elsewhere.reach(Stage::Use).await;
        run.values.insert("foreign_token", elsewhere.value("access_token").to_owned());
    }
}

/// The honest request with the changes of the attack.
fn changed(run: &Run<'_>, attack: &Attack) -> Sent {
    let mut sent = run.request(attack.stage);
    for (name, value) in &attack.send {
        match value {
            Value::Null => _ = sent.fields.remove(name),
            value => _ = sent.fields.insert(name.clone(), filled(run, value)),
        }
    }
    if let Some(bearer) = &attack.bearer {
        sent.bearer = Some(fill(run, bearer));
    }
    sent.origin.clone_from(&attack.origin);
    sent.by_other_browser = attack.by_other_browser;
    sent
}

fn filled(run: &Run<'_>, value: &Value) -> Value {
    match value {
        Value::String(text) => fill(run, text).into(),
        Value::Array(values) => values.iter().map(|value| filled(run, value)).collect(),
        other => other.clone(),
    }
}

/// A text with the values of the run in place of their names.
fn fill(run: &Run<'_>, text: &str) -> String {
    let mut filled = text.to_owned();
    for (name, value) in &run.values {
        filled = filled.replace(&format!("${{{name}}}"), value);
    }
    assert!(!filled.contains("${"), "nothing has the name in {text}: {:?}", run.values.keys());
    filled
}

fn judge(attack: &Attack, run: &Run<'_>, answer: &Answer) -> Vec<String> {
    let mut wrong = Vec::new();
    if !attack.status.contains(&answer.status) {
        wrong.push(format!("another status than {:?}: {answer:?}", attack.status));
    }
    match &answer.location {
        None if attack.leads_to_client => wrong.push(format!("the client learns nothing: {answer:?}")),
        Some(address) if !attack.leads_to_client => wrong.push(format!("it leads to {address}")),
        Some(address) if !address.starts_with(&format!("{REDIRECT}?")) => wrong.push(format!("it leads to {address}")),
        Some(_) if answer.parameter("iss").as_deref() != Some(run.value("public")) => {
            wrong.push(format!("an error without its issuer: {answer:?}"));
        }
        _ => {}
    }
    for (status, header) in [(401, WWW_AUTHENTICATE), (429, RETRY_AFTER)] {
        if answer.status == status && !answer.headers.contains_key(&header) {
            wrong.push(format!("no {header}: {answer:?}"));
        }
    }
    if answer.parameter("code").is_some() || answer.text.contains("\"access_token\"") {
        wrong.push(format!("it gives something: {answer:?}"));
    }
    if let Some(error) = &attack.error {
        let found = answer.parameter("error").or_else(|| Some(answer.json()["error"].as_str()?.to_owned()));
        if found.as_ref() != Some(error) {
            wrong.push(format!("another error than {error}: {answer:?}"));
        }
    }
    for (name, value) in &attack.has {
        if answer.json()[name] != *value {
            wrong.push(format!("{name} is not {value}: {answer:?}"));
        }
    }
    let said = format!("{} {}", answer.location.as_deref().unwrap_or_default(), answer.text);
    let secrets = [DETAIL, SECRET, "-of-the-provider"].into_iter().filter(|secret| said.contains(secret));
    wrong.extend(secrets.map(|secret| format!("it has {secret}: {answer:?}")));
    wrong
}

async fn holds(run: &mut Run<'_>, stage: Stage, consequence: Consequence) -> bool {
    match consequence {
        Consequence::FamilyEnded => !run.refreshes().await,
        Consequence::FamilyLives => run.refreshes().await,
        Consequence::ClientsAreKnown => {
            let honest = run.request(Stage::Authorize);
            Stage::Authorize.success().contains(&run.send(&honest).await.status)
        }
        Consequence::HonestGoesOn => {
            let honest = run.request(stage);
            stage.success().contains(&run.send(&honest).await.status)
        }
    }
}
