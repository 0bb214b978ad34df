//! Phrases that instruct a model instead of describing a tool.

use std::borrow::Cow;

use sekisho_core::visible_text::is_hidden;

/// One phrase: a word of each list, in this order, with at most [`GAP`] other words between two of them.
type Phrase = &'static [&'static [&'static str]];

const GAP: usize = 3;

const PHRASES: &[Phrase] = &[
    &[
        &["ignore", "disregard", "forget", "neglect"],
        &[
            "previous",
            "previously",
            "prior",
            "above",
            "earlier",
            "preceding",
            "all",
            "any",
            "everything",
            "other",
            "your",
            "system",
        ],
        &["instruction", "instructions", "prompt", "prompts", "guideline", "guidelines", "directives", "rules", "told"],
    ],
    &[
        &["not", "never", "don't"],
        &["tell", "mention", "inform", "reveal", "disclose", "notify", "alert"],
        &["user", "users", "human", "person", "anyone", "anybody"],
    ],
    &[&["without"], &["telling", "informing", "notifying", "alerting"], &["user", "users", "human", "anyone"]],
    &[&["reveal", "print", "repeat", "output", "leak", "send", "include"], &["system"], &["prompt", "instructions"]],
    &[&["you"], &["are"], &["now"], &["a", "an", "the", "in", "my"]],
    &[&["from"], &["now"], &["on"], &["you", "always", "never"]],
    &[&["new", "updated", "real", "actual", "secret"], &["system"], &["instruction", "instructions", "prompt"]],
];

/// Phrases in languages without spaces between words.
const UNPARTED: &[&str] = &[
    "指示を無視",
    "指示は無視",
    "命令を無視",
    "ルールを無視",
    "指示を忘れ",
    "指示は忘れ",
    "プロンプトを無視",
    "ユーザーに知らせず",
    "ユーザーには知らせ",
    "ユーザーに言わ",
    "忽略之前",
    "忽略以上",
    "忽略所有",
    "忽略先前",
    "不要告诉用户",
];

/// Files that contain credentials; no description needs to mention one.
const PRIVATE_FILES: &[&str] = &[
    ".ssh/",
    "id_rsa",
    "id_ed25519",
    "/etc/passwd",
    "/etc/shadow",
    ".aws/credentials",
    ".cursor/mcp.json",
    ".git-credentials",
    "/proc/self/environ",
];

/// The normalized form of a text that is searched: without hidden characters, in lower case, and with wide and styled
/// letters replaced by plain ones (NFKC).
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        let is_plain = !text.bytes().any(|byte| byte.is_ascii_uppercase() || is_hidden(byte.into()));
        if is_plain {
            return text.into();
        }
        return text.chars().filter(|c| !is_hidden(*c)).map(|c| c.to_ascii_lowercase()).collect();
    }
    let shown = text.chars().filter(|c| !is_hidden(*c)).map(|c| if c == '’' { '\'' } else { c });
    let shown: String = shown.collect();
    icu_normalizer::ComposingNormalizerBorrowed::new_nfkc().normalize(&shown).to_lowercase().into()
}

/// Describes the first phrase in a text normalized by [`plain`].
pub(super) fn find(text: &str) -> Option<String> {
    let commands = |found: &str| format!("it instructs the model: {found:?}");
    if let Some(file) = PRIVATE_FILES.iter().find(|file| text.contains(**file)) {
        return Some(format!("it mentions {file:?}, which contains credentials"));
    }
    if !text.is_ascii()
        && let Some(found) = UNPARTED.iter().find(|phrase| text.contains(**phrase))
    {
        return Some(commands(found));
    }
    if !PHRASES.iter().any(|phrase| phrase[0].iter().any(|word| text.contains(word))) {
        return None;
    }
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .map(|word| word.trim_matches('\''))
        .filter(|word| !word.is_empty())
        .collect();
    PHRASES.iter().find_map(|phrase| spoken(phrase, &words)).map(|found| commands(&found))
}

/// The words of the text that match the phrase.
fn spoken(phrase: Phrase, words: &[&str]) -> Option<String> {
    let (first, rest) = phrase.split_first()?;
    (0..words.len()).filter(|at| first.contains(&words[*at])).find_map(|start| {
        let mut at = start;
        for step in rest {
            let near = words.iter().skip(at + 1).take(GAP + 1);
            at += 1 + near.into_iter().position(|word| step.contains(word))?;
        }
        Some(words[start..=at].join(" "))
    })
}
