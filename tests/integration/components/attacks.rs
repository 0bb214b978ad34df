//! The hostile programs of the sandbox as commands and components: each ends as it must, and leaves the others alone.

use std::fs;

use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{OwnComponents, TOOLS, folder, write};
use crate::app::{config, degraded};

const ATTACKS: &str = include_str!("../../components/attacks.yaml");
const FRAME: &str = include_str!("../../components/attack.wat");

/// Attacks that run at once.
const CROWD: usize = 8;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Attack {
    name: String,
    code: String,
    /// A part of the reply.
    says: String,
    /// Of a command, besides its folder.
    grants: String,
    imports: String,
    more: String,
    body: String,
    component: Option<String>,
    arguments: Map<String, Value>,
}

impl Attack {
    fn text(&self) -> String {
        let parts = [("IMPORTS", &self.imports), ("MORE", &self.more), ("BODY", &self.body)];
        let framed =
            || parts.iter().fold(FRAME.to_owned(), |text, (place, part)| text.replace(&format!(";; {place}"), part));
        self.component.clone().unwrap_or_else(framed)
    }

    fn put(&self, directory: &TempDir) {
        write(directory, &format!("{}.wasm", self.name), &self.text());
        if self.component.is_none() {
            let description = json!({"description": "Hostile.", "parameters": {"type": "object"}});
            fs::write(folder(directory).join(format!("{}.json", self.name)), description.to_string()).unwrap();
        }
    }

    /// Says what is wrong with how it ended.
    async fn run(&self, own: &OwnComponents) -> Option<String> {
        let Self { name, code: expected, says, .. } = self;
        let (_, reply) = own.app.call(&format!("{name}__run"), json!(self.arguments)).await;
        let code = match reply["error_info"]["code"].as_str() {
            // It depends on who is first.
            Some("timeout") => "sandbox_timeout",
            code => code.unwrap_or_default(),
        };
        let text = reply.to_string();
        let passwords = fs::read_to_string("/etc/passwd").unwrap();
        let is_right = code == expected && text.contains(says) && !text.contains(passwords.lines().next().unwrap());
        assert_eq!(own.output("own__echo", json!({"the_text": name})).await, *name);
        (!is_right).then(|| format!("{name}: {expected:?} and {says:?} are listed: {text}"))
    }
}

/// A read-only folder for each command, and what it is granted besides.
fn grants(attacks: &[Attack], data: &TempDir) -> String {
    let commands = attacks.iter().filter(|attack| attack.component.is_none());
    let grants = commands.map(|Attack { name, grants, .. }| {
        let more = if grants.is_empty() { String::new() } else { format!(", {grants}") };
        format!("{name}: {{folders: {{/ro: '{}'}}{more}}}", data.path().display())
    });
    format!(", grants: {{{}}}", grants.collect::<Vec<_>>().join(", "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_end_as_listed_and_leave_the_others_alone() {
    let attacks: Vec<Attack> = serde_saphyr::from_str(ATTACKS).unwrap();
    let (directory, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(data.path().join("a.txt"), "a").unwrap();
    write(&directory, "own.wasm", TOOLS);
    attacks.iter().for_each(|attack| attack.put(&directory));
    let own = OwnComponents::start(directory, &grants(&attacks, &data)).await;
    let (refused, offered): (Vec<_>, Vec<_>) = attacks.iter().partition(|attack| attack.code == "refused");
    let degraded = degraded(&own.app).await;
    for Attack { name, says, .. } in refused {
        let reason = degraded[format!("component:{name}")].as_str().unwrap_or_else(|| panic!("{name}: {degraded}"));
        let says = if says.is_empty() { "it imports " } else { says.as_str() };
        assert!(reason.contains(says), "{reason}");
    }

    let endless = offered.iter().filter(|attack| attack.code == "sandbox_timeout");
    let overrides = endless.map(|attack| format!("{}__run: {{timeout_seconds: 1}}", attack.name));
    let overrides = format!("overrides: {{{}}}, lock:", overrides.collect::<Vec<_>>().join(", "));
    let yaml = own.yaml.replace("lock:", &overrides);
    own.app.gateway.reload(config(&own.app.directory, &yaml)).await;
    own.settle().await;
    let runs = stream::iter(&offered).map(|attack| attack.run(&own));
    let wrong: Vec<_> = runs.buffer_unordered(CROWD).filter_map(std::future::ready).collect().await;
    assert!(wrong.is_empty(), "{} end otherwise:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(own.app.metric("shannon_sandbox_workers_lost_total").await, 0.0, "no worker had to be replaced");
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1, "the folder is as it was");
}
