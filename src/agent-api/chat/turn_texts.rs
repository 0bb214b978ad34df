//! The texts of a run's turns in one stream.

use std::mem::take;

use crate::model_api::output::separator;
use sekisho_agent::Event;

/// Puts a blank line between the texts of two turns: clients join the pieces.
#[derive(Debug, Default)]
pub(super) struct TurnTexts {
    /// The last piece.
    last: String,
    /// Whether calls were made since.
    is_next_turn: bool,
}

impl TurnTexts {
    pub(super) fn separated(&mut self, event: Event) -> Event {
        match event {
            Event::Content { text } if !text.is_empty() => {
                let separator = if take(&mut self.is_next_turn) { separator(&self.last, &text) } else { "" };
                let text = [separator, &text].concat();
                self.last.clone_from(&text);
                Event::Content { text }
            }
            Event::ToolInput { .. } | Event::ToolResult { .. } | Event::ToolError { .. } => {
                self.is_next_turn = true;
                event
            }
            event => event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_line_is_between_the_texts_of_two_turns() {
        let content = |text: &str| Event::Content { text: text.into() };
        let answered = || Event::ToolResult { id: "1".into(), tool_name: "add".into(), result: "3".into() };
        let mut texts = TurnTexts::default();
        let events = [answered(), content("I "), content("add."), answered(), content("3"), content(".\n"), answered()];
        let events = events.into_iter().chain([content("Yes.")]);
        let sent = events.filter_map(|event| match texts.separated(event) {
            Event::Content { text } => Some(text),
            _ => None,
        });
        assert_eq!(sent.collect::<Vec<_>>(), ["I ", "add.", "\n\n3", ".\n", "\nYes."]);
    }
}
