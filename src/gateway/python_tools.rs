//! Tools that are Python functions while the service runs: changed files are read, and later the files that the sandbox
//! could not read yet.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::tool_set::ToolSet;
use super::{Configuration, History, ToolOffer};
use sekisho_calls::pipeline::Pipeline;
use sekisho_config::Config;
use sekisho_observe::readiness::Readiness;
use sekisho_sandbox::{RunPython, Sandbox};
use sekisho_tools::python_tools::{FolderContent, FunctionRunner, PythonTools};

/// The interval of looks at the folder. Its state counts once it was the same twice: a file is not read half written.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How often files are tried that could not be read.
const READ_AGAIN: Duration = Duration::from_secs(2);

/// The tools of the configured folder. Files that are as `before` are not read again.
pub(super) async fn read(config: &Config, sandbox: &Arc<Sandbox>, before: &PythonTools) -> Arc<PythonTools> {
    let run = Arc::clone(sandbox) as Arc<dyn RunPython>;
    let runner = FunctionRunner::new(sandbox.config(), run);
    Arc::new(PythonTools::read(&config.python_tools, &runner, before).await)
}

/// Reports files of which nothing is offered: they degrade the service, but do not stop it.
pub(super) fn report(readiness: &Readiness, before: &PythonTools, now: &PythonTools) {
    readiness.replace(&before.problems(), now.problems(), |component| now.has_file(component));
}

/// The tools that are Python functions in a folder, and their files as operators see them.
#[derive(Debug)]
pub struct PythonFunctions {
    pub(super) configuration: Arc<Configuration>,
    pub(super) pipeline: Arc<Pipeline>,
    readiness: Arc<Readiness>,
    sandbox: Arc<Sandbox>,
    pub(super) history: Arc<History>,
    pub(super) tool_offer: Arc<ToolOffer>,
    /// Held while files are read, until they count or do not: the sandbox has the packages of one state of the folder at a time.
    pub(super) reading: Mutex<()>,
}

impl PythonFunctions {
    pub(super) fn new(tool_offer: &Arc<ToolOffer>, history: &Arc<History>) -> Self {
        Self {
            configuration: Arc::clone(&tool_offer.configuration),
            pipeline: Arc::clone(&tool_offer.pipeline),
            readiness: Arc::clone(&tool_offer.readiness),
            sandbox: Arc::clone(&tool_offer.sandbox),
            history: Arc::clone(history),
            tool_offer: Arc::clone(tool_offer),
            reading: Mutex::default(),
        }
    }

    /// Reads changed files, whether or not a changed configuration can be applied, and files that could not be read,
    /// since the interpreter may be set up later. Runs until the gateway closes.
    pub(super) async fn keep(self: Arc<Self>, closing: CancellationToken) {
        let mut moments = tokio::time::interval(LOOK_AGAIN);
        moments.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut seen, mut read_at) = (None::<FolderContent>, Instant::now());
        while closing.run_until_cancelled(moments.tick()).await.is_some() {
            // A reload reads them.
            let Ok(_reading) = self.reading.try_lock() else { continue };
            let config = self.configuration.current_arc();
            let found = FolderContent::after(seen.as_ref(), &config.python_tools).await;
            let has_settled = found == seen;
            seen = found;
            let tools = self.tool_offer.python_tools.load_full();
            let has_changed = has_settled && seen.as_ref().is_some_and(|content| !tools.is_of(content));
            let is_due = tools.is_waiting() && read_at.elapsed() >= READ_AGAIN;
            if has_changed || is_due {
                closing.run_until_cancelled(self.read_changed()).await;
                read_at = Instant::now();
            } else {
                // A reload that failed may have left the packages of another folder.
                self.sandbox.use_packages(tools.used_packages()).await;
            }
        }
    }

    async fn read_changed(&self) {
        let (config, before) = (self.configuration.current_arc(), self.tool_offer.python_tools.load_full());
        let now = read(&config, &self.sandbox, &before).await;
        // Otherwise clients would be told each time that the tools have changed.
        if now.is_as(&before) {
            return;
        }
        let _changing = self.tool_offer.changing.lock().await;
        // A reload may have read the files in between.
        if !Arc::ptr_eq(&config, &self.configuration.current())
            || !Arc::ptr_eq(&before, &self.tool_offer.python_tools.load())
        {
            return;
        }
        let tools = ToolSet { python: Arc::clone(&now), ..self.tool_offer.tool_set(self.tool_offer.lock.load_full()) };
        match tools.rebuild(&config, &self.tool_offer.collections.load(), &self.pipeline.registry.snapshot()) {
            Ok(snapshot) => {
                self.tool_offer.replace(snapshot);
                report(&self.readiness, &before, &now);
                self.tool_offer.python_tools.store(now);
            }
            Err(problem) => tracing::error!(%problem, "the tools that are Python functions could not be applied"),
        }
    }
}
