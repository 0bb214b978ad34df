//! Embeddings by OpenAI's API (<https://platform.openai.com/docs/api-reference/embeddings>), which other servers have too.

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::ModelError;
use sekisho_config::EmbeddingsConfig;
use sekisho_core::call::Deadline;
use sekisho_core::redaction::SentSecrets;
use sekisho_outbound::{Outbound, OutboundRequest, OutboundResponse, Trust};

const OWN_BASE_URL: &str = "https://api.openai.com/v1";

/// Texts of one request.
const BATCH: usize = 64;

/// Characters of an error's text that are repeated.
const MAX_SENTENCE: usize = 300;

/// Bytes of a number in an answer, at most: `-0.012345678901234567,` and space around it.
const BYTES_OF_A_NUMBER: usize = 32;

/// More dimensions than any model has.
const MAX_DIMENSIONS: usize = 16_384;

/// The vectors of some texts, in their order and all of one length.
#[derive(Debug, Default, PartialEq)]
pub struct Embedded {
    pub vectors: Vec<Vec<f32>>,
    /// As the provider reports them; 0 if it does not.
    pub tokens: u64,
}

#[derive(Debug, Deserialize)]
struct Answer {
    data: Vec<Item>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Debug, Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

#[derive(Debug, Default, Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
}

/// Asks for the vectors of texts, some at a time.
/// Errors: the provider cannot be reached or refuses, or its vectors are not as many as the texts or differ in their
/// lengths.
pub async fn embed(outbound: &Outbound, config: &EmbeddingsConfig, texts: &[&str]) -> Result<Embedded, ModelError> {
    let mut all = Embedded::default();
    for batch in texts.chunks(BATCH) {
        let answer = ask(outbound, config, batch).await?;
        all.tokens = all.tokens.saturating_add(answer.usage.prompt_tokens);
        all.vectors.extend(in_order(answer.data, batch.len())?);
    }
    let length = all.vectors.first().map_or(0, Vec::len);
    if all.vectors.iter().any(|vector| vector.len() != length) {
        return Err(ModelError::Garbled("its embeddings differ in their lengths".into()));
    }
    Ok(all)
}

async fn ask(outbound: &Outbound, config: &EmbeddingsConfig, texts: &[&str]) -> Result<Answer, ModelError> {
    let body = json!({"model": config.model, "input": texts, "encoding_format": "float"});
    let mut request = OutboundRequest {
        method: Method::POST,
        body: Some(Bytes::from(body.to_string())),
        max_response_bytes: texts.len() * MAX_DIMENSIONS * BYTES_OF_A_NUMBER,
        trust: Trust::Operator,
        ..OutboundRequest::get(address(config)?, Deadline::after(config.timeout()))
    };
    request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut secrets = SentSecrets::default();
    if let Some(key) = &config.api_key {
        secrets.add(key.expose());
        let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose()))
            .map_err(|_| ModelError::Refused("the api_key holds characters that a header cannot carry".into()))?;
        value.set_sensitive(true);
        request.headers.insert(header::AUTHORIZATION, value);
    }
    let answer = outbound.send(request).await;
    let answer = answer.map_err(|error| ModelError::Unavailable(error.message().to_owned()))?;
    if !answer.status.is_success() {
        return Err(refused(&answer).redacted(&secrets));
    }
    serde_json::from_slice(&answer.body).map_err(|problem| ModelError::Garbled(problem.to_string()))
}

fn address(config: &EmbeddingsConfig) -> Result<Url, ModelError> {
    let base = config.base_url.as_ref().map_or(OWN_BASE_URL, Url::as_str);
    let url = Url::parse(&format!("{}/embeddings", base.trim_end_matches('/')));
    url.map_err(|problem| ModelError::Refused(format!("the base_url of the embeddings: {problem}")))
}

fn refused(answer: &OutboundResponse) -> ModelError {
    let text: String = String::from_utf8_lossy(&answer.body).chars().take(MAX_SENTENCE).collect();
    let said = format!("HTTP {}: {text}", answer.status.as_u16());
    match answer.status {
        StatusCode::TOO_MANY_REQUESTS => ModelError::Limited { status: 429, retry_after: None, sentence: said },
        status if status.is_server_error() => ModelError::Unavailable(said),
        _ => ModelError::Refused(said),
    }
}

/// Errors: they are not one for each of the `count` texts.
fn in_order(items: Vec<Item>, count: usize) -> Result<Vec<Vec<f32>>, ModelError> {
    let mut vectors = vec![Vec::new(); count];
    for Item { index, embedding } in items {
        let is_usable = !embedding.is_empty() && embedding.iter().all(|number| number.is_finite());
        match vectors.get_mut(index) {
            Some(place) if place.is_empty() && is_usable => *place = embedding,
            _ => return Err(ModelError::Garbled(format!("its embedding {index} is not one of {count}"))),
        }
    }
    if vectors.iter().any(Vec::is_empty) {
        return Err(ModelError::Garbled(format!("it has fewer embeddings than the {count} texts")));
    }
    Ok(vectors)
}

/// How close two vectors of one length are: the cosine of their angle; `None` for others, or where one has no direction.
pub fn similarity(a: &[f32], b: &[f32]) -> Option<f32> {
    if a.len() != b.len() {
        return None;
    }
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let cosine = product(a, b) / (product(a, a).sqrt() * product(b, b).sqrt());
    cosine.is_finite().then_some(cosine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(items: &[(usize, &[f32])]) -> Vec<Item> {
        items.iter().map(|(index, embedding)| Item { index: *index, embedding: embedding.to_vec() }).collect()
    }

    #[test]
    fn embeddings_are_in_the_order_of_their_texts_and_complete() {
        let vectors = in_order(items(&[(1, &[2.0]), (0, &[1.0])]), 2).unwrap();
        assert_eq!(vectors, [[1.0], [2.0]]);
        let infinite = f32::INFINITY;
        for wrong in [
            items(&[(0, &[1.0])]),
            items(&[(0, &[1.0]), (0, &[1.0])]),
            items(&[(0, &[1.0]), (2, &[1.0])]),
            items(&[(0, &[1.0]), (1, &[])]),
            items(&[(0, &[1.0]), (1, &[infinite])]),
        ] {
            assert!(matches!(in_order(wrong, 2), Err(ModelError::Garbled(_))));
        }
    }

    #[test]
    fn similar_vectors_point_in_one_direction() {
        assert_eq!(similarity(&[1.0, 0.0], &[3.0, 0.0]), Some(1.0));
        assert_eq!(similarity(&[1.0, 0.0], &[0.0, 2.0]), Some(0.0));
        assert_eq!(similarity(&[1.0, 0.0], &[-1.0, 0.0]), Some(-1.0));
        assert_eq!((similarity(&[1.0], &[1.0, 2.0]), similarity(&[0.0], &[1.0])), (None, None));
    }
}
