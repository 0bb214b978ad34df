//! Copies of sessions: an image that is read once, and restored so often. Nothing is packed or stored.
//!
//! A copy has pages of its own where the session differs from its profile, and shares the others with all instances.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, try_join_all};

use super::KeptInterpreter;
use super::describe::{SessionInfo, unknown};
use super::images::{OpenImageError, SessionImages};
use super::resume::image_of;
use super::session::{Beginning, StoredStanding};
use super::table::Sessions;
use super::turn::Turn;
use crate::Sandbox;
use crate::worker_handle::WorkerHandle;
use sekisho_core::call::{Deadline, NotStored};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::ImageCursor;

/// Longest wait for the session, for workers, and for other replicas.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Longest name of a session.
const MAX_NAME: usize = 100;

/// The random part of a copy's name, in bytes.
const SUFFIX_BYTES: usize = 4;

/// A copy that is being made.
struct SessionCopy<'a> {
    turn: Turn<'a, KeptInterpreter>,
    kept: KeptInterpreter,
}

impl Sandbox {
    /// Copies a session of the caller; the copies have names of their own. To be run to its end: dropping it makes
    /// none.
    /// Errors: `not_found`; `invalid_arguments` for more copies than a caller may have sessions, or an interpreter
    /// whose sessions cannot be copied; `overloaded` when there is no place or memory for them, or a call has the
    /// session for too long.
    pub async fn fork_session(&self, owner: &Owner, name: &str, count: u32) -> Result<Vec<SessionInfo>, CallError> {
        let sessions = self.offered_sessions()?;
        let most = self.config.sessions.max_per_caller.saturating_sub(1);
        if !(1..=most).contains(&count) {
            let message = format!("`count` is a number from 1 to {most}: a caller has {} sessions here", most + 1);
            return Err(CallError::new(ErrorCode::InvalidArguments, message));
        }
        if self.find_session(owner, name).await?.is_none() {
            return Err(unknown(name));
        }
        let deadline = Deadline::after(TURN_TIMEOUT);
        let mut source = self.enter(sessions, (owner, name), None, deadline).await?;
        self.bring_to_memory(&mut source, deadline).await?;
        let kept = source.instance().ok_or_else(|| unknown(name))?;
        if self.base_of(&kept.profile).is_none() {
            return Err(not_supported());
        }
        let mut copies = Vec::new();
        for _ in 0..count {
            copies.push(self.new_copy(sessions, &source, kept, deadline).await?);
        }
        copy_parts(kept, &copies).await?;
        let sizes = try_join_all(copies.iter().map(|copy| copy.kept.finish(true))).await;
        let sizes = sizes.map_err(|error| failed(&error))?;
        for (copy, bytes) in copies.iter_mut().zip(sizes) {
            self.hold_memory(&mut copy.turn, bytes, deadline).await?;
        }
        self.record_copies(&mut copies, source.age(), deadline).await?;
        let made = copies.into_iter().map(|SessionCopy { mut turn, kept }| {
            turn.begin(kept);
            SessionInfo::of_unused(turn.snapshot())
        });
        Ok(made.collect())
    }

    /// A session that is stored is resumed first.
    async fn bring_to_memory(
        &self,
        source: &mut Turn<'_, KeptInterpreter>,
        deadline: Deadline,
    ) -> Result<(), CallError> {
        if source.instance().is_some() {
            return Ok(());
        }
        let name = Arc::clone(&source.key().name);
        let images = self.session_images().ok_or_else(|| unknown(&name))?;
        let taken = images.take(source.key(), deadline).await?;
        source.is_taken(taken.fence);
        let Some(image) = image_of(source, &taken) else { return Err(unknown(&name)) };
        let opened = self.open_image(images, source, deadline, (&taken, image)).await?;
        let worker = self.worker_for(&source.key().owner, &image.profile, deadline).await?;
        self.resume_at(images, source, (worker, deadline), (&taken, image), opened).await
    }

