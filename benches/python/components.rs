//! Components as tools: calls of a function in an instance of its own each, in the worker, through the pipeline and over HTTP.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use reqwest::Client;
use sekisho::{Arguments, CallContext, Config, Gateway, Via};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::http::Served;
use super::{Line, Measured, READY_TIMEOUT, caller};

const COMPONENT: &str = include_str!("../../tests/components/tools.wat");

/// Gives back the text that it is given.
const TOOL: &str = "bench__echo";

/// Callers that the instances of the pool are shared by.
const MANY: usize = 64;

/// A call: from the gateway, and the part in the worker.
#[derive(Debug, Default)]
struct Times {
    whole: Vec<Duration>,
    in_worker: Vec<Duration>,
}

/// # Errors
/// The gateway does not start, or a call has an unexpected result.
pub(super) async fn measure(config: &Config, length: Duration, measured: &mut Measured) -> Result<(), String> {
    let folder = TempDir::new().map_err(|error| error.to_string())?;
    let gateway = Gateway::start(prepared(config, folder.path())?).await.map_err(|error| error.to_string())?;
    wait(&gateway).await?;
    for callers in [1, 2, MANY] {
        let begun = Instant::now();
        let Times { whole, in_worker } = call_at_once(&gateway, callers, length).await?;
        let runs_a_second = whole.len() as f64 / begun.elapsed().as_secs_f64();
        let line = Line::new("a function of a component".to_owned(), callers, whole, None);
        measured.lines.push(Line { runs_a_second, ..line });
        if callers == 1 {
            measured.lines.push(Line::new("  in the worker".to_owned(), 1, in_worker, Some("p50 ≤ 0.06 ms")));
        }
    }
    let served = Served::start(&gateway).await?;
    let of_component = over_http(&served, TOOL, &json!({"arguments": arguments()}), length).await?;
    measured.lines.push(Line::new("  over HTTP".to_owned(), 1, of_component, Some("p50 ≤ 0.25 ms")));
    let of_built_in = over_http(&served, "calculator", &json!({"arguments": {"expression": "1"}}), length).await?;
    measured.lines.push(Line::new("  the calculator over HTTP, beside it".to_owned(), 1, of_built_in, None));
    served.stop().await
}

/// Calls on one connection, with a client that does nothing else.
async fn over_http(served: &Served, tool: &str, body: &Value, length: Duration) -> Result<Vec<Duration>, String> {
    let client = Client::builder().no_proxy().build().map_err(|error| error.to_string())?;
    let url = served.root().join(&format!("tools/{tool}/execute")).map_err(|error| error.to_string())?;
    let (body, begun, mut times) = (body.to_string(), Instant::now(), Vec::new());
    while begun.elapsed() < length {
        let asked = Instant::now();
        let request = client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body.clone());
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let reply = answer.text().await.map_err(|error| error.to_string())?;
        times.push(asked.elapsed());
        if !reply.contains("\"success\":true") {
            return Err(format!("a call over HTTP failed: {reply}"));
        }
    }
    Ok(times)
}

/// A folder with the component, approved by the command.
fn prepared(config: &Config, folder: &Path) -> Result<Config, String> {
    let (components, lock) = (folder.join("components"), folder.join("tools.lock"));
    let wasm = wat::parse_str(COMPONENT).map_err(|error| error.to_string())?;
    fs::create_dir(&components).map_err(|error| error.to_string())?;
    fs::write(components.join("bench.wasm"), wasm).map_err(|error| error.to_string())?;
    let yaml = "state_directory: state\ncomponents: {directory: components}\ntools: {lock: tools.lock}\n";
    fs::write(folder.join("sekisho.yaml"), yaml).map_err(|error| error.to_string())?;
    let program = config.sandbox.program.as_ref().ok_or("there is no program")?;
    let locked = Command::new(program).args(["--config", "sekisho.yaml", "lock"]).current_dir(folder).output();
    let locked = locked.map_err(|error| error.to_string())?;
    if !locked.status.success() {
        return Err(format!("the component is not approved: {}", String::from_utf8_lossy(&locked.stderr)));
    }
    let mut config = config.clone();
    config.state_directory = Some(folder.join("state"));
    config.components.directory = Some(components);
    config.tools.lock = Some(lock);
    config.tools.overrides.entry(TOOL.to_owned()).or_default().rate_limit = Some(u32::MAX);
    Ok(config)
}

/// Until the component is compiled, and workers have it.
async fn wait(gateway: &Gateway) -> Result<(), String> {
    let begun = Instant::now();
    let mut fine = 0;
    while fine < 8 {
        match call(gateway, 0).await {
            Ok(_) => fine += 1,
            Err(problem) if begun.elapsed() > READY_TIMEOUT => return Err(problem),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
    Ok(())
}

async fn call_at_once(gateway: &Arc<Gateway>, callers: usize, length: Duration) -> Result<Times, String> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..callers {
        let gateway = Arc::clone(gateway);
        tasks.spawn(async move {
            let mut times = Times::default();
            while begun.elapsed() < length {
                let (whole, in_worker) = call(&gateway, number).await?;
                times.whole.push(whole);
                times.in_worker.push(in_worker);
            }
            Ok::<_, String>(times)
        });
    }
    let mut times = Times::default();
    while let Some(ended) = tasks.join_next().await {
        let of_one = ended.map_err(|error| error.to_string())??;
        times.whole.extend(of_one.whole);
        times.in_worker.extend(of_one.in_worker);
    }
    Ok(times)
}

/// How long it took, and how long the worker needed for it.
async fn call(gateway: &Gateway, number: usize) -> Result<(Duration, Duration), String> {
    let context = CallContext::new(TOOL, caller(number), Via::Rest);
    let reply = gateway.pipeline.call(context, arguments()).await.reply;
    let answer = reply.outcome.as_ref().map_err(ToString::to_string)?;
    if answer.output != arguments()["the_text"] {
        return Err(format!("a component answers {}", answer.output));
    }
    let in_worker = answer.metadata.get("wall_ms").and_then(Value::as_f64).ok_or("the reply has no wall_ms")?;
    Ok((reply.duration, Duration::from_secs_f64(in_worker / 1_000.0)))
}

fn arguments() -> Arguments {
    Arguments::from_iter([("the_text".to_owned(), "a text of some length".into())])
}
