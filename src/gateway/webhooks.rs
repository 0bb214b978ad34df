//! Webhooks, signed as <https://www.standardwebhooks.com> says. Notices about approvals go to the receiver of the configuration.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use jiff::Timestamp;
use sha2::Sha256;
use tokio_util::sync::CancellationToken;

use super::CallApprovals;
use sekisho_calls::approval::Notice;
use sekisho_config::WebhookConfig;
use sekisho_core::call::Deadline;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_observe::readiness::Readiness;
use sekisho_outbound::{Outbound, OutboundRequest, Trust, check_status};

/// How long one attempt may take.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Pauses before further attempts.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30)];

/// The bytes that are read of an answer.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// The name of the part in readiness.
const COMPONENT: &str = "approvals_webhook";

impl CallApprovals {
    /// Sends notices one after the other, each until it is taken or was refused too often.
    pub(super) async fn send_notices(
        self: Arc<Self>,
        outbound: Outbound,
        readiness: Arc<Readiness>,
        closing: CancellationToken,
    ) {
        let Some(mut notices) = self.pipeline.approvals.take_notices() else { return };
        while let Some(Some(notice)) = closing.run_until_cancelled(notices.recv()).await {
            let config = self.configuration.current_arc();
            let Some(webhook) = &config.approvals.webhook else { continue };
            match closing.run_until_cancelled(send(&outbound, webhook, &notice)).await {
                Some(Ok(())) => readiness.restore(COMPONENT),
                Some(Err(problem)) => readiness.degrade(COMPONENT, format!("a notice was not taken: {problem}")),
                None => return,
            }
        }
    }
}

/// Sends a webhook once, to a receiver that a caller names: to addresses that its tools may reach, too.
/// Errors: why it was not taken: the sentence of the outbound guard, of the connection or of the receiver.
pub async fn post_webhook(
    outbound: &Outbound,
    webhook: &WebhookConfig,
    id: &str,
    body: String,
) -> Result<(), CallError> {
    post(outbound, webhook, Trust::Caller, (id, body)).await
}

async fn post(
    outbound: &Outbound,
    webhook: &WebhookConfig,
    trust: Trust,
    (id, body): (&str, String),
) -> Result<(), CallError> {
    let no_key = || CallError::new(ErrorCode::InvalidRequest, "the secret of the webhook is no key");
    let request = OutboundRequest {
        method: Method::POST,
        headers: headers(webhook, id, Timestamp::now(), &body).ok_or_else(no_key)?,
        body: Some(body.into()),
        max_response_bytes: MAX_ANSWER_BYTES,
        trust,
        ..OutboundRequest::get(webhook.url.clone(), Deadline::after(SEND_TIMEOUT))
    };
    check_status(&outbound.send(request).await?)
}

async fn send(outbound: &Outbound, webhook: &WebhookConfig, notice: &Notice) -> Result<(), String> {
    let mut pauses = PAUSES.into_iter();
    loop {
        let content = (&*notice.id, notice.body.to_string());
        let problem = match post(outbound, webhook, Trust::Operator, content).await {
            Ok(()) => return Ok(()),
            Err(error) => error.message().to_owned(),
        };
        let Some(pause) = pauses.next() else { return Err(problem) };
        tracing::debug!(problem, "a webhook is sent again");
        tokio::time::sleep(pause).await;
    }
}

/// `None`: the secret is no key, which the check of the configuration refuses.
fn headers(webhook: &WebhookConfig, id: &str, now: Timestamp, body: &str) -> Option<HeaderMap> {
    let seconds = now.as_second();
    let mut mac = Hmac::<Sha256>::new_from_slice(&webhook.key()?).ok()?;
    mac.update(format!("{id}.{seconds}.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("webhook-id", HeaderValue::try_from(id).ok()?);
    headers.insert("webhook-timestamp", HeaderValue::from(seconds));
    headers.insert("webhook-signature", HeaderValue::try_from(signature).ok()?);
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::Secret;

    /// Computed by another implementation of HMAC.
    #[test]
    fn a_notice_is_signed_with_its_id_and_time() {
        let secret = format!("whsec_{}", STANDARD.encode("0123456789abcdef01234567"));
        let webhook =
            WebhookConfig { url: "https://hooks.example/a".parse().unwrap(), secret: Secret::new(secret.as_str()) };
        let now = Timestamp::from_second(1_731_705_121).unwrap();
        let headers = headers(&webhook, "msg_1", now, r#"{"event_type":"ping"}"#).unwrap();
        assert_eq!(headers["webhook-id"], "msg_1");
        assert_eq!(headers["webhook-timestamp"], "1731705121");
        assert_eq!(headers["webhook-signature"], "v1,1/k8bhSj5EwvbUBbOC12Cg4PHCMUTnxtyQFNIszqHEs=");
    }
}
