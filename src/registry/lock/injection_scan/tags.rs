//! Tags and marks that set parts of a conversation apart, in a place that is none.

/// Names of tags that make a text look like a message of another role. HTML's own are left alone.
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

/// Marks that chat templates and comments use.
const MARKS: &[&str] = &["<|", "<!--", "[inst]", "[/inst]", "<<sys>>", "[system]", "### system", "### instruction"];

/// The first tag in a text made [`plain`](super::phrases::plain), in words.
pub(super) fn find(text: &str) -> Option<String> {
    let told = |tag: &str| format!("it has the tag {tag:?}, as if another spoke");
    if let Some(mark) = MARKS.iter().find(|mark| text.contains(**mark)) {
        return Some(told(mark));
    }
    text.split('<').skip(1).find_map(|rest| {
        let rest = rest.strip_prefix('/').unwrap_or(rest).trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'))?;
        let (name, after) = rest.split_at(end);
        let closes = after.starts_with(|c: char| c == '>' || c == '/' || c.is_whitespace());
        (closes && NAMES.contains(&name)).then(|| told(&format!("<{name}>")))
    })
}
