//! The judgement of a call: each argument is looked for in what went into the session.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::destination::{Destination, DestinationKind, KnownDestinations, Role, leaves, role_of};
use crate::judgement::{ArgumentLabels, ArgumentState, ForbiddenSecret, Judgement, Question, ValueOrigin};
use crate::labels::{Sink, SinkKind, ToolLabels, Trust};
use crate::normal;
use crate::rules::{RULES, words_of};
use crate::tokens::Token;
use crate::values::{Piece, SessionValues, Writer, cut};

/// Origins of an argument that are listed.
const MAX_ORIGINS: usize = 8;
/// Arguments that are looked for; a call with more of them is asked about as a whole.
const MAX_LEAVES: usize = 256;
/// What is compared of a value.
const MAX_VALUE: usize = 4 << 10;
/// What is shown of a value or of the sentence that has it.
const MAX_SHOWN: usize = 200;

/// Judges the calls of one tool.
pub(crate) struct Judge<'a> {
    session: &'a SessionValues,
    tool: &'a str,
    labels: &'a ToolLabels,
    known: &'a dyn KnownDestinations,
}

/// Where a text was found.
#[derive(Debug, Default)]
struct Found {
    places: Vec<(ValueOrigin, Writer)>,
    sentence: Option<String>,
    /// It is a whole field somewhere.
    is_whole: bool,
    /// It was found itself, and not only the folder that it is in.
    is_exact: bool,
}

impl Found {
    fn best(&self) -> Option<Writer> {
        self.places.iter().map(|(_, writer)| *writer).min()
    }

    fn state(&self) -> ArgumentState {
        match self.best() {
            Some(Writer::User) => ArgumentState::User,
            Some(Writer::Trusted) => ArgumentState::Trusted,
            Some(Writer::Asserted) => ArgumentState::Asserted,
            Some(Writer::Stranger) => ArgumentState::Untrusted,
            None => ArgumentState::Unknown,
        }
    }
}

impl<'a> Judge<'a> {
    pub(crate) fn new(
        session: &'a SessionValues,
        tool: &'a str,
        labels: &'a ToolLabels,
        known: &'a dyn KnownDestinations,
    ) -> Self {
        Self { session, tool, labels, known }
    }

    pub(crate) fn judge(&self, arguments: &Value) -> Judgement {
        let mut judgement = Judgement::default();
        let mut has_user = false;
        for leaf in leaves(arguments, MAX_LEAVES) {
            let role = role_of(self.labels, arguments, &leaf);
            let found = self.look_up(&leaf.text);
            let state = if role == Role::Plain { ArgumentState::Plain } else { found.state() };
            self.secrets(&leaf.pointer, &found, &mut judgement);
            if let Some(sink) = &self.labels.sink {
                has_user |= self.question(sink, &leaf.pointer, &leaf.member, &leaf.text, role, &found, &mut judgement);
            }
            let origins = found.places.into_iter().map(|(origin, _)| origin).take(MAX_ORIGINS).collect();
            judgement.argument_labels.insert(leaf.pointer, ArgumentLabels { state, origins });
        }
        self.whole(has_user, &mut judgement);
        judgement
    }

    /// Where a value stands, in any of its spellings.
    fn look_up(&self, value: &str) -> Found {
        let mut found = Found::default();
        for spelling in normal::spellings(cut(value, MAX_VALUE)) {
            self.look_up_text(&spelling, &mut found);
        }
        found
    }

    fn look_up_text(&self, text: &str, found: &mut Found) {
        if text.len() < 2 {
            return;
        }
        for entry in self.session.entries() {
            for piece in &entry.pieces {
                let Some(at) = place_in(piece, text) else { continue };
                found.is_whole |= piece.text.len() == text.len();
                if found.places.len() < MAX_ORIGINS * 8 {
                    let origin = ValueOrigin { path: piece.path.to_string(), ..entry.origin.clone() };
                    found.places.push((origin, piece.writer));
                }
                if piece.writer == Writer::Stranger && found.sentence.is_none() {
                    found.sentence = Some(sentence(&piece.text, at));
                }
            }
        }
    }

    /// Whether what names this destination is the user, a trusted result, or a server.
    fn look_up_token(&self, token: &Token) -> Found {
        let mut found = Found::default();
        self.look_up_text(&token.identity, &mut found);
        if token.kind == DestinationKind::Mail && found.is_whole && self.is_named(&token.identity) {
            found.places.push((user_origin(), Writer::Asserted));
        }
        found.is_exact = found.best().is_some();
        if token.kind == DestinationKind::Path && !found.is_exact {
            let mut path = token.identity.as_str();
            while let Some((parent, _)) = path.rsplit_once('/').filter(|(parent, _)| parent.len() > 1) {
                self.look_up_text(parent, &mut found);
                if found.best().is_some() {
                    break;
                }
                path = parent;
            }
        }
        found
    }

