//! Where a text was found among the values of a session.

use crate::judgement::{ArgumentState, ValueOrigin};
use crate::normal::{self, Needle};
use crate::values::{Entry, Piece, SessionValues, Writer, cut};

/// Places that are kept.
const MAX_PLACES: usize = 64;
/// The length of the sentence that has it, at most.
const MAX_SENTENCE: usize = 200;

/// The letters and digits of a text that is looked for in another form: a shorter one is found by chance.
const MIN_DISGUISED: usize = 6;
/// The length of such a text, at most, in bytes.
const MAX_DISGUISED: usize = 200;

/// Where a text was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) places: Vec<(ValueOrigin, Writer)>,
    /// The sentence of a stranger that has it.
    pub(crate) sentence: Option<String>,
    /// It is a whole field of a result.
    pub(crate) is_whole_field: bool,
    /// It was found itself, and not only the folder that it is in.
    pub(crate) is_exact: bool,
}

impl Found {
    /// Adds the places of a text in the stored form.
    pub(crate) fn look_up(&mut self, session: &SessionValues, text: &str) {
        if text.len() < 2 {
            return;
        }
        let needle = Needle::new(text);
        for entry in session.entries() {
            for piece in &entry.pieces {
                let Some(at) = place_in(piece, text, needle) else { continue };
                self.is_whole_field |= piece.text.len() == text.len() && !piece.is_decoded;
                let is_better = self.best().is_none_or(|best| piece.writer < best);
                if is_better || self.places.len() < MAX_PLACES {
                    self.places
                        .push((ValueOrigin { path: piece.path.to_string(), ..entry.origin.clone() }, piece.writer));
                }
                if piece.writer == Writer::Stranger && self.sentence.is_none() {
                    self.sentence = Some(sentence(&piece.text, at));
                }
            }
        }
    }

    /// Adds the first place where a stranger has a text in a form that people read as the same: reversed, its letters one by one, or
    /// with letters of another script.
    pub(crate) fn look_up_disguised(&mut self, session: &SessionValues, text: &str) {
        let letters = text.chars().filter(|character| character.is_alphanumeric()).count();
        if letters < MIN_DISGUISED || text.len() > MAX_DISGUISED {
            return;
        }
        let reversed: String = text.chars().rev().collect();
        let plain = normal::without_look_alikes(text);
        let needle = Needle::new(&reversed);
        let place = |piece: &str| {
            let at = needle.find(piece).or_else(|| normal::find_spaced(piece, text));
            at.or_else(|| normal::find(piece, plain.as_deref()?))
        };
        for entry in session.entries() {
            for piece in entry.pieces.iter().filter(|piece| piece.writer == Writer::Stranger) {
                if let Some(at) = place(&piece.text) {
                    return self.add_stranger(entry, piece, at);
                }
            }
        }
    }

    /// Adds the first place where a stranger has a text behind one of the names, such as `ID '13'`.
    pub(crate) fn look_up_named(&mut self, session: &SessionValues, text: &str, names: &[String]) {
        for entry in session.entries() {
            for piece in entry.pieces.iter().filter(|piece| piece.writer == Writer::Stranger) {
                let is_named = |at: &usize| {
                    let before = piece.text[..*at].trim_end_matches(|last: char| " '\"`:#=(".contains(last));
                    names.iter().any(|name| ends_with_word(before, name))
                };
                if let Some(at) = normal::places(&piece.text, text).find(is_named) {
                    return self.add_stranger(entry, piece, at);
                }
            }
        }
    }

    fn add_stranger(&mut self, entry: &Entry, piece: &Piece, at: usize) {
        self.places.push((ValueOrigin { path: piece.path.to_string(), ..entry.origin.clone() }, piece.writer));
        self.sentence = Some(sentence(&piece.text, at));
    }

    pub(crate) fn best(&self) -> Option<Writer> {
        self.places.iter().map(|(_, writer)| *writer).min()
    }

    pub(crate) fn state(&self) -> ArgumentState {
        match self.best() {
            Some(Writer::User) => ArgumentState::User,
            Some(Writer::Trusted) => ArgumentState::Trusted,
            Some(Writer::Asserted) => ArgumentState::Asserted,
            Some(Writer::Stranger) => ArgumentState::Untrusted,
            None => ArgumentState::Unknown,
        }
    }
}

/// Where a text stands in a piece. A server asserts short fields: within a much longer one, somebody may have put it.
fn place_in(piece: &Piece, text: &str, needle: Needle<'_>) -> Option<usize> {
    match piece.writer {
        Writer::Asserted if piece.text.len() > 4 * text.len().max(32) => None,
        _ => needle.find(&piece.text),
    }
}

fn ends_with_word(text: &str, word: &str) -> bool {
    let begin = text.len().checked_sub(word.len());
    begin.and_then(|begin| text.get(begin..)).is_some_and(|end| end.eq_ignore_ascii_case(word))
}

/// The sentence of a text around a place.
fn sentence(text: &str, at: usize) -> String {
    let begin = text[..at].rfind(['.', '!', '?', '>', ';']).map_or(0, |end| end + 1);
    let begin = text.ceil_char_boundary(begin.max(at.saturating_sub(MAX_SENTENCE / 2)));
    cut(&text[begin..], MAX_SENTENCE).trim().to_owned()
}
