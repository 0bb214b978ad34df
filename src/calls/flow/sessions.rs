//! The values of the sessions, owned by caller. A call without a session shares one with all such calls of its caller: its
//! values come from somewhere, too.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::{RUN, untrusted};
use crate::tool::Tool;
use sekisho_core::bounded::Ring;
use sekisho_core::call::{CallContext, Caller};
use sekisho_core::per_owner::{NotAdded, PerOwner};
use sekisho_flow::{CallOrigin, Judgement, NothingKnown, SessionValues};

/// Maximum sessions of all callers, of 256 KiB each at most (`flow/values.rs`).
const MAX_SESSIONS: usize = 1_000;

/// Maximum sessions of one caller.
const MAX_SESSIONS_OF_CALLER: usize = 250;

/// Sessions whose values were removed and that are known by name: one of them begins as if text of strangers were in it.
const MAX_REMOVED: usize = 10_000;

/// How long a session that has read no text of strangers here is not looked up again.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long a session that has is not marked again.
const MARK_INTERVAL: Duration = Duration::from_secs(86_400);

/// Maximum questions of a session that are counted once.
const MAX_COUNTED: usize = 200;

/// [`Caller::key`], and the id of the session; an empty one is of the calls without a session.
type Key = (Arc<str>, Arc<str>);

pub(super) type SharedSession = Arc<Mutex<FlowSession>>;

/// The values of all sessions.
#[derive(Debug)]
pub(super) struct FlowSessions {
    open: PerOwner<Key, SharedSession>,
    /// Locked while a session is added, so that there is one for each key.
    removed: Mutex<Ring<Key>>,
}

/// The values of one session.
#[derive(Debug, Default)]
pub(super) struct FlowSession {
    pub(super) values: SessionValues,
    /// Hash of the text and the parameters that a call declared last: the next call has the same ones.
    declared: u64,
    /// Hashes of the questions that were counted.
    counted: HashSet<u64>,
    /// It ends with a run, and is not marked.
    is_of_run: bool,
    /// When it was looked up, and marked.
    checked: Option<Instant>,
    marked: Option<Instant>,
}

impl Default for FlowSessions {
    fn default() -> Self {
        Self { open: PerOwner::new(MAX_SESSIONS, MAX_SESSIONS_OF_CALLER), removed: Mutex::new(Ring::new(MAX_REMOVED)) }
    }
}

impl FlowSessions {
    /// The session of a call. Of a run that did not begin here, such as one that a call resumes, the earlier results are not known.
    pub(super) fn of_call(&self, call: &CallContext) -> SharedSession {
        let id = id_of(call);
        self.named(&call.caller, id, id.starts_with(RUN))
    }

    /// The session of a run that begins.
    pub(super) fn of_run(&self, caller: &Caller, id: &Arc<str>) -> SharedSession {
        self.named(caller, id, false)
    }

    /// `is_lost`: where it is not there, it had values that are not known.
    fn named(&self, caller: &Caller, id: &Arc<str>, is_lost: bool) -> SharedSession {
        let key = (Arc::clone(&caller.key), Arc::clone(id));
        if let Some(session) = self.open.with(&key, |session| Arc::clone(session)) {
            return session;
        }
        let mut removed = self.removed.lock();
        if let Some(session) = self.open.with(&key, |session| Arc::clone(session)) {
            return session;
        }
        let is_lost = is_lost || removed.iter().any(|known| *known == key);
        let session = Arc::new(Mutex::new(FlowSession::new(id, is_lost)));
        let is_idle = |_: &Key, session: &SharedSession| Arc::strong_count(session) == 1;
        let added = self.open.insert(&caller.owner, key.clone(), Arc::clone(&session), is_idle);
        let gone = match added {
            Ok(gone) => gone,
            Err(NotAdded { gone, .. }) => {
                // All are in use: its values are only of this call.
                removed.push(key);
                gone
            }
        };
        gone.into_iter().for_each(|(key, _)| _ = removed.push(key));
        session
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Removes all of them.
    pub(super) fn clear(&self) {
        drop(self.open.take_if(|_| true));
    }
}

/// The id of the session of a call; an empty one is of the calls without a session.
pub(super) fn id_of(call: &CallContext) -> &Arc<str> {
    static NONE: LazyLock<Arc<str>> = LazyLock::new(|| "".into());
    call.origin.session_of_values().unwrap_or(&NONE)
}

impl FlowSession {
    /// `is_lost`: it had values before, which are not known any more.
    fn new(id: &str, is_lost: bool) -> Self {
        let mut session = Self { is_of_run: id.starts_with(RUN), ..Self::default() };
        if is_lost {
            session.add_lost();
        }
        session
    }

