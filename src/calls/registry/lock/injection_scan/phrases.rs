//! Phrases that instruct a model instead of describing a tool, by the rules of `sekisho-guards`.

use std::borrow::Cow;
use std::sync::LazyLock;

use sekisho_core::visible_text::is_hidden;
use sekisho_guards::{Choice, Detector, Direction, Rules};

/// Rules for tags, which are reported as such.
const OF_TAGS: [&str; 2] = ["chat_template", "forged_system_message"];

/// The normalized form of a text that is searched for tags: without hidden characters, in lower case, and with wide and styled
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

/// Describes the first phrase in a text.
pub(super) fn find(text: &str) -> Option<String> {
    static CHOICE: LazyLock<Choice> =
        LazyLock::new(|| Choice::new(&Rules::shipped(), &[Detector::Injections], &[], Direction::Descriptions));
    let found = CHOICE.find(text).into_iter().find(|found| !OF_TAGS.contains(&&*found.rule))?;
    let (rule, place) = (found.rule, found.place.and_then(|place| text.get(place)));
    Some(match place {
        Some(place) => format!("it instructs the model ({rule}): {place:?}"),
        None => format!("it instructs the model ({rule}), in text that is encoded or not written as it reads"),
    })
}
