//! A file of a session's workspace that a request brings.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::parameters::unreadable_path;
use super::request::{Incoming, RequestMeta, SessionContext};
use crate::reply::ErrorReply;
use sekisho_core::call::{Arguments, Upload};
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;

/// A file of a session's workspace, named in a path.
#[derive(Debug)]
pub struct SessionFile {
    session: String,
    path: String,
}

impl SessionFile {
    pub fn new(session: String, path: String) -> Self {
        Self { session, path }
    }

    /// A call of `file_write` with this content, in base64.
    /// Errors: as [`RequestMeta::call`].
    pub fn into_call(self, content: String, meta: &RequestMeta, gateway: &Gateway) -> Result<Incoming, CallError> {
        self.write(content, "base64", meta, gateway)
    }

    /// A call of `file_write` with the file that is the request's body.
    /// Errors: as [`RequestMeta::call`].
    pub(super) fn into_upload(
        self,
        upload: Upload,
        meta: &RequestMeta,
        gateway: &Gateway,
    ) -> Result<Incoming, CallError> {
        let mut incoming = self.write(upload.sha256.clone(), "upload", meta, gateway)?;
        incoming.call.body.upload = Some(Arc::new(upload));
        Ok(incoming)
    }

    fn write(
        self,
        content: String,
        encoding: &str,
        meta: &RequestMeta,
        gateway: &Gateway,
    ) -> Result<Incoming, CallError> {
        let mut arguments = Arguments::new();
        arguments.insert("path".to_owned(), self.path.into());
        arguments.insert("content".to_owned(), content.into());
        arguments.insert("encoding".to_owned(), encoding.into());
        let context = SessionContext::of_session(self.session);
        meta.call("file_write".to_owned(), arguments, context, false, gateway)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SessionFile {
    type Rejection = ErrorReply;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ErrorReply> {
        Ok(Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map(|Path((session, path))| Self { session, path })
            .map_err(|rejection| unreadable_path(&rejection))?)
    }
}
