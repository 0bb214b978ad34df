//! Thoughts at the beginning of an answer's text, between `<think>` and `</think>`: servers without a parser for them send them so.
//! They are no part of the answer, of a title, a summary, a plan or an answer in a form.

use super::models::{ModelChunk, ModelError};

const BEGIN: &str = "<think>";
const END: &str = "</think>";

/// Splits the chunks of one turn.
#[derive(Debug)]
pub(super) enum ThinkTag {
    /// Nothing but this text has come, which may be the beginning of the tag.
    Undecided(String),
    /// Within the thoughts; the text may be the beginning of the end tag.
    Inside(String),
    /// After the end tag, and before the first visible character of the answer.
    After,
    /// In the answer.
    Outside,
}

impl Default for ThinkTag {
    fn default() -> Self {
        Self::Undecided(String::new())
    }
}

impl ThinkTag {
    /// The chunks for one that came, in order.
    pub(super) fn split(&mut self, piece: Result<ModelChunk, ModelError>) -> Vec<Result<ModelChunk, ModelError>> {
        let chunks = match piece {
            Ok(ModelChunk::Text(text)) => self.text(text),
            // It says nothing about the text.
            Ok(chunk @ (ModelChunk::Retry { .. } | ModelChunk::Fragment { .. })) => vec![chunk],
            Ok(chunk) => self.held().into_iter().chain([chunk]).collect(),
            Err(error) => return vec![Err(error)],
        };
        chunks.into_iter().map(Ok).collect()
    }

    fn text(&mut self, text: String) -> Vec<ModelChunk> {
        match std::mem::replace(self, Self::Outside) {
            Self::Outside => vec![ModelChunk::Text(text)],
            Self::After => {
                let rest = text.trim_start();
                if rest.is_empty() {
                    *self = Self::After;
                    return Vec::new();
                }
                vec![ModelChunk::Text(rest.to_owned())]
            }
            Self::Undecided(held) => {
                let whole = held + &text;
                let visible = whole.trim_start();
                if let Some(thought) = visible.strip_prefix(BEGIN) {
                    *self = Self::Inside(String::new());
                    return self.text(thought.to_owned());
                }
                if BEGIN.starts_with(visible) {
                    *self = Self::Undecided(whole);
                    return Vec::new();
                }
                vec![ModelChunk::Text(whole)]
            }
            Self::Inside(held) => self.thought(held + &text),
        }
    }

    fn thought(&mut self, mut text: String) -> Vec<ModelChunk> {
        if let Some((thought, answer)) = text.split_once(END) {
            *self = Self::After;
            let answer = self.text(answer.to_owned());
            return thinking(thought.to_owned()).into_iter().chain(answer).collect();
        }
        let is_begun = |place: &usize| END.starts_with(&text[*place..]);
        let begun = text.char_indices().map(|(place, _)| place).find(is_begun).unwrap_or(text.len());
        let held = text.split_off(begun);
        *self = Self::Inside(held);
        thinking(text).into_iter().collect()
    }

    /// The text so far, where another chunk shows that it is no tag.
    fn held(&mut self) -> Option<ModelChunk> {
        match std::mem::replace(self, Self::Outside) {
            Self::Undecided(held) if held.is_empty() => {
                // Thoughts of their own come before the text.
                *self = Self::default();
                None
            }
            Self::Undecided(held) => Some(ModelChunk::Text(held)),
            Self::Inside(held) => thinking(held),
            Self::After => {
                *self = Self::After;
                None
            }
            Self::Outside => None,
        }
    }
}

fn thinking(text: String) -> Option<ModelChunk> {
    (!text.is_empty()).then_some(ModelChunk::Thinking(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::models::StopReason;
    use sekisho_calls::budget::ModelUsage;

    /// The thoughts and the text of a turn that comes in these pieces.
    fn split(pieces: &[&str]) -> (String, String) {
        let mut tag = ThinkTag::default();
        let end = ModelChunk::End { stop: StopReason::Stop, usage: ModelUsage::default() };
        let pieces = pieces.iter().map(|piece| ModelChunk::Text((*piece).to_owned())).chain([end]);
        let (mut thoughts, mut text) = (String::new(), String::new());
        for chunk in pieces.flat_map(|piece| tag.split(Ok(piece))) {
            match chunk.unwrap() {
                ModelChunk::Thinking(more) => thoughts.push_str(&more),
                ModelChunk::Text(more) => text.push_str(&more),
                _ => {}
            }
        }
        (thoughts, text)
    }

    #[test]
    fn thoughts_at_the_beginning_are_split_off() {
        for (pieces, thoughts, text) in [
            (&["<think>hm</think>\n\n{\"a\": 1}"][..], "hm", "{\"a\": 1}"),
            (&["\n<th", "ink>h", "m</thi", "nk>", "\n", "yes"], "hm", "yes"),
            (&["<think>", "</think>", "yes"], "", "yes"),
            (&["<think>hm, a < b </thin"], "hm, a < b </thin", ""),
            (&["<thinking>hm"], "", "<thinking>hm"),
            (&["<th"], "", "<th"),
            (&["it is <think>hm</think>"], "", "it is <think>hm</think>"),
            (&[" yes"], "", " yes"),
            (&[], "", ""),
        ] {
            assert_eq!(split(pieces), (thoughts.to_owned(), text.to_owned()), "{pieces:?}");
        }
    }

    #[test]
    fn a_failure_and_other_chunks_pass() {
        let mut tag = ThinkTag::default();
        assert_eq!(tag.split(Err(ModelError::Timeout)), [Err(ModelError::Timeout)]);
        let retry = ModelChunk::Retry { message: "again".into() };
        assert_eq!(tag.split(Ok(retry.clone())), [Ok(retry)]);
        assert!(tag.split(Ok(ModelChunk::Text("<thi".into()))).is_empty());
        let thought = ModelChunk::Thinking("hm".into());
        assert_eq!(tag.split(Ok(thought.clone())), [Ok(ModelChunk::Text("<thi".into())), Ok(thought)]);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_the_pieces_end(
            text in "(<think>)?[<thinkab/> \n]{0,20}(</think>)?[a<b\n]{0,6}", places in proptest::collection::vec(0_usize..40, 0..5),
        ) {
            let mut places: Vec<_> = places.into_iter().map(|place| place.min(text.len())).collect();
            places.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for place in places {
                pieces.push(&text[from..place]);
                from = place;
            }
            pieces.push(&text[from..]);
            prop_assert_eq!(split(&pieces), split(&[&text]));
        }
    }
}
