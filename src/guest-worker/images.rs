//! The gateway's requests about sessions between their calls: parts of images, to be kept and to be restored.

use std::collections::hash_map::Entry;

use super::Worker;
use super::guest::{ImagePart, RestoreError};
use sekisho_guest_protocol::{DamagedImageError, ImageCursor, SessionId, SessionReply, SessionRequest};

impl Worker {
    pub(super) async fn answer_about_session(&mut self, request: SessionRequest) -> SessionReply {
        let answered = match request {
            SessionRequest::Read { session, profile, from } => self.read_image(session, &profile, from),
            SessionRequest::Restore { session, profile, part } => self.restore(session, &profile, &part).await,
            SessionRequest::Restored { session, profile, is_copy } => self.restored(session, &profile, is_copy),
        };
        answered.unwrap_or_else(SessionReply::Failed)
    }

    fn read_image(&mut self, id: SessionId, profile: &str, from: ImageCursor) -> Result<SessionReply, String> {
        let profile = self.profiles.get(profile).ok_or_else(|| no_profile(profile))?;
        let guest = self.sessions.get_mut(&id).ok_or_else(|| format!("this worker has no session {id}"))?;
        Ok(profile.read_image(guest, from))
    }

    async fn restore(&mut self, id: SessionId, profile: &str, part: &[u8]) -> Result<SessionReply, String> {
        let profile = self.profiles.get(profile).ok_or_else(|| no_profile(profile))?;
        let part = postcard::from_bytes(part).map_err(|_| DamagedImageError("a part is incomplete").to_string())?;
        match (self.restoring.entry(id), part) {
            (Entry::Vacant(place), ImagePart::State(state)) => match profile.restore(*state).await {
                Ok(guest) => _ = place.insert(Box::new(guest)),
                // The image is as good as before.
                Err(error @ RestoreError::NoSpace(_)) => return Ok(SessionReply::NoSpace(error.to_string())),
                Err(error) => return Err(error.to_string()),
            },
            (Entry::Vacant(_), _) => return Err(DamagedImageError("its beginning is missing").to_string()),
            (Entry::Occupied(mut guest), part) => guest.get_mut().add(part).map_err(|error| error.to_string())?,
        }
        Ok(SessionReply::Added)
    }

    fn restored(&mut self, id: SessionId, profile: &str, is_copy: bool) -> Result<SessionReply, String> {
        let profile = self.profiles.get(profile).ok_or_else(|| no_profile(profile))?;
        let incomplete = || DamagedImageError("it has no parts").to_string();
        let guest = *self.restoring.remove(&id).ok_or_else(incomplete)?;
        let guest = profile.restored(guest, id, is_copy).map_err(|error| error.to_string())?;
        let bytes = profile.session_bytes(&guest);
        self.sessions.insert(id, Box::new(guest));
        Ok(SessionReply::Rests(bytes))
    }
}

fn no_profile(name: &str) -> String {
    format!("there is no profile `{name}`")
}
