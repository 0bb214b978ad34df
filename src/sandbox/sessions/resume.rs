//! Sessions go on from their images: with the next call, in any process.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use super::KeptInterpreter;
use super::images::{ImageBase, ImageReader, OpenImageError, PastPrograms, SessionImages};
use super::session::{Beginning, StoredStanding};
use super::table::{EndToRecord, of_other_rights};
use super::turn::Turn;
use crate::Sandbox;
use crate::admission::Ticket;
use crate::worker_handle::WorkerHandle;
use sekisho_core::call::{CallContext, Deadline, SessionEnd};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::{Job, MAX_STATE_BYTES, SessionEntry, SessionReply, SessionRequest};
use sekisho_store::{SessionImage, TakenSession};

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

/// An image that is open, and is not restored yet.
#[derive(Debug)]
pub(super) struct OpenImage {
    reader: ImageReader,
    programs: PastPrograms,
    permit: Option<OwnedSemaphorePermit>,
}

impl Sandbox {
    /// Restores a session from its image, for one more program.
    /// Errors: `denied` when the session began with other rights; `session_lost` when the image cannot be opened;
    /// `overloaded` when that may be possible later.
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
        // Before the call has capacity, which others can use while the storage is slow.
        let opened = self.open_image(images, turn, deadline, (taken, image)).await?;
        // How much it holds is known once it has all parts.
        job.limits.state_bytes = self.state_bytes(job, MAX_STATE_BYTES);
        let (worker, ticket) = self.place(call, job, deadline).await?;
        self.resume_at(images, turn, (worker, deadline), (taken, image), opened).await?;
        let kept = turn.instance().ok_or_else(|| not_now(&turn.key().name))?;
        job.session = Some(kept.entered_by(SessionEntry::Continue));
        Ok((Arc::clone(&kept.worker), ticket))
    }

    /// Reads and opens the image of a session.
    /// Errors: as [`resume`](Self::resume), and `warming_up` while its profile is being set up.
    pub(super) async fn open_image(
        &self,
        images: &SessionImages,
        turn: &Turn<'_, KeptInterpreter>,
        deadline: Deadline,
        (taken, image): (&TakenSession, &SessionImage),
    ) -> Result<OpenImage, CallError> {
        if self.profiles().contains(&image.profile.as_str()) {
            self.pool(&image.profile, None, self.classes.is_background(&turn.key().owner)).await?;
        }
        let opening = async {
            let programs = PastPrograms::of(image)?;
            if self.base_of(&image.profile) != Some(ImageBase::of(image)) {
                let reason = "it is of another interpreter, or of another version of it";
                return Err(OpenImageError::Lost(reason.to_owned()));
            }
            let permit = images.permit_to_read().await;
            let reader = images.read(turn.key(), taken.generation, image).await?;
            Ok(OpenImage { reader, programs, permit })
        };
        match timeout_at(deadline.0, opening).await.unwrap_or_else(|_| Err(no_time())) {
            Ok(opened) => Ok(opened),
            Err(error) => Err(self.refusal(turn, taken.fence, error).await),
        }
    }

    /// Restores a session in this worker, where it rests. It holds its memory before its image is given up, so that none is
    /// lost for which there is no memory.
    /// Errors: as [`resume`](Self::resume).
    pub(super) async fn resume_at(
        &self,
        images: &SessionImages,
        turn: &mut Turn<'_, KeptInterpreter>,
        (worker, deadline): (Arc<WorkerHandle>, Deadline),
        (taken, image): (&TakenSession, &SessionImage),
        OpenImage { reader, programs, permit }: OpenImage,
    ) -> Result<(), CallError> {
        let mut kept = KeptInterpreter::new(worker, self.sessions.next_id(), image.profile.clone());
        let restored = timeout_at(deadline.0, kept.restore(reader)).await.unwrap_or_else(|_| Err(no_time()));
        drop(permit);
        let bytes = match restored {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.refusal(turn, taken.fence, error).await),
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
            // It is the image of the last call until the next one has ended.
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

    /// The error of a call whose session cannot be resumed. A session that never can be is over.
    async fn refusal(&self, turn: &Turn<'_, KeptInterpreter>, fence: i64, error: OpenImageError) -> CallError {
        let key = turn.key();
        match error {
            OpenImageError::Unavailable(reason) => not_now(&key.name).caused_by(reason),
            OpenImageError::Lost(reason) => {
                self.sessions.record_later(EndToRecord { key: key.clone(), fence, end: Some(SessionEnd::Lost) });
                self.record_ends().await;
                self.metrics.session_ended(SessionEnd::Lost);
                lost(&key.name).caused_by(reason)
            }
        }
    }
}

impl KeptInterpreter {
    /// Its session goes on from an image, and rests; the bytes that it holds.
    async fn restore(&self, mut reader: ImageReader) -> Result<u64, OpenImageError> {
        loop {
            let (rest, part) = reader.next().await?;
            let Some(part) = part else { return self.finish(false).await };
            self.add_part(part).await?;
            reader = rest;
        }
    }

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
    // The store may not know it yet. State that was stored after an earlier call outlives the program and the worker.
    let before = turn.session().before.filter(|before| before.generation == taken.generation);
    let has_ended = before.is_some_and(|before| !before.end.leaves_checkpoint());
    taken.image.as_ref().filter(|_| !is_over && !has_ended)
}

fn refused(reply: Option<SessionReply>) -> OpenImageError {
    match reply {
        Some(SessionReply::Failed(reason)) => OpenImageError::Lost(reason),
        Some(SessionReply::NoSpace(reason)) => OpenImageError::Unavailable(reason),
        _ => OpenImageError::Unavailable("the worker exited".to_owned()),
    }
}

fn no_time() -> OpenImageError {
    OpenImageError::Unavailable("no time is left".to_owned())
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
