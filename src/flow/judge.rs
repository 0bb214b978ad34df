//! The judgement of a call: each argument is looked for in what went into the session.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::destination::{
    Destination, DestinationKind, KnownDestinations, Leaf, MAX_CONTENT, MAX_LEAVES, Role, is_small, leaves, role_of,
};
use crate::found::Found;
use crate::judgement::{ArgumentLabels, ArgumentState, ForbiddenSecret, Judgement, Question, ValueOrigin};
use crate::labels::{Sink, SinkKind, ToolLabels};
use crate::normal;
use crate::rules::{RULES, personal_words, words_of};
use crate::tokens::tokens;
use crate::values::{Entry, SessionValues, Writer, cut};

/// Origins of an argument that are listed.
const MAX_ORIGINS: usize = 8;
/// The length of a value that is compared.
const MAX_VALUE: usize = 4 << 10;
/// Texts that are looked for in the session's values for one call. A destination that is not looked for any more is of unknown origin.
const MAX_LOOK_UPS: usize = 512;
/// Texts that are looked for in another form for one call. The further ones are of unknown origin.
const MAX_DISGUISED: usize = 64;
/// Comparisons of arguments with secrets for one call, of 4 KiB each. A secret that is not compared any more counts as found.
const MAX_COMPARISONS: usize = 100_000;
/// Words of an address that may be the name of its owner.
const MAX_NAME_WORDS: usize = 8;
/// The length of a value that is shown.
const MAX_SHOWN: usize = 200;
/// The lengths of content that is asked about where it was copied from untrusted text, or has an address of it.
const QUOTED: std::ops::RangeInclusive<usize> = 3..=120;