    fn secrets(&self, pointer: &str, found: &Found, judgement: &mut Judgement) {
        if self.labels.sink.is_none() {
            return;
        }
        let allowed = &self.labels.returns.secrecy;
        for (origin, _) in &found.places {
            let secrecy: BTreeSet<String> = origin.secrecy.difference(allowed).cloned().collect();
            if !secrecy.is_empty() && judgement.forbidden.len() < MAX_ORIGINS {
                let origin = origin.clone();
                judgement.forbidden.push(ForbiddenSecret { pointer: pointer.to_owned(), secrecy, origin });
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "prototype")]
    fn question(
        &self,
        sink: &Sink,
        pointer: &str,
        member: &str,
        text: &str,
        role: Role,
        found: &Found,
        judgement: &mut Judgement,
    ) -> bool {
        match role {
            Role::Plain => {}
            Role::Content => {
                let is_short = (3..=120).contains(&text.len());
                // What is sent to an undisputed destination may quote what was read.
                let is_sent = matches!(sink.kind, SinkKind::Send | SinkKind::Pay | SinkKind::Fetch);
                if is_short && !is_sent && found.state() == ArgumentState::Untrusted && !found.is_whole {
                    let destination = Destination {
                        kind: DestinationKind::Name,
                        member: member.to_owned(),
                        identity: normal::stored(text).to_ascii_lowercase(),
                    };
                    self.ask(destination, pointer, text, found, judgement);
                }
            }
            Role::Destination => {
                let mut has_user = false;
                let of_value = Destination::of_value(member, text);
                for destination in of_value {
                    let token = Token { kind: destination.kind, identity: destination.identity.clone() };
                    let of_token = self.look_up_token(&token);
                    judgement.destinations.push(destination.clone());
                    has_user |= of_token.best() == Some(Writer::User);
                    let state = of_token.state();
                    let is_own_path = token.kind == DestinationKind::Path && !of_token.is_exact && sink.kind != SinkKind::Delete;
                    if matches!(state, ArgumentState::Untrusted | ArgumentState::Unknown) && !is_own_path {
                        self.ask(destination, pointer, text, &of_token, judgement);
                    }
                }
                return has_user;
            }
        }
        false
    }

    fn ask(&self, destination: Destination, pointer: &str, text: &str, found: &Found, judgement: &mut Judgement) {
        if !self.session.has_untrusted()
            || self.known.knows(self.tool, &destination)
            || self.session.is_approved(&destination.hash_of_approval(self.tool))
        {
            return;
        }
        judgement.questions.push(Question {
            pointer: pointer.to_owned(),
            value: cut(text, MAX_SHOWN).to_owned(),
            state: found.state(),
            origin: found.places.first().map(|(origin, _)| origin.clone()),
            sentence: found.sentence.clone(),
            new: String::new(),
            destination,
        });
    }

    /// Whether the user named whom this address belongs to: a word of its local part.
    fn is_named(&self, address: &str) -> bool {
        let local = address.split('@').next().unwrap_or_default();
        words_of(local).iter().filter(|word| word.len() >= 3).any(|word| self.is_said(word))
    }

    fn is_said(&self, word: &str) -> bool {
        self.session.user_pieces().any(|piece| normal::find(&piece.text, word).is_some())
    }

    /// What cannot be undone is asked about as a whole where it is new for the tenant, and the user said nothing of it.
    fn whole(&self, has_user: bool, judgement: &mut Judgement) {
        let Some(sink) = &self.labels.sink else { return };
        let is_final = matches!(sink.kind, SinkKind::Delete | SinkKind::Pay | SinkKind::Publish);
        if !is_final || has_user || !judgement.questions.is_empty() || self.known.knows_tool(self.tool) {
            return;
        }
        let is_asked_for = RULES.verbs.of(sink.kind).iter().any(|word| self.is_said(word));
        if !is_asked_for {
            let destination =
                Destination { kind: DestinationKind::Name, member: String::new(), identity: self.tool.to_owned() };
            self.ask(destination, "", self.tool, &Found::default(), judgement);
        }
    }
}

fn user_origin() -> ValueOrigin {
    ValueOrigin {
        call: String::new(),
        tool: String::new(),
        path: String::new(),
        trust: Trust::Trusted,
        secrecy: BTreeSet::new(),
    }
}

/// Where a text stands in a piece. What a server asserts is compared as a whole: within a longer text a stranger may have put it.
fn place_in(piece: &Piece, text: &str) -> Option<usize> {
    match piece.writer {
        Writer::Asserted if piece.text.len() > 4 * text.len().max(32) => None,
        _ => normal::find(&piece.text, text),
    }
}

/// The sentence of a text around a place.
fn sentence(text: &str, at: usize) -> String {
    let start = text[..at].rfind(['.', '!', '?', '>', ';']).map_or(0, |end| end + 1).max(at.saturating_sub(MAX_SHOWN / 2));
    let start = text.ceil_char_boundary(start);
    cut(&text[start..], MAX_SHOWN).trim().to_owned()
}
