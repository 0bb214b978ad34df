//! The callers' view of their sessions.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::KeptInterpreter;
use super::run::end_with;
use super::session::{SessionKey, Snapshot};
use super::turn::Turn;
use crate::Sandbox;
use sekisho_core::call::{Deadline, NotStored, SentFlag, SessionEnd};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::{Job, JobLimits, Outcome, SessionEntry};
use sekisho_store::ListedSession;

/// A session of an interpreter.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = InterpreterSessionInfo)]
pub struct SessionInfo {
    /// As calls name it.
    pub session: String,
    pub generation: u64,
    /// Whether a call has it now.
    pub is_used: bool,
    /// `memory` of this gateway; `stored`, from where the next call resumes it; or `elsewhere`, in the memory of
    /// another replica.
    pub place: SessionPlace,
    /// Whether it is stored after each call.
    pub is_stored_each_call: bool,
    /// Why it could not be stored since its last call.
    pub not_stored: Option<NotStored>,
    /// Calls that have ended; of one that is elsewhere, when it was last stored.
    pub calls: u64,
    /// What it holds between calls.
    pub memory_bytes: u64,
    /// Of the image that is stored.
    pub stored_bytes: Option<u64>,
    /// RFC 3339.
    pub created_at: String,
    /// Deprecated name of `created_at`, to be dropped in 0.3.
    #[schema(deprecated)]
    began_at: String,
    pub last_used_at: String,
    /// When it ends without a further call, in seconds from now.
    pub ends_in_seconds: u64,
}

/// Where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = InterpreterSessionPlace)]
pub enum SessionPlace {
    Memory,
    Stored,
    Elsewhere,
}

/// A session, and what its programs have defined.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = InterpreterSessionDetails)]
pub struct SessionDetails {
    #[serde(flatten)]
    pub session: SessionInfo,
    /// Null while a call has it, and when it is not in this gateway's memory.
    pub variables: Option<Vec<Variable>>,
    /// Whether there are more variables.
    pub truncated: bool,
}

/// As our own code in the interpreter lists them: a program can forge the list of its own session.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Variables {
    variables: Vec<Variable>,
    truncated: bool,
}

/// One global variable.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = InterpreterVariable)]
pub struct Variable {
    pub name: String,
    /// The name of its class.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the object itself takes, without what it refers to.
    pub size_bytes: Option<u64>,
}

/// Longest wait for capacity, and then for the list; the list itself takes at most 50 ms of processor time.
const LISTING_TIMEOUT: Duration = Duration::from_secs(5);

/// Memory for the list.
const LIST_BYTES: u64 = 16 << 20;
const MAX_LIST_LENGTH: u64 = 4 << 20;
const MAX_HOST_CALLS: u32 = 4;

/// Maximum variables that our own code lists: names have a hundred characters.
const MAX_VARIABLES: usize = 1_000;
const MAX_NAME_BYTES: usize = 400;

impl Sandbox {
    /// The caller's sessions, by name.
    /// Errors: `overloaded` when the stored ones cannot be read now.
    pub async fn list_sessions(&self, owner: &Owner) -> Result<Vec<SessionInfo>, CallError> {
        self.sessions.end_expired();
        self.record_ends().await;
        let mut listed: Vec<_> = self.sessions.list(owner).into_iter().map(SessionInfo::from).collect();
        if let Some(images) = self.session_images() {
            listed.extend(images.list(owner).await?.into_iter().map(SessionInfo::from));
            listed.sort_by(|one, other| one.session.cmp(&other.session));
            // A session of this process that has an image is in both.
            listed.dedup_by(|one, other| one.session == other.session);
        }
        Ok(listed)
    }

    /// One session of the caller, with its variables if it is in memory and no call has it. To be run to its end:
    /// dropping it ends the session.
    /// Errors: `not_found`, and `overloaded` when there is no capacity to look.
    pub async fn show_session(&self, owner: &Owner, name: &str) -> Result<SessionDetails, CallError> {
        self.sessions.end_expired();
        let Some(mut turn) = self.sessions.try_enter(owner, name) else {
            let session = self.find_session(owner, name).await?.ok_or_else(|| unknown(name))?;
            return Ok(SessionDetails { session, variables: None, truncated: false });
        };
        let session = SessionInfo::of_unused(turn.snapshot());
        let listed = self.variables(owner, &mut turn).await?;
        let (variables, truncated) = listed.map_or((None, false), |list| (Some(list.variables), list.truncated));
        Ok(SessionDetails { session, variables, truncated })
    }

    /// A session of the caller, wherever it is.
    pub(super) async fn find_session(&self, owner: &Owner, name: &str) -> Result<Option<SessionInfo>, CallError> {
        self.sessions.end_expired();
        self.record_ends().await;
        let here = self.sessions.list(owner).into_iter().find(|session| *session.name == *name);
        match (here, self.session_images()) {
            (Some(here), _) => Ok(Some(here.into())),
            (None, Some(images)) => {
                let key = SessionKey { owner: owner.clone(), name: name.into() };
                Ok(images.find(&key).await?.map(SessionInfo::from))
            }
            (None, None) => Ok(None),
        }
    }

    /// Ends a session of the caller, and the program that runs in it.
    /// Errors: `not_found`; `overloaded` when the store, or another replica that has it, does not answer.
    pub async fn delete_session(&self, owner: &Owner, name: &str) -> Result<(), CallError> {
        let was_here = self.sessions.delete(owner, name);
        self.record_ends().await;
        let key = SessionKey { owner: owner.clone(), name: name.into() };
        // Also the stored state of a session that was here, if the store does not know its end.
        let was_stored = match self.session_images() {
            Some(images) => images.delete(&key, Deadline::after(LISTING_TIMEOUT)).await?,
            None => false,
        };
        if was_here || was_stored { Ok(()) } else { Err(unknown(name)) }
    }

