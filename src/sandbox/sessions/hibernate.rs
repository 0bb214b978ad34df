//! Sessions are stored while nobody uses them: when they are idle, when others need their place or their memory, when
//! another replica wants them, and when the gateway stops. A call that comes meanwhile has the session, and the image
//! is given up.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream;
use tokio::time::{MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::KeptInterpreter;
use super::images::{ImageBase, ImageWriter, PastPrograms, SessionImages};
use super::session::{Session, SessionKey, StoredStanding};
use super::turn::Turn;
use crate::Sandbox;
use sekisho_core::call::{Deadline, NotStored};
use sekisho_core::caller::Owner;
use sekisho_guest_protocol::{ImageCursor, SessionReply, SessionRequest};
use sekisho_store::{AskedOfSession, NewSessionImage, SessionImage, StoreError, WantedSession};

/// Interval of the search for sessions whose time is over, or which are idle.
const LOOK_AT_SESSIONS: Duration = Duration::from_secs(5);

/// Interval of the search for sessions that other replicas want.
const LOOK_AT_WANTED: Duration = Duration::from_millis(500);

/// How long the sessions may take to be stored when the gateway stops, and how many are at once.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 4;

impl Sandbox {
    /// Sets where sessions are stored, once. Without it they end when they are idle.
    pub fn store_sessions_in(&self, images: SessionImages) {
        if self.images.set(images).is_ok() {
            self.sessions.store_idle();
        }
    }

    /// Where sessions are stored.
    pub fn session_images(&self) -> Option<&SessionImages> {
        self.images.get()
    }

    /// Stores sessions that are idle or that others want, and ends those whose time is over, until the gateway closes.
    pub async fn look_after_sessions(&self, closing: CancellationToken) {
        let ending = async {
            let mut moments = interval(LOOK_AT_SESSIONS);
            moments.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                moments.tick().await;
                self.store_sessions(true).await;
                self.sessions.end_expired();
                self.record_ends().await;
            }
        };
        let releasing = async {
            let Some(images) = self.session_images().filter(|images| images.is_shared()) else { return };
            let mut moments = interval(LOOK_AT_WANTED);
            moments.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                moments.tick().await;
                self.release_wanted(images).await;
            }
        };
        let _: Option<((), ())> = closing.run_until_cancelled(join(ending, releasing)).await;
    }

    /// Removes stored sessions whose time is over, and counts the others. Called every minute.
    /// Errors: the store cannot be written.
    pub async fn sweep_stored_sessions(&self) -> Result<(), StoreError> {
        let Some(images) = self.session_images() else { return Ok(()) };
        let (sessions, bytes) = images.forget_expired().await?;
        self.metrics.sessions_stored(sessions, bytes);
        Ok(())
    }

    /// Stores all sessions that can be stored: the gateway stops.
    pub(crate) async fn store_all_sessions(&self) {
        if timeout(CLOSE_TIMEOUT, self.store_sessions(false)).await.is_err() {
            tracing::warn!(seconds = CLOSE_TIMEOUT.as_secs(), "some sessions were not stored in time, and end");
        }
        self.record_ends().await;
    }

    async fn store_sessions(&self, only_idle: bool) {
        let Some(images) = self.session_images() else { return };
        let sessions = stream::iter(self.sessions.to_store(only_idle));
        let store = |session: Arc<Session<KeptInterpreter>>| async move {
            self.hibernate(images, &session).await;
        };
        sessions.for_each_concurrent(AT_ONCE, store).await;
    }

    /// Tells the store which sessions have ended. An end that the store does not take is told again the next time.
    pub(super) async fn record_ends(&self) {
        let Some(images) = self.session_images() else { return };
        for ended in self.sessions.take_ends_to_record() {
            let recorded = match ended.end {
                Some(end) => images.end(&ended.key, ended.fence, end).await,
                None => images.release(&ended.key, ended.fence).await,
            };
            if let Err(error) = recorded {
                tracing::warn!(%error, "the end of a session cannot be recorded; tried again");
                self.sessions.record_later(ended);
            }
        }
    }

    pub(super) async fn release_wanted(&self, images: &SessionImages) {
        let wanted = images.wanted().await;
        if wanted.is_empty() {
            return;
        }
        // This answers for sessions that have ended.
        self.record_ends().await;
        for WantedSession { tenant, caller_key, name, fence, asked } in wanted {
            let owner = Owner { tenant: tenant.into(), caller: caller_key.into() };
            let key = SessionKey { owner, name: name.into() };
            match (self.sessions.get(&key.owner, &key.name), asked) {
                // A call has taken it, and resumes it or begins it anew: looked at again once it has begun.
                (None, _) if self.sessions.open.contains(&key) => {}
                (None, _) => self.sessions.give_back(&key, fence),
                (Some(_), AskedOfSession::Delete) => _ = self.sessions.delete(&key.owner, &key.name),
                (Some(session), AskedOfSession::Release) => {
                    if !self.hibernate(images, &session).await && !session.may_be_released() {
                        images.refuse(&key, fence).await;
                    }
                }
            }
        }
        self.record_ends().await;
    }

    /// Stores sessions that would otherwise end for one of that name.
    pub(super) async fn make_place(&self, owner: &Owner, name: &str, deadline: Deadline) {
        let Some(images) = self.session_images() else { return };
        let storing = async {
            let mut tried = Vec::new();
            while let Some(other) = self.sessions.next_to_store(owner, name, &tried) {
                self.hibernate(images, &other).await;
                tried.push(other);
            }
        };
        // If there is no time, they end.
        let _ = timeout_at(deadline.0, storing).await;
    }

    /// Stores sessions that would otherwise end for the memory of this one.
    pub(super) async fn make_memory(&self, session: &Arc<Session<KeptInterpreter>>, bytes: u64, deadline: Deadline) {
        let Some(images) = self.session_images() else { return };
        let storing = async {
            let mut tried = Vec::new();
            while let Some(other) = self.sessions.next_to_store_for_memory(session, bytes, &tried) {
                self.hibernate(images, &other).await;
                tried.push(other);
            }
        };
        let _ = timeout_at(deadline.0, storing).await;
    }

    /// Stores a session that nobody has, and frees its memory. False when it cannot be stored, or somebody wants it.
    async fn hibernate(&self, images: &SessionImages, session: &Arc<Session<KeptInterpreter>>) -> bool {
        let Some(mut turn) = self.sessions.try_turn(session) else { return false };
        if let Some(fence) = turn.fence_of_current_image() {
            turn.leaves();
            self.sessions.give_back(turn.key(), fence);
            return true;
        }
        let written = tokio::select! {
            () = session.wanted_by_others() => return false,
            written = self.write_image(images, &turn) => written,
        };
        match written {
            Ok(image) => {
                // Once the row names the image, any process may take the session.
                turn.leaves();
                self.name_image(images, &mut turn, &image, true).await
            }
            Err(reason) => {
                turn.is_not_stored(reason);
                false
            }
        }
    }

    /// Stores a session that is to be stored after each call. `None` for another one.
    pub(super) async fn checkpoint(
        &self,
        turn: &mut Turn<'_, KeptInterpreter>,
        deadline: Deadline,
    ) -> Option<Result<(), NotStored>> {
        let images = self.session_images().filter(|_| turn.is_stored_each_call())?;
        let written = timeout_at(deadline.0, self.write_image(images, turn)).await;
        match written.unwrap_or(Err(NotStored::Unavailable)) {
            Ok(image) => {
                let is_named = self.name_image(images, turn, &image, false).await;
                Some(if is_named { Ok(()) } else { Err(NotStored::Unavailable) })
            }
            Err(reason) => {
                turn.is_not_stored(reason);
                Some(Err(reason))
            }
        }
    }

    /// Reads the image of a session, packs it, and writes the object.
    async fn write_image(
        &self,
        images: &SessionImages,
        turn: &Turn<'_, KeptInterpreter>,
    ) -> Result<SessionImage, NotStored> {
        let kept = turn.instance().ok_or(NotStored::Unavailable)?;
        let base = self.base_of(&kept.profile).ok_or(NotStored::Unsupported)?;
        let programs = PastPrograms { rights: turn.rights(), digest: kept.programs.ok_or(NotStored::Unavailable)? };
        let _permit = images.permit_to_write().await;
        let writer = kept.pack(images.writer()).await?;
        images.write(turn.key(), turn.generation(), (base, programs), writer).await
    }

    /// Has the row of a session name its image. False when it does not, as far as is known.
    async fn name_image(
        &self,
        images: &SessionImages,
        turn: &mut Turn<'_, KeptInterpreter>,
        image: &SessionImage,
        releases: bool,
    ) -> bool {
        let Some(StoredStanding { fence, every_call, object }) = turn.stored() else { return false };
        let new = NewSessionImage { image, every_call, calls: turn.calls(), releases };
        match images.keep(turn.key(), fence, new, object).await {
            Ok(true) => {
                turn.is_stored_in(image.object.key.clone());
                true
            }
            Ok(false) => {
                // It was deleted, or another process has taken it since this one counted as lost.
                turn.leaves();
                false
            }
            Err(error) => {
                tracing::warn!(%error, cause = error.cause(), "the image of a session cannot be named");
                // If nothing was written, the session is lost unless it stays.
                if releases && matches!(images.has(turn.key(), fence).await, Ok(true)) {
                    turn.stays(NotStored::Unavailable);
                }
                false
            }
        }
    }

    /// The base of a profile's images; `None` where it has none, or is not set up.
    pub(super) fn base_of(&self, profile: &str) -> Option<ImageBase> {
        let snapshot = self.snapshot_of(profile)?;
        let interpreter = self.interpreter.module_file()?.sha256.as_str().to_owned();
        Some(ImageBase { profile: profile.to_owned(), interpreter, snapshot })
    }
}

