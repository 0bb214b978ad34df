//! Where the values of a session came from: after validation, the arguments of a call are judged against the values that
//! went into its session, and against the destinations that are known from calls of before. The result of a call goes into
//! the session with the labels of its tool.
//!
//! With `policy.flow: off` no session is kept, and nothing is looked up.

mod history;
mod past;
mod report;
mod session;
mod sessions;
mod stored;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::tool::{JudgedCall, Tool, ValidArguments};
use sekisho_config::{Config, FlowHistoryConfig, FlowMode};
use sekisho_core::call::{CallContext, Caller};
use sekisho_flow::{CallOrigin, Destination, Judgement, NothingKnown, Returned, ToolLabels, Trust};
use sekisho_observe::metrics::{FlowEvent, Metrics};
use sekisho_store::{Store, StoreError};

pub use self::history::{ForgetDestinations, KnownDestination};
pub use self::report::{FlowReport, ReportedQuestion};

use self::history::History;
use self::past::Past;
use self::report::Observed;
use self::sessions::{FlowSessions, SharedSession, id_of};
use self::stored::StoredSessions;

/// How long the first change waits for others that are written with it.
const WRITE_DELAY: Duration = Duration::from_secs(1);

/// How long values wait on that the store did not take.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Begins the id of a session that is one run, and ends with it.
pub const RUN: &str = "run\u{1f}";

/// The values of all sessions, and the known destinations.
#[derive(Debug)]
pub struct Flow {
    settings: ArcSwap<Settings>,
    sessions: FlowSessions,
    stored: StoredSessions,
    history: History,
    observed: Observed,
    metrics: Arc<Metrics>,
    /// Something waits to be written.
    to_write: Notify,
}

#[derive(Debug)]
struct Settings {
    mode: FlowMode,
    history: FlowHistoryConfig,
}

/// A part of a conversation, as a run of an agent begins with it.
#[derive(Debug, Clone, Copy)]
pub enum Said<'a> {
    /// By the user or the operator.
    User(&'a str),
    /// By a tool; `tool` is its name, and `arguments` are its call's, where they are known.
    Result { call: &'a str, tool: &'a str, arguments: Option<&'a Value>, text: &'a str },
}

/// The end of a call.
#[derive(Debug, Clone, Copy)]
pub enum Ended<'a> {
    /// The value and the text of its answer.
    Answered { value: &'a Value, text: &'a str },
    /// The message of a call that failed, and the value beside it.
    Failed { message: &'a str, output: Option<&'a Value> },
}

impl Settings {
    fn of(config: &Config) -> Self {
        Self { mode: config.policy.flow, history: config.flow.history.clone() }
    }
}

impl Flow {
    pub fn new(config: &Config, store: &Store, metrics: Arc<Metrics>) -> Self {
        Self {
            settings: ArcSwap::from_pointee(Settings::of(config)),
            sessions: FlowSessions::default(),
            stored: StoredSessions::new(config, store),
            history: History::new(store),
            observed: Observed::default(),
            metrics,
            to_write: Notify::new(),
        }
    }

    pub fn reconfigure(&self, config: &Config) {
        self.settings.store(Arc::new(Settings::of(config)));
        if config.policy.flow == FlowMode::Off {
            self.sessions.clear();
        }
    }

    pub fn mode(&self) -> FlowMode {
        self.settings.load().mode
    }

    /// Whether calls may need an approval because of their values.
    pub fn asks(&self) -> bool {
        self.mode() == FlowMode::Enforce
    }

    /// Valid arguments with the judgement of where they come from. `reads_labels`: a policy reads it also for a call without effects in
    /// a session that has read no text of strangers, where nothing else follows from it.
    pub async fn judged(
        &self,
        call: &CallContext,
        tool: &Tool,
        arguments: ValidArguments,
        reads_labels: bool,
    ) -> ValidArguments {
        if self.mode() == FlowMode::Off {
            return arguments;
        }
        // Boxed, to keep it out of the size of the future of a call where it is off.
        let judged = Box::pin(self.judge(call, tool, &arguments, reads_labels)).await;
        arguments.judged(judged)
    }

