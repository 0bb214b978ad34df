//! The image of a session between two programs: the pages that differ from its profile's, its globals, and its system.
//! A fresh instance of the same profile that gets them goes on like the one that had them.
//!
//! Nothing else belongs to an instance that rests. No turn is under way, so that nothing is on a stack; the set-up
//! refuses modules that change tables or keep references ([`prepare`](sekisho_interpreters::prepare)).

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wasmtime::{ExternType, Module, Val};

use super::pooled_memory::Pristine;
use super::session::SessionGuest;
use super::{Entered, Entry, State, Teardown, Template};
use sekisho_guest_protocol::{DamagedImageError, ImageCursor, MAX_PART_BYTES, PART_BYTES, Pieces, SessionId};
use sekisho_guest_system::engine::MEMORY_KEPT_BYTES;
use sekisho_guest_system::files::DataFiles;
use sekisho_guest_system::mounts::Mounts;
use sekisho_guest_system::wasi::{RestoringSystem, SystemImage};

/// The set-up's names for the exports of a snapshot: mutable globals and memories, each with its number.
const EXPORTED_GLOBAL: &str = "__wizer_global_";
const EXPORTED_MEMORY: &str = "__wizer_memory_0";
const SECOND_MEMORY: &str = "__wizer_memory_1";

/// How long the reading of one part may take.
const SLICE: Duration = Duration::from_millis(1);

/// Size of a page of an image.
const PAGE_BYTES: usize = 4096;
const EMPTY_PAGE: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
/// Scanned at once for written pages: half of those that a scan can report.
const SCANNED_BYTES: usize = MEMORY_KEPT_BYTES / 2;

/// A part of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ImagePart {
    State(Box<StateImage>),
    Files(Pieces),
    Memory(Pieces),
}

/// The first part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateImage {
    /// In the order of the module's exports.
    globals: Vec<GlobalValue>,
    memory_bytes: u64,
    system: SystemImage,
    /// Whether its random numbers are to be seeded anew.
    is_copy: bool,
}

/// Floats as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum GlobalValue {
    I32(i32),
    I64(i64),
    F32(u32),
    F64(u64),
    V128(u128),
}

/// Why a session cannot be restored from its image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    #[error("the interpreter has no images")]
    NoImages,
    #[error(transparent)]
    Damaged(#[from] DamagedImageError),
    /// There may be some later.
    #[error("the worker has no space for the instance: {0}")]
    NoSpace(String),
}

/// A session that waits for parts of its image.
pub(crate) struct RestoringGuest {
    entered: Entered,
    system: RestoringSystem,
    is_copy: bool,
}

sekisho_core::debug_fields!(RestoringGuest {});

/// The exported mutable globals of a module, if they and one memory are all that its instances change.
pub(super) fn globals_of(module: &Module) -> Option<Vec<String>> {
    let is_complete = module.get_export(EXPORTED_MEMORY).is_some() && module.get_export(SECOND_MEMORY).is_none();
    let globals = module.exports().filter(|export| matches!(export.ty(), ExternType::Global(_)));
    let names = globals.map(|export| export.name().to_owned()).filter(|name| name.starts_with(EXPORTED_GLOBAL));
    is_complete.then(|| names.collect())
}

impl ImagePart {
    /// Errors: it is too long for a frame: the session has more files than can be written down.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let encoded = postcard::to_stdvec(self).map_err(|error| error.to_string())?;
        if encoded.len() > MAX_PART_BYTES { Err("it has too many files".to_owned()) } else { Ok(encoded) }
    }
}

