//! Sessions go on from their images: with the next call, in any process.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use super::KeptInterpreter;
use super::images::{ImageBase, OpenImageError, PastPrograms, SessionImages};
use super::session::{Beginning, StoredStanding};
use super::table::{EndToRecord, of_other_rights};
use super::turn::Turn;
use crate::core::call::{CallContext, Deadline, SessionEnd};
use crate::core::error::{CallError, ErrorCode};
use crate::infra::store::{SessionImage, TakenSession};
use crate::sandbox::Sandbox;
use crate::sandbox::admission::Ticket;
use crate::sandbox::protocol::{Job, SessionEntry, SessionReply, SessionRequest};
use crate::sandbox::worker_handle::WorkerHandle;

/// After which a refused caller should try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The call that a session is prepared for.
#[derive(Clone, Copy)]
pub(super) struct TurnCall<'a> {
    pub(super) call: &'a CallContext,
    pub(super) deadline: Deadline,
    /// Whether the session is stored after each call from this one on.
    pub(super) every_call: bool,
}

impl Sandbox {
    /// Restores a session from its image, for one more program.
    ///
    /// # Errors
    /// `denied` when the session began with other rights; `session_lost` when the image cannot be opened; `overloaded` when
    /// that may be possible later.
    pub(super) async fn resume(
        &self,
        images: &SessionImages,
        turn: &mut Turn<'_, KeptInterpreter>,
        (TurnCall { call, deadline, .. }, job): (TurnCall<'_>, &mut Job),
        (taken, image): (&TakenSession, &SessionImage),
    ) -> Result<(Arc<WorkerHandle>, Ticket), CallError> {
        if PastPrograms::of(image).is_ok_and(|programs| programs.rights != turn.rights()) {
            return Err(of_other_rights(&turn.key().name));
        }
        job.profile.clone_from(&image.profile);
        let (worker, ticket) = self.place(call, job, deadline).await?;
        self.resume_at(images, turn, (worker, deadline), (taken, image)).await?;
        let kept = turn.instance().ok_or_else(|| not_now(&turn.key().name))?;
        job.session = Some(kept.entered_by(SessionEntry::Continue));
        Ok((Arc::clone(&kept.worker), ticket))
    }

    /// The same in this worker, and the session rests. It holds its memory before its image is given up, so that none is
    /// lost for which there is no memory.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub(super) async fn resume_at(
        &self,
        images: &SessionImages,
        turn: &mut Turn<'_, KeptInterpreter>,
        (worker, deadline): (Arc<WorkerHandle>, Deadline),
        (taken, image): (&TakenSession, &SessionImage),
    ) -> Result<(), CallError> {
        let mut kept = KeptInterpreter::new(worker, self.sessions.next_id(), image.profile.clone());
        let restored = timeout_at(deadline.0, self.restore(images, turn, (taken, image), &kept)).await;
        let (bytes, programs) =
            match restored.unwrap_or_else(|_| Err(OpenImageError::Unavailable("no time is left".to_owned()))) {
                Ok(restored) => restored,
                Err(OpenImageError::Lost(reason)) => {
                    let (key, end) = (turn.key().clone(), Some(SessionEnd::Lost));
                    self.sessions.record_later(EndToRecord { key, fence: taken.fence, end });
                    self.record_ends().await;
                    self.metrics.session_ended(SessionEnd::Lost);
                    return Err(lost(&turn.key().name).caused_by(reason));
                }
                Err(OpenImageError::Unavailable(reason)) => return Err(not_now(&turn.key().name).caused_by(reason)),
            };
        let session = Arc::clone(turn.session());
        self.make_memory(&session, bytes, deadline).await;
        if !self.sessions.hold(&session, bytes) {
            return Err(not_now(&turn.key().name).caused_by("other sessions hold the memory"));
        }
        let object = image.object.key.clone();
        let object = if taken.every_call {
            if !images.has(turn.key(), taken.fence).await? {
                return Err(not_now(&turn.key().name));
            }
            // It is that of the last call until the next one has ended.
            Some(object)
        } else {
            images.forget(turn.key(), taken.fence, object).await?;
            None
        };
        kept.programs = Some(programs.digest);
        turn.begins_as(Beginning {
            generation: taken.generation,
            previous_end: None,
            is_resumed: true,
            rights: programs.rights,
            age: taken.age,
            calls: taken.calls,
            stored: StoredStanding { fence: taken.fence, every_call: taken.every_call, object },
        });
        turn.begin(kept);
        Ok(())
    }

