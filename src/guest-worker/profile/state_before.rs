//! The state of a session before its next program: where that exceeds a limit, the session goes on from it, as if the
//! program had not run.

use tokio::task::yield_now;

use super::GuestEnvironment;
use crate::guest::{Ended, ImagePart, Remains, SessionGuest, Teardown, Template};
use sekisho_guest_protocol::{End, ImageCursor, SessionId};

/// An image in memory.
pub(super) struct StateBefore {
    id: SessionId,
    parts: Vec<ImagePart>,
}

impl StateBefore {
    /// `None` for an interpreter that has no images. Programs of others run between two parts, each of which takes a
    /// millisecond.
    pub(super) async fn of(
        guest: &mut SessionGuest,
        template: &Template,
        environment: &GuestEnvironment,
    ) -> Option<Self> {
        let (mut parts, mut from) = (Vec::new(), Some(ImageCursor::State));
        while let Some(place) = from {
            let (part, next) = guest.read_image(template, &environment.data_files, place).ok()?;
            parts.push(part);
            from = next;
            yield_now().await;
        }
        Some(Self { id: guest.id, parts })
    }

    /// The end of the session's program. After one that exceeded a limit, the session is as it was before.
    pub(super) async fn after(self, ended: Ended, template: &Template, environment: &GuestEnvironment) -> Ended {
        let Ended { mut outcome, left } = ended;
        let has_exceeded = matches!(outcome.end, End::Timeout | End::Memory | End::Output(_));
        if !has_exceeded || matches!(left, Remains::Session(_)) {
            return Ended { outcome, left };
        }
        // Its place is for the instance that goes on.
        drop(left);
        let left = match self.restored(template, environment).await {
            Some(guest) => {
                outcome.session_bytes = Some(environment.session_bytes(&guest));
                Remains::Session(Box::new(guest))
            }
            None => Remains::Used(Teardown::of(())),
        };
        Ended { outcome, left }
    }

    /// `None`, and the session ends, where there is no space for the instance.
    async fn restored(self, template: &Template, environment: &GuestEnvironment) -> Option<SessionGuest> {
        let GuestEnvironment { arguments, environment: variables, mounts, data_files, .. } = environment;
        let mut parts = self.parts.into_iter();
        let Some(ImagePart::State(state)) = parts.next() else { return None };
        let mut guest = template.restore(*state, mounts, data_files).await.ok()?;
        for part in parts {
            guest.add(part).ok()?;
            yield_now().await;
        }
        guest.finish(self.id, arguments.clone(), variables.clone(), false).ok()
    }
}
