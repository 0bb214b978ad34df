//! The search of a text: one pass over the anchors of all rules, and a search by each rule that may find something.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::known::{self, Finder};
use crate::rules::{Rule, Rules};
use crate::{Detector, Direction, views};

/// The detectors that look at a text, and the rules that they have.
#[derive(Debug, Clone)]
pub struct Choice {
    rules: Arc<Rules>,
    /// By the index of a rule: whether it is searched.
    chosen: Vec<bool>,
    /// Those without anchors.
    unanchored: Vec<usize>,
    known: Vec<(Detector, Finder)>,
    has_rules: bool,
    finds_hidden: bool,
}

/// A finding. Never the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub detector: Detector,
    pub rule: Arc<str>,
    /// The place in the text; `None` where that is not written as it is meant.
    pub place: Option<Range<usize>>,
}

impl Choice {
    /// `countries`: whose personal numbers are found; empty: of all.
    pub fn new(rules: &Arc<Rules>, detectors: &[Detector], countries: &[String], direction: Direction) -> Self {
        let is_chosen = |rule: &Rule| {
            let is_of_country =
                rule.country.as_ref().is_none_or(|country| countries.is_empty() || countries.contains(country));
            detectors.contains(&rule.detector)
                && (rule.directions.is_empty() || rule.directions.contains(&direction))
                && is_of_country
        };
        let chosen: Vec<bool> = rules.rules.iter().map(is_chosen).collect();
        let unanchored = (0..chosen.len()).filter(|at| chosen[*at] && !rules.rules[*at].has_anchors).collect();
        let known = detectors.iter().filter_map(|detector| Some((*detector, known::finder(*detector)?))).collect();
        let (has_rules, finds_hidden) = (chosen.contains(&true), detectors.contains(&Detector::HiddenText));
        Self { rules: Arc::clone(rules), chosen, unanchored, known, has_rules, finds_hidden }
    }

    /// The first finding of each rule in a text.
    pub fn find(&self, text: &str) -> Vec<Found> {
        let mut found = self.by_rules(text, 1);
        for (detector, finder) in &self.known {
            if let Some(place) = known::find(*finder, text).into_iter().next() {
                found.push(Found { detector: *detector, rule: detector.as_str().into(), place: Some(place) });
            }
        }
        found
    }

    /// The text with the findings replaced, and their number; `None` for none. A text that hides its findings is replaced as a
    /// whole.
    pub fn strike(&self, text: &str, replacement: &str) -> Option<(String, usize)> {
        let found = self.by_rules(text, usize::MAX);
        if found.iter().any(|found| found.place.is_none()) {
            return Some((replacement.to_owned(), found.len()));
        }
        let mut places: Vec<_> = found.into_iter().filter_map(|found| found.place).collect();
        places.sort_unstable_by_key(|place| (place.start, place.end));
        let places = known::joined(places);
        let (mut struck, mut count) = (None, places.len());
        if count > 0 {
            struck = Some(known::replaced(text, &places, replacement));
        }
        for (_, finder) in &self.known {
            let text = struck.as_deref().unwrap_or(text);
            let found = known::find(*finder, text);
            count += found.len();
            if !found.is_empty() {
                struck = Some(known::replaced(text, &found, replacement));
            }
        }
        struck.map(|struck| (struck, count))
    }

    /// At most `max` findings of each rule.
    fn by_rules(&self, text: &str, max: usize) -> Vec<Found> {
        let mut found = Vec::new();
        if !self.has_rules && !self.finds_hidden {
            return found;
        }
        let plain = views::plain(text);
        let is_written_so = matches!(plain, Cow::Borrowed(_));
        if self.finds_hidden
            && !is_written_so
            && let Some(rule) = views::hides_text(text)
        {
            found.push(Found { detector: Detector::HiddenText, rule: rule.into(), place: None });
        }
        if !self.has_rules {
            return found;
        }
        self.search(&plain, is_written_so, max, &mut found);
        for decoded in views::decoded(text, is_written_so) {
            self.search(&views::plain(&decoded), false, 1, &mut found);
        }
        found
    }

    fn search(&self, text: &str, is_written_so: bool, max: usize, found: &mut Vec<Found>) {
        let mut is_candidate = vec![false; self.chosen.len()];
        self.unanchored.iter().for_each(|at| is_candidate[*at] = true);
        self.rules.anchors.each_in(text, |rule| is_candidate[rule] = self.chosen[rule]);
        let rules = self.rules.rules.iter().zip(is_candidate).filter(|(_, is_candidate)| *is_candidate);
        for (rule, _) in rules {
            let places = rule.places(text).take(max).map(|place| Found {
                detector: rule.detector,
                rule: Arc::clone(&rule.id),
                place: is_written_so.then_some(place),
            });
            found.extend(places);
        }
    }
}
