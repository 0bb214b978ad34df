//! Bundles a document that is split over several: each referenced document is placed once under [`MEMBER`] at
//! its root, and the references are rewritten to point there.
//!
//! References to a document that cannot be loaded stay as they are, and the report gives the reason.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::document::{self, Budget};
use super::fetch::{FetchError, SpecText};
use super::flaws::Flaw;
use super::identifiers::resolve_identifiers;
use super::location::Location;
use crate::read::report::Note;
use crate::tool::without_false_hints;

/// The root's member that holds the other documents.
const MEMBER: &str = "x-sekisho-documents";

/// Most documents bundled.
const MAX_DOCUMENTS: usize = 5_000;

/// Longest chain of references from document to document.
const MAX_STEPS: usize = 64;

/// Members whose values are named by the document's author, so that no name is a keyword.
pub(super) const NAMED: [&str; 14] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
    "schemas",
    "parameters",
    "responses",
    "requestBodies",
    "headers",
    "pathItems",
    "paths",
    "callbacks",
    "content",
];

/// Keywords whose values are data: a `$ref` in them is not a reference, or refers to an example (Azure's documents).
pub(super) const DATA: [&str; 6] = ["example", "examples", "default", "enum", "const", "x-ms-examples"];

/// A document and those it refers to, while they are loaded.
pub(crate) struct Bundle {
    root: Value,
    from: Option<Location>,
    /// In order of first reference.
    found: Vec<Found>,
    known: HashMap<Location, usize>,
    notes: Vec<Note>,
    budget: Budget,
    steps: usize,
}

struct Found {
    location: Location,
    /// Its key under [`MEMBER`].
    key: String,
    state: State,
}

enum State {
    Missing,
    Brought(Value),
    Lost,
}

impl Bundle {
    /// `from` is the document's location; without one only absolute addresses can be resolved.
    pub(crate) fn new(root: Value, from: Option<Location>, budget: Budget) -> Self {
        let mut bundle =
            Self { root, from, found: Vec::new(), known: HashMap::new(), notes: Vec::new(), budget, steps: 0 };
        let root = std::mem::take(&mut bundle.root);
        bundle.collect_references(&root, bundle.from.clone().as_ref(), true);
        bundle.root = root;
        bundle
    }

    /// The document's own location.
    pub(crate) fn from(&self) -> Option<&Location> {
        self.from.as_ref()
    }

    /// The locations of the documents still to be loaded.
    pub(crate) fn missing(&self) -> Vec<Location> {
        let missing = self.found.iter().filter(|found| matches!(found.state, State::Missing));
        missing.map(|found| found.location.clone()).collect()
    }

    /// The bundled documents, for the file watcher.
    pub(crate) fn bundled(&self) -> impl Iterator<Item = &Location> {
        self.found.iter().filter(|found| matches!(found.state, State::Brought(_))).map(|found| &found.location)
    }

    /// Adds documents, and collects their references in turn.
    #[must_use]
    pub(crate) fn with(mut self, texts: Vec<(Location, Result<SpecText, FetchError>)>) -> Self {
        self.steps += 1;
        for (location, text) in texts {
            let document = text
                .map_err(|error| error.to_string())
                .and_then(|text| document::parse_within(&text.bytes, &self.budget).map_err(|error| error.to_string()));
            let Some(at) = self.known.get(&location).copied() else { continue };
            let state = match document {
                Ok(mut document) => {
                    for Flaw { place, reason } in self.budget.take_flaws() {
                        self.report(&format!("{location}{place}"), format!("{reason}: the last value counts"));
                    }
                    without_false_hints(&mut document);
                    resolve_identifiers(&mut document);
                    self.collect_references(&document, Some(&location), false);
                    State::Brought(document)
                }
                Err(problem) => {
                    self.report(&location.to_string(), format!("it is referred to and was not loaded: {problem}"));
                    State::Lost
                }
            };
            if let Some(found) = self.found.get_mut(at) {
                found.state = state;
            }
        }
        self
    }

    /// Reports the documents that are still missing as not loaded.
    pub(crate) fn give_up(&mut self, reason: &str) {
        for location in self.missing() {
            self.report(&location.to_string(), format!("it is referred to and was not loaded: {reason}"));
        }
        for found in &mut self.found {
            if matches!(found.state, State::Missing) {
                found.state = State::Lost;
            }
        }
    }

