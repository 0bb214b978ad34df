//! The image of a module: the image of a session whose interpreter has executed it. Each call of one of its functions
//! begins with a fresh instance that has the image, and leaves nothing in it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::image::{ImagePart, StateImage};
use super::memory::MemoryLimit;
use super::{Guest, State, Template};
use sekisho_guest_protocol::read_recorder::ReadRecorder;
use sekisho_guest_protocol::{DamagedImageError, Pieces};
use sekisho_guest_system::files::DataFiles;
use sekisho_guest_system::mounts::Mounts;
use sekisho_guest_system::wasi::Wasi;

/// How long an instance may take until it requests its program. The actions of the module are untrusted: it may have
/// changed the code that runs until then, when no limits of a job apply yet.
const MAX_ENTRY: Duration = Duration::from_millis(500);

/// Memory that it may take meanwhile, beside the memory of the image.
pub(super) const ENTRY_BYTES: u64 = 4 << 20;

/// An image of which any number of instances are made.
#[derive(Debug)]
pub(crate) struct ModuleImage {
    state: StateImage,
    files: Vec<Pieces>,
    memory: Vec<Pieces>,
}

impl ModuleImage {
    /// An image that begins with this part.
    /// Errors: it is not the first one.
    pub(crate) fn beginning_with(part: ImagePart) -> Result<Self, DamagedImageError> {
        match part {
            ImagePart::State(state) => Ok(Self { state: *state, files: Vec::new(), memory: Vec::new() }),
            ImagePart::Files(_) | ImagePart::Memory(_) => Err(DamagedImageError("its beginning is missing")),
        }
    }

    /// Adds the next part.
    /// Errors: it is the first one again.
    pub(crate) fn add(&mut self, part: ImagePart) -> Result<(), DamagedImageError> {
        match part {
            ImagePart::State(_) => return Err(DamagedImageError("it begins twice")),
            ImagePart::Files(pieces) => self.files.push(pieces),
            ImagePart::Memory(pieces) => self.memory.push(pieces),
        }
        Ok(())
    }

    /// The system of one more instance: files and descriptors are as they were, and the clocks go on.
    /// Errors: it is of another interpreter, or damaged.
    pub(crate) fn system(
        &self,
        mounts: &Mounts,
        data_files: &DataFiles,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
    ) -> Result<Wasi, DamagedImageError> {
        let mut system = self.state.system().clone().restore(mounts, data_files)?;
        self.files.iter().try_for_each(|pieces| system.add_contents(pieces))?;
        system.finish(arguments, environment)
    }
}

impl Template {
    /// A new instance that has the image, and waits for its program.
    /// Errors: the image is of another interpreter or damaged, its module keeps the instance from requesting a program,
    /// or there is no space for the instance.
    pub(crate) async fn guest_with(&self, image: &ModuleImage, recorder: ReadRecorder) -> Result<Guest, String> {
        let recorder = Arc::new(recorder);
        let (state, awaited) = State::awaiting_job(&recorder);
        let memory = MemoryLimit::new(image.state.memory_bytes().saturating_add(ENTRY_BYTES), 0);
        let state = State { memory, ..state };
        let mut entered = self.instance_with(&image.state, state).await.map_err(|error| error.to_string())?;
        let written = image.memory.iter().try_for_each(|pages| entered.write(pages));
        written.map_err(|error| error.to_string())?;
        match timeout(MAX_ENTRY, entered.up_to_its_program(recorder, awaited)).await {
            Ok(guest) => guest.map_err(|error| format!("{error:#}")),
            Err(_) => Err("its module keeps the instance from requesting a program".to_owned()),
        }
    }
}
