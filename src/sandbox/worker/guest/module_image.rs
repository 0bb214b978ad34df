//! The image of a module: that of a session whose interpreter has executed it. Each call of one of its functions begins
//! with a fresh instance that has the image, and leaves nothing in it.

use std::sync::Arc;

use super::image::{ImagePart, StateImage};
use super::{Guest, State, Template};
use crate::sandbox::files::DataFiles;
use crate::sandbox::mounts::Mounts;
use crate::sandbox::protocol::{DamagedImageError, Pieces};
use crate::sandbox::read_recorder::ReadRecorder;
use crate::sandbox::wasi::Wasi;

/// An image of which any number of instances are made.
#[derive(Debug)]
pub(in crate::sandbox::worker) struct ModuleImage {
    state: StateImage,
    files: Vec<Pieces>,
    memory: Vec<Pieces>,
}

impl ModuleImage {
    /// One that begins with this part.
    ///
    /// # Errors
    /// It is not the first one.
    pub(in crate::sandbox::worker) fn beginning_with(part: ImagePart) -> Result<Self, DamagedImageError> {
        match part {
            ImagePart::State(state) => Ok(Self { state: *state, files: Vec::new(), memory: Vec::new() }),
            ImagePart::Files(_) | ImagePart::Memory(_) => Err(DamagedImageError("its beginning is missing")),
        }
    }

    /// Adds the next part.
    ///
    /// # Errors
    /// It is the first one again.
    pub(in crate::sandbox::worker) fn add(&mut self, part: ImagePart) -> Result<(), DamagedImageError> {
        match part {
            ImagePart::State(_) => return Err(DamagedImageError("it begins twice")),
            ImagePart::Files(pieces) => self.files.push(pieces),
            ImagePart::Memory(pieces) => self.memory.push(pieces),
        }
        Ok(())
    }

    /// The system of one more instance: files and descriptors are as they were, and the clocks go on.
    ///
    /// # Errors
    /// It is of another interpreter, or damaged.
    pub(in crate::sandbox::worker) fn system(
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
    ///
    /// # Errors
    /// The image is of another interpreter or damaged, or there is no space for the instance.
    pub(in crate::sandbox::worker) async fn guest_with(
        &self,
        image: &ModuleImage,
        recorder: ReadRecorder,
    ) -> Result<Guest, String> {
        let recorder = Arc::new(recorder);
        let (state, awaited) = State::awaiting_job(&recorder);
        let mut entered = self.instance_with(&image.state, state).await.map_err(|error| error.to_string())?;
        let written = image.memory.iter().try_for_each(|pages| entered.write(pages));
        written.map_err(|error| error.to_string())?;
        entered.up_to_its_program(recorder, awaited).await.map_err(|error| format!("{error:#}"))
    }
}
