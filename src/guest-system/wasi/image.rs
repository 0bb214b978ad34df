//! The image of a guest's system between two programs of its session: files, descriptors and clocks. Limits, streams
//! and input come with the next program.

use serde::{Deserialize, Serialize};

use super::clocks::{Clocks, StoppedClocks};
use super::handles::Handles;
use super::{Limits, Start, Wasi};
use crate::files::{DataFiles, FilesImage, RestoringFiles};
use crate::mounts::Mounts;
use sekisho_guest_protocol::{DamagedImageError, Pieces};

/// The system without contents of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemImage {
    files: FilesImage,
    handles: Handles,
    clocks: StoppedClocks,
}

/// A system that waits for contents of files.
#[derive(Debug)]
pub struct RestoringSystem {
    files: RestoringFiles,
    handles: Handles,
    clocks: StoppedClocks,
}

impl Wasi {
    pub fn image(&self, data_files: &DataFiles) -> SystemImage {
        SystemImage {
            files: self.files.image(data_files),
            handles: self.handles.clone(),
            clocks: self.clocks.stopped(),
        }
    }
}

impl SystemImage {
    /// Errors: the image is of another interpreter, or damaged.
    pub fn restore(self, mounts: &Mounts, data_files: &DataFiles) -> Result<RestoringSystem, DamagedImageError> {
        let Self { files, handles, clocks } = self;
        Ok(RestoringSystem { files: mounts.restore(files, data_files)?, handles, clocks })
    }
}

impl RestoringSystem {
    /// Errors: one of the pieces has no place.
    pub fn add_contents(&mut self, pieces: &Pieces) -> Result<(), DamagedImageError> {
        self.files.add_contents(pieces)
    }

    /// The system, once it has all contents. No journal has the readings of its programs.
    /// Errors: one is missing.
    pub fn finish(self, arguments: Vec<String>, environment: Vec<(String, String)>) -> Result<Wasi, DamagedImageError> {
        const NOTHING: Limits = Limits { stream_bytes: 0, max_open_files: 0, random_bytes: 0 };
        let start = Start { arguments, environment, ..Start::default() };
        let files = self.files.finish()?;
        let (handles, clocks) = (self.handles, Clocks::going_on(self.clocks));
        let wasi = Wasi { handles, clocks, ..Wasi::with(files, start, NOTHING) };
        wasi.recorder.switch_off();
        Ok(wasi)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::files::{Quota, ROOT};
    use crate::wasi::handles::{Handle, OpenFile};

    /// The clock that only goes forward.
    const MONOTONIC: u32 = 1;

    #[tokio::test(start_paused = true)]
    async fn descriptors_and_clocks_go_on_where_they_were() {
        let mounts = Mounts::open(&[]).unwrap();
        let (files, folders) = mounts.place(Quota { bytes: 1 << 20, nodes: 8 }).unwrap();
        let limits = Limits { stream_bytes: 9, max_open_files: 4, random_bytes: 9 };
        let mut wasi = Wasi::new(files, Start { folders, ..Start::default() }, limits).unwrap();
        let node = wasi.files.create_file(ROOT, "tmp/log").unwrap();
        wasi.files.write(node, 0, b"one").unwrap();
        wasi.files.opened(node).unwrap();
        // Open without a name.
        wasi.files.unlink(ROOT, "tmp/log").unwrap();
        let open = OpenFile { node, position: 3, append: false, readable: true, writable: true };
        let descriptor = wasi.handles.insert(Handle::File(open.clone())).unwrap();
        tokio::time::advance(Duration::from_secs(7)).await;
        let then = wasi.now(MONOTONIC).unwrap();
        let image = postcard::to_stdvec(&wasi.image(&[])).unwrap();
        let mut pieces = Pieces::default();
        assert_eq!(wasi.files.read_contents(&[], (0, 0), &mut pieces, |_| false), None);
        tokio::time::advance(Duration::from_secs(100)).await;

        let image: SystemImage = postcard::from_bytes(&image).unwrap();
        let mut restoring = image.restore(&mounts, &[]).unwrap();
        restoring.add_contents(&pieces).unwrap();
        let mut again = restoring.finish(vec!["python".to_owned()], Vec::new()).unwrap();
        assert_eq!(again.now(MONOTONIC).unwrap(), then, "it stood still");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(again.now(MONOTONIC).unwrap(), then + 1_000_000_000);
        assert_eq!(again.handles.file(descriptor).unwrap(), &open);
        let mut content = [0; 3];
        again.files.read(node, 0, &mut content).unwrap();
        assert_eq!((&content, again.arguments.concat()), (b"one", b"python\0".to_vec()));
        again.files.closed(node);
        assert!(again.files.status(node).is_err(), "its last descriptor was closed");
    }
}
