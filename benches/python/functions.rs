//! Python functions as tools: a call beside a fresh `pass`, what the image of a module costs, and how long many files take to
//! be read.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sekisho::testing::default_folder;
use sekisho::{Arguments, CallContext, Config, Gateway, Via};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::programs::PROGRAMS;
use super::{Line, Measured, READY_TIMEOUT, Size, caller, run};

/// What a module has besides its function; its goal.
const MODULES: [(&str, &str, Option<&str>); 3] = [
    ("a function of a module without imports", "", Some("p50 ≤ that of pass beside it + 0.3 ms")),
    ("a function of a module with numpy", "import numpy as np\nROWS = np.arange(1_000)\n", None),
    (
        "a function of a module with pandas",
        "import pandas as pd\nROWS = pd.DataFrame({'n': range(1_000), 's': ['a'] * 1_000})\n",
        None,
    ),
];

/// Files that are read at the start.
const FILES: usize = 500;

/// A gateway with files of functions, and what it was started with.
struct Started {
    gateway: Arc<Gateway>,
    config: Config,
    folder: TempDir,
}

/// # Errors
/// The gateway does not start, or a call has an unexpected result.
pub(super) async fn measure(config: &Config, length: Duration, measured: &mut Measured) -> Result<(), String> {
    for (what, imports, goal) in MODULES {
        let begun = SystemTime::now();
        let started = Started::new(config, &[("bench".to_owned(), source_of(imports, 42))]).await?;
        started.wait_for("bench__answer", 42).await?;
        let image = format!("image of {}", what.trim_start_matches("a function of "));
        match image_bytes(begun) {
            Some(bytes) => {
                let amount = bytes as f64 / 1_024.0;
                measured.sizes.push(Size { what: image, amount, unit: "KiB, packed", goal: "" });
            }
            None => measured.left_out.push(format!("{image}: there is none")),
        }
        let (passes, calls) = started.in_turns(length).await?;
        measured.lines.push(Line::new(what.to_owned(), 1, calls, goal));
        measured.lines.push(Line::new("  pass, beside it".to_owned(), 1, passes, None));
        started.gateway.close().await;
    }
    measured.sizes.extend(Box::pin(many(config)).await?);
    Ok(())
}

/// How long many files take to be read, and one of them again.
async fn many(config: &Config) -> Result<[Size; 2], String> {
    // Content that no run before had, so that no image is there.
    let unique = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let files = (0..FILES).map(|number| (format!("t{number}"), source_of(&format!("X = {unique}\n"), number)));
    let files: Vec<_> = files.collect();
    let begun = Instant::now();
    let started = Started::new(config, &files).await?;
    let last = FILES - 1;
    started.wait_for(&format!("t{last}__answer"), last).await?;
    let read = begun.elapsed();
    let begun = Instant::now();
    started.write("t0", &source_of(&format!("X = {unique}\n"), FILES))?;
    started.gateway.reload(started.config.clone()).await;
    started.wait_for("t0__answer", FILES).await?;
    let again = begun.elapsed();
    started.gateway.close().await;
    let size = |what: String, took: Duration, goal| Size { what, amount: took.as_secs_f64(), unit: "s", goal };
    Ok([
        size(format!("{FILES} Python tools, from start to a call"), read, "at most 10"),
        size(format!("one of {FILES} Python tools is changed"), again, "at most 1"),
    ])
}

fn source_of(imports: &str, answer: usize) -> String {
    format!("{imports}\ndef answer() -> int:\n    \"\"\"The answer.\"\"\"\n    return {answer}\n")
}

impl Started {
    async fn new(config: &Config, files: &[(String, String)]) -> Result<Self, String> {
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let mut config = config.clone();
        config.state_directory = Some(folder.path().join("state"));
        config.python_tools.directory = Some(folder.path().join("tools"));
        fs::create_dir(folder.path().join("tools")).map_err(|error| error.to_string())?;
        for (name, source) in files {
            write(folder.path(), name, source)?;
            config.tools.overrides.entry(format!("{name}__answer")).or_default().rate_limit = Some(u32::MAX);
        }
        let gateway = Gateway::start(config.clone()).await.map_err(|error| error.to_string())?;
        Ok(Self { gateway, config, folder })
    }

    fn write(&self, name: &str, source: &str) -> Result<(), String> {
        write(self.folder.path(), name, source)
    }

    /// Waits for the workers, and for a tool that gives this.
    async fn wait_for(&self, tool: &str, answer: usize) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            match self.call(tool).await {
                Ok((output, _)) if output == answer => return Ok(()),
                other if begun.elapsed() > READY_TIMEOUT => {
                    return Err(format!("{tool} has no right answer: {other:?}"));
                }
                _ => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// A fresh `pass`, a call of the function, and so on.
    async fn in_turns(&self, length: Duration) -> Result<(Vec<Duration>, Vec<Duration>), String> {
        let pass = PROGRAMS.first().ok_or("there is no program")?;
        let (begun, mut passes, mut calls) = (Instant::now(), Vec::new(), Vec::new());
        while begun.elapsed() < 2 * length {
            let reply = run(&self.gateway, pass, &caller(0)).await;
            pass.check(&reply.outcome)?;
            passes.push(reply.duration);
            calls.push(self.call("bench__answer").await?.1);
        }
        Ok((passes, calls))
    }

    async fn call(&self, tool: &str) -> Result<(Value, Duration), String> {
        let context = CallContext::new(tool, caller(0), Via::Rest);
        let reply = self.gateway.pipeline.call(context, Arguments::new()).await.reply;
        match &reply.outcome {
            Ok(answer) => Ok((answer.output.clone(), reply.duration)),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn write(folder: &Path, name: &str, source: &str) -> Result<(), String> {
    fs::write(folder.join(format!("tools/{name}.py")), source).map_err(|error| error.to_string())
}

/// The size of the image that was written or found last, if that was since then.
fn image_bytes(since: SystemTime) -> Option<u64> {
    let entries = fs::read_dir(default_folder()?.join("module_images")).ok()?;
    let found = entries.flatten().filter_map(|entry| entry.metadata().ok());
    let found = found.filter_map(|found| Some((found.modified().ok().filter(|at| *at >= since)?, found.len())));
    found.max_by_key(|(at, _)| *at).map(|(_, bytes)| bytes)
}
