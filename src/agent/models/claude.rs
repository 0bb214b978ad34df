//! The differences between the generations of Anthropic's models, with Anthropic's API as with Amazon's.

use crate::message::{AssistantTurn, Message, Thought, TurnPart, UNSIGNED_THINKING};
use crate::models::ModelRequest;
use sekisho_config::{Effort, Thinking};

/// The first models that choose by themselves how much they think, by an effort in place of a budget of tokens, and that
/// take no temperature and no `top_p`
/// (<https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking>).
const FIRST_ADAPTIVE: (u32, u32) = (4, 7);

/// The least tokens of thinking that the providers accept.
const MIN_BUDGET: u32 = 1_024;

/// Whether a model is of that generation, by its name; a model of an unknown name is not.
pub(super) fn is_adaptive(model: &str) -> bool {
    version(model).is_some_and(|version| version >= FIRST_ADAPTIVE)
}

/// How much the model is to think about a request; `None`: not at all.
///
/// A turn that must call a tool has no thoughts. With a budget of tokens, neither has one after calls without thoughts, as
/// there are where the first turn had to call a tool, or in the transcript of a client: the providers refuse thinking there
/// (<https://platform.claude.com/docs/en/build-with-claude/extended-thinking#extended-thinking-with-tool-use>).
pub(super) fn thinking(request: &ModelRequest, is_adaptive: bool) -> Option<Thinking> {
    let options = &request.options;
    let may_begin = || is_adaptive || !goes_on_without_thoughts(&request.messages);
    let asked = options.thinking.filter(|_| options.can_think() && may_begin());
    if is_adaptive { asked } else { asked.and_then(|thinking| within(thinking, request.max_tokens)) }
}

/// A budget of tokens must be below the maximum of the answer with its thinking: one that is not leaves a quarter for the answer.
fn within(thinking: Thinking, max_tokens: u32) -> Option<Thinking> {
    if thinking.tokens() < max_tokens {
        return Some(thinking);
    }
    let most = max_tokens - max_tokens / 4;
    (most >= MIN_BUDGET).then_some(Thinking::BudgetTokens(most))
}

/// The name of an effort; the least of these models is `low`.
pub(super) fn effort(thinking: Thinking) -> &'static str {
    match thinking.effort() {
        Effort::None | Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Xhigh => "xhigh",
        Effort::Max => "max",
    }
}

/// Whether the first turn with calls since the user's last message has no thought before them.
fn goes_on_without_thoughts(conversation: &[Message]) -> bool {
    let asked = conversation.iter().rposition(|message| matches!(message, Message::User(_)));
    let since = conversation.iter().skip(asked.map_or(0, |index| index + 1));
    let mut with_calls = since.filter_map(Message::as_assistant).filter(|turn| turn.calls().next().is_some());
    with_calls.next().is_some_and(|turn| !begins_with_thought(turn))
}

fn begins_with_thought(turn: &AssistantTurn) -> bool {
    let is_sent = |part: &&TurnPart| match part {
        TurnPart::Thought(Thought::Unsigned { field, .. }) => *field == UNSIGNED_THINKING,
        TurnPart::Thought(Thought::Details(_)) => false,
        TurnPart::Thought(_) | TurnPart::Text(_) | TurnPart::Call(_) => true,
    };
    matches!(turn.parts.iter().find(is_sent), Some(TurnPart::Thought(_)))
}