/// Judges the calls of one tool.
pub(crate) struct Judge<'a> {
    session: &'a SessionValues,
    tool: &'a str,
    labels: &'a ToolLabels,
    known: &'a dyn KnownDestinations,
    look_ups: Cell<usize>,
    disguised: Cell<usize>,
    comparisons: Cell<usize>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(
        session: &'a SessionValues,
        tool: &'a str,
        labels: &'a ToolLabels,
        known: &'a dyn KnownDestinations,
    ) -> Self {
        let (look_ups, disguised, comparisons) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Self { session, tool, labels, known, look_ups, disguised, comparisons }
    }

    pub(crate) fn judge(&self, arguments: &Value) -> Judgement {
        let mut judgement = Judgement::default();
        let leaves = leaves(arguments);
        let mut is_of_user = false;
        for leaf in &leaves {
            let role = role_of(self.labels, arguments, leaf);
            let spellings = normal::spellings(cut(&leaf.text, MAX_VALUE));
            let found = self.look_up(&spellings);
            if let Some(sink) = &self.labels.sink {
                is_of_user |= self.of_sink(sink, leaf, role, &found, &mut judgement);
                self.secrets(leaf, &spellings, &found, &mut judgement);
            }
            let state = if role == Role::Plain { ArgumentState::Plain } else { found.state() };
            let origins = found.places.into_iter().map(|(origin, _)| origin).take(MAX_ORIGINS).collect();
            judgement.argument_labels.insert(leaf.pointer.clone(), ArgumentLabels { state, origins });
        }
        if let Some(sink) = &self.labels.sink {
            self.whole(sink, is_of_user, leaves.len() >= MAX_LEAVES, &mut judgement);
        }
        judgement
    }

    /// Where a value stands, in any of its spellings.
    fn look_up(&self, spellings: &[String]) -> Found {
        let mut found = Found::default();
        for spelling in spellings {
            self.look_up_text(spelling, &mut found);
        }
        if let Some(spelling) = spellings.first() {
            self.look_up_disguised(spelling, &mut found);
        }
        found
    }

    /// What stands nowhere as it is may stand in text of strangers in another form.
    fn look_up_disguised(&self, text: &str, found: &mut Found) {
        let is_unknown = found.best().is_none() && self.session.has_untrusted();
        if is_unknown && self.disguised.get() < MAX_DISGUISED {
            self.disguised.set(self.disguised.get() + 1);
            found.look_up_disguised(self.session, text);
        }
    }

    fn look_up_text(&self, text: &str, found: &mut Found) {
        if self.look_ups.replace(self.look_ups.get().saturating_add(1)) < MAX_LOOK_UPS {
            found.look_up(self.session, text);
        }
    }

    /// The questions about an argument of a sink. Answers whether the user named a destination in it.
    fn of_sink(&self, sink: &Sink, leaf: &Leaf, role: Role, found: &Found, judgement: &mut Judgement) -> bool {
        match role {
            Role::Plain => {
                self.short_id(sink, leaf, judgement);
                false
            }
            Role::Content => {
                self.content(sink, leaf, found, judgement);
                false
            }
            Role::Destination => {
                let mut is_of_user = false;
                for destination in Destination::of_value(&leaf.member, &leaf.text) {
                    is_of_user |= self.destination(sink, leaf, destination, judgement);
                }
                is_of_user
            }
        }
    }

    /// Short content that untrusted text dictates is asked about where the call is no message. A message to an undisputed destination may
    /// quote anything that was read, but a link in it leads its reader to a host, and so does an address in a short one.
    fn content(&self, sink: &Sink, leaf: &Leaf, found: &Found, judgement: &mut Judgement) {
        let is_short = QUOTED.contains(&leaf.text.len());
        if reaches_others(sink.kind) {
            self.links(leaf, is_short, judgement);
            self.personal(leaf, judgement);
        }
        let is_message = matches!(sink.kind, SinkKind::Send | SinkKind::Pay | SinkKind::Fetch);
        let may_be_dictated = !is_message && is_short && !is_one_word(&leaf.text);
        if may_be_dictated && found.state() == ArgumentState::Untrusted && !found.is_whole_field {
            self.ask(Destination::of_content(&leaf.member, &leaf.text), leaf, found, judgement);
        }
    }

    fn links(&self, leaf: &Leaf, is_short: bool, judgement: &mut Judgement) {
        if is_short {
            for destination in Destination::of_value(&leaf.member, &leaf.text) {
                if leads_elsewhere(&destination) {
                    self.link(destination, leaf, judgement);
                }
            }
            return;
        }
        let Some(hosts) = Destination::hosts(&leaf.member, &leaf.text) else {
            // There are more than are looked at.
            self.ask(Destination::of_content(&leaf.member, &leaf.text), leaf, &Found::default(), judgement);
            return;
        };
        for host in hosts {
            self.link(host, leaf, judgement);
        }
    }

    fn link(&self, destination: Destination, leaf: &Leaf, judgement: &mut Judgement) {
        let found = self.look_up_destination(&destination, leaf);
        if found.state() == ArgumentState::Untrusted || self.look_ups.get() > MAX_LOOK_UPS {
            self.ask(destination, leaf, &found, judgement);
        }
    }

    /// A number of a passport or a card, a password or the like that a tool returned, in a text, where the user did not speak of it. As a
    /// whole argument it is the answer to a question of a form.
    fn personal(&self, leaf: &Leaf, judgement: &mut Judgement) {
        let mut pieces = self.session.personal_pieces().peekable();
        if pieces.peek().is_none() {
            return;
        }
        let text = normal::stored_up_to(&leaf.text, MAX_CONTENT);
        let letters = normal::letters_of(&text);
        let mut asked = 0;
        for (origin, piece) in pieces {
            let is_said = || {
                let words = personal_words(&piece.path);
                words.iter().any(|word| self.is_said(word)) || self.is_said(&piece.text)
            };
            let is_part = || {
                let is_spent = self.is_spent(1 + text.len() / MAX_VALUE);
                let stands = || normal::find(&text, &piece.text).is_some() || normal::has_number(&letters, &piece.text);
                piece.text.len() < text.len() && (is_spent || stands())
            };
            if asked < MAX_ORIGINS && is_part() && !is_said() {
                let places = vec![(ValueOrigin { path: piece.path.to_string(), ..origin.clone() }, piece.writer)];
                let found = Found { places, ..Found::default() };
                self.ask(Destination::of_content(&leaf.member, &piece.text), leaf, &found, judgement);
                asked += 1;
            }
        }
    }

    /// A short id of a thing to delete identifies nothing on its own, unless text of strangers names it as an id: "the file with the ID
    /// '13'".
    fn short_id(&self, sink: &Sink, leaf: &Leaf, judgement: &mut Judgement) {
        if sink.kind != SinkKind::Delete || !is_small(&leaf.text) || self.is_said(&normal::stored(&leaf.text)) {
            return;
        }
        let mut found = Found::default();
        let name = leaf.member.rsplit('/').next().unwrap_or_default();
        found.look_up_named(self.session, &normal::stored(&leaf.text), &words_of(name));
        if found.best().is_some() {
            self.ask(Destination::of_content(&leaf.member, &leaf.text), leaf, &found, judgement);
        }
    }

    fn destination(&self, sink: &Sink, leaf: &Leaf, destination: Destination, judgement: &mut Judgement) -> bool {
        let found = self.look_up_destination(&destination, leaf);
        let is_own = match destination.kind {
            // A file that nobody named: models choose the places of their own files.
            DestinationKind::Path => !found.is_exact && sink.kind != SinkKind::Delete,
            // The name of a thing that is made.
            DestinationKind::Name => {
                found.best().is_none() && sink.kind == SinkKind::Write && !is_credential(&leaf.member)
            }
            _ => false,
        };
        judgement.destinations.push(destination.clone());
        let is_disputed = matches!(found.state(), ArgumentState::Untrusted | ArgumentState::Unknown);
        if is_disputed && (!is_own || self.session.has_forgotten()) {
            self.ask(destination, leaf, &found, judgement);
        }
        found.state() == ArgumentState::User
    }

    fn look_up_destination(&self, destination: &Destination, leaf: &Leaf) -> Found {
        // A name is the whole value. Of a value that is longer than the part that is compared, nobody knows the rest.
        let spellings = match destination.kind {
            DestinationKind::Name if leaf.text.len() <= MAX_VALUE => normal::spellings(cut(&leaf.text, MAX_VALUE)),
            _ => Vec::new(),
        };
        let mut found = self.look_up(&spellings);
        self.look_up_text(&destination.identity, &mut found);
        if destination.kind == DestinationKind::Path {
            self.look_up_disguised(&destination.identity, &mut found);
        }
        found.is_exact = found.best().is_some();
        match destination.kind {
            // The sender of a message, say, whom the user speaks of.
            DestinationKind::Mail if found.is_whole_field && self.is_named(&destination.identity) => {
                found.places.push((ValueOrigin::of_user(), Writer::Asserted));
            }
            DestinationKind::Path if !found.is_exact => self.look_up_folders(&destination.identity, &mut found),
            _ => {}
        }
        found
    }

    /// A path that stands nowhere is as good as the innermost folder of it that stands somewhere.
    fn look_up_folders(&self, path: &str, found: &mut Found) {
        let mut path = path;
        for _ in 0..16 {
            let Some((parent, _)) = path.rsplit_once('/').filter(|(parent, _)| parent.len() > 1) else { return };
            self.look_up_text(parent, found);
            if found.best().is_some() {
                return;
            }
            path = parent;
        }
    }

    /// Secrets in an argument, whole or as a part of it, that the tool's own labels do not have. Text of the user is none.
    fn secrets(&self, leaf: &Leaf, spellings: &[String], found: &Found, judgement: &mut Judgement) {
        let allowed = &self.labels.returns.secrecy;
        let is_secret = |entry: &&Entry| !entry.origin.secrecy.is_subset(allowed);
        if found.state() == ArgumentState::User {
            return;
        }
        for entry in self.session.entries().filter(is_secret) {
            let Some(piece) = entry.pieces.iter().find(|piece| self.shares_text(&piece.text, spellings)) else {
                continue;
            };
            if judgement.forbidden.len() >= MAX_ORIGINS {
                return;
            }
            let secrecy: BTreeSet<String> = entry.origin.secrecy.difference(allowed).cloned().collect();
            let origin = ValueOrigin { path: piece.path.to_string(), ..entry.origin.clone() };
            judgement.forbidden.push(ForbiddenSecret { pointer: leaf.pointer.clone(), secrecy, origin });
        }
    }

    /// Counts comparisons. Answers whether there were more than are made for a call.
    fn is_spent(&self, comparisons: usize) -> bool {
        let compared = self.comparisons.get().saturating_add(comparisons);
        self.comparisons.set(compared);
        compared > MAX_COMPARISONS
    }

    /// Whether one of the spellings has a secret text, or a token of it.
    fn shares_text(&self, secret: &str, spellings: &[String]) -> bool {
        let stands_in = |text: &str| {
            self.is_spent(spellings.len()) || spellings.iter().any(|spelling| normal::find(spelling, text).is_some())
        };
        secret.len() >= 4 && stands_in(secret) || tokens(secret).iter().any(|token| stands_in(&token.identity))
    }

    /// A call that cannot be undone is asked about as a whole where its tool is new for the tenant, and the user said nothing of it;
    /// and so is a call with more arguments than are judged.
    fn whole(&self, sink: &Sink, is_of_user: bool, has_more: bool, judgement: &mut Judgement) {
        let is_final = matches!(sink.kind, SinkKind::Delete | SinkKind::Pay | SinkKind::Publish);
        let is_new = is_final && !is_of_user && !self.known.knows_tool(self.tool) && !self.is_asked_for(sink.kind);
        if (is_new && judgement.questions.is_empty()) || has_more {
            let leaf =
                Leaf { pointer: String::new(), member: String::new(), text: self.tool.to_owned(), is_text: true };
            self.ask(Destination::of_content("", self.tool), &leaf, &Found::default(), judgement);
        }
    }

    fn ask(&self, destination: Destination, leaf: &Leaf, found: &Found, judgement: &mut Judgement) {
        if !self.session.has_untrusted()
            || self.known.knows(self.tool, &destination)
            || self.session.is_approved(&destination.hash_of_approval(self.tool))
        {
            return;
        }
        judgement.questions.push(Question {
            pointer: leaf.pointer.clone(),
            value: cut(&leaf.text, MAX_SHOWN).to_owned(),
            state: found.state(),
            origin: found.places.first().map(|(origin, _)| origin.clone()),
            sentence: found.sentence.clone(),
            new: self.novelty(&destination, &leaf.pointer, found),
            destination,
        });
    }

    /// Why a destination is new, as a sentence.
    fn novelty(&self, destination: &Destination, pointer: &str, found: &Found) -> String {
        let kind: &'static str = destination.kind.into();
        let source = match found.state() {
            ArgumentState::Unknown if pointer.is_empty() => "the user asked for no such call",
            ArgumentState::Unknown => "it stands in nothing that the user wrote or that was read",
            ArgumentState::Untrusted => "it comes from text that strangers can write",
            _ => "it is personal, and the user did not speak of it",
        };
        let identity = cut(&destination.identity, MAX_SHOWN);
        format!("No undisputed or approved call of {} had the {kind} {identity}: {source}.", self.tool)
    }

    /// Whether the user named whom this address belongs to: a word of its local part.
    fn is_named(&self, address: &str) -> bool {
        let local = address.split('@').next().unwrap_or_default();
        words_of(local).iter().take(MAX_NAME_WORDS).filter(|word| word.len() >= 3).any(|word| self.is_said(word))
    }

    /// Whether the user said a word for what such a sink does.
    fn is_asked_for(&self, kind: SinkKind) -> bool {
        let words = RULES.verbs.of(kind).iter();
        words.filter(|word| !RULES.weak.contains(*word)).any(|word| self.is_said(word))
    }

    fn is_said(&self, word: &str) -> bool {
        self.session.user_pieces().any(|piece| normal::find(&piece.text, word).is_some())
    }
}

/// Whether a text is one word of Latin letters, such as the place `Zoom`: it says too little to be an order.
fn is_one_word(text: &str) -> bool {
    text.trim().bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Whether people get what such a call sends.
fn reaches_others(kind: SinkKind) -> bool {
    matches!(kind, SinkKind::Send | SinkKind::Pay | SinkKind::Fetch | SinkKind::Publish)
}

/// Whether it is a link, an address or an account, to which a reader may turn.
fn leads_elsewhere(destination: &Destination) -> bool {
    use DestinationKind::{Account, Host, Mail, Phone};
    matches!(destination.kind, Host | Mail | Account | Phone)
}

/// Whether an argument gives others access, or takes it.
fn is_credential(member: &str) -> bool {
    words_of(member).iter().any(|word| RULES.members.credential.contains(word))
}

#[cfg(test)]
mod tests;
