//! Objects with images: written part by part, read part by part. Long work runs beside the threads that serve calls.

use std::time::Duration;

use bytes::Bytes;
use jiff::SignedDuration;

use super::packed::{Packer, TooLargeError, Unpacker};
use super::{FOLDER, ImageBase, PastPrograms, SessionImages};
use crate::sessions::session::SessionKey;
use sekisho_core::call::NotStored;
use sekisho_core::error::CallError;
use sekisho_guest_protocol::DamagedImageError;
use sekisho_outbound::blobs::{BlobError, BlobKey, Blobs, StoredBlob};
use sekisho_store::SessionImage;
use sekisho_store::sealing::{SealedFor, SealingError};

/// The kind of sealed value.
const SEALED_KIND: &str = "interpreter_session";

/// How long an object may take to be written or read.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(20);

/// An object may be written so long before its row, and the clocks of replicas and storage differ by as much.
const CLOCK_MARGIN: SignedDuration = SignedDuration::from_hours(1);

/// An image that is being written.
#[derive(Debug)]
pub(in crate::sessions) struct ImageWriter(Packer);

/// An image that is being read.
#[derive(Debug)]
pub(in crate::sessions) struct ImageReader(Unpacker);

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::sessions) enum OpenImageError {
    /// It never can.
    #[error("{0}")]
    Lost(String),
    /// It may be possible later.
    #[error("{0}")]
    Unavailable(String),
}

impl SessionImages {
    pub(in crate::sessions) fn writer(&self) -> ImageWriter {
        ImageWriter(Packer::new(self.max_image_bytes))
    }

    /// Seals an image for its session, and writes it.
    /// Errors: why it cannot be stored; the log has the details.
    pub(in crate::sessions) async fn write(
        &self,
        key: &SessionKey,
        generation: u64,
        (base, programs): (ImageBase, PastPrograms),
        ImageWriter(packer): ImageWriter,
    ) -> Result<SessionImage, NotStored> {
        let (sealer, owner) = (self.sealer.clone(), sealed_owner(key, generation, &base, programs));
        let tenant = key.owner.tenant.clone();
        let sealing = move || -> Result<Vec<u8>, NotStored> {
            let packed = packer.finish()?;
            let whose = SealedFor { tenant: &tenant, owner: &owner, kind: SEALED_KIND };
            sealer.seal_bytes(whose, packed).map_err(|error| unavailable(&error))
        };
        let sealed = beside_calls(sealing).await.map_err(|error| unavailable(&error))??;
        let folder = BlobKey::of_tenant(FOLDER, &key.owner.tenant);
        let written = tokio::time::timeout(TRANSFER_TIMEOUT, self.blobs.add(&folder, Bytes::from(sealed))).await;
        let object = match written {
            Ok(written) => written.map_err(|error| unavailable(&error))?,
            Err(_) => return Err(unavailable(&"the object storage did not take it in time")),
        };
        let ImageBase { profile, interpreter, snapshot } = base;
        let (rights, programs) = (hex::encode(programs.rights.0), hex::encode(programs.digest));
        Ok(SessionImage { profile, interpreter, snapshot, rights, programs, object })
    }

    /// Reads an image, and opens it for its session.
    pub(in crate::sessions) async fn read(
        &self,
        key: &SessionKey,
        generation: u64,
        image: &SessionImage,
    ) -> Result<ImageReader, OpenImageError> {
        let programs = PastPrograms::of(image)?;
        let sealed = self.object(&image.object).await?;
        let (sealer, owner) = (self.sealer.clone(), sealed_owner(key, generation, &ImageBase::of(image), programs));
        let tenant = key.owner.tenant.clone();
        let opening = move || {
            let whose = SealedFor { tenant: &tenant, owner: &owner, kind: SEALED_KIND };
            sealer.open_bytes(whose, sealed.into())
        };
        let opened = beside_calls(opening).await.map_err(|error| OpenImageError::Unavailable(error.to_string()))?;
        let packed = opened.map_err(|error| match error {
            SealingError::UnknownKey { .. } | SealingError::Damaged => OpenImageError::Lost(error.to_string()),
            other => OpenImageError::Unavailable(other.to_string()),
        })?;
        Ok(ImageReader(Unpacker::new(packed)))
    }