impl KeptInterpreter {
    /// Reads all parts of its image. While one is packed, the next is read.
    async fn pack(&self, mut writer: ImageWriter) -> Result<ImageWriter, NotStored> {
        let (mut part, mut from) = (None, Some(ImageCursor::State));
        loop {
            let reading = async {
                match from {
                    Some(from) => self.read_part(from).await.map(Some),
                    None => Ok(None),
                }
            };
            let packing = async {
                match part.take() {
                    Some(part) => writer.add(part).await,
                    None => Ok(writer),
                }
            };
            let (read, packed) = join(reading, packing).await;
            writer = packed?;
            match read? {
                Some((read, next)) => (part, from) = (Some(read), next),
                None => return Ok(writer),
            }
        }
    }

    /// A part of its image, and where the next one begins.
    pub(crate) async fn read_part(&self, from: ImageCursor) -> Result<(Vec<u8>, Option<ImageCursor>), NotStored> {
        let request = SessionRequest::Read { session: self.id, profile: self.profile.clone(), from };
        match self.worker.ask(request).await {
            Some(SessionReply::Part { part, next }) => Ok((part, next)),
            Some(SessionReply::Failed(reason)) => {
                tracing::warn!(reason, "a session has no image");
                Err(NotStored::Unsupported)
            }
            _ => Err(NotStored::Unavailable),
        }
    }
}