    async fn restore(
        &self,
        images: &SessionImages,
        turn: &Turn<'_, KeptInterpreter>,
        (taken, image): (&TakenSession, &SessionImage),
        kept: &KeptInterpreter,
    ) -> Result<(u64, PastPrograms), OpenImageError> {
        let programs = PastPrograms::of(image)?;
        if self.base_of(&image.profile) != Some(ImageBase::of(image)) {
            return Err(OpenImageError::Lost("it is of another interpreter, or of another version of it".to_owned()));
        }
        let _one_of_few = images.one_of_few().await;
        let mut reader = images.read(turn.key(), taken.generation, image).await?;
        loop {
            let (rest, part) = reader.next().await?;
            let Some(part) = part else { break };
            kept.add_part(part).await?;
            reader = rest;
        }
        Ok((kept.finish(false).await?, programs))
    }
}

impl KeptInterpreter {
    /// Adds a part of the image of which its session is made.
    pub(super) async fn add_part(&self, part: Vec<u8>) -> Result<(), OpenImageError> {
        let request = SessionRequest::Restore { session: self.id, profile: self.profile.clone(), part };
        match self.worker.ask(request).await {
            Some(SessionReply::Added) => Ok(()),
            other => Err(refused(other)),
        }
    }

    /// Its session has all parts, and rests; the bytes that it holds.
    pub(super) async fn finish(&self, is_copy: bool) -> Result<u64, OpenImageError> {
        let request = SessionRequest::Restored { session: self.id, profile: self.profile.clone(), is_copy };
        match self.worker.ask(request).await {
            Some(SessionReply::Rests(bytes)) => Ok(bytes),
            other => Err(refused(other)),
        }
    }
}

/// Why a session begins anew: as this process knows it, or the store.
pub(super) fn previous_end(turn: &Turn<'_, KeptInterpreter>, taken: &TakenSession) -> Option<SessionEnd> {
    if let Some(before) = turn.session().before.filter(|before| before.generation == taken.generation) {
        return Some(before.end);
    }
    match &taken.ended {
        _ if taken.generation == 0 => None,
        Some(end) => SessionEnd::parse(end),
        None if taken.left.is_zero() => Some(SessionEnd::Lifetime),
        // Whoever had it is gone.
        None => Some(SessionEnd::WorkerDied),
    }
}

/// The image that a session goes on from, if it has one and has not ended.
pub(super) fn image_of<'t>(turn: &Turn<'_, KeptInterpreter>, taken: &'t TakenSession) -> Option<&'t SessionImage> {
    let is_over = taken.ended.is_some() || taken.left.is_zero();
    // The store may not know it yet. What was stored after the last call outlives the worker.
    let before = turn.session().before.filter(|before| before.generation == taken.generation);
    let has_ended = before.is_some_and(|before| before.end != SessionEnd::WorkerDied);
    taken.image.as_ref().filter(|_| !is_over && !has_ended)
}

fn refused(reply: Option<SessionReply>) -> OpenImageError {
    match reply {
        Some(SessionReply::Failed(reason)) => OpenImageError::Lost(reason),
        Some(SessionReply::NoSpace(reason)) => OpenImageError::Unavailable(reason),
        _ => OpenImageError::Unavailable("the worker exited".to_owned()),
    }
}

fn lost(name: &str) -> CallError {
    let message = format!(
        "the session `{name}` is lost: what was stored of it cannot be opened, and the code has not run; the next call \
         begins anew, without its variables and files"
    );
    CallError::new(ErrorCode::SessionLost, message)
}

fn not_now(name: &str) -> CallError {
    let message = format!("the session `{name}` cannot be resumed now, and the code has not run; try again shortly");
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}
