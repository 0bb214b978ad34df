//! Private memory, from the kernel's statistics of the worker processes: of a live instance, and for other measurements.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::programs::Program;
use super::{caller, run};
use sekisho::Gateway;

/// Enough instances that the worker's own memory does not matter.
const INSTANCES: usize = 40;

/// Sleeps long enough that all instances are live at once.
const NAP: Program = Program::nap();
const SETTLED: Duration = Duration::from_millis(1_500);

/// In MiB: the growth of the workers' private memory with many live instances, divided by their number.
///
/// # Errors
/// A run fails, or the kernel provides no statistics of the workers.
pub(super) async fn of_an_instance(gateway: &Arc<Gateway>) -> Result<f64, String> {
    let before = private_of_children()?;
    let mut tasks = JoinSet::new();
    for number in 0..INSTANCES {
        let gateway = Arc::clone(gateway);
        tasks.spawn(async move { NAP.check(&run(&gateway, &NAP, &caller(number)).await.outcome) });
    }
    sleep(SETTLED).await;
    let during = private_of_children()?;
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(during.saturating_sub(before) as f64 / INSTANCES as f64 / 1_024.0)
}

/// In KiB, of all child processes together.
///
/// # Errors
/// The kernel provides no statistics of them.
pub(super) fn private_of_children() -> Result<u64, String> {
    let silent = |error| format!("the kernel does not list the workers: {error}");
    let mut private = 0;
    for thread in fs::read_dir("/proc/self/task").map_err(silent)?.flatten() {
        let of_thread = fs::read_to_string(thread.path().join("children")).map_err(silent)?;
        for child in of_thread.split_whitespace() {
            private += private_of(child)?;
        }
    }
    Ok(private)
}

/// In KiB, of the gateway and of what measures it.
///
/// # Errors
/// The kernel provides no statistics of it.
pub(super) fn private_of_this_process() -> Result<u64, String> {
    private_of("self")
}

fn private_of(process: &str) -> Result<u64, String> {
    let path = format!("/proc/{process}/smaps_rollup");
    let rollup = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok())
        .ok_or_else(|| format!("{path} has no line Private_Dirty"))
}
