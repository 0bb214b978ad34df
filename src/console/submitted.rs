//! A form that changes something: accepted only from a page of the console, with the token of the session, from a
//! caller who may do it.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::response::Response;

use super::acts::Act;
use super::visit::Visit;
use super::{Console, error_page};
use sekisho_api::{UploadedFile, read_form_with_files};
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_core::administration::{Administrator, AdministratorProof, SharedAdministrator};
use sekisho_core::error::{CallError, ErrorCode};

/// An accepted form.
#[derive(Debug)]
pub(super) struct Submitted {
    pub visit: Visit,
    pub parts: Parts,
    pub fields: Vec<(String, String)>,
    pub files: Vec<UploadedFile>,
}

impl Submitted {
    /// Errors: the page that says why it is not accepted.
    pub(super) async fn read(console: &Arc<Console>, request: Request, act: Act) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let visit = Visit::from_request_parts(&mut parts, console).await?;
        let allowed = visit.guest.request.require_same_origin().and_then(|()| visit.require(act));
        let form = match allowed {
            Ok(()) => read_form_with_files(&parts, body, &visit.caller.owner, &console.gateway).await,
            Err(error) => Err(error),
        };
        match form.and_then(|form| visit.require_token(&form.0).map(|()| form)) {
            Ok((fields, files)) => Ok(Self { visit, parts, fields, files }),
            Err(error) => Err(error_page::of_visit(&visit, &error)),
        }
    }

    /// The text of a field, without space around it; `None` for an empty one.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known == name)?;
        Some(found.1.trim()).filter(|text| !text.is_empty())
    }

    /// The field, without the spaces around it; empty for one that was not sent.
    pub(super) fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.trim()).unwrap_or_default()
    }

    /// All fields of this name.
    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.trim())
    }

    /// The line of the audit trail for the change.
    pub(super) fn event(&self, kind: EventKind, subject: &str) -> AuditEvent {
        AuditEvent {
            subject: Some(subject.to_owned()),
            caller: Some(Arc::clone(&self.visit.caller)),
            ..AuditEvent::new(kind).of_request(self.visit.guest.request.request.as_ref(), None)
        }
    }

    /// An action that cannot be undone needs the name of its object in the field beside the button.
    /// Errors: `invalid_request`.
    pub(super) fn require_confirmation(&self, name: &str) -> Result<(), CallError> {
        if self.text("confirmed") == Some(name) {
            return Ok(());
        }
        let message = "it is removed only with its name in the field beside the button; go back and write it there";
        Err(CallError::new(ErrorCode::InvalidRequest, message))
    }

    /// The proof for the visitor's additions, as over HTTP: a role of the console by itself does not give it.
    /// Errors: `denied`.
    pub(super) fn administrator(&self) -> Result<Administrator, CallError> {
        Administrator::of(&self.visit.caller)
    }

    /// The proof that the visitor may change shared resources of all tenants, as over HTTP: a role of the console by
    /// itself does not give it.
    /// Errors: `denied`.
    pub(super) fn shared_administrator(&self) -> Result<SharedAdministrator, CallError> {
        SharedAdministrator::of(&self.visit.caller)
    }
}
