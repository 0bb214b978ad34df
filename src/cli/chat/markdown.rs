//! Shows Markdown on a terminal, block by block as it arrives.

use termimad::MadSkin;

/// Longer lines are hard to read.
const MAX_WIDTH: usize = 120;

pub(super) struct Markdown {
    skin: MadSkin,
    /// The blocks that are not complete yet.
    pending: String,
}

impl Markdown {
    pub(super) fn new() -> Self {
        Self { skin: MadSkin::default(), pending: String::new() }
    }

    /// Takes a piece of text; returns the blocks that are complete now, as they are shown.
    pub(super) fn push(&mut self, text: &str) -> String {
        self.pending.push_str(text);
        let complete: String = self.pending.drain(..complete(&self.pending)).collect();
        match complete.trim().is_empty() {
            true => String::new(),
            false => self.shown(&complete) + "\n\n",
        }
    }

    /// The rest, as it is shown, without a line end.
    pub(super) fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        if rest.trim().is_empty() { String::new() } else { self.shown(&rest) }
    }

    fn shown(&self, text: &str) -> String {
        let width = usize::from(termimad::terminal_size().0).clamp(20, MAX_WIDTH);
        self.skin.text(text.trim_matches('\n'), Some(width)).to_string().trim_end().to_owned()
    }
}

/// The length of the blocks that are complete: up to the last empty line outside of a block of code.
fn complete(text: &str) -> usize {
    let (mut end, mut at, mut fence) = (0, 0, None);
    for line in text.split_inclusive('\n') {
        at += line.len();
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        if fence.is_none() && line.ends_with('\n') && line.trim().is_empty() {
            end = at;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_complete_at_an_empty_line_outside_of_code() {
        for (text, expected) in [
            ("one", 0),
            ("one\n", 0),
            ("one\n\n", 5),
            ("one\n\ntwo", 5),
            ("```\na\n\nb\n", 0),
            ("```\na\n\n```\n\n", 12),
            ("~~~\n```\n\n", 0),
        ] {
            assert_eq!(complete(text), expected, "{text:?}");
        }
    }

    #[test]
    fn blocks_are_shown_as_they_become_complete() {
        let mut markdown = Markdown::new();
        assert_eq!(markdown.push("It is **bo"), "");
        let first = markdown.push("ld**.\n\nAnd `code`");
        assert!(first.contains("bold") && !first.contains("**") && first.ends_with("\n\n"), "{first:?}");
        let rest = markdown.finish();
        assert!(rest.contains("code") && !rest.contains('`') && !rest.ends_with('\n'), "{rest:?}");
        assert_eq!(markdown.finish(), "");
    }
}
