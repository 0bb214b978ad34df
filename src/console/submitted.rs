//! A form that changes something: accepted from a page of the console alone, with the token of the session, from a visitor
//! who may do it.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::response::Response;

use super::acts::Act;
use super::visit::Visit;
use super::{Console, error_page};
use crate::api::{UploadedFile, read_form_with_files};

/// An accepted form.
#[derive(Debug)]
pub(super) struct Submitted {
    pub visit: Visit,
    pub fields: Vec<(String, String)>,
    pub files: Vec<UploadedFile>,
}

impl Submitted {
    /// # Errors
    /// The page that says why it is not accepted.
    pub(super) async fn read(console: &Arc<Console>, request: Request, act: Act) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let visit = Visit::from_request_parts(&mut parts, console).await?;
        let allowed = visit.guest.request.require_same_origin().and_then(|()| visit.require(act));
        let form = match allowed {
            Ok(()) => read_form_with_files(&parts, body, &visit.caller.owner, &console.gateway).await,
            Err(error) => Err(error),
        };
        match form.and_then(|form| visit.require_token(&form.0).map(|()| form)) {
            Ok((fields, files)) => Ok(Self { visit, fields, files }),
            Err(error) => Err(error_page::of_visit(&visit, &error)),
        }
    }

    /// The text of a field, without space around it; `None` for an empty one.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known == name)?;
        Some(found.1.trim()).filter(|text| !text.is_empty())
    }
}
