//! Tags and marks that separate the messages of a conversation, which a description must not contain.

/// Names of tags that make a text look like a message of another role. HTML tags are not included.
const NAMES: &[&str] = &[
    "important",
    "system",
    "system_prompt",
    "instruction",
    "instructions",
    "assistant",
    "human",
    "tool_call",
    "tool_calls",
    "tool_use",
    "tool_result",
    "function_call",
    "function_calls",
    "function_results",
    "script",
    "iframe",
];

/// Marks of chat templates and comments.
const MARKS: &[&str] = &["<|", "<!--", "[inst]", "[/inst]", "<<sys>>", "[system]", "### system", "### instruction"];

/// Describes the first tag in a text normalized by [`plain`](super::phrases::plain).
pub(super) fn find(text: &str) -> Option<String> {
    let describe = |tag: &str| format!("it contains the role tag {tag:?}");
    if let Some(mark) = MARKS.iter().find(|mark| text.contains(**mark)) {
        return Some(describe(mark));
    }
    text.split('<').skip(1).find_map(|rest| {
        let rest = rest.strip_prefix('/').unwrap_or(rest).trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'))?;
        let (name, after) = rest.split_at(end);
        let closes = after.starts_with(|c: char| c == '>' || c == '/' || c.is_whitespace());
        (closes && NAMES.contains(&name)).then(|| describe(&format!("<{name}>")))
    })
}