    async fn judge(
        &self,
        call: &CallContext,
        tool: &Tool,
        arguments: &ValidArguments,
        reads_labels: bool,
    ) -> JudgedCall {
        let settings = self.settings.load_full();
        let (labels, session) = (tool.labels(), self.sessions.of_call(call));
        let is_to_check = session.lock().is_to_check(labels.sink.is_some());
        if is_to_check {
            self.stored.look_up(&call.caller, id_of(call), &session).await;
        }
        if let Some(name) = interpreter_of(tool, arguments) {
            self.join(&call.caller, &id_of_interpreter(name), &session).await;
        }
        let arguments = Value::Object(arguments.as_map().clone());
        let (first, has_untrusted, is_new) = {
            let mut session = session.lock();
            let (is_new, has_untrusted) = (session.add_declared(call), session.values.has_untrusted());
            let judgement = match reads_labels || has_untrusted || labels.sink.is_some() {
                true => session.values.judge(tool.name(), labels, &arguments, &NothingKnown),
                false => Judgement::default(),
            };
            (judgement, has_untrusted, is_new)
        };
        if is_new && !call.dry_run {
            self.keep(&call.caller, id_of(call), &session);
        }
        // Few calls have a destination that is in question: only then the store is asked.
        let judgement = match first.questions.is_empty() {
            true => first,
            false => {
                let destinations = destinations_of(&first);
                let known = self.history.known(&settings.history, call, tool.name(), &destinations).await;
                session.lock().values.judge(tool.name(), labels, &arguments, &known)
            }
        };
        if !call.dry_run {
            self.count(settings.mode, &session, call, tool, &judgement);
        }
        let sink = labels.sink.as_ref().map(|sink| sink.kind);
        JudgedCall { mode: settings.mode, judgement, sink, has_untrusted }
    }

    /// The variables of an interpreter may have text of strangers, once a session has read some whose program ran in it.
    async fn join(&self, caller: &Caller, id: &Arc<str>, session: &SharedSession) {
        let interpreter = self.sessions.of_run(caller, id);
        let is_to_check = interpreter.lock().is_to_check(true);
        if is_to_check {
            self.stored.look_up(caller, id, &interpreter).await;
        }
        let has_untrusted = interpreter.lock().values.has_untrusted();
        session.lock().join(has_untrusted);
    }

    /// Counts a judged call. A question is counted once in a session.
    fn count(&self, mode: FlowMode, session: &SharedSession, call: &CallContext, tool: &Tool, judgement: &Judgement) {
        if tool.labels().sink.is_none() && judgement.forbidden.is_empty() {
            return;
        }
        let event = match (judgement.questions.is_empty(), judgement.forbidden.is_empty()) {
            (_, false) => FlowEvent::Forbidden,
            (false, true) => FlowEvent::Asked,
            (true, true) => FlowEvent::Undisputed,
        };
        self.metrics.flow(mode == FlowMode::Enforce, event);
        let is_first = event != FlowEvent::Undisputed && session.lock().is_first(tool.name(), judgement);
        self.observed.count(call, tool.name(), judgement, is_first);
    }

