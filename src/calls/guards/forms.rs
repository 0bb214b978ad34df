//! The forms of requests to services, and of their answers.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use sekisho_config::{GuardService, GuardServiceKind};
use sekisho_core::json;

/// Categories of one answer that are recorded.
const MAX_CATEGORIES: usize = 8;
/// Bytes of the name of a category.
const MAX_CATEGORY: usize = 64;

/// The subject of a question to a service.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub text: &'a str,
    pub direction: &'static str,
    pub tool: &'a str,
    pub tenant: &'a str,
}

/// The body of a request.
pub(super) fn request(service: &GuardService, asked: Asked<'_>) -> Value {
    let Asked { text, direction, tool, tenant } = asked;
    match service.kind {
        GuardServiceKind::Generic => json!({"text": text, "direction": direction, "tool": tool, "tenant": tenant}),
        GuardServiceKind::OpenaiModeration => {
            let model = service.model.as_deref().unwrap_or("omni-moderation-latest");
            json!({"model": model, "input": text})
        }
        GuardServiceKind::Lakera => {
            json!({"messages": [{"role": "user", "content": text}], "breakdown": true})
        }
        GuardServiceKind::PresidioAnalyzer => {
            json!({"text": text, "language": service.language, "score_threshold": service.threshold})
        }
        GuardServiceKind::LlamaGuard => json!({
            "model": service.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": 64,
        }),
    }
}

/// The categories of an answer; empty for a text that is fine.
/// Errors: an answer of another form: a wrong address is no permission.
pub(super) fn categories(service: &GuardService, body: &[u8]) -> Result<Vec<String>, String> {
    let found = match service.kind {
        GuardServiceKind::Generic => {
            let Flagged { flagged, categories } = read(body)?;
            named(flagged, categories)
        }
        GuardServiceKind::OpenaiModeration => {
            let Moderated { results } = read(body)?;
            if results.is_empty() {
                return Err("its answer has no results".to_owned());
            }
            let flagged = results.iter().any(|result| result.flagged);
            let categories = results.into_iter().flat_map(|result| result.categories);
            named(flagged, categories.filter(|(_, found)| *found == Value::Bool(true)).map(|(name, _)| name).collect())
        }
        GuardServiceKind::Lakera => {
            let Screened { flagged, breakdown } = read(body)?;
            let detected = breakdown.into_iter().filter(|detector| detector.detected);
            named(flagged, detected.map(|detector| detector.detector_type).collect())
        }
        GuardServiceKind::PresidioAnalyzer => {
            let entities: Vec<Entity> = read(body)?;
            let counted = entities.into_iter().filter(|entity| entity.score >= service.threshold);
            counted.map(|entity| entity.entity_type).collect()
        }
        GuardServiceKind::LlamaGuard => llama_guard(&read::<Completion>(body)?)?,
    };
    Ok(bounded(found))
}

/// `safe`, or `unsafe` with the codes of categories on the next line.
fn llama_guard(completion: &Completion) -> Result<Vec<String>, String> {
    let said = completion.choices.first().map(|choice| choice.message.content.trim());
    let mut lines = said.ok_or("its answer has no choices")?.lines();
    match lines.next().map(str::trim) {
        Some("safe") => Ok(Vec::new()),
        Some("unsafe") => {
            let codes = lines.next().unwrap_or_default().split(',').map(str::trim);
            Ok(named(true, codes.filter(|code| !code.is_empty()).map(str::to_owned).collect()))
        }
        _ => Err("its answer is neither `safe` nor `unsafe`".to_owned()),
    }
}

fn named(flagged: bool, categories: Vec<String>) -> Vec<String> {
    match (flagged, categories.is_empty()) {
        (false, _) => Vec::new(),
        (true, true) => vec!["flagged".to_owned()],
        (true, false) => categories,
    }
}

/// The words of a service are recorded: few, short, and of plain characters.
fn bounded(mut categories: Vec<String>) -> Vec<String> {
    categories.sort();
    categories.dedup();
    categories.truncate(MAX_CATEGORIES);
    for category in &mut categories {
        category.retain(|character| character.is_ascii_alphanumeric() || "_-/. ".contains(character));
        category.truncate(MAX_CATEGORY);
    }
    categories
}

fn read<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, String> {
    // The error would repeat parts of the answer, which may repeat the text.
    json::parse_as(body).map_err(|_| "its answer has another form than its `kind` says".to_owned())
}

#[derive(Deserialize)]
struct Flagged {
    flagged: bool,
    #[serde(default)]
    categories: Vec<String>,
}

#[derive(Deserialize)]
struct Moderated {
    results: Vec<Moderation>,
}

#[derive(Deserialize)]
struct Moderation {
    flagged: bool,
    #[serde(default)]
    categories: Map<String, Value>,
}

#[derive(Deserialize)]
struct Screened {
    flagged: bool,
    #[serde(default)]
    breakdown: Vec<ScreenedBy>,
}

#[derive(Deserialize)]
struct ScreenedBy {
    detector_type: String,
    detected: bool,
}

#[derive(Deserialize)]
struct Entity {
    entity_type: String,
    score: f64,
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: String,
}
