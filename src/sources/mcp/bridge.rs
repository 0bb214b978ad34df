//! Forwards messages between a client at standard input and output and the `/mcp` of another gateway.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::HeaderMap;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleClient, RoleServer};
use thiserror::Error;
use url::Url;

use super::server::connect::{call_error, streamable};
use super::transport::authorized_http::{AuthorizedHttp, Tokens};
use super::transport::http::HttpClient;
use crate::core::error::{Blame, ErrorCode};
use crate::infra::outbound::{DomainList, Outbound, Trust};

/// Maximum size of a forwarded message in either direction, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Timeout to end the session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why forwarding ended.
#[derive(Debug, Error)]
pub enum BridgeError {
    #[error("{0}")]
    Unreachable(String),
    /// Refused by the gateway, with its message.
    #[error("{0}")]
    Refused(String),
    #[error("standard output cannot be written: {0}")]
    Output(String),
}

/// Forwards messages until the input ends. `headers` contain the credentials.
///
/// # Errors
/// [`BridgeError`]: the gateway refused the first message, or the connection to it ended.
pub async fn bridge(outbound: Outbound, url: Url, headers: HeaderMap) -> Result<(), BridgeError> {
    let access = AuthorizedHttp {
        outbound,
        allowed: Arc::new(DomainList::any().clone()),
        url,
        headers,
        tokens: Tokens::None,
        last_token: Arc::default(),
        trust: Trust::Operator,
        max_message_bytes: MAX_MESSAGE_BYTES,
    };
    let client = AsyncRwTransport::new_server(tokio::io::stdin(), tokio::io::stdout());
    let client = client.with_max_line_length(MAX_MESSAGE_BYTES);
    let gateway = streamable(HttpClient::new(Arc::new(access)));
    Box::pin(pass_on(client, gateway)).await
}

async fn pass_on(
    mut client: impl Transport<RoleServer>,
    mut gateway: impl Transport<RoleClient>,
) -> Result<(), BridgeError> {
    // Polled in the order of the messages, which preserves it.
    let mut sending = FuturesUnordered::new();
    let mut has_answered = false;
    let outcome = loop {
        tokio::select! {
            biased;
            Some((request, sent)) = sending.next() => {
                let Err(error) = sent else { continue };
                let error = error_of(&error);
                refuse(&mut client, request, &error).await?;
                if !has_answered {
                    break Err(error);
                }
            }
            message = gateway.receive() => {
                let Some(message) = message else {
                    let mut last = BridgeError::Unreachable("the gateway ended the connection".to_owned());
                    while let Some((request, sent)) = sending.next().await {
                        if let Err(error) = sent {
                            last = error_of(&error);
                        }
                        refuse(&mut client, request, &last).await?;
                    }
                    break Err(last);
                };
                has_answered = true;
                client.send(message).await.map_err(|error| BridgeError::Output(error.to_string()))?;
            }
            message = client.receive() => {
                let Some(message) = message else { break Ok(()) };
                let request = id_of(&message);
                let send = gateway.send(message);
                sending.push(async move { (request, send.await) });
            }
        }
    };
    // Ends the session at the gateway too, but does not wait long for an answer.
    let _ended = tokio::time::timeout(CLOSE_TIMEOUT, gateway.close()).await;
    outcome
}

/// Sends the client an error for a request that will get no answer.
async fn refuse(
    client: &mut impl Transport<RoleServer>,
    request: Option<RequestId>,
    error: &BridgeError,
) -> Result<(), BridgeError> {
    let Some(id) = request else { return Ok(()) };
    let error = ErrorData::internal_error(error.to_string(), None);
    let sent = client.send(ServerJsonRpcMessage::error(error, Some(id))).await;
    sent.map_err(|error| BridgeError::Output(error.to_string()))
}

fn id_of(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

fn error_of(error: &(dyn Error + 'static)) -> BridgeError {
    match call_error(error) {
        Some(error) if error.blame() == Blame::Network || error.code() == ErrorCode::Timeout => {
            BridgeError::Unreachable(error.message().to_owned())
        }
        Some(error) => BridgeError::Refused(error.message().to_owned()),
        None => BridgeError::Unreachable(error.to_string()),
    }
}