    /// Adds the end of a call to its session, and learns its destinations, unless they are in question. `made_by`: the tool
    /// whose labels the result has, which is another one for a stored result, and whether a guard has found something in
    /// it, so that it is text of strangers.
    pub fn ended(
        &self,
        call: &CallContext,
        tool: &Tool,
        (made_by, is_labelled): (&Tool, bool),
        judged: Option<&JudgedCall>,
        ended: Ended<'_>,
    ) {
        if call.dry_run || self.mode() == FlowMode::Off {
            return;
        }
        let session = self.sessions.of_call(call);
        // A local tool asserts nothing of its own: it works on values that are there. Without a judgement, it is the reply of a call
        // of before, which text of strangers may have selected.
        let may_be_steered = (tool.is_local() || judged.is_none()) && session.lock().values.has_untrusted();
        let steered = may_be_steered || judged.is_some_and(|judged| judged.judgement.is_steered());
        let origin = CallOrigin { call: call.id.to_string(), tool: made_by.name().to_owned(), steered };
        let labels = match is_labelled {
            true => Cow::Owned(made_by.labels().of_strangers()),
            false => Cow::Borrowed(made_by.labels()),
        };
        match ended {
            Ended::Failed { message, output } => {
                let mut session = session.lock();
                session.values.add_result(&origin, &labels, &message.into());
                if let Some(output) = output.filter(|output| says_more(message, output)) {
                    session.values.add_result(&origin, &labels, output);
                }
            }
            Ended::Answered { value, text } => {
                {
                    let mut session = session.lock();
                    session.values.add_result(&origin, &labels, value);
                    if says_more(text, value) {
                        session.values.add_result(&origin, &labels, &text.into());
                    }
                }
                if let Some(judged) = judged {
                    self.learn(call, tool, judged, &session);
                }
            }
        }
        self.keep(&call.caller, id_of(call), &session);
        if let Some(interpreter) = call.progress.interpreter.get() {
            let (id, has_untrusted) = (id_of_interpreter(&interpreter.name), session.lock().values.has_untrusted());
            let interpreter = self.sessions.of_run(&call.caller, &id);
            interpreter.lock().join(has_untrusted);
            self.keep(&call.caller, &id, &interpreter);
        }
    }

    /// Has the values of a session written, and that it has read text of strangers.
    fn keep(&self, caller: &Caller, id: &Arc<str>, session: &SharedSession) {
        let (is_to_mark, is_to_save) = {
            let mut session = session.lock();
            (session.is_to_mark(), self.stored.can_seal() && session.set_unsaved())
        };
        let is_marked = is_to_mark && self.stored.mark(caller, id);
        let is_saved = is_to_save && self.sessions.save_later(caller, id, session);
        if is_to_save && !is_saved {
            session.lock().set_not_waiting();
        }
        if is_to_mark && !is_marked {
            session.lock().set_not_marked();
        }
        if is_marked || is_saved {
            self.to_write.notify_one();
        }
    }

    /// A call with a question that was made although flow is enforced has an approval: nothing else gets to its end.
    fn learn(&self, call: &CallContext, tool: &Tool, judged: &JudgedCall, session: &SharedSession) {
        let (destinations, is_asked) = (destinations_of(&judged.judgement), !judged.judgement.questions.is_empty());
        if judged.sink.is_none() || (is_asked && judged.mode != FlowMode::Enforce) {
            return;
        }
        if is_asked {
            session.lock().values.add_approved(tool.name(), &destinations);
        }
        self.history.learn(&self.settings.load().history, call, tool.name(), &destinations);
        self.to_write.notify_one();
    }

