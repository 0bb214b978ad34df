//! Images of modules that the gateway has given to this worker. A call of a function begins with an instance that has the
//! image of its module; for those that were called last, one is made in advance, as for each profile.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::Worker;
use super::fibers::Run;
use super::guest::{Guest, ImagePart, ModuleImage};
use super::host_call::ToolLink;
use sekisho_guest_protocol::{DamagedImageError, Job, ModuleImageId, ModuleImageMessage};

/// Images of which an instance waits for its program.
pub(super) const MAX_READY_IMAGES: usize = 4;

#[derive(Debug, Default)]
pub(super) struct ModuleImages {
    held: HashMap<ModuleImageId, HeldImage>,
    /// The images of the last calls, the latest first.
    recent: Vec<ModuleImageId>,
}

#[derive(Debug)]
struct HeldImage {
    profile: String,
    image: ModuleImage,
    is_complete: bool,
    ready: Option<Guest>,
}

impl ModuleImages {
    pub(super) fn apply(&mut self, message: ModuleImageMessage) {
        match message {
            ModuleImageMessage::Add { id, profile, part } => {
                if self.add(id, profile, &part).is_err() {
                    self.forget(id);
                }
            }
            ModuleImageMessage::Complete(id) => {
                if let Some(held) = self.held.get_mut(&id) {
                    held.is_complete = true;
                }
            }
            ModuleImageMessage::Forget(id) => self.forget(id),
        }
    }

    fn add(&mut self, id: ModuleImageId, profile: String, part: &[u8]) -> Result<(), DamagedImageError> {
        let part: ImagePart = postcard::from_bytes(part).map_err(|_| DamagedImageError("a part is incomplete"))?;
        match self.held.entry(id) {
            Entry::Occupied(mut held) => held.get_mut().image.add(part),
            Entry::Vacant(place) => {
                let image = ModuleImage::beginning_with(part)?;
                place.insert(HeldImage { profile, image, is_complete: false, ready: None });
                Ok(())
            }
        }
    }

    fn forget(&mut self, id: ModuleImageId) {
        self.held.remove(&id);
        self.recent.retain(|recent| *recent != id);
    }

    /// A complete image for one more call.
    fn used(&mut self, id: ModuleImageId) -> Option<&mut HeldImage> {
        self.held.get(&id).filter(|held| held.is_complete)?;
        self.recent.retain(|recent| *recent != id);
        self.recent.insert(0, id);
        for old in self.recent.split_off(self.recent.len().min(MAX_READY_IMAGES)) {
            if let Some(held) = self.held.get_mut(&old) {
                held.ready = None;
            }
        }
        self.held.get_mut(&id)
    }

    pub(super) fn lacks_ready(&self) -> bool {
        self.recent.iter().filter_map(|id| self.held.get(id)).any(HeldImage::lacks_ready)
    }

    fn without_ready(&mut self) -> Option<(ModuleImageId, &mut HeldImage)> {
        let id = *self.recent.iter().find(|id| self.held.get(id).is_some_and(HeldImage::lacks_ready))?;
        Some((id, self.held.get_mut(&id)?))
    }
}

impl HeldImage {
    fn lacks_ready(&self) -> bool {
        self.ready.is_none()
    }
}

impl Worker {
    /// A run in an instance that has the image of the job's module.
    /// Errors: the job, where this worker has no image that can be used: the module is executed then.
    pub(super) async fn begin_with_image(&mut self, job: Job, link: ToolLink) -> Result<Run, Box<(Job, ToolLink)>> {
        let Some(id) = job.image else { return Err(Box::new((job, link))) };
        let Some(held) = self.module_images.used(id) else { return Err(Box::new((job, link))) };
        let Some(profile) = self.profiles.get(&held.profile) else { return Err(Box::new((job, link))) };
        let guest = match (&job.past, held.ready.take()) {
            (None, Some(guest)) => Ok(guest),
            (past, ready) => {
                // A ready instance has not read the values that a resumed run has.
                held.ready = ready;
                // An instance yields to the clock only while it ticks.
                self.ticker.run(true);
                profile.guest_with(&held.image, past.clone()).await
            }
        };
        if let (Ok(guest), Ok(system)) = (guest, profile.system_with(&held.image, &job)) {
            return Ok(profile.begin_with(guest, system, job, link));
        }
        // Each further call would fail alike, and may take long to.
        self.module_images.forget(id);
        Err(Box::new((job, link)))
    }

    /// Makes an instance for an image without a waiting one, or forgets the image if there can be none; false when each has
    /// one.
    pub(super) async fn make_module_ready(&mut self) -> bool {
        let Some((id, held)) = self.module_images.without_ready() else { return false };
        // As above.
        self.ticker.run(true);
        let made = match self.profiles.get(&held.profile) {
            Some(profile) => profile.guest_with(&held.image, None).await.ok(),
            None => None,
        };
        match made {
            Some(guest) => held.ready = Some(guest),
            None => self.module_images.forget(id),
        }
        true
    }
}
