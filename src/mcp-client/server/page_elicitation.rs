//! A server of 2025-11-25 that needs its user to open a page first refuses the request (`URLElicitationRequiredError`). A
//! client with sessions gets the refusal, as its revision says. Any other that opens pages is asked to, and the request is
//! sent again.

use std::collections::BTreeSet;

use rmcp::model::ErrorData;
use serde_json::Value;

use crate::text::bounded;
use sekisho_core::call::CallContext;
use sekisho_core::peer::{Question, QuestionMethod, Questions, URL_ELICITATION_REQUIRED};

/// Pages that one refusal may name.
const MAX_PAGES: usize = 10;

/// The pages that a refusal names, as questions by their ids.
pub(super) fn questions(refusal: &ErrorData) -> Questions {
    let asked = refusal.data.as_ref().filter(|_| refusal.code.0 == URL_ELICITATION_REQUIRED);
    let asked = asked.and_then(|data| data.get("elicitations")).and_then(Value::as_array);
    let pages = asked.into_iter().flatten().filter(|page| page["mode"] == "url" && page["url"].is_string());
    let question = |page: &Value| {
        let id = page["elicitationId"].as_str()?.to_owned();
        Some((id, Question { method: QuestionMethod::Elicitation, params: page.clone() }))
    };
    pages.filter_map(question).take(MAX_PAGES).collect()
}

/// The addresses of the pages that a refusal names, for a caller that is not asked.
pub(super) fn addresses(refusal: &ErrorData) -> Option<String> {
    let addresses = questions(refusal).into_values().filter_map(|page| page.params["url"].as_str().map(bounded));
    let addresses: Vec<_> = addresses.collect();
    (!addresses.is_empty()).then(|| addresses.join(" , "))
}

/// Whether the client has opened all pages of a refusal, none of them for the second time.
pub(super) async fn are_opened(call: &CallContext, refusal: &ErrorData, opened: &mut BTreeSet<String>) -> bool {
    let questions = questions(refusal);
    let gets_refusal = call.client.session.as_ref().is_some_and(|session| session.is_initialized());
    let Some(peer) = call.client.peer.as_ref().filter(|_| !gets_refusal && !questions.is_empty()) else { return false };
    if !questions.keys().all(|id| opened.insert(id.clone())) {
        return false;
    }
    let answers = peer.ask(questions).await;
    answers.is_ok_and(|answers| answers.values().all(|answer| answer["action"] == "accept"))
}

#[cfg(test)]
mod tests {
    use rmcp::model::ErrorCode;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pages_of_a_refusal_are_questions() {
        let page = |id: &str| json!({"mode": "url", "url": format!("https://a.example/{id}"), "elicitationId": id});
        let refusal = |code: i32, elicitations: Value| {
            ErrorData::new(ErrorCode(code), "first", Some(json!({"elicitations": elicitations})))
        };
        let found = refusal(URL_ELICITATION_REQUIRED, json!([page("b"), page("a")]));
        assert_eq!(questions(&found).keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(addresses(&found).as_deref(), Some("https://a.example/a , https://a.example/b"));
        let many: Vec<_> = (0..100).map(|n| page(&n.to_string())).collect();
        assert_eq!(questions(&refusal(URL_ELICITATION_REQUIRED, many.into())).len(), MAX_PAGES);
        for none in [
            refusal(-32_000, json!([page("a")])),
            refusal(URL_ELICITATION_REQUIRED, json!([{"mode": "form", "elicitationId": "a"}, 7])),
            refusal(URL_ELICITATION_REQUIRED, json!("a")),
            ErrorData::new(ErrorCode(URL_ELICITATION_REQUIRED), "first", None),
        ] {
            assert!(questions(&none).is_empty() && addresses(&none).is_none(), "{none:?}");
        }
    }
}