    /// Adds the messages with which a run of an agent begins, the last ones of a long history. What an earlier run has added stays: it
    /// is more than the messages say, such as the results of calls of a program.
    pub fn begin<'a>(
        &self,
        caller: &Caller,
        session: &Arc<str>,
        said: impl IntoIterator<Item = Said<'a>>,
        tool_of: impl Fn(&str) -> Option<Arc<Tool>>,
    ) {
        if self.mode() == FlowMode::Off {
            return;
        }
        let past = Past::of(said);
        let (id, session) = (session, self.sessions.of_run(caller, session));
        {
            let mut session = session.lock();
            // Equal values are not added once more.
            let before = std::mem::take(&mut session.values);
            let was_untrusted = before.has_untrusted() || session.may_have_more();
            if past.is_cut {
                session.add_lost();
            }
            for said in past.said {
                match said {
                    Said::User(text) => session.values.add_user_text(text),
                    Said::Result { call, tool, arguments, text } => {
                        let of_past =
                            CallOrigin { call: call.to_owned(), tool: tool.to_owned(), ..CallOrigin::default() };
                        session.add_past(of_past, tool_of(tool).as_deref(), arguments, (text, was_untrusted));
                    }
                }
            }
            session.values.merge(&before);
        }
        self.keep(caller, id, &session);
    }

    /// A call goes on with the run of a program that a call of the session `begun_in` began. Of a run of another session, the results
    /// are not known.
    pub fn resumed(&self, call: &CallContext, begun_in: Option<&str>) {
        if self.mode() != FlowMode::Off && begun_in != call.origin.session_of_values().map(|id| &**id) {
            let session = self.sessions.of_call(call);
            session.lock().add_lost();
        }
    }

    /// The number of sessions whose values are kept.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The questions since the gateway was started, of a tenant or of all.
    pub fn report(&self, tenant: Option<&str>) -> FlowReport {
        self.observed.report(self.mode(), tenant)
    }

    /// The known destinations of a tenant, those that were used last first. `after`: when the last one of the page before
    /// was used, and its key.
    pub async fn known(
        &self,
        tenant: &str,
        after: Option<(Timestamp, &str)>,
        max: usize,
    ) -> Result<Vec<KnownDestination>, StoreError> {
        self.write().await;
        self.history.list(tenant, after, max).await
    }

    /// Removes destinations; returns how many.
    pub async fn forget(&self, tenant: &str, forget: &ForgetDestinations) -> Result<u64, StoreError> {
        self.write().await;
        self.history.forget(tenant, forget).await
    }

    /// Writes learnt destinations and the values of sessions to the store, until the gateway closes.
    pub async fn keep_history(self: Arc<Self>, closing: CancellationToken) {
        while closing.run_until_cancelled(self.to_write.notified()).await.is_some() {
            // Several are written at once.
            _ = closing.run_until_cancelled(tokio::time::sleep(WRITE_DELAY)).await;
            if !self.write().await {
                _ = closing.run_until_cancelled(tokio::time::sleep(RETRY_DELAY)).await;
                self.to_write.notify_one();
            }
        }
        self.write().await;
    }

    /// False: there are values or marks of sessions that are to be tried again.
    async fn write(&self) -> bool {
        let is_all = self.stored.write(&self.sessions).await;
        self.history.write().await;
        is_all
    }

    /// Removes destinations and sessions that are known no longer.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        self.stored.sweep().await?;
        self.history.sweep().await
    }
}

/// The session of an interpreter in which a call runs its program.
fn interpreter_of<'a>(tool: &Tool, arguments: &'a ValidArguments) -> Option<&'a str> {
    arguments.as_map().get("session").filter(|_| tool.metadata.sandboxed)?.as_str()
}

/// The id under which it is known here. No id of a session has this character.
fn id_of_interpreter(name: &str) -> Arc<str> {
    format!("interpreter\u{1f}{name}").into()
}

/// The destinations of a call, and those in its content that are in question.
fn destinations_of(judgement: &Judgement) -> Vec<Destination> {
    let asked = judgement.questions.iter().map(|question| &question.destination);
    let all: BTreeSet<_> = judgement.destinations.iter().chain(asked).cloned().collect();
    all.into_iter().collect()
}

/// Whether a text has something that the value does not have.
fn says_more(text: &str, value: &Value) -> bool {
    match value {
        Value::String(own) => own != text,
        _ => !text.is_empty() && serde_json::from_str::<Value>(text).ok().as_ref() != Some(value),
    }
}

/// The labels of results of which the tool is not known.
fn untrusted() -> ToolLabels {
    let returns = Returned {
        trust: Trust::Untrusted,
        has_lines: false,
        secrecy: BTreeSet::new(),
        authored: Vec::new(),
        asserted: Vec::new(),
    };
    ToolLabels { returns, sink: None, why: Vec::new() }
}