    /// One more turn of its instance, in which our code lists what its programs have defined. The list is kept until the
    /// next call: a program can run in place of our code, and must not run as often as somebody looks.
    async fn variables(
        &self,
        owner: &Owner,
        turn: &mut Turn<'_, KeptInterpreter>,
    ) -> Result<Option<Variables>, CallError> {
        let Some(kept) = turn.instance() else { return Ok(None) };
        if let Some(listed) = &kept.listed {
            return Ok(Some(listed.clone()));
        }
        let worker = Arc::clone(&kept.worker);
        let limits = limits(self.config.max_file_bytes);
        let (profile, session) = (kept.profile.clone(), Some(kept.entered_by(SessionEntry::Inspect)));
        let job = Job {
            id: 0,
            profile,
            code: String::new(),
            module: None,
            packages: Arc::default(),
            stdin: Vec::new(),
            files: Vec::new(),
            limits,
            session,
            past: None,
            proposes: false,
            reads_to_end: false,
            image: None,
        };
        let ticket = self.admission.enter(owner, LIST_BYTES, Deadline::after(LISTING_TIMEOUT)).await?;
        turn.runs();
        let outcome = worker.run(job, ticket, &SentFlag::default(), None).await;
        match &outcome {
            Ok(Outcome { session_bytes: Some(bytes), .. }) => turn.rests(*bytes),
            Ok(outcome) => turn.ends(end_with(&outcome.end)),
            Err(_) => turn.ends(SessionEnd::WorkerDied),
        };
        let outcome = outcome?;
        self.classes.record(owner, &outcome.usage);
        let listed = Variables::read(outcome.result.as_deref());
        if let Some(kept) = turn.instance_mut() {
            kept.listed = Some(listed.clone());
        }
        Ok(Some(listed))
    }
}

impl Variables {
    /// A list that a program forged is no longer than a list of ours; without a list, none of the variables are in it.
    fn read(result: Option<&str>) -> Self {
        let listed = result.and_then(|text| serde_json::from_str(text).ok());
        let Self { mut variables, mut truncated } = listed.unwrap_or(Self { truncated: true, ..Self::default() });
        truncated |= variables.len() > MAX_VARIABLES;
        variables.truncate(MAX_VARIABLES);
        variables.shrink_to_fit();
        for text in variables.iter_mut().flat_map(|variable| [&mut variable.name, &mut variable.kind]) {
            text.truncate(text.floor_char_boundary(MAX_NAME_BYTES));
            text.shrink_to_fit();
        }
        Self { variables, truncated }
    }
}

impl SessionInfo {
    /// The details of a session that only this look at it uses.
    pub(super) fn of_unused(session: Snapshot) -> Self {
        Self { is_used: false, ..session.into() }
    }
}

impl From<Snapshot> for SessionInfo {
    fn from(session: Snapshot) -> Self {
        Self {
            session: session.name.to_string(),
            generation: session.generation,
            is_used: session.is_used,
            place: SessionPlace::Memory,
            is_stored_each_call: session.every_call,
            not_stored: session.not_stored,
            calls: session.calls,
            memory_bytes: session.memory_bytes,
            stored_bytes: None,
            created_at: session.began_at.to_string(),
            began_at: session.began_at.to_string(),
            last_used_at: session.used_at.to_string(),
            ends_in_seconds: session.left.as_secs(),
        }
    }
}

impl From<ListedSession> for SessionInfo {
    fn from(session: ListedSession) -> Self {
        Self {
            session: session.name,
            generation: session.generation,
            is_used: false,
            place: if session.is_elsewhere { SessionPlace::Elsewhere } else { SessionPlace::Stored },
            is_stored_each_call: session.every_call,
            not_stored: None,
            calls: session.calls,
            memory_bytes: 0,
            stored_bytes: session.bytes,
            created_at: session.began.to_string(),
            began_at: session.began.to_string(),
            last_used_at: session.used.to_string(),
            ends_in_seconds: session.left.as_secs(),
        }
    }
}

fn limits(file_bytes: u32) -> JobLimits {
    JobLimits {
        wall_time: LISTING_TIMEOUT,
        total_time: LISTING_TIMEOUT,
        memory_bytes: LIST_BYTES,
        stream_bytes: 0,
        result_bytes: MAX_LIST_LENGTH,
        image_bytes: 0,
        file_bytes: u64::from(file_bytes),
        max_files: 0,
        max_open_files: 0,
        random_bytes: 0,
        host_calls: MAX_HOST_CALLS,
        tool_calls: 0,
        state_bytes: 0,
    }
}

pub(super) fn unknown(name: &str) -> CallError {
    let message = format!("you have no session `{name}`; a call of python_executor with `session` begins one");
    CallError::new(ErrorCode::NotFound, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_no_longer_than_ours() {
        let variable = json!({"name": "é".repeat(1_000), "type": "int", "size_bytes": 1});
        let forged = json!({"variables": vec![variable; 1_001], "truncated": false}).to_string();
        let Variables { variables, truncated } = Variables::read(Some(&forged));
        assert_eq!((variables.len(), truncated, variables[0].name.len()), (1_000, true, 400));
        for none in [None, Some("7"), Some("[")] {
            let Variables { variables, truncated } = Variables::read(none);
            assert!(variables.is_empty() && truncated);
        }
    }
}