    /// It had values that are not known any more.
    pub(super) fn add_lost(&mut self) {
        let text = "The earlier results of this session are not kept any more.";
        self.values.add_result(&CallOrigin::default(), &untrusted(), &text.into());
    }

    /// Whether to look up if it has read text of strangers elsewhere: at times, while it has not here.
    pub(super) fn is_to_check(&self) -> bool {
        let is_old = self.checked.is_none_or(|checked| checked.elapsed() >= CHECK_INTERVAL);
        is_old && !self.is_of_run && !self.values.has_untrusted()
    }

    /// It was looked up.
    pub(super) fn set_checked(&mut self, has_read_text_of_strangers: bool) {
        self.checked = Some(Instant::now());
        self.join(has_read_text_of_strangers);
    }

    /// It gets values of another session.
    pub(super) fn join(&mut self, has_read_text_of_strangers: bool) {
        if has_read_text_of_strangers && !self.values.has_untrusted() {
            self.add_lost();
        }
    }

    /// Whether to mark that it has read text of strangers.
    pub(super) fn is_to_mark(&mut self) -> bool {
        let is_old = self.marked.is_none_or(|marked| marked.elapsed() >= MARK_INTERVAL);
        let is_to_mark = is_old && !self.is_of_run && self.values.has_untrusted();
        if is_to_mark {
            self.marked = Some(Instant::now());
        }
        is_to_mark
    }

    /// Adds a result of the past. As of a call that is made now, what untrusted text may have selected asserts nothing; what a
    /// program read is not known. `was_untrusted`: the session had text of strangers.
    pub(super) fn add_past(
        &mut self,
        origin: CallOrigin,
        tool: Option<&Tool>,
        arguments: Option<&Value>,
        (text, was_untrusted): (&str, bool),
    ) {
        let unknown = untrusted();
        let labels = tool.map_or(&unknown, Tool::labels);
        let is_steered = |tool: &Tool| {
            let judged = arguments.map(|arguments| self.values.judge(tool.name(), labels, arguments, &NothingKnown));
            tool.is_local() || judged.is_none_or(|judged| judged.is_steered())
        };
        let has_untrusted = was_untrusted || self.values.has_untrusted();
        let steered = tool.is_some_and(|tool| tool.makes_calls() || has_untrusted && is_steered(tool));
        self.values.add_result(&CallOrigin { steered, ..origin }, labels, &text.into());
    }

    /// Adds the text and the parameters that the caller of a call declares as its user's.
    pub(super) fn add_declared(&mut self, call: &CallContext) {
        let (text, parameters) = (call.origin.user_text.as_deref(), &call.origin.prompt_params);
        if text.is_none() && parameters.is_empty() {
            return;
        }
        let parameters = Value::Object(parameters.clone());
        let mut hasher = DefaultHasher::new();
        (text, parameters.to_string()).hash(&mut hasher);
        let declared = hasher.finish();
        if declared == self.declared {
            return;
        }
        self.declared = declared;
        if let Some(text) = text {
            self.values.add_user_text(text);
        }
        self.add_texts(&parameters);
    }

