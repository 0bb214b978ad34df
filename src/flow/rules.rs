//! The default rules, as data: words in names of tools, arguments and results, and their meaning.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use serde::Deserialize;

use crate::labels::SinkKind;

/// The rules of `rules.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Rules {
    pub(crate) verbs: Verbs,
    /// Words of names of tools whose results strangers write.
    pub(crate) strangers: HashSet<String>,
    /// Words of names of tools that read by a URL which is an argument.
    pub(crate) requests: HashSet<String>,
    /// Words of `strangers` that name files of the machine: a line `key: value` in one is a field.
    pub(crate) local: HashSet<String>,
    pub(crate) members: Members,
    /// Verbs that are nouns, too: they count where no other word does.
    pub(crate) weak: HashSet<String>,
    /// Lower-case letters of other scripts with the Latin letter that they or their capitals look like, of the confusables of
    /// Unicode (UTS 39).
    pub(crate) look_alikes: HashMap<char, char>,
    /// Last parts of names of hosts, by which a host is told from a file.
    pub(crate) domains: HashSet<String>,
}

/// Words of names of tools, by the effect of their calls.
#[derive(Debug, Deserialize)]
pub(crate) struct Verbs {
    pub(crate) read: HashSet<String>,
    pub(crate) fetch: HashSet<String>,
    pub(crate) send: HashSet<String>,
    pub(crate) pay: HashSet<String>,
    pub(crate) delete: HashSet<String>,
    pub(crate) publish: HashSet<String>,
    pub(crate) write: HashSet<String>,
}

/// Words of names of members.
#[derive(Debug, Deserialize)]
pub(crate) struct Members {
    /// Arguments that are content, and no destination.
    pub(crate) content: HashSet<String>,
    /// Arguments that name the thing that is sent or copied, and no place.
    pub(crate) source: HashSet<String>,
    /// Arguments that identify nothing.
    pub(crate) plain: HashSet<String>,
    /// Arguments that give others access, or take it.
    pub(crate) credential: HashSet<String>,
    /// Arguments that are URLs.
    pub(crate) url: HashSet<String>,
    /// Members of results that strangers write.
    pub(crate) authored: HashSet<String>,
    /// Members of results that are of a person or for a secret: they are not passed on unless the user speaks of them.
    pub(crate) personal: HashSet<String>,
}

#[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
pub(crate) static RULES: LazyLock<Rules> =
    LazyLock::new(|| serde_json::from_str(include_str!("rules.json")).expect("rules.json"));

impl Rules {
    /// The meaning of the first word that has one, with that word; the kind is `None` for a read.
    pub(crate) fn kind_of<'a>(&self, words: &'a [String]) -> Option<(Option<SinkKind>, &'a str)> {
        let said = |word: &'a String| Some((self.verbs.kind_of_word(word)?, word.as_str()));
        let strong = words.iter().filter(|word| !self.weak.contains(*word)).find_map(said);
        strong.or_else(|| words.iter().find_map(said))
    }
}

impl Verbs {
    /// The verbs of a kind of sink.
    pub(crate) fn of(&self, kind: SinkKind) -> &HashSet<String> {
        match kind {
            SinkKind::Send => &self.send,
            SinkKind::Pay => &self.pay,
            SinkKind::Delete => &self.delete,
            SinkKind::Publish => &self.publish,
            SinkKind::Fetch => &self.fetch,
            SinkKind::Write => &self.write,
        }
    }

    fn kind_of_word(&self, word: &str) -> Option<Option<SinkKind>> {
        let kinds = [
            (&self.delete, Some(SinkKind::Delete)),
            (&self.pay, Some(SinkKind::Pay)),
            (&self.send, Some(SinkKind::Send)),
            (&self.publish, Some(SinkKind::Publish)),
            (&self.fetch, Some(SinkKind::Fetch)),
            (&self.write, Some(SinkKind::Write)),
            (&self.read, None),
        ];
        kinds.into_iter().find(|(words, _)| words.contains(word)).map(|(_, kind)| kind)
    }
}

/// The effect that a verb in the name of a tool says, with the verb; the effect is `None` for a read. Verbs that are nouns, too, do not
/// count.
pub fn verb_of(name: &str) -> Option<(Option<SinkKind>, String)> {
    let mut strong = words_of(name).into_iter().filter(|word| !RULES.weak.contains(word));
    strong.find_map(|word| Some((RULES.verbs.kind_of_word(&word)?, word)))
}

/// The words of the last member of a path that say that it is personal.
pub(crate) fn personal_words(path: &str) -> Vec<String> {
    let mut words = words_of(path.rsplit('/').next().unwrap_or_default());
    words.retain(|word| RULES.members.personal.contains(word));
    words
}

/// The words of a name: `getUnreadEmails`, `get_unread_emails` and `get-unread.emails` have the same.
pub(crate) fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut was_lower) = (String::new(), false);
    for character in name.chars().take(200) {
        let begins = character.is_uppercase() && was_lower;
        if (begins || !character.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if character.is_alphanumeric() {
            word.extend(character.to_lowercase());
        }
        was_lower = character.is_lowercase() || character.is_ascii_digit();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