/// `(4, 7)` of `claude-opus-4-7`, also in Amazon's names. Names of before Claude 4 begin with their version; a date is none.
fn version(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude-")?;
    let number = |part: &str| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok().filter(|_| digits.len() <= 2)
    };
    let mut parts = name.split('-').skip_while(|part| number(part).is_none());
    let major = number(parts.next()?)?;
    Some((major, parts.next().and_then(number).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{RequestedCall, ToolMessage};
    use crate::options::{ModelOptions, ToolChoice};

    #[test]
    fn generations_are_told_apart_by_the_name() {
        for (model, expected) in [
            ("claude-sonnet-4-5", false),
            ("claude-sonnet-4-5-20250929", false),
            ("claude-opus-4-20250514", false),
            ("claude-opus-4", false),
            ("claude-3-7-sonnet-20250219", false),
            ("claude-3-opus-latest", false),
            ("claude-opus-4-6", false),
            ("claude-opus-4-6@20260205", false),
            ("claude-opus-4-7", true),
            ("claude-sonnet-5", true),
            ("claude-haiku-5-5", true),
            ("anthropic/claude-fable-5", true),
            ("eu.anthropic.claude-opus-4-8-20260301-v1:0", true),
            ("global.anthropic.claude-opus-4-5-20251101-v1:0", false),
            ("claude", false),
            ("qwen3", false),
        ] {
            assert_eq!(is_adaptive(model), expected, "{model}");
        }
    }

    #[test]
    fn a_turn_thinks_unless_calls_before_it_have_no_thoughts() {
        let call = || TurnPart::Call(RequestedCall::new("a".into(), "add".into(), "{}".into()));
        let thought = || TurnPart::Thought(Thought::Redacted("c2VjcmV0".into()));
        let unsigned = || TurnPart::Thought(Thought::Unsigned { text: "hm".into(), field: "reasoning" });
        let turn = |parts: Vec<TurnPart>| Message::Assistant(AssistantTurn { parts, api: None });
        let user = || Message::User("hi".into());
        let result = || {
            let (call_id, tool, text) = ("a".into(), "add".into(), "3".into());
            Message::Tool(ToolMessage { call_id, tool, text, ..ToolMessage::default() })
        };
        let asked = Some(Thinking::BudgetTokens(2_000));
        for (messages, choice, expected) in [
            (vec![user()], ToolChoice::Auto, asked),
            (vec![user()], ToolChoice::Required, None),
            (vec![user(), turn(vec![thought(), call()]), result()], ToolChoice::Auto, asked),
            (vec![user(), turn(vec![call()]), result()], ToolChoice::Auto, None),
            (
                vec![user(), turn(vec![thought(), call()]), result(), turn(vec![call()]), result()],
                ToolChoice::Auto,
                asked,
            ),
            (vec![user(), turn(vec![unsigned(), call()]), result()], ToolChoice::Auto, None),
            (vec![user(), turn(vec![call()]), result(), user()], ToolChoice::Auto, asked),
            (vec![user(), turn(vec![TurnPart::Text("hi".into())])], ToolChoice::Auto, asked),
        ] {
            let options = ModelOptions { thinking: asked, tool_choice: choice, ..ModelOptions::default() };
            let request = ModelRequest { messages, options, max_tokens: 4_000, ..ModelRequest::default() };
            assert_eq!(thinking(&request, false), expected, "{:?}", request.messages);
            let adaptive = asked.filter(|_| request.options.can_think());
            assert_eq!(thinking(&request, true), adaptive, "{:?}", request.messages);
        }
    }

    #[test]
    fn a_budget_of_tokens_is_below_the_maximum_of_the_answer() {
        let (max, low) = (Thinking::Effort(Effort::Max), Thinking::Effort(Effort::Low));
        for (asked, max_tokens, is_adaptive, expected) in [
            (max, 64_000, false, Some(Thinking::BudgetTokens(48_000))),
            (max, 64_000, true, Some(max)),
            (low, 64_000, false, Some(low)),
            (low, 2_048, false, Some(Thinking::BudgetTokens(1_536))),
            (low, 1_000, false, None),
        ] {
            let options = ModelOptions { thinking: Some(asked), ..ModelOptions::default() };
            let request = ModelRequest { options, max_tokens, ..ModelRequest::default() };
            assert_eq!(thinking(&request, is_adaptive), expected, "{asked:?} of {max_tokens}");
        }
    }
}