impl SessionGuest {
    /// The part of the image that begins there, in the memory of these empty `pieces`, and where the next one begins.
    /// Errors: the module has state that is not exported.
    pub(crate) fn read_image(
        &mut self,
        template: &Template,
        data_files: &DataFiles,
        from: ImageCursor,
        mut pieces: Pieces,
    ) -> Result<(ImagePart, Option<ImageCursor>), String> {
        let Some(globals) = &template.globals else {
            return Err("its interpreter has state that is not exported".to_owned());
        };
        let begun = Instant::now();
        let is_over = |pieces: &Pieces| pieces.len() >= PART_BYTES || begun.elapsed() >= SLICE;
        Ok(match from {
            ImageCursor::State => {
                let state = self.state_image(globals, data_files)?;
                (ImagePart::State(Box::new(state)), Some(ImageCursor::Files { node: 0, offset: 0 }))
            }
            ImageCursor::Files { node, offset } => {
                let rest = self.files().read_contents(data_files, (node, offset), &mut pieces, is_over);
                let memory = ImageCursor::Memory { offset: 0 };
                let next = rest.map_or(memory, |(node, offset)| ImageCursor::Files { node, offset });
                (ImagePart::Files(pieces), Some(next))
            }
            ImageCursor::Memory { offset } => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let memory = self.entered.used.memory.data(&self.entered.used.store);
                let rest = read_changes(&template.pristine, memory, from, &mut pieces, is_over);
                (ImagePart::Memory(pieces), rest.map(|rest| ImageCursor::Memory { offset: rest as u64 }))
            }
        })
    }

    fn state_image(&mut self, globals: &[String], data_files: &DataFiles) -> Result<StateImage, String> {
        let system = self.wasi.image(data_files);
        let memory_bytes = self.memory_size();
        let entered = &mut self.entered;
        let values = globals.iter().map(|name| {
            let global = entered.instance.get_global(&mut entered.used.store, name);
            let value = global.map(|global| global.get(&mut entered.used.store));
            value.and_then(GlobalValue::of).ok_or_else(|| format!("its global {name} has no value that can be stored"))
        });
        Ok(StateImage { globals: values.collect::<Result<_, _>>()?, memory_bytes, system, is_copy: self.is_copy })
    }
}

impl Template {
    /// A fresh instance that waits for the rest of an image.
    /// Errors: the image is of another interpreter or damaged, or there is no space for the instance.
    pub(crate) async fn restore(
        &self,
        state: StateImage,
        mounts: &Mounts,
        data_files: &DataFiles,
    ) -> Result<RestoringGuest, RestoreError> {
        let entered = self.instance_with(&state, State::default()).await?;
        let StateImage { system, is_copy, .. } = state;
        let system = system.restore(mounts, data_files)?;
        Ok(RestoringGuest { entered, system, is_copy })
    }

    /// A fresh instance with the globals of an image, and with a memory of its size.
    /// Errors: as [`restore`](Self::restore).
    pub(super) async fn instance_with(&self, image: &StateImage, state: State) -> Result<Entered, RestoreError> {
        let Some(names) = self.globals.as_ref().filter(|_| self.entry != Entry::Start) else {
            return Err(RestoreError::NoImages);
        };
        let entered = self.instance(state).await;
        let mut entered = entered.map_err(|error| RestoreError::NoSpace(format!("{error:#}")))?;
        entered.grow_to(image.memory_bytes)?;
        if names.len() != image.globals.len() {
            return Err(DamagedImageError("it has other globals").into());
        }
        for (name, value) in names.iter().zip(&image.globals) {
            let global = entered.instance.get_global(&mut entered.used.store, name);
            let is_set = global.map(|global| global.set(&mut entered.used.store, (*value).into()));
            is_set.and_then(Result::ok).ok_or(DamagedImageError("a global has another type"))?;
        }
        Ok(entered)
    }
}

impl StateImage {
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    pub(super) fn system(&self) -> &SystemImage {
        &self.system
    }
}

