//! The values of the sessions, owned by caller. A call without a session shares one with all such calls of its caller: its
//! values come from somewhere, too.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::RUN;
use super::session::FlowSession;
use sekisho_core::call::{CallContext, Caller};
use sekisho_core::per_owner::{NotAdded, PerOwner};

/// Maximum sessions of all callers, of 256 KiB each at most (`flow/values.rs`).
const MAX_SESSIONS: usize = 1_000;

/// Maximum sessions of one caller.
const MAX_SESSIONS_OF_CALLER: usize = 250;

/// [`Caller::key`], and the id of the session; an empty one is of the calls without a session.
pub(super) type Key = (Arc<str>, Arc<str>);

pub(super) type SharedSession = Arc<Mutex<FlowSession>>;

/// The values of all sessions.
#[derive(Debug)]
pub(super) struct FlowSessions {
    open: PerOwner<Key, SharedSession>,
    /// Sessions with values that are not in the store yet. They are in use until then.
    unsaved: PerOwner<Key, (Key, SharedSession)>,
    /// Locked while a session is added, so that there is one for each key.
    adding: Mutex<()>,
}

impl Default for FlowSessions {
    fn default() -> Self {
        Self {
            open: PerOwner::new(MAX_SESSIONS, MAX_SESSIONS_OF_CALLER),
            unsaved: PerOwner::new(MAX_SESSIONS, MAX_SESSIONS_OF_CALLER),
            adding: Mutex::new(()),
        }
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
        if let Some(session) = self.find(&key) {
            return session;
        }
        let _adding = self.adding.lock();
        if let Some(session) = self.find(&key) {
            return session;
        }
        let session = Arc::new(Mutex::new(FlowSession::new(id, is_lost)));
        let is_idle = |_: &Key, session: &SharedSession| Arc::strong_count(session) == 1;
        // Where all are in use, it is here until its values are in the store.
        drop(self.open.insert(&caller.owner, key, Arc::clone(&session), is_idle));
        session
    }

    fn find(&self, key: &Key) -> Option<SharedSession> {
        let open = self.open.with(key, |session| Arc::clone(session));
        open.or_else(|| self.unsaved.with(key, |(_, session)| Arc::clone(session)))
    }

    /// Has the values of a session written. False: too many sessions of the caller wait.
    pub(super) fn save_later(&self, caller: &Caller, id: &Arc<str>, session: &SharedSession) -> bool {
        let key = (Arc::clone(&caller.key), Arc::clone(id));
        let unsaved = (key.clone(), Arc::clone(session));
        let (is_added, gone) = match self.unsaved.insert(&caller.owner, key, unsaved, |_, _| false) {
            Ok(gone) => (true, gone),
            Err(NotAdded { gone, .. }) => (false, gone),
        };
        // Of two calls at once, each may have had a session of its own.
        for (_, (_, other)) in gone.into_iter().filter(|(_, (_, other))| !Arc::ptr_eq(other, session)) {
            let values = {
                let mut other = other.lock();
                other.set_not_waiting();
                other.values.clone()
            };
            session.lock().values.merge(&values);
        }
        is_added
    }

    /// The sessions with values that wait to be written.
    pub(super) fn unsaved(&self) -> Vec<(Key, SharedSession)> {
        self.unsaved.by_use()
    }

    /// The values of a session are in the store, unless it has got others meanwhile.
    pub(super) fn remove_saved(&self, key: &Key) {
        self.unsaved.remove_if(key, |(_, session)| !session.lock().is_unsaved());
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

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::call::{CallOrigin as Origin, Via};

    fn caller() -> Arc<Caller> {
        Arc::new(Caller::new("ann", "acme", Vec::new()))
    }

    fn call(origin: Origin) -> CallContext {
        CallContext { origin, ..CallContext::new("t", caller(), Via::Rest) }
    }

    #[test]
    fn a_session_stays_until_its_values_are_in_the_store() {
        let sessions = FlowSessions::default();
        let of = |id: &str| sessions.of_run(&caller(), &id.into());
        let first = of("s0");
        first.lock().set_checked(false);
        assert!(first.lock().set_unsaved() && sessions.save_later(&caller(), &"s0".into(), &first));
        assert!(!first.lock().set_unsaved(), "it waits already");
        drop(first);
        let first = Arc::downgrade(&of("s0"));
        let fill = || (1..=MAX_SESSIONS_OF_CALLER).for_each(|number| drop(of(&format!("s{number}"))));
        fill();
        assert_eq!(sessions.len(), MAX_SESSIONS_OF_CALLER);
        assert!(first.upgrade().is_some_and(|first| Arc::ptr_eq(&first, &of("s0"))), "its values are only here");
        for (key, session) in sessions.unsaved() {
            _ = session.lock().begin_save();
            sessions.remove_saved(&key);
        }
        assert!(sessions.unsaved().is_empty());
        fill();
        assert!(of("s0").lock().is_to_check(false), "it is another one, which is looked up");
        sessions.clear();
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn sessions_of_two_calls_at_once_get_the_values_of_both() {
        let sessions = FlowSessions::default();
        let id: Arc<str> = "s".into();
        let with_text = |text: &str| {
            let session: SharedSession = Arc::default();
            session.lock().values.add_user_text(text);
            assert!(sessions.save_later(&caller(), &id, &session));
            session
        };
        let (one, other) = (with_text("Mail ann@acme.example."), with_text("Mail bob@acme.example."));
        assert!(other.lock().values.size() > one.lock().values.size());
        assert!(Arc::ptr_eq(&sessions.unsaved()[0].1, &other));
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
}
