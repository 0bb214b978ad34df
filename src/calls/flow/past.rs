//! The part of a long history with which a run of an agent begins: as much as the values of a session have room for.

use super::Said;

/// Bytes of the last texts of the user, and as many of the last results. Values have 256 KiB (`flow/values.rs`).
const MAX_BYTES: usize = 512 << 10;

/// The last texts of the user, and as many results.
const MAX_TEXTS: usize = 500;

/// The last results of which the arguments are judged. Of an older one, text of strangers may have selected its content.
const MAX_JUDGED: usize = 100;

/// The last part of a history.
#[derive(Debug)]
pub(super) struct Past<'a> {
    /// The oldest first.
    pub(super) said: Vec<Said<'a>>,
    /// There are results before.
    pub(super) is_cut: bool,
}

/// The room that is left for one kind of text.
struct Room {
    bytes: usize,
    texts: usize,
}

impl<'a> Past<'a> {
    pub(super) fn of(history: impl IntoIterator<Item = Said<'a>>) -> Self {
        let (mut of_user, mut of_results) = (Room::full(), Room::full());
        let (mut is_cut, mut results) = (false, 0);
        let mut said = Vec::new();
        for one in history.into_iter().collect::<Vec<_>>().into_iter().rev() {
            match one {
                Said::User(text) if of_user.take(text) => said.push(one),
                Said::User(_) => {}
                Said::Result { call, tool, arguments, text } if of_results.take(text) => {
                    results += 1;
                    let arguments = arguments.filter(|_| results <= MAX_JUDGED);
                    said.push(Said::Result { call, tool, arguments, text });
                }
                Said::Result { .. } => is_cut = true,
            }
        }
        said.reverse();
        Self { said, is_cut }
    }
}

impl Room {
    fn full() -> Self {
        Self { bytes: MAX_BYTES, texts: MAX_TEXTS }
    }

    /// Whether there is room for a text. Once one does not fit, there is none for older ones.
    fn take(&mut self, text: &str) -> bool {
        match (self.bytes.checked_sub(text.len()), self.texts.checked_sub(1)) {
            (Some(bytes), Some(texts)) => (self.bytes, self.texts) = (bytes, texts),
            // Of a single long one the values keep the beginning.
            _ if self.texts == MAX_TEXTS => (self.bytes, self.texts) = (0, 0),
            _ => {
                (self.bytes, self.texts) = (0, 0);
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn result<'a>(text: &'a str, arguments: &'a Value) -> Said<'a> {
        Said::Result { call: "c", tool: "t", arguments: Some(arguments), text }
    }

    fn texts(past: &Past<'_>) -> Vec<usize> {
        past.said
            .iter()
            .map(|said| match said {
                Said::User(text) | Said::Result { text, .. } => text.len(),
            })
            .collect()
    }

    #[test]
    fn of_a_long_history_the_last_part_is_read() {
        let (arguments, long) = (json!({}), "x".repeat(MAX_BYTES / 2));
        let short = Past::of([Said::User("a"), result("bb", &arguments)]);
        assert_eq!((texts(&short), short.is_cut), (vec![1, 2], false));
        let results = Past::of([
            result("old", &arguments),
            Said::User("a"),
            result(&long, &arguments),
            result(&long, &arguments),
        ]);
        assert_eq!((texts(&results), results.is_cut), (vec![1, long.len(), long.len()], true));
        let users = Past::of([Said::User("old"), Said::User(&long), Said::User(&long), result("bb", &arguments)]);
        assert_eq!((texts(&users), users.is_cut), (vec![long.len(), long.len(), 2], false));
        let whole = "x".repeat(MAX_BYTES + 1);
        let one = Past::of([result("old", &arguments), result(&whole, &arguments)]);
        assert_eq!((texts(&one), one.is_cut), (vec![whole.len()], true));
    }

    #[test]
    fn the_arguments_of_old_results_are_not_judged() {
        let arguments = json!({"id": 1});
        let past = Past::of((0..=MAX_TEXTS).map(|_| result("a", &arguments)));
        let judged = past.said.iter().filter(|said| matches!(said, Said::Result { arguments: Some(_), .. })).count();
        assert_eq!((past.said.len(), judged, past.is_cut), (MAX_TEXTS, MAX_JUDGED, true));
        assert!(matches!(past.said[0], Said::Result { arguments: None, .. }), "the oldest one");
    }
}
