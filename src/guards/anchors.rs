//! One automaton over the anchors of all rules: a pass over a text says which rules may find something in it.

use std::array;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::dfa::DFA;

/// Parts of a text that are searched at the same time. Each step waits for the one before it in its own part only, which a
/// processor does for several of them at once.
const LANES: usize = 4;

#[derive(Debug)]
pub(crate) struct Anchors {
    automaton: DFA,
    start: StateID,
    /// The index of the rule of each anchor.
    rule_of: Vec<usize>,
}

impl Anchors {
    /// `anchors`: each with the index of its rule. ASCII letters of either case are the same.
    /// Errors: why there is no automaton of them.
    pub(crate) fn new(anchors: Vec<(String, usize)>) -> Result<Self, String> {
        let (texts, rule_of): (Vec<_>, Vec<_>) = anchors.into_iter().unzip();
        let automaton = DFA::builder().ascii_case_insensitive(true).prefilter(false).build(&texts);
        let automaton = automaton.map_err(|error| error.to_string())?;
        let start = automaton.start_state(Anchored::No).map_err(|error| error.to_string())?;
        Ok(Self { automaton, start, rule_of })
    }

    /// Calls `found` with the rule of each anchor in a text, more than once where it is there more than once.
    pub(crate) fn each_in(&self, text: &str, mut found: impl FnMut(usize)) {
        let lanes = self.lanes(text.as_bytes());
        let together = lanes.iter().map(|lane| lane.len()).min().unwrap_or_default();
        let heads = lanes.map(|lane| &lane[..together]);
        let mut states = [self.start; LANES];
        for at in 0..together {
            for (state, head) in states.iter_mut().zip(heads) {
                *state = self.next(*state, head[at], &mut found);
            }
        }
        for (mut state, lane) in states.into_iter().zip(lanes) {
            for byte in &lane[together..] {
                state = self.next(state, *byte, &mut found);
            }
        }
    }

    /// The parts of a text. Each goes on into the next one by the length of the longest anchor, so that none is cut.
    fn lanes<'t>(&self, text: &'t [u8]) -> [&'t [u8]; LANES] {
        let (part, overlap) = (text.len() / LANES, self.automaton.max_pattern_len());
        if part < overlap {
            return array::from_fn(|lane| if lane == 0 { text } else { &text[..0] });
        }
        array::from_fn(|lane| {
            let end = if lane + 1 == LANES { text.len() } else { (lane + 1) * part + overlap };
            &text[lane * part..end]
        })
    }

    fn next(&self, state: StateID, byte: u8, found: &mut impl FnMut(usize)) -> StateID {
        let state = self.automaton.next_state(Anchored::No, state, byte);
        if self.automaton.is_special(state) {
            self.report(state, found);
        }
        state
    }

    #[cold]
    fn report(&self, state: StateID, found: &mut impl FnMut(usize)) {
        if self.automaton.is_match(state) {
            let anchors = 0..self.automaton.match_len(state);
            anchors.for_each(|index| found(self.rule_of[self.automaton.match_pattern(state, index).as_usize()]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Wherever they are, also where two parts of the text meet.
        #[test]
        fn each_anchor_of_a_text_is_found(text in "(ab|b|c|AbC|é|-){0,60}") {
            let known = ["ab", "abc", "bc-", "cé", "b"];
            let anchors = known.iter().enumerate().map(|(rule, anchor)| ((*anchor).to_owned(), rule)).collect();
            let mut found = BTreeSet::new();
            Anchors::new(anchors).unwrap().each_in(&text, |rule| {
                found.insert(rule);
            });
            let lower = text.to_ascii_lowercase();
            let expected: BTreeSet<_> = (0..known.len()).filter(|rule| lower.contains(known[*rule])).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
