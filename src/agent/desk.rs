//! Where runs begin, whatever face they come in by: what all of them share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{Stream, StreamExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::toolbox::InProcess;
use super::waiting::Waiting;
use super::{Agent, Event, Message, Prompts, RunInput, ToolDescription, Toolbox, llm};
use crate::call::Caller;
use crate::config::{AgentConfig, AgentProfile};
use crate::error::{CallError, ErrorCode};

/// Most runs at once, of all callers.
const MOST_RUNS: usize = 1_000;

/// Most sessions that have tools switched off; beyond them settings are refused.
const MOST_SETTINGS: usize = 10_000;

/// What the runs of a gateway share.
pub struct Desk {
    prompts: Prompts,
    slots: Arc<Semaphore>,
    waiting: Arc<Waiting>,
    /// By caller and session: tools that are off (A53).
    off: Mutex<BTreeMap<(Arc<str>, Arc<str>), BTreeSet<String>>>,
}

/// What a run is asked.
#[derive(Debug, Default)]
pub struct Errand {
    /// The conversation so far, as the client knows it.
    pub messages: Vec<Message>,
    pub client_tools: Vec<ToolDescription>,
    pub abort: CancellationToken,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            prompts: Prompts::default(),
            slots: Arc::new(Semaphore::new(MOST_RUNS)),
            waiting: Arc::default(),
            off: Mutex::default(),
        }
    }
}

impl Desk {
    /// Begins a run. Dropping the stream ends it.
    ///
    /// # Errors
    /// `overloaded` when too many runs go on, `upstream_error` when the profile's model cannot be asked.
    pub async fn begin(
        &self,
        profile: Arc<AgentProfile>,
        toolbox: InProcess,
        errand: Errand,
    ) -> Result<impl Stream<Item = Event> + Send + 'static, CallError> {
        let slot = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| CallError::new(ErrorCode::Overloaded, "too many agents run at once; try again later"))?;
        let model = llm::open(&profile, toolbox.gateway.outbound())
            .map_err(|problem| CallError::new(ErrorCode::UpstreamError, problem.to_string()))?;
        let Errand { messages, client_tools, abort } = errand;
        let caller_key = Arc::clone(&toolbox.caller.key);
        // Where tools cannot be listed, the run says so itself and goes on without (A68).
        let tools = toolbox.list().await.unwrap_or_default();
        let system = self.prompts.system(jiff::Zoned::now().date(), &tools);
        let history = self.waiting.restore(&caller_key, messages);
        let messages = [Message::System(system)].into_iter().chain(history).collect();
        let agent = Agent { model, toolbox: Arc::new(toolbox), profile };
        let waiting = Arc::clone(&self.waiting);
        let events = agent.run(RunInput { messages, client_tools, abort });
        Ok(events.inspect(move |event| {
            let _taken = &slot;
            if let Event::Finished { reason: super::FinishReason::ToolCalls, messages } = event {
                waiting.keep(&caller_key, messages.clone());
            }
        }))
    }

    /// The tools that are off for a caller's session.
    pub fn off(&self, caller: &Caller, session: &Arc<str>) -> BTreeSet<String> {
        let off = self.off.lock().unwrap_or_else(PoisonError::into_inner);
        off.get(&(Arc::clone(&caller.key), Arc::clone(session))).cloned().unwrap_or_default()
    }

    /// Switches tools on or off for a caller's session; gives all that are off then.
    ///
    /// # Errors
    /// `overloaded` when too many sessions have settings.
    pub fn switch(
        &self,
        caller: &Caller,
        session: &Arc<str>,
        tools: &BTreeMap<String, bool>,
    ) -> Result<BTreeSet<String>, CallError> {
        let key = (Arc::clone(&caller.key), Arc::clone(session));
        let mut settings = self.off.lock().unwrap_or_else(PoisonError::into_inner);
        let mut off = settings.get(&key).cloned().unwrap_or_default();
        for (tool, on) in tools {
            if *on {
                off.remove(tool);
            } else {
                off.insert(tool.clone());
            }
        }
        if off.is_empty() {
            settings.remove(&key);
        } else if settings.len() >= MOST_SETTINGS && !settings.contains_key(&key) {
            return Err(CallError::new(ErrorCode::Overloaded, "too many sessions have tools switched off"));
        } else {
            settings.insert(key, off.clone());
        }
        Ok(off)
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Desk").field("slots", &self.slots).finish_non_exhaustive()
    }
}

/// The profile of a name.
///
/// # Errors
/// `invalid_request`, with the names there are.
pub fn profile(config: &AgentConfig, name: &str) -> Result<Arc<AgentProfile>, CallError> {
    match config.profiles.get(name) {
        Some(profile) => Ok(Arc::new(profile.clone())),
        None => {
            let shown: String = name.chars().take(100).collect();
            let message = format!("there is no agent {shown:?}; `GET /v1/models` lists those there are");
            let names = config.profiles.keys().cloned().collect();
            Err(CallError::new(ErrorCode::InvalidRequest, message).with_alternatives(names))
        }
    }
}