    async fn object(&self, object: &StoredBlob) -> Result<Bytes, OpenImageError> {
        match tokio::time::timeout(TRANSFER_TIMEOUT, self.blobs.read(object)).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error @ (BlobError::Missing { .. } | BlobError::Damaged { .. } | BlobError::TooLarge { .. }))) => {
                Err(OpenImageError::Lost(error.to_string()))
            }
            Ok(Err(error)) => Err(OpenImageError::Unavailable(error.to_string())),
            Err(_) => Err(OpenImageError::Unavailable("the object storage did not give it in time".to_owned())),
        }
    }

    /// Removes objects that no row names.
    /// Errors: the first of them that cannot be removed, or they cannot be listed.
    pub async fn remove_orphans(&self) -> Result<(), BlobError> {
        let until = self.store.now().earlier(CLOCK_MARGIN);
        let listed = self.blobs.list(&BlobKey::of([FOLDER])).await?;
        for object in listed.into_iter().filter(|object| object.modified < *until) {
            match self.store.interpreter_sessions().has_image_in(&object.key).await {
                Ok(true) => {}
                Ok(false) => self.blobs.delete(&object.key).await?,
                Err(error) => {
                    tracing::warn!(%error, "it cannot be seen which objects have sessions; tried again in an hour");
                    break;
                }
            }
        }
        Ok(())
    }

    pub(super) fn remove_object(&self, object: BlobKey) {
        remove_from(&self.blobs, object);
    }
}

/// Removes an object in the background. If that fails, it is removed with those that no row names.
pub(super) fn remove_from(blobs: &Blobs, object: BlobKey) {
    let blobs = blobs.clone();
    tokio::spawn(async move {
        if let Err(error) = blobs.delete(&object).await {
            tracing::warn!(%error, "the image of a session cannot be removed; tried again later");
        }
    });
}

impl ImageWriter {
    /// Errors: the image is too large.
    pub(in crate::sessions) async fn add(mut self, part: Vec<u8>) -> Result<Self, NotStored> {
        let adding = move || self.0.add(&part).map(|()| self);
        Ok(beside_calls(adding).await.map_err(|error| unavailable(&error))??)
    }
}

impl ImageReader {
    /// The next part; `None` after the last one.
    /// Errors: the image is damaged.
    pub(in crate::sessions) async fn next(mut self) -> Result<(Self, Option<Vec<u8>>), OpenImageError> {
        let reading = move || self.0.next_part().map(|part| (self, part));
        let read = beside_calls(reading).await.map_err(|error| OpenImageError::Unavailable(error.to_string()))?;
        Ok(read?)
    }
}

impl From<TooLargeError> for NotStored {
    fn from(TooLargeError: TooLargeError) -> Self {
        Self::TooLarge
    }
}

impl From<DamagedImageError> for OpenImageError {
    fn from(error: DamagedImageError) -> Self {
        Self::Lost(error.to_string())
    }
}

/// The owner of an image: it opens only in this session, of this generation, with this interpreter and snapshot, and as
/// the image of these programs.
fn sealed_owner(key: &SessionKey, generation: u64, base: &ImageBase, programs: PastPrograms) -> String {
    let (generation, rights) = (generation.to_string(), hex::encode(programs.rights.0));
    let programs = hex::encode(programs.digest);
    let of_session = [&*key.owner.caller, &*key.name, generation.as_str()];
    let parts = [&base.interpreter, &base.snapshot, &rights, &programs].map(String::as_str);
    let parts = of_session.into_iter().chain(parts);
    // Each after its length, so that no two lists of parts are the same text.
    parts.map(|part| format!("{} {part}", part.len())).collect::<Vec<_>>().join(" ")
}

fn unavailable(error: &dyn std::fmt::Display) -> NotStored {
    tracing::warn!(%error, "the image of a session cannot be stored");
    NotStored::Unavailable
}

/// Runs work that takes milliseconds.
async fn beside_calls<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CallError> {
    tokio::task::spawn_blocking(work).await.map_err(CallError::internal)
}
