//! The state of a session before its next program: where that exceeds a limit, the session goes on from it, as if the
//! program had not run.

use parking_lot::Mutex;
use tokio::task::yield_now;

use super::GuestEnvironment;
use crate::guest::{Ended, ImagePart, Remains, SessionGuest, Teardown, Template};
use sekisho_guest_protocol::{End, ImageCursor, Pieces, SessionId};

/// Parts of one or two MiB whose memory is kept. A small session has two or three.
const MAX_SPARE: usize = 4;

/// The memory of parts that are not needed any more, for the parts of the next program: the kernel takes several times as long to
/// give pages as a copy into them takes.
#[derive(Debug, Default)]
pub(super) struct SparePieces(Mutex<Vec<Pieces>>);

impl SparePieces {
    fn take(&self) -> Pieces {
        self.0.lock().pop().unwrap_or_default()
    }

    fn put(&self, parts: impl IntoIterator<Item = ImagePart>) {
        let mut spare = self.0.lock();
        for part in parts {
            if let ImagePart::Files(pieces) | ImagePart::Memory(pieces) = part
                && spare.len() < MAX_SPARE
            {
                spare.push(pieces.emptied());
            }
        }
    }
}

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
            let pieces = if place == ImageCursor::State { Pieces::default() } else { environment.spare.take() };
            let (part, next) = guest.read_image(template, &environment.data_files, place, pieces).ok()?;
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
            environment.spare.put(self.parts);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_few_parts_is_kept_without_their_content() {
        let part = |number: u64| {
            let mut pieces = Pieces::default();
            pieces.push(0, number * 4096, &[7; 4096]);
            ImagePart::Memory(pieces)
        };
        let spare = SparePieces::default();
        spare.put((0..2 * MAX_SPARE as u64).map(part));
        assert_eq!(*spare.0.lock(), vec![Pieces::default(); MAX_SPARE]);
        assert_eq!(spare.take(), Pieces::default());
        assert_eq!(spare.0.lock().len(), MAX_SPARE - 1);
    }
}
