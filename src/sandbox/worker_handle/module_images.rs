//! The images of modules that a worker has: the ones that were used last, as far as they fit.

use sekisho_guest_protocol::{ModuleImageId, ModuleImageMessage};

/// Bytes of images in one worker.
pub(crate) const MAX_IMAGE_BYTES: u64 = 64 << 20;

/// The images of one worker, the last used first.
#[derive(Debug, Default)]
pub(super) struct GivenImages(Vec<(ModuleImageId, u64)>);

impl GivenImages {
    /// Whether the worker has it.
    pub(super) fn use_again(&mut self, id: ModuleImageId) -> bool {
        let Some(at) = self.0.iter().position(|(given, _)| *given == id) else { return false };
        let used = self.0.remove(at);
        self.0.insert(0, used);
        true
    }

    /// The messages to the worker, in this order, with which it gets one more image; nothing where it has it, or where
    /// it is too large.
    pub(super) fn add(&mut self, id: ModuleImageId, profile: &str, parts: Vec<Vec<u8>>) -> Vec<ModuleImageMessage> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if bytes > MAX_IMAGE_BYTES || self.use_again(id) {
            return Vec::new();
        }
        let (mut messages, mut left) = (Vec::new(), MAX_IMAGE_BYTES - bytes);
        // The first that does not fit, and all that were used before it, go.
        let kept =
            self.0.iter().take_while(|(_, held)| left.checked_sub(*held).map(|rest| left = rest).is_some()).count();
        messages.extend(self.0.drain(kept..).map(|(old, _)| ModuleImageMessage::Forget(old)));
        messages.extend(parts.into_iter().map(|part| ModuleImageMessage::Add {
            id,
            profile: profile.to_owned(),
            part,
        }));
        messages.push(ModuleImageMessage::Complete(id));
        self.0.insert(0, (id, bytes));
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn id(number: u8) -> ModuleImageId {
        ModuleImageId([number; 32])
    }

    /// An image of so many MiB is given; the images that are forgotten for it.
    fn forgotten(given: &mut GivenImages, number: u8, mib: usize) -> Vec<u8> {
        let messages = given.add(id(number), "base", vec![vec![0; MIB]; mib]);
        assert!(messages.is_empty() || messages.last() == Some(&ModuleImageMessage::Complete(id(number))));
        let gone = messages.iter().filter_map(|message| match message {
            ModuleImageMessage::Forget(ModuleImageId(bytes)) => Some(bytes[0]),
            _ => None,
        });
        gone.collect()
    }

    #[test]
    fn the_image_that_was_used_longest_ago_goes_first() {
        let mut given = GivenImages::default();
        for number in 1..=3 {
            assert!(forgotten(&mut given, number, 20).is_empty());
        }
        assert!(given.use_again(id(1)) && !given.use_again(id(9)));
        assert_eq!(forgotten(&mut given, 4, 20), [2]);
        assert!(!given.use_again(id(2)));
        assert_eq!(forgotten(&mut given, 5, 64), [4, 1, 3]);
        assert!(given.add(id(5), "base", Vec::new()).is_empty(), "it is there");
        assert!(given.add(id(6), "base", vec![vec![0; MIB]; 65]).is_empty() && !given.use_again(id(6)), "too large");
        assert!(given.use_again(id(5)));
    }
}
