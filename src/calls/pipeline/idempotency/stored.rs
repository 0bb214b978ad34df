//! A reply in the store: the JSON text that was sent to its caller.

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::pipeline::receipt::{Answer, Receipt, Reply};
use sekisho_core::call::{CallId, RateState, Stage};
use sekisho_core::error::{CallError, Detail, ErrorCode};

/// Maximum size of a reply in the store, in bytes.
pub(super) const MAX_REPLY_BYTES: usize = 4 << 20;

#[derive(Debug, Deserialize)]
struct StoredReply {
    output: Value,
    text: String,
    metadata: Map<String, Value>,
    execution_time_ms: u64,
    usage: StoredUsage,
    error_info: Option<StoredError>,
    receipt: StoredReceipt,
}

#[derive(Debug, Deserialize)]
struct StoredUsage {
    tokens: u64,
    #[serde(with = "rust_decimal::serde::float")]
    cost_usd: Decimal,
}

#[derive(Debug, Deserialize)]
struct StoredError {
    code: ErrorCode,
    message: String,
    stage: Option<Stage>,
    retry_after_ms: Option<u64>,
    details: Vec<Detail>,
    alternatives: Vec<String>,
}

/// The fields of the receipt that the gateway itself uses.
#[derive(Debug, Deserialize)]
struct StoredReceipt {
    call_id: CallId,
    rate: Option<RateState>,
    attempts: u32,
}

/// The reply's text, without the one-time code of a sign-in that the call needed: anyone who has the code can sign the
/// caller in.
pub(super) fn text_of(reply: &Reply) -> Result<String, serde_json::Error> {
    if reply.outcome.as_ref().err().and_then(CallError::sign_in).is_none() {
        return serde_json::to_string(reply);
    }
    let mut value = serde_json::to_value(reply)?;
    if let Some(error) = value.get_mut("error_info").and_then(Value::as_object_mut) {
        error.remove("sign_in");
    }
    serde_json::to_string(&value)
}

/// Parses a stored reply. Keeps the text as well, which is sent again unchanged.
/// Errors: the text is not a reply.
pub(super) fn read(text: String) -> Result<Arc<Reply>, serde_json::Error> {
    let StoredReply { output, text: answer_text, metadata, execution_time_ms, usage, error_info, receipt } =
        serde_json::from_str(&text)?;
    let outcome = match error_info {
        None => Ok(Answer { output, text: answer_text, metadata, mcp: None, preview: None }),
        Some(error) => Err(error.into_error(output)),
    };
    let StoredReceipt { call_id, rate, attempts } = receipt;
    let receipt = Receipt { rate, attempts, ..Receipt::of(call_id) };
    Ok(Arc::new(Reply {
        outcome,
        duration: Duration::from_millis(execution_time_ms),
        tokens: usage.tokens,
        cost_usd: usage.cost_usd,
        receipt,
        stored: Some(RawValue::from_string(text)?),
    }))
}

impl StoredError {
    fn into_error(self, output: Value) -> CallError {
        let Self { code, message, stage, retry_after_ms, details, alternatives } = self;
        let mut error = CallError::new(code, message).with_details(details).with_alternatives(alternatives);
        if let Some(stage) = stage {
            error = error.at_stage(stage);
        }
        if let Some(wait) = retry_after_ms {
            error = error.retry_after(Duration::from_millis(wait));
        }
        if output.is_null() { error } else { error.with_output(output) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use sekisho_core::call::{CallContext, Caller, Via};
    use sekisho_core::error::NeededSignIn;

    fn reply(outcome: Result<Answer, CallError>) -> Reply {
        let call = CallContext::new("tool", Arc::new(Caller::anonymous()), Via::Rest);
        let rate = RateState { limit: 60, remaining: 59, reset_seconds: 1 };
        let receipt = Receipt { rate: Some(rate), attempts: 2, ..Receipt::of(call.id) };
        let (duration, cost_usd) = (Duration::from_millis(1_234), Decimal::new(123, 5));
        Reply { outcome, duration, tokens: 7, cost_usd, receipt, stored: None }
    }

    #[test]
    fn a_stored_reply_equals_the_one_that_was_sent() {
        // A number that some JSON parsers do not read back exactly.
        let output = json!({"n": 5.022_222_222_222_223e-7, "list": [1, null, "ü\u{2028}"], "z": 1, "a": 2});
        let metadata = Map::from_iter([("provider".to_owned(), json!("test"))]);
        let answered = Answer { output: output.clone(), text: "said".into(), metadata, ..Answer::default() };
        let detail = Detail { path: "/a".into(), rule: "type".into(), message: "no".into() };
        let refused = CallError::new(ErrorCode::UpstreamError, "it broke")
            .at_stage(Stage::Execute)
            .with_detail(detail)
            .with_output(output)
            .retry_after(Duration::from_millis(1_500));
        for outcome in [Ok(answered), Err(refused), Err(CallError::tool("no"))] {
            let sent = reply(outcome);
            let text = text_of(&sent).unwrap();
            let stored = read(text.clone()).unwrap();
            assert_eq!(text_of(&stored).unwrap(), text);
            assert_eq!((stored.tokens, stored.cost_usd, stored.duration), (7, sent.cost_usd, sent.duration));
            assert_eq!((stored.receipt.call_id, stored.receipt.rate), (sent.receipt.call_id, sent.receipt.rate));
            let of = |reply: &Reply| {
                let error = reply.outcome.as_ref().err();
                error.map(|error| {
                    (error.code(), error.stage(), error.wait(), error.message().to_owned(), error.details().to_vec())
                })
            };
            assert_eq!(of(&stored), of(&sent));
        }
    }

    #[test]
    fn a_stored_reply_has_no_code_of_a_sign_in() {
        let needed = NeededSignIn {
            url: "https://gateway.example/console/upstream-sign-in/6f".to_owned(),
            code: "BCDF-GHJK".to_owned(),
            expires_at: "2026-11-26T12:10:00Z".to_owned(),
            source: "mcp:crm".to_owned(),
        };
        let sent = reply(Err(CallError::new(ErrorCode::SignInRequired, "sign in").signing_in_at(needed)));
        assert!(serde_json::to_string(&sent).unwrap().contains("BCDF-GHJK"));
        let text = text_of(&sent).unwrap();
        assert!(!text.contains("BCDF-GHJK"), "{text}");
        assert_eq!(read(text).unwrap().outcome.as_ref().unwrap_err().code(), ErrorCode::SignInRequired);
    }

    #[test]
    fn an_invalid_text_is_not_a_reply() {
        assert!(read("{}".into()).is_err());
    }
}
