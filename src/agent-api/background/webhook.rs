//! The webhook of a run that goes on without its client: sent when it has ended, until it is taken or was refused too often.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::{StoredRequest, status_of};
use sekisho_config::{Secret, WebhookConfig};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{Gateway, post_webhook};
use sekisho_store::{BackgroundRun, BackgroundState, BackgroundStep};

/// Pauses before further attempts.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(2),
    Duration::from_secs(15),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3_600),
    Duration::from_secs(6 * 3_600),
];

/// A receiver of a webhook, signed as <https://www.standardwebhooks.com> says.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunWebhook {
    #[schema(format = "uri")]
    url: String,
    /// `whsec_` and 24 random bytes or more in base64.
    secret: String,
}

impl RunWebhook {
    /// Errors: `invalid_request`: no web address, or no key.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        self.config().map(drop)
    }

    fn config(&self) -> Result<WebhookConfig, CallError> {
        let invalid = |message: &str| CallError::new(ErrorCode::InvalidRequest, message);
        let url = self.url.parse().map_err(|_| invalid("`webhook.url` is no address; write https://HOST/PATH"))?;
        let webhook = WebhookConfig { url, secret: Secret::new(self.secret.as_str()) };
        if !matches!(webhook.url.scheme(), "http" | "https") || webhook.url.host().is_none() {
            return Err(invalid("`webhook.url` is no web address; write https://HOST/PATH"));
        }
        if webhook.key().is_none() {
            let problem = "`webhook.secret` is no key of 24 bytes or more in base64; send `whsec_` and the output of \
                           `openssl rand -base64 32`";
            return Err(invalid(problem));
        }
        Ok(webhook)
    }
}

/// Sends the webhook of a run that has ended, once.
pub(super) async fn notify(gateway: &Gateway, run: &BackgroundRun, request: &StoredRequest) -> BackgroundStep {
    let sent = match request.webhook.as_ref().map(RunWebhook::config) {
        None => Ok(()),
        Some(Err(error)) => Err(error),
        // The same id and the same body however often it is sent.
        Some(Ok(webhook)) => post_webhook(gateway.outbound(), &webhook, &format!("msg_{}", run.id), body(run)).await,
    };
    let notice_error = sent.err().map(|error| error.message().to_owned());
    let attempt = usize::try_from(run.attempts).unwrap_or_default().saturating_sub(1);
    let due = notice_error.as_ref().and_then(|_| PAUSES.get(attempt).copied());
    if let Some(problem) = notice_error.as_ref().filter(|_| due.is_none()) {
        tracing::warn!(run = run.id, problem, "the webhook of a run was refused too often");
    }
    let (status, error, attempts) = (run.status, run.error.clone(), run.attempts);
    BackgroundStep { state: BackgroundState::Ended, status, error, attempts, notice_error, due }
}

/// Without texts: the receiver asks for them with its key.
fn body(run: &BackgroundRun) -> String {
    let status = status_of(run);
    let data = json!({
        "id": run.id,
        "conversation_id": run.conversation,
        "run_id": run.runs.last(),
        "status": status,
    });
    json!({"type": format!("run.{status}"), "timestamp": run.changed.to_string(), "data": data}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_has_a_web_address_and_a_key() {
        let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
        for (url, secret, problem) in [
            ("https://hooks.example/a", secret, None),
            ("hooks.example", secret, Some("`webhook.url`")),
            ("file:///a", secret, Some("`webhook.url`")),
            ("https://hooks.example/a", "whsec_MDEy", Some("`webhook.secret`")),
            ("https://hooks.example/a", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", Some("`webhook.secret`")),
        ] {
            let checked = RunWebhook { url: url.into(), secret: secret.into() }.check();
            let message = checked.err().map(|error| error.message().to_owned());
            assert_eq!(message.is_some(), problem.is_some(), "{url}: {message:?}");
            assert!(message.is_none_or(|message| message.starts_with(problem.unwrap())), "{url}");
        }
    }
}
