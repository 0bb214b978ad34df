//! Reasoning between `<think>` and `</think>` at the beginning of a text, as servers without a parser for it send it.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Bytes that are held back while a text may still begin with the tag.
const MAX_HELD: usize = 64;

/// Splits a text that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct ThinkTags {
    state: State,
    held: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// No character but blanks has arrived.
    #[default]
    Start,
    Inside,
    /// Behind the closing tag: blanks before the answer are left out.
    Behind,
    Text,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum TaggedPiece {
    Text(String),
    Thinking(String),
}

impl ThinkTags {
    /// The pieces that are certain with these characters.
    pub(super) fn feed(&mut self, text: &str) -> Vec<TaggedPiece> {
        let mut found = Vec::new();
        self.held.push_str(text);
        loop {
            match self.state {
                State::Start => {
                    let begun = self.held.trim_start();
                    if let Some(rest) = begun.strip_prefix(OPEN) {
                        (self.state, self.held) = (State::Inside, rest.to_owned());
                    } else if OPEN.starts_with(begun) && self.held.len() < MAX_HELD {
                        return found;
                    } else {
                        self.state = State::Text;
                    }
                }
                State::Inside => match self.held.split_once(CLOSE) {
                    Some((thought, rest)) => {
                        let (thought, rest) = (thought.to_owned(), rest.to_owned());
                        push(&mut found, TaggedPiece::Thinking(thought));
                        (self.state, self.held) = (State::Behind, rest);
                    }
                    None => {
                        let certain = self.held.len() - begun_tag(&self.held);
                        push(&mut found, TaggedPiece::Thinking(self.held.drain(..certain).collect()));
                        return found;
                    }
                },
                State::Behind => {
                    self.held = self.held.trim_start().to_owned();
                    if self.held.is_empty() {
                        return found;
                    }
                    self.state = State::Text;
                }
                State::Text => {
                    push(&mut found, TaggedPiece::Text(std::mem::take(&mut self.held)));
                    return found;
                }
            }
        }
    }

    /// The characters that were held back, at the end of the text.
    pub(super) fn rest(&mut self) -> Option<TaggedPiece> {
        let held = std::mem::take(&mut self.held);
        let is_thought = self.state == State::Inside;
        (!held.is_empty()).then_some(if is_thought { TaggedPiece::Thinking(held) } else { TaggedPiece::Text(held) })
    }
}

fn push(found: &mut Vec<TaggedPiece>, piece: TaggedPiece) {
    let (TaggedPiece::Text(text) | TaggedPiece::Thinking(text)) = &piece;
    if !text.is_empty() {
        found.push(piece);
    }
}

/// The length of the beginning of the closing tag with which a text ends.
fn begun_tag(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|length| text.ends_with(&CLOSE[..*length])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text and the thoughts of pieces of that many characters.
    fn split(text: &str, size: usize) -> (String, String) {
        let (mut tags, mut said, mut thought) = (ThinkTags::default(), String::new(), String::new());
        let characters: Vec<_> = text.chars().collect();
        let mut found: Vec<_> =
            characters.chunks(size).flat_map(|piece| tags.feed(&piece.iter().collect::<String>())).collect();
        found.extend(tags.rest());
        for piece in found {
            match piece {
                TaggedPiece::Text(text) => said.push_str(&text),
                TaggedPiece::Thinking(text) => thought.push_str(&text),
            }
        }
        (said, thought)
    }

    #[test]
    fn reasoning_in_tags_is_split_off_at_any_size_of_pieces() {
        for (text, said, thought) in [
            ("<think>hm</think>\n\n{\"n\": 1}", "{\"n\": 1}", "hm"),
            (" \n<think>\nhm < 3 </thin </think>関所", "関所", "\nhm < 3 </thin "),
            ("<think></think>3", "3", ""),
            ("<think>cut off</thi", "", "cut off</thi"),
            ("3 <think>no</think>", "3 <think>no</think>", ""),
            ("<thin ice", "<thin ice", ""),
            ("  ", "  ", ""),
        ] {
            for size in [1, 2, 3, 100] {
                assert_eq!(split(text, size), (said.to_owned(), thought.to_owned()), "{text:?} by {size}");
            }
        }
        let blanks = " ".repeat(1_000);
        let mut tags = ThinkTags::default();
        tags.feed(&blanks);
        assert_eq!(tags.held, "", "not held back without end");
    }

    proptest! {
        #[test]
        fn no_character_of_a_text_without_tags_is_lost(text in "[a-z <>/\n関]{0,40}", size in 1_usize..5) {
            prop_assume!(!text.trim_start().starts_with(OPEN));
            prop_assert_eq!(split(&text, size), (text, String::new()));
        }
    }
}
