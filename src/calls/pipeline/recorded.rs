//! The store's records of a call before it is sent, so that it does not run twice: the record of its key, and the
//! record of its approval.

use std::sync::Arc;

use super::idempotency::{InFlightGuard, RecordKind};
use super::receipt::{Answered, Reply};
use crate::approval::ApprovedCall;
use crate::tool::{Tool, ValidArguments};
use sekisho_core::call::{CallContext, Deadline, SendingState};
use sekisho_core::error::{CallError, ErrorCode};

/// Whether a call must be run.
#[derive(Debug)]
pub(super) enum Entered {
    /// It has run, or is refused.
    Answered(Answered),
    /// It must be run, and once.
    First(Box<Recorded>),
    /// It must be run, and is not recorded. Its hold of its key is released when it has ended.
    Unrecorded(Option<Box<Recorded>>),
}

impl Entered {
    /// A call that must be run, with its hold of its key and approval.
    pub(super) fn new(call: &CallContext, recorded: Recorded) -> Self {
        let is_recorded = !call.dry_run && (recorded.key.is_some() || recorded.approved.is_some());
        if is_recorded { Self::First(recorded.into()) } else { Self::Unrecorded(Some(recorded.into())) }
    }
}

/// The right to run a call with a key, with an approval, or with both.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) key: Option<InFlightGuard>,
    pub(super) approved: Option<(ApprovedCall, InFlightGuard)>,
    /// The valid arguments by which it is recorded, with the id of the tool.
    pub(super) valid: Option<(u64, ValidArguments)>,
    /// For an upstream that knows a request that it has had already.
    pub(super) upstream_key: Option<Arc<str>>,
}

impl Recorded {
    /// The valid arguments, if they are of this tool.
    pub(super) fn take_valid(&mut self, tool: &Tool) -> Option<ValidArguments> {
        let (of, valid) = self.valid.take()?;
        (of == tool.id).then_some(valid)
    }

    /// The right to make a call that is recorded by its key, or for its effect.
    pub(super) fn add_key(&mut self, tool: &Tool, call: &CallContext, mut guard: InFlightGuard) {
        guard.name(call);
        self.upstream_key = tool.declares_idempotency_key().then(|| guard.upstream_key());
        self.key = Some(guard);
    }

    /// The guard by whose record its effect is found.
    pub(super) fn guard(&mut self) -> Option<&mut InFlightGuard> {
        self.key.as_mut().or_else(|| self.approved.as_mut().map(|(_, guard)| guard))
    }

    pub(super) fn approved(&self) -> Option<&ApprovedCall> {
        self.approved.as_ref().map(|(approved, _)| approved)
    }

    /// Writes that the call is about to be sent.
    /// Errors: the call must not run: the record cannot be written, or another process makes it.
    pub(super) async fn start(&mut self, call: &CallContext, deadline: Deadline) -> Result<(), CallError> {
        if let Some(key) = &mut self.key {
            key.record(deadline).await?;
        }
        if let Some((approved, reply)) = &mut self.approved {
            // First of all the approval is taken: a record without that would say that the call has run.
            if !approved.start(call).await? {
                return Err(reply.wait_elsewhere(deadline).await);
            }
            reply.record(deadline).await?;
        }
        Ok(())
    }

    /// The reply of another replica, which made the call at the same time.
    pub(super) fn take_elsewhere(&mut self) -> Option<Arc<Reply>> {
        let of_approval = |(_, reply): &mut (ApprovedCall, InFlightGuard)| reply.take_elsewhere();
        let of_key = self.key.as_mut().and_then(InFlightGuard::take_elsewhere);
        of_key.or_else(|| self.approved.as_mut().and_then(of_approval))
    }

    /// Keeps the reply for calls that are sent again. A call that was not sent may be made again. A call whose program
    /// waits for an approval may be sent again with its key, which its program's calls have too; its own approval is
    /// used. The record of a call whose outcome `is_lost` stays open. Returns the guard of a call without a key, whose record is removed once its
    /// client has the reply.
    pub(super) async fn end(self, reply: &Arc<Reply>, state: SendingState, is_lost: bool) -> Option<InFlightGuard> {
        if let Some((approved, guard)) = self.approved {
            // A tool may succeed without sending anything.
            approved.end(state != SendingState::Pending || reply.outcome.is_ok()).await;
            guard.end(reply, state).await;
        }
        let key = self.key.filter(|_| !is_lost)?;
        let state = if program_waits(reply) { SendingState::Pending } else { state };
        if key.kind() == RecordKind::Effect {
            return Some(key.end_for_client(reply, state).await);
        }
        key.end(reply, state).await;
        None
    }
}

fn program_waits(reply: &Reply) -> bool {
    let error = reply.outcome.as_ref().err();
    error.is_some_and(|error| error.code() == ErrorCode::ApprovalRequired && error.run().is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::tool::Metadata;
    use crate::tool::tests::tool_with;

    #[test]
    fn valid_arguments_are_for_the_tool_that_they_were_made_for() {
        let tool = || tool_with(Metadata { name: "pay".into(), ..Metadata::default() }, json!({}), None);
        let (first, other) = (tool(), tool());
        let arguments = || json!({"n": 1}).as_object().cloned().unwrap();
        let made = || Recorded {
            valid: Some((first.id, first.valid_arguments(arguments(), &Map::new()).unwrap())),
            ..Recorded::default()
        };
        assert_eq!(made().take_valid(&first).unwrap().as_map(), &arguments());
        assert!(made().take_valid(&other).is_none(), "it is registered anew");
        assert!(Recorded::default().take_valid(&first).is_none());
    }
}
