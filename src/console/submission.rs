//! A form that a page of the console sent: from the same origin, with the token of the session, by who may do the act.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::response::Response;

use super::acts::Act;
use super::visit::Visit;
use super::{Console, error_page};
use crate::api::read_form;
use crate::core::error::{CallError, ErrorCode};
use crate::infra::audit::{AuditEvent, EventKind};

#[derive(Debug)]
pub(super) struct Submission {
    pub visit: Visit,
    pub parts: Parts,
    fields: Vec<(String, String)>,
}

impl Submission {
    /// Reads the form.
    ///
    /// # Errors
    /// The page that says why it is not accepted.
    pub(super) async fn read(console: &Arc<Console>, act: Act, request: Request) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let visit = Visit::from_request_parts(&mut parts, console).await?;
        let allowed = visit.guest.request.require_same_origin().and_then(|()| visit.require(act));
        let fields = match allowed {
            Ok(()) => read_form(&parts, body, &visit.caller.owner, &console.gateway).await,
            Err(error) => Err(error),
        };
        let fields = fields.and_then(|fields| visit.require_token(&fields).map(|()| fields));
        match fields {
            Ok(fields) => Ok(Self { visit, parts, fields }),
            Err(error) => Err(error_page::of_visit(&visit, &error)),
        }
    }

    /// The field, without the spaces around it; empty for one that was not sent.
    pub(super) fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.trim()).unwrap_or_default()
    }

    /// The field, unless it is empty.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        Some(self.field(name)).filter(|value| !value.is_empty())
    }

    /// All fields of this name.
    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.trim())
    }

    /// The line of the audit trail for what is changed.
    pub(super) fn event(&self, kind: EventKind, subject: &str) -> AuditEvent {
        AuditEvent {
            subject: Some(subject.to_owned()),
            caller: Some(Arc::clone(&self.visit.caller)),
            ..AuditEvent::new(kind).of_request(self.visit.guest.request.request.as_ref(), None)
        }
    }

    /// See [`require_admin`].
    ///
    /// # Errors
    /// `denied`.
    pub(super) fn require_admin(&self) -> Result<(), CallError> {
        require_admin(&self.visit)
    }
}

/// What changes the gateway needs the role `admin`, as over HTTP: a role of the console alone does not give it.
///
/// # Errors
/// `denied`.
pub(super) fn require_admin(visit: &Visit) -> Result<(), CallError> {
    if visit.caller.has_role("admin") {
        return Ok(());
    }
    Err(CallError::new(ErrorCode::Denied, "this requires the role `admin`, as the routes of the API do"))
}
