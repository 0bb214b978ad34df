//! Hostile programs, as data: each ends as it must, in time, and leaves the next call alone.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{PythonApp, status_of, workers};
use crate::checkout::checkout;

const ATTACKS: &str = include_str!("../../sandbox/attacks.json");

/// Of programs that end by themselves: what anybody's program may take. How long they need is the machine's affair.
const TIME_ENOUGH: Duration = Duration::from_secs(60);

/// How much later than its deadline a program may be answered.
const GRACE: Duration = Duration::from_millis(500);
/// The same beside fifteen others: that each is stopped, though how late is the machine's affair. Workers of lower
/// priority, which callers with long steps get, come to their deadlines when the other workers leave them a core.
const GRACE_IN_A_CROWD: Duration = Duration::from_secs(20);

#[derive(Debug, Deserialize)]
struct Attack {
    name: String,
    ends: Ends,
    code: String,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ends {
    Ok,
    Error,
    Trap,
    Timeout,
}

fn attacks() -> Vec<Attack> {
    let attacks: Vec<Attack> = serde_json::from_str(ATTACKS).unwrap();
    assert!(attacks.len() >= 63);
    attacks
}

async fn app() -> PythonApp {
    PythonApp::with("memory_limit_mb: 256", "max_stream_bytes: 1048576").await
}

impl Attack {
    /// Runs it, for `patience` where it never ends by itself; tells what is wrong with how it ended.
    async fn run(&self, app: &PythonApp, patience: Duration, grace: Duration) -> Option<String> {
        let deadline = if self.ends == Ends::Timeout { patience } else { TIME_ENOUGH };
        // The list knows a read-only and a writable folder by these names.
        let code = self.code.replace("/ro/", "/input/").replace("/rw/", "/output/");
        let files = json!([{"path": "a.txt", "text": "a"}]);
        let begun = Instant::now();
        let (status, reply) =
            app.call(json!({"code": code, "files": files, "timeout_seconds": deadline.as_secs_f64()})).await;
        let took = begun.elapsed();
        let ended = ended(status, &reply);
        let text = reply.to_string();
        let leaked = host_texts().into_iter().find(|host| text.contains(host.as_str()));
        let shown: String = text.chars().take(600).collect();
        if ended.as_ref() != Some(&self.ends) {
            Some(format!("{}: {ended:?} where {:?} is listed, after {took:?}: {shown}", self.name, self.ends))
        } else if took > deadline + grace {
            Some(format!("{}: took {took:?}", self.name))
        } else {
            leaked.map(|host| format!("{}: {host} is of the host: {shown}", self.name))
        }
    }
}

fn ended(status: StatusCode, reply: &Value) -> Option<Ends> {
    match (status.as_u16(), reply["error_info"]["code"].as_str()) {
        (200, None) => Some(Ends::Ok),
        (200, Some("tool_error" | "sandbox_memory" | "sandbox_output")) => Some(Ends::Error),
        (200, Some("sandbox_trap")) => Some(Ends::Trap),
        (504, Some("sandbox_timeout" | "timeout")) => Some(Ends::Timeout),
        _ => None,
    }
}

/// What no program may ever show.
fn host_texts() -> Vec<String> {
    let passwords = std::fs::read_to_string("/etc/passwd").unwrap();
    let mut texts = vec![passwords.lines().next().unwrap().to_owned(), checkout().display().to_string()];
    texts.extend(std::env::var("PATH"));
    texts
}

async fn assert_clean(app: &PythonApp) {
    assert_eq!(app.run("6 * 7").await["result"], 42);
}

fn memory_of_workers() -> u64 {
    workers().into_iter().filter_map(|pid| status_of(pid, "RssAnon")).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and wants a quiet machine"]
async fn hostile_programs_one_by_one_end_as_listed() {
    let app = app().await;
    let mut wrong = Vec::new();
    for attack in attacks() {
        wrong.extend(attack.run(&app, Duration::from_millis(2_500), GRACE).await);
        assert_clean(&app).await;
    }
    assert!(wrong.is_empty(), "{} end otherwise:\n{}", wrong.len(), wrong.join("\n"));
    app.idle().await;
    assert_eq!(app.metric("workers_lost_total").await, 0.0, "no worker had to be replaced");
}

/// Sixteen share two workers' time: so those that have to be stopped get longer, and still do not end by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and wants a quiet machine"]
async fn hostile_programs_sixteen_at_a_time_end_as_listed() {
    let app = app().await;
    let all = async || {
        let attacks = attacks();
        let runs = stream::iter(&attacks).map(async |attack| {
            let wrong = attack.run(&app, Duration::from_secs(12), GRACE_IN_A_CROWD).await;
            assert_clean(&app).await;
            wrong
        });
        runs.buffer_unordered(16).filter_map(std::future::ready).collect::<Vec<_>>().await
    };
    let wrong = all().await;
    assert!(wrong.is_empty(), "{} end otherwise:\n{}", wrong.len(), wrong.join("\n"));
    app.idle().await;
    assert_clean(&app).await;
    let left = memory_of_workers();
    assert!(left < 400 << 10, "the workers keep {left} KiB");
}

/// The same programs as the bodies of functions that are tools. Their files are executed when they are read, their functions not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and wants a quiet machine"]
async fn hostile_programs_as_python_functions_are_stopped_too() {
    let limit = |attack: &Attack| if attack.ends == Ends::Timeout { Duration::from_secs(3) } else { TIME_ENOUGH };
    let (directory, attacks) = (TempDir::new().unwrap(), attacks());
    let tools = directory.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    for (at, attack) in attacks.iter().enumerate() {
        let code = Value::from(attack.code.replace("/ro/", "/input/").replace("/rw/", "/output/"));
        let seconds = limit(attack).as_secs();
        let source = format!(
            "from host import tool\nCODE = {code}\n\n@tool(timeout_seconds={seconds})\ndef run() -> object:\n    \
             exec(CODE, {{'__name__': '__main__'}})\n"
        );
        std::fs::write(tools.join(format!("attack{at}.py")), source).unwrap();
    }
    let overrides = "tools: {overrides: {python_executor: {rate_limit: 1000000}}}\nsandbox: {memory_limit_mb: 256}";
    let yaml = format!("python_tools: {{directory: '{}'}}\n{overrides}\n", tools.display());
    let app = PythonApp::in_directory(directory, &yaml).await;
    let mut wrong = Vec::new();
    for (at, attack) in attacks.iter().enumerate() {
        let begun = Instant::now();
        let (status, reply) = app.app.call(&format!("attack{at}__run"), json!({})).await;
        let (took, ended, text) = (begun.elapsed(), ended(status, &reply), reply.to_string());
        // A function that ends its interpreter has failed; what the others lack are the files of the list.
        let is_expected = match (&attack.ends, &ended) {
            (Ends::Timeout, ended) => *ended == Some(Ends::Timeout),
            (_, ended) => ended.as_ref().is_some_and(|ended| *ended != Ends::Timeout),
        };
        let leaks = host_texts().iter().any(|host| text.contains(host.as_str()));
        if !is_expected || leaks || took > limit(attack) + GRACE {
            let shown: String = text.chars().take(600).collect();
            wrong.push(format!("{}: {ended:?} after {took:?}, {leaks}: {shown}", attack.name));
        }
        assert_clean(&app).await;
    }
    assert!(wrong.is_empty(), "{} end otherwise:\n{}", wrong.len(), wrong.join("\n"));
    app.idle().await;
    assert_eq!(app.metric("workers_lost_total").await, 0.0, "no worker had to be replaced");
}