impl Entered {
    /// Writes pages of an image.
    pub(super) fn write(&mut self, pages: &Pieces) -> Result<(), DamagedImageError> {
        const OUTSIDE: DamagedImageError = DamagedImageError("a page is outside of its memory");
        let memory = self.used.memory.data_mut(&mut self.used.store);
        for page in pages.iter() {
            let (_, offset, bytes) = page?;
            let at = usize::try_from(offset).map_err(|_| OUTSIDE)?;
            let place = memory.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()));
            place.ok_or(OUTSIDE)?.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Gives the memory the size that it has in an image.
    fn grow_to(&mut self, bytes: u64) -> Result<(), RestoreError> {
        let memory = self.used.memory;
        let page = memory.page_size(&self.used.store);
        let missing = bytes.checked_sub(memory.data_size(&self.used.store) as u64);
        let missing = missing.filter(|_| bytes.is_multiple_of(page));
        let missing = missing.ok_or(DamagedImageError("its memory has another size"))?;
        let grown = memory.grow(&mut self.used.store, missing / page);
        grown.map(drop).map_err(|error| RestoreError::NoSpace(format!("{error:#}")))
    }
}

impl RestoringGuest {
    /// Errors: a piece of it has no place.
    pub(crate) fn add(&mut self, part: ImagePart) -> Result<(), DamagedImageError> {
        match part {
            ImagePart::State(_) => Err(DamagedImageError("it begins twice")),
            ImagePart::Files(pieces) => self.system.add_contents(&pieces),
            ImagePart::Memory(pieces) => self.entered.write(&pieces),
        }
    }

    /// The session, which rests.
    /// Errors: a part is missing.
    pub(crate) fn finish(
        self,
        id: SessionId,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
        is_copy: bool,
    ) -> Result<SessionGuest, DamagedImageError> {
        let Self { entered, system, is_copy: was_copy } = self;
        let wasi = system.finish(arguments, environment)?;
        Ok(SessionGuest { is_copy: is_copy || was_copy, ..SessionGuest::new(id, entered, wasi) })
    }

    /// Gives it up.
    pub(crate) fn end(self) -> Teardown {
        Teardown::of(self.entered.used)
    }
}

impl GlobalValue {
    fn of(value: Val) -> Option<Self> {
        Some(match value {
            Val::I32(value) => Self::I32(value),
            Val::I64(value) => Self::I64(value),
            Val::F32(bits) => Self::F32(bits),
            Val::F64(bits) => Self::F64(bits),
            Val::V128(value) => Self::V128(value.as_u128()),
            _ => return None,
        })
    }
}

impl From<GlobalValue> for Val {
    fn from(value: GlobalValue) -> Self {
        match value {
            GlobalValue::I32(value) => Self::I32(value),
            GlobalValue::I64(value) => Self::I64(value),
            GlobalValue::F32(bits) => Self::F32(bits),
            GlobalValue::F64(bits) => Self::F64(bits),
            GlobalValue::V128(value) => Self::V128(value.into()),
        }
    }
}

/// Adds the pages from an offset on that differ from the initial memory, until the slice is over: at least the pages
/// that one scan finds first. Returns where the rest begins.
fn read_changes(
    pristine: &Pristine,
    memory: &[u8],
    from: usize,
    pieces: &mut Pieces,
    is_over: impl Fn(&Pieces) -> bool,
) -> Option<usize> {
    let new = pristine.data();
    let mut at = from;
    while let Some(part) = memory.get(at..).filter(|rest| !rest.is_empty()) {
        let part = part.get(..SCANNED_BYTES).unwrap_or(part);
        for offset in pristine.written_parts(part).into_iter().flat_map(|run| run.step_by(PAGE_BYTES)) {
            let place = at + offset;
            let Some(page) = memory.get(place..place + PAGE_BYTES) else { continue };
            // Beyond its initial size a memory is zeros.
            if page != new.get(place..place + PAGE_BYTES).unwrap_or(&EMPTY_PAGE) {
                pieces.push(0, place as u64, page);
                if is_over(pieces) {
                    return Some(place + PAGE_BYTES);
                }
            }
        }
        at += part.len();
        if is_over(pieces) {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests;
