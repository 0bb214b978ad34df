//! Bodies that are files: written to disk as they arrive.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use http_body_util::{BodyExt, Limited};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncWriteExt, BufWriter};

use super::{BodyLimits, BodyMemory, hold};
use crate::reply::ErrorReply;
use crate::request_guard::Connection;
use sekisho_core::call::Upload;
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

/// Disk space of all uploads until their calls end. A larger file takes all of it.
pub(super) const UPLOAD_BYTES: u64 = 1 << 30;

/// Bytes that are written to disk at once.
const WRITE_BYTES: usize = 256 << 10;

/// Bytes for which a body has a second more than `server.read_timeout_seconds`.
const BYTES_PER_SECOND: u64 = 128 << 10;

/// A file as the body, at most as long as a file of a workspace may be.
#[derive(Debug)]
pub(crate) struct FileBody(pub Upload);

impl FromRequest<Arc<Gateway>> for FileBody {
    type Rejection = ErrorReply;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, ErrorReply> {
        let (parts, body) = request.into_parts();
        let connection = Connection::of(&parts)?;
        let caller = connection.caller()?;
        gateway.pipeline.limits.check(caller)?;
        let config = gateway.configuration().current();
        let bytes = usize::try_from(config.tools.workspace.max_file_bytes).unwrap_or(usize::MAX);
        let limits = BodyLimits { bytes, ..BodyLimits::of(&config.server) };
        let file = gateway.workspaces().unnamed_file().await.map_err(unwritable)?;
        Ok(connection.memory().write(body, file, &caller.owner, limits).await.map(Self)?)
    }
}

impl BodyMemory {
    /// Writes a body to a file.
    /// Errors: `too_large`, `invalid_request`; `overloaded` if there is no disk space for it.
    async fn write(&self, body: Body, file: File, owner: &Owner, limits: BodyLimits) -> Result<Upload, CallError> {
        let expected = limits.expected(&body)?;
        let space = hold(&self.uploads, owner, expected, limits.deadline).await?;
        let deadline = limits.deadline + Duration::from_secs(expected / BYTES_PER_SECOND);
        let limits = BodyLimits { deadline, ..limits };
        let (file, bytes, sha256) =
            limits.in_time(written(Limited::new(body, limits.bytes), file)).await?.map_err(unwritable)?;
        Ok(Upload { file, bytes, sha256, space })
    }
}

/// The file with all bytes of the body, their number and their SHA-256. The inner error is the file's.
async fn written(mut body: Limited<Body>, file: File) -> Result<io::Result<(File, u64, String)>, BoxError> {
    let mut file = BufWriter::with_capacity(WRITE_BYTES, tokio::fs::File::from_std(file));
    let (mut bytes, mut hash) = (0, Sha256::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        bytes += data.len() as u64;
        hash.update(&data);
        if let Err(error) = file.write_all(&data).await {
            return Ok(Err(error));
        }
    }
    if let Err(error) = file.flush().await {
        return Ok(Err(error));
    }
    let file = file.into_inner().into_std().await;
    Ok(Ok((file, bytes, hex::encode(hash.finalize()))))
}

fn unwritable(error: io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let message = "the server's disk is full; nothing was written; inform an operator";
            CallError::new(ErrorCode::Overloaded, message).caused_by(error)
        }
        _ => CallError::internal(error),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use futures_util::stream;
    use std::io::{Read, Seek};

    use super::*;
    use sekisho_config::ServerConfig;

    fn memory() -> BodyMemory {
        BodyMemory::new(&ServerConfig::default())
    }

    fn ann() -> Owner {
        Owner { tenant: "acme".into(), caller: "ann".into() }
    }

    fn limits(bytes: usize) -> BodyLimits {
        BodyLimits { bytes, ..BodyLimits::of(&ServerConfig::default()) }
    }

    #[tokio::test]
    async fn a_body_is_written_as_it_arrives_and_its_space_is_held_until_it_is_dropped() {
        let (memory, content) = (memory(), vec![0xfe_u8; 300_001]);
        let pieces: Vec<_> =
            content.chunks(1_000).map(|piece| Ok::<_, io::Error>(Bytes::copy_from_slice(piece))).collect();
        let body = Body::from_stream(stream::iter(pieces));
        let mut upload =
            memory.write(body, tempfile::tempfile().unwrap(), &ann(), limits(content.len())).await.expect("a file");
        assert_eq!(upload.bytes, 300_001);
        assert_eq!(upload.sha256, hex::encode(Sha256::digest(&content)));
        assert_eq!((memory.values.used(), memory.uploads.used()), (0, 300_001));
        let mut read = Vec::new();
        upload.file.rewind().unwrap();
        upload.file.read_to_end(&mut read).unwrap();
        assert!(read == content);
        drop(upload);
        assert_eq!(memory.uploads.used(), 0);
    }

    #[tokio::test]
    async fn a_file_above_the_limit_is_refused_and_a_file_that_cannot_be_written_is_told() {
        let memory = memory();
        let endless = || Body::from_stream(stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(&[0; 1_000]))));
        let refused = memory.write(endless(), tempfile::tempfile().unwrap(), &ann(), limits(100_000)).await;
        assert_eq!(refused.unwrap_err().code(), ErrorCode::TooLarge);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let refused = memory.write(Body::from("x"), full, &ann(), limits(10)).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Overloaded, "{refused:?}");
        assert_eq!(memory.uploads.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_file_has_more_time_than_a_small_one() {
        let body = |pause: u64| {
            Body::from_stream(async_stream::stream! {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                yield Ok::<_, io::Error>(Bytes::from_static(b"x"));
            })
        };
        let memory = memory();
        let write = async |limit, pause| {
            memory
                .write(body(pause), tempfile::tempfile().unwrap(), &ann(), limits(limit))
                .await
                .map(|upload| upload.bytes)
        };
        assert_eq!(write(8 << 20, 78).await.unwrap(), 1);
        assert_eq!(write(8 << 20, 80).await.unwrap_err().code(), ErrorCode::InvalidRequest);
        assert_eq!(write(1_000, 16).await.unwrap_err().code(), ErrorCode::InvalidRequest);
    }
}
