//! The context window of a model, and how many of its tokens a request takes.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::message::{AssistantTurn, Message, TurnPart, UserPart};
use super::toolbox::ToolDescription;
use sekisho_calls::budget::model_prices::without_date;
use sekisho_config::AgentProfile;

static LIST: LazyLock<Result<HashMap<String, u64>, String>> =
    LazyLock::new(|| parse(include_str!("context_windows.yaml")));

/// ASCII characters of a token, on average. Other characters count as a token each.
pub(super) const CHARACTERS_OF_A_TOKEN: u64 = 4;

/// About the most that providers count for an image, whatever its size in bytes.
const TOKENS_OF_AN_IMAGE: u64 = 1_600;

/// About the most that providers count for a page of a document: its text, and an image of it.
const TOKENS_OF_A_PAGE: u64 = 3_000;

/// The list. Its date and sources are for readers of the file.
#[derive(Debug, Deserialize)]
struct WindowFile {
    vendors: Vec<Vendor>,
}

#[derive(Debug, Deserialize)]
struct Vendor {
    windows: HashMap<u64, Vec<String>>,
}

/// The window of a profile's model in tokens: its `context_tokens`, or the window in the table of models or in the list;
/// `None` if none of them has it.
pub(super) fn window_of(profile: &AgentProfile) -> Option<u64> {
    let in_table = || profile.row().and_then(|row| row.context_tokens);
    profile.context_tokens.or_else(in_table).or_else(|| find(LIST.as_ref().ok()?, profile.model()))
}

/// Estimated tokens of a request with these messages and tools.
pub(super) fn tokens_of(messages: &[Message], tools: &[ToolDescription]) -> u64 {
    let messages = messages.iter().map(weight).sum::<u64>();
    let shown = tools.iter().filter(|tool| !tool.is_deferred);
    messages.saturating_add(shown.map(weight_of_tool).sum()).div_ceil(CHARACTERS_OF_A_TOKEN)
}

/// How much of a request a message takes, in characters.
pub(super) fn weight(message: &Message) -> u64 {
    const IMAGE: u64 = TOKENS_OF_AN_IMAGE * CHARACTERS_OF_A_TOKEN;
    const PAGE: u64 = TOKENS_OF_A_PAGE * CHARACTERS_OF_A_TOKEN;
    match message {
        Message::System(text) => weight_of_text(text),
        Message::User(message) => {
            let part = |part: &UserPart| match part {
                UserPart::Text(text) => weight_of_text(text),
                UserPart::Image(_) => IMAGE,
                UserPart::File(file) => {
                    weight_of_text(&file.description()).saturating_add(length(file.pages()).saturating_mul(PAGE))
                }
            };
            message.parts.iter().map(part).sum()
        }
        Message::Assistant(turn) => weight_of_turn(turn),
        Message::Tool(result) => {
            let images = u64::try_from(result.images.len()).unwrap_or(u64::MAX);
            weight_of_text(&result.text).saturating_add(images.saturating_mul(IMAGE))
        }
    }
}

fn weight_of_turn(turn: &AssistantTurn) -> u64 {
    let part = |part: &TurnPart| match part {
        TurnPart::Text(text) => weight_of_text(text),
        TurnPart::Thought(thought) => length(thought.bytes()),
        TurnPart::Call(call) => {
            let extras = call.extras.values().map(|value| length(value.to_string().len())).sum::<u64>();
            weight_of_text(&call.tool).saturating_add(weight_of_text(&call.arguments)).saturating_add(extras)
        }
    };
    turn.parts.iter().map(part).sum()
}

fn weight_of_tool(tool: &ToolDescription) -> u64 {
    [tool.name.as_str(), &tool.description, &tool.parameters.to_string()].into_iter().map(weight_of_text).sum()
}

fn weight_of_text(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let others = text.chars().count() - ascii;
    length(ascii).saturating_add(length(others).saturating_mul(CHARACTERS_OF_A_TOKEN))
}

fn length(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn parse(yaml: &str) -> Result<HashMap<String, u64>, String> {
    let file: WindowFile = serde_saphyr::from_str(yaml).map_err(|problem| problem.to_string())?;
    let windows = file.vendors.into_iter().flat_map(|vendor| vendor.windows);
    Ok(windows.flat_map(|(tokens, names)| names.into_iter().map(move |name| (name, tokens))).collect())
}

fn find(list: &HashMap<String, u64>, model: &str) -> Option<u64> {
    let name = anthropic_name(model).unwrap_or(model);
    let names = [Some(name), without_date(name)];
    names.into_iter().flatten().find_map(|name| list.get(name)).copied()
}

/// The vendor's name in one of Amazon's: `eu.anthropic.claude-sonnet-4-5-20250929-v1:0`.
fn anthropic_name(model: &str) -> Option<&str> {
    let (_, name) = model.split_once("anthropic.")?;
    Some(name.rsplit_once("-v").map_or(name, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::message::{Image, ToolMessage};

    #[test]
    fn the_window_is_the_profiles_or_that_of_the_list() {
        for (model, set, expected) in [
            ("claude-sonnet-4-5", None, Some(200_000)),
            ("claude-sonnet-4-5-20250929", None, Some(200_000)),
            ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", None, Some(200_000)),
            ("global.anthropic.claude-opus-4-6-v1", None, Some(1_000_000)),
            ("anthropic.claude-sonnet-4-6", None, Some(1_000_000)),
            ("gpt-4o-2024-08-06", None, Some(128_000)),
            ("gpt-4o-mini", Some(9_000), Some(9_000)),
            ("qwen3", None, None),
            ("gpt-4o-mini-like", None, None),
        ] {
            let profile = AgentProfile { model: Some(model.into()), context_tokens: set, ..AgentProfile::default() };
            assert_eq!(window_of(&profile), expected, "{model}");
        }
    }

    #[test]
    fn characters_are_counted_by_their_script_and_images_by_their_number() {
        let image = || Image { media_type: "image/png".into(), base64: "x".repeat(1_000_000) };
        let result = |text: &str, images| {
            Message::Tool(ToolMessage {
                call_id: "1".into(),
                tool: "t".into(),
                text: text.into(),
                images,
                is_error: false,
            })
        };
        for (messages, expected) in [
            (vec![Message::User("12345678".into())], 2),
            (vec![Message::User("123456789".into())], 3),
            (vec![Message::User("関所".into())], 2),
            (vec![Message::System("1234".into()), result("5678", vec![image(), image()])], 2 + 2 * 1_600),
        ] {
            assert_eq!(tokens_of(&messages, &[]), expected, "{messages:?}");
        }
        let parameters = Arc::new(json!({}));
        let tool = ToolDescription { name: "a".into(), description: "b".into(), parameters, is_deferred: false };
        assert_eq!(tokens_of(&[], std::slice::from_ref(&tool)), 1);
        assert_eq!(tokens_of(&[], &[ToolDescription { is_deferred: true, ..tool }]), 0, "the model is not shown it");
    }
}