    /// The bundled document, and notes on its missing parts.
    pub(crate) fn finish(mut self) -> (Value, Vec<Note>) {
        let targets: HashMap<Location, String> = self
            .found
            .iter()
            .filter(|found| matches!(found.state, State::Brought(_)))
            .map(|found| (found.location.clone(), format!("#/{MEMBER}/{}", found.key)))
            .chain(self.from.clone().map(|from| (from, "#".to_owned())))
            .collect();
        let mut root = std::mem::take(&mut self.root);
        if !self.found.is_empty() {
            Rewriting { targets: &targets, home: self.from.as_ref(), own: "#" }.visit(&mut root, Place::Keywords);
        }
        let mut brought = Map::new();
        for Found { location, key, state } in self.found {
            if let State::Brought(mut document) = state {
                let own = format!("#/{MEMBER}/{key}");
                Rewriting { targets: &targets, home: Some(&location), own: &own }.visit(&mut document, Place::Any);
                brought.insert(key, document);
            }
        }
        if let (Value::Object(members), false) = (&mut root, brought.is_empty()) {
            members.insert(MEMBER.to_owned(), Value::Object(brought));
        }
        (root, self.notes)
    }

    fn collect_references(&mut self, document: &Value, home: Option<&Location>, is_root: bool) {
        let mut addresses = HashSet::new();
        let mut identifiers = HashSet::new();
        let place = if is_root { Place::Keywords } else { Place::Any };
        collect(document, place, &mut addresses, &mut identifiers);
        let mut addresses: Vec<_> = addresses.into_iter().filter(|address| !identifiers.contains(address)).collect();
        addresses.sort_unstable();
        for address in addresses {
            match Location::resolve(address, home) {
                Ok(location) if Some(&location) == self.from.as_ref() => {}
                Ok(location) => self.enqueue(location),
                Err(problem) => self.report(address, format!("it is referred to and was not loaded: {problem}")),
            }
        }
    }

    fn enqueue(&mut self, location: Location) {
        if self.known.contains_key(&location) {
            return;
        }
        let mut state = State::Missing;
        if self.found.len() >= MAX_DOCUMENTS || self.steps >= MAX_STEPS {
            let reason = format!("at most {MAX_DOCUMENTS} documents, {MAX_STEPS} references apart, are loaded");
            self.report(&location.to_string(), reason);
            state = State::Lost;
        }
        let stem = location.stem();
        let taken = |key: &str| self.found.iter().any(|found| found.key == key);
        let key = if taken(&stem) { format!("{stem}_{}", self.found.len()) } else { stem };
        self.known.insert(location.clone(), self.found.len());
        self.found.push(Found { location, key, state });
    }

    fn report(&mut self, place: &str, reason: String) {
        // A document may have thousands of broken references.
        if self.notes.len() < MAX_STEPS {
            self.notes.push(Note { operation: place.chars().take(200).collect(), reason });
        }
    }
}

/// The kind of an object's members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Keywords,
    /// Names that the author chose.
    Names,
    /// The root of a piece: either.
    Any,
}

impl Place {
    /// The place of the member's own members; `None` where it is data.
    fn of_member(self, key: &str) -> Option<Self> {
        match self {
            Self::Keywords if DATA.contains(&key) => None,
            Self::Keywords | Self::Any if NAMED.contains(&key) => Some(Self::Names),
            _ => Some(Self::Keywords),
        }
    }
}

/// The addresses of a document's references, without fragments, and the `$id`s it defines.
fn collect<'d>(value: &'d Value, place: Place, addresses: &mut HashSet<&'d str>, identifiers: &mut HashSet<&'d str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, Place::Keywords, addresses, identifiers)),
        Value::Object(members) => {
            let text = |key| members.get(key).and_then(Value::as_str);
            // Also among names, where the whole is a reference: no name has a text for its value.
            addresses.extend(text("$ref").map(|reference| address(reference).0).filter(|to| !to.is_empty()));
            if place != Place::Names {
                identifiers.extend(text("$id").map(|id| address(id).0));
            }
            for (key, member) in members {
                if let Some(place) = place.of_member(key) {
                    collect(member, place, addresses, identifiers);
                }
            }
        }
        _ => {}
    }
}

/// A reference's address and its fragment.
fn address(reference: &str) -> (&str, &str) {
    reference.split_once('#').unwrap_or((reference, ""))
}

struct Rewriting<'r> {
    targets: &'r HashMap<Location, String>,
    home: Option<&'r Location>,
    /// The place of this document in the bundle.
    own: &'r str,
}

impl Rewriting<'_> {
    fn visit(&self, value: &mut Value, place: Place) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.visit(item, Place::Keywords)),
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get_mut("$ref")
                    && let Some(rewritten) = self.rewritten(reference)
                {
                    *reference = rewritten;
                }
                for (key, member) in members.iter_mut() {
                    if let Some(place) = place.of_member(key) {
                        self.visit(member, place);
                    }
                }
            }
            _ => {}
        }
    }

    fn rewritten(&self, reference: &str) -> Option<String> {
        let (address, fragment) = address(reference);
        // An anchor is found anywhere in the document.
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return (!address.is_empty()).then(|| format!("#{fragment}"));
        }
        if address.is_empty() {
            return Some(format!("{}{fragment}", self.own));
        }
        let target = self.targets.get(&Location::resolve(address, self.home).ok()?)?;
        Some(format!("{target}{fragment}"))
    }
}