    fn add_texts(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.values.add_user_text(text),
            Value::Number(number) => self.values.add_user_text(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.add_texts(item)),
            Value::Object(members) => members.values().for_each(|member| self.add_texts(member)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Whether the questions about a call are new in the session.
    pub(super) fn is_first(&mut self, tool: &str, judgement: &Judgement) -> bool {
        let hash = |part: &str, value: &str| {
            let mut hasher = DefaultHasher::new();
            (tool, part, value).hash(&mut hasher);
            hasher.finish()
        };
        let asked = judgement.questions.iter().map(|question| hash(&question.pointer, &question.value));
        let forbidden = judgement.forbidden.iter().map(|forbidden| hash(&forbidden.pointer, "forbidden"));
        let hashes: Vec<_> = asked.chain(forbidden).collect();
        let is_first = hashes.iter().any(|hash| !self.counted.contains(hash));
        for hash in hashes {
            if self.counted.len() < MAX_COUNTED {
                self.counted.insert(hash);
            }
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_core::call::{CallOrigin as Origin, Via};

    fn caller() -> Arc<Caller> {
        Arc::new(Caller::new("ann", "acme", Vec::new()))
    }

    fn call(origin: Origin) -> CallContext {
        CallContext { origin, ..CallContext::new("t", caller(), Via::Rest) }
    }

    #[test]
    fn a_session_whose_values_went_begins_as_if_it_had_read_text_of_strangers() {
        let sessions = FlowSessions::default();
        let has_untrusted = |id: &str| sessions.of_run(&caller(), &id.into()).lock().values.has_untrusted();
        for number in 0..=MAX_SESSIONS_OF_CALLER {
            assert!(!has_untrusted(&format!("s{number}")), "{number}");
        }
        assert_eq!(sessions.len(), MAX_SESSIONS_OF_CALLER);
        assert!(has_untrusted("s0"), "it was removed for the last one");
        assert!(!has_untrusted("new"));
        sessions.clear();
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn calls_without_a_session_share_one_and_the_values_of_a_run_are_not_of_its_session() {
        let sessions = FlowSessions::default();
        let of = |values_of: Option<&str>| {
            let origin = Origin { values_of: values_of.map(Into::into), ..Origin::default() };
            sessions.of_call(&call(origin))
        };
        assert!(Arc::ptr_eq(&of(None), &of(None)));
        assert!(!Arc::ptr_eq(&of(None), &of(Some("run"))));
        assert!(Arc::ptr_eq(&of(Some("run")), &of(Some("run"))));
        let other = Arc::new(Caller::new("bob", "acme", Vec::new()));
        assert!(!Arc::ptr_eq(&of(Some("run")), &sessions.of_run(&other, &"run".into())), "another caller's");
    }

    #[test]
    fn a_run_that_did_not_begin_here_counts_as_one_that_has_read_text_of_strangers() {
        let sessions = FlowSessions::default();
        let id: Arc<str> = format!("{RUN}1").into();
        let resumed = call(Origin { values_of: Some(Arc::clone(&id)), ..Origin::default() });
        assert!(sessions.of_call(&resumed).lock().values.has_untrusted());
        let begun: Arc<str> = format!("{RUN}2").into();
        assert!(!sessions.of_run(&caller(), &begun).lock().values.has_untrusted());
        let own = call(Origin { values_of: Some(begun), ..Origin::default() });
        assert!(!sessions.of_call(&own).lock().values.has_untrusted());
    }

    /// A call that comes while another one looks it up looks it up, too.
    #[test]
    fn a_session_is_looked_up_until_the_answer_is_there() {
        let mut session = FlowSession::default();
        assert!(session.is_to_check() && session.is_to_check());
        session.set_checked(false);
        assert!(!session.is_to_check());
        let mut marked = FlowSession::default();
        marked.set_checked(true);
        assert!(marked.values.has_untrusted() && !marked.is_to_check());
    }

    #[test]
    fn declared_text_and_parameters_are_added_once() {
        let mut session = FlowSession::default();
        let parameters = json!({"account": "12345678", "more": ["a", {"b": "long enough"}]});
        let origin = Origin {
            user_text: Some("Mail bob@acme.example.".into()),
            prompt_params: parameters.as_object().cloned().unwrap(),
            ..Origin::default()
        };
        session.add_declared(&call(origin.clone()));
        let size = session.values.size();
        session.add_declared(&call(origin.clone()));
        assert_eq!(session.values.size(), size);
        session.add_declared(&call(Origin { user_text: Some("Mail ann@acme.example.".into()), ..origin }));
        assert!(session.values.size() > size);
    }
}