    /// A place, memory and an empty interpreter for a copy, with the rights of the session.
    async fn new_copy<'s>(
        &self,
        sessions: &'s Sessions<KeptInterpreter>,
        source: &Turn<'_, KeptInterpreter>,
        of: &KeptInterpreter,
        deadline: Deadline,
    ) -> Result<SessionCopy<'s>, CallError> {
        let (owner, name) = (&source.key().owner, name_of_copy(&source.key().name));
        let mut turn = self.enter(sessions, (owner, name.as_str()), Some(source.rights()), deadline).await?;
        self.hold_memory(&mut turn, source.snapshot().memory_bytes, deadline).await?;
        let worker = self.worker_for(owner, &of.profile, deadline).await?;
        let mut kept = KeptInterpreter::new(worker, self.sessions.next_id(), of.profile.clone());
        kept.programs = of.programs;
        Ok(SessionCopy { turn, kept })
    }

    /// Holds the memory of a copy that has not begun.
    async fn hold_memory(
        &self,
        turn: &mut Turn<'_, KeptInterpreter>,
        bytes: u64,
        deadline: Deadline,
    ) -> Result<(), CallError> {
        let session = Arc::clone(turn.session());
        self.make_memory(&session, bytes, deadline).await;
        if turn.rests(bytes).is_some() { Err(no_memory()) } else { Ok(()) }
    }

    /// Tells the store that the copies begin. If not all can, those that were taken are given back. They end when their
    /// session would, or copies of copies would live for ever.
    async fn record_copies(
        &self,
        copies: &mut [SessionCopy<'_>],
        age: Duration,
        deadline: Deadline,
    ) -> Result<(), CallError> {
        for SessionCopy { turn, .. } in copies {
            match self.session_images() {
                Some(images) => {
                    let beginning = begin_copy(images, turn, age, deadline).await?;
                    turn.begins_as(beginning);
                }
                None => turn.has_age(age),
            }
        }
        Ok(())
    }

    async fn worker_for(
        &self,
        owner: &Owner,
        profile: &str,
        deadline: Deadline,
    ) -> Result<Arc<WorkerHandle>, CallError> {
        self.pool(profile, None, self.classes.is_background(owner)).await?.worker(deadline).await
    }
}

/// The row of a copy.
async fn begin_copy(
    images: &SessionImages,
    turn: &mut Turn<'_, KeptInterpreter>,
    age: Duration,
    deadline: Deadline,
) -> Result<Beginning, CallError> {
    let fence = images.take(turn.key(), deadline).await?.fence;
    turn.is_taken(fence);
    let generation = images.begin(turn.key(), fence, (false, age), None).await?;
    let rights = turn.rights();
    let stored = StoredStanding { fence, every_call: false, object: None };
    let (previous_end, is_resumed, calls) = (None, false, 0);
    Ok(Beginning { generation, previous_end, is_resumed, rights, age, calls, stored })
}

/// Each part is added to all copies while the next one is read.
async fn copy_parts(kept: &KeptInterpreter, copies: &[SessionCopy<'_>]) -> Result<(), CallError> {
    let not_read = |reason: NotStored| match reason {
        NotStored::TooLarge | NotStored::Unsupported => not_supported(),
        NotStored::Unavailable | NotStored::Stopped => failed(&reason.reason()),
    };
    let (mut part, mut from) = kept.read_part(ImageCursor::State).await.map_err(not_read)?;
    loop {
        let adding = try_join_all(copies.iter().map(|copy| copy.kept.add_part(part.clone())));
        let reading = async {
            match from {
                Some(from) => kept.read_part(from).await.map(Some),
                None => Ok(None),
            }
        };
        let (added, read) = join(adding, reading).await;
        added.map_err(|error: OpenImageError| failed(&error))?;
        match read.map_err(not_read)? {
            Some(next) => (part, from) = next,
            None => return Ok(()),
        }
    }
}

/// A name that nobody else has.
fn name_of_copy(of: &str) -> String {
    let suffix = hex::encode(rand::random::<[u8; SUFFIX_BYTES]>());
    let most = MAX_NAME - suffix.len() - 1;
    format!("{}:{suffix}", &of[..of.floor_char_boundary(most)])
}

fn not_supported() -> CallError {
    let message = "sessions of this interpreter cannot be copied: it has state that cannot be written down";
    CallError::new(ErrorCode::InvalidArguments, message)
}

fn no_memory() -> CallError {
    let message = "there is no memory for so many copies; end other sessions, or make fewer";
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}

fn failed(error: &dyn std::fmt::Display) -> CallError {
    let message = "the session could not be copied, and no copy was made; try again shortly";
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_are_valid_and_each_is_new() {
        let long = "a".repeat(MAX_NAME);
        for name in ["monday", long.as_str()] {
            let (one, other) = (name_of_copy(name), name_of_copy(name));
            assert!(one != other && one.len() <= MAX_NAME && one.starts_with(&name[..6]), "{one}");
        }
    }
}
