//! Ids of tool calls. The gateway generates its own, unguessable ones, since providers repeat theirs in every
//! conversation or send none. The provider that requested a call gets its own id back.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Message;
use super::message::RequestedCall;
use sekisho_config::{AgentProfile, Wire};

/// The length of the ids that Mistral's models accept, which have only letters and digits
/// (<https://docs.mistral.ai/capabilities/function_calling>). All other providers accept them too.
const SHORT_ID: usize = 9;

/// Begins the name of each place of Anthropic's API.
const ANTHROPIC: &str = "anthropic ";

const LETTERS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The provider's own id of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderId {
    /// The API that sent the id; see [`api_of`]. Another API may reject it.
    pub api: Arc<str>,
    /// Empty if the provider sent none.
    pub id: String,
}

/// Ids of calls that cannot be guessed.
#[derive(Clone, Default)]
pub struct CallIds(Option<SeededIds>);

/// Where a run is recorded, its ids follow from a random text, so that they are the same when it is played again.
#[derive(Clone)]
struct SeededIds {
    seed: Arc<str>,
    /// The number of ids so far.
    count: u64,
}

impl CallIds {
    pub(super) fn seeded(seed: &str) -> Self {
        Self(Some(SeededIds { seed: seed.into(), count: 0 }))
    }

    /// Another id with each call.
    pub(super) fn next_id(&mut self) -> String {
        let Some(SeededIds { seed, count }) = &mut self.0 else { return format!("call_{}", Uuid::new_v4().simple()) };
        *count += 1;
        let digest = Sha256::new().chain_update(&**seed).chain_update(count.to_be_bytes()).finalize();
        format!("call_{}", hex::encode(&digest[..16]))
    }
}

/// Without the seed, from which ids can be guessed.
impl fmt::Debug for CallIds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CallIds").field("is_seeded", &self.0.is_some()).finish_non_exhaustive()
    }
}

/// Names the API that a profile uses: its protocol and its address.
pub(super) fn api_of(profile: &AgentProfile) -> Arc<str> {
    let place = profile.base_url.as_ref().map_or("", |url| url.as_str());
    // The reasoning of one API of OpenAI is refused by the other.
    let wire = if profile.wire() == Wire::Responses { " responses" } else { "" };
    format!("{}{wire} {place}", profile.provider().as_str()).into()
}

/// The conversation as it is sent to an API: each call has the id that this API gave it, else a short one. Thoughts and
/// a call's extras, which another API would refuse, go only to the API that they came from. No id is sent twice, since
/// strict providers refuse duplicates.
pub(super) fn for_provider(mut messages: Vec<Message>, api: &str) -> Vec<Message> {
    let mut used = HashSet::new();
    // Our id → the id sent. A client's transcript may repeat an id: the latest call counts.
    let mut sent_as = HashMap::new();
    for (index, message) in messages.iter_mut().enumerate() {
        match message {
            Message::Assistant(turn) => {
                match &turn.api {
                    Some(own) if **own == *api => {}
                    // A client got its signed thoughts from that provider, by the same API.
                    None if api.starts_with(ANTHROPIC) => {}
                    Some(_) | None => turn.remove_foreign(),
                }
                for (place, call) in turn.calls_mut().enumerate() {
                    let sent = free_id(call, api, &used).unwrap_or_else(|| other_id(index, place, &used));
                    used.insert(sent.clone());
                    sent_as.insert(std::mem::replace(&mut call.id, sent.clone()), sent);
                }
            }
            Message::Tool(answer) => {
                if let Some(sent) = sent_as.get(&answer.call_id) {
                    answer.call_id.clone_from(sent);
                }
            }
            Message::System(_) | Message::User(_) => {}
        }
    }
    messages
}

/// The conversation with other ids of calls where Mistral's models refuse theirs.
pub(super) fn with_short_ids(mut messages: Vec<Message>) -> Vec<Message> {
    let shorten = |id: &mut String| {
        if !fits_everywhere(id) {
            *id = short_id(id);
        }
    };
    for message in &mut messages {
        match message {
            Message::Assistant(turn) => turn.calls_mut().for_each(|call| shorten(&mut call.id)),
            Message::Tool(answer) => shorten(&mut answer.call_id),
            Message::System(_) | Message::User(_) => {}
        }
    }
    messages
}

fn free_id(call: &RequestedCall, api: &str, used: &HashSet<String>) -> Option<String> {
    let given = call.provider_id.as_ref().filter(|given| *given.api == *api && !given.id.is_empty());
    let own = if fits_everywhere(&call.id) { call.id.clone() } else { short_id(&call.id) };
    given.map(|given| given.id.clone()).into_iter().chain([own]).find(|id| !used.contains(id))
}

/// The id of a call whose own is taken, by its place.
fn other_id(index: usize, place: usize, used: &HashSet<String>) -> String {
    let mut name = format!("{index} {place}");
    loop {
        match short_id(&name) {
            id if used.contains(&id) => name.push('+'),
            id => return id,
        }
    }
}

/// Deterministic, so that providers find the conversation in their cache.
pub(super) fn short_id(name: &str) -> String {
    let letter = |byte: u8| char::from(LETTERS[usize::from(byte) % LETTERS.len()]);
    Sha256::digest(name).into_iter().take(SHORT_ID).map(letter).collect()
}

fn fits_everywhere(id: &str) -> bool {
    id.len() == SHORT_ID && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AssistantTurn, Extras, Thought, ToolMessage, TurnPart};

    fn turn(calls: &[(&str, Option<(&str, &str)>)]) -> Message {
        let call = |(id, given): &(&str, Option<(&str, &str)>)| RequestedCall {
            id: (*id).into(),
            tool: "add".into(),
            arguments: "{}".into(),
            provider_id: given.map(|(api, id)| ProviderId { api: api.into(), id: id.into() }),
            extras: Extras::new(),
            approval: None,
        };
        Message::Assistant(AssistantTurn::new("", calls.iter().map(call)))
    }

    fn answer(id: &str) -> Message {
        Message::Tool(ToolMessage {
            call_id: id.into(),
            tool: "add".into(),
            text: "3".into(),
            ..ToolMessage::default()
        })
    }

    /// Ids of calls and answers, in order.
    fn ids(messages: &[Message]) -> Vec<String> {
        let ids = messages.iter().flat_map(|message| match message {
            Message::Assistant(turn) => turn.calls().map(|call| call.id.clone()).collect(),
            Message::Tool(answer) => vec![format!("={}", answer.call_id)],
            Message::System(_) | Message::User(_) => Vec::new(),
        });
        ids.collect()
    }

    fn thoughts_and_extras(message: &Message) -> (usize, usize) {
        let turn = message.as_assistant().unwrap();
        (turn.thoughts().count(), turn.calls().map(|call| call.extras.len()).sum())
    }

    #[test]
    fn a_provider_gets_its_own_ids_back_and_another_one_short_ones() {
        let conversation = [turn(&[("ours", Some(("a", "functions.add:0")))]), answer("ours")];
        assert_eq!(ids(&for_provider(conversation.to_vec(), "a")), ["functions.add:0", "=functions.add:0"]);
        let ours = short_id("ours");
        assert_eq!(ids(&for_provider(conversation.to_vec(), "b")), [ours.clone(), format!("={ours}")]);
        let unnamed = [turn(&[("ours", Some(("a", "")))]), answer("ours")];
        assert_eq!(ids(&for_provider(unnamed.to_vec(), "a")), [ours.clone(), format!("={ours}")]);
    }

    #[test]
    fn only_the_api_that_generated_them_gets_thoughts_and_extras_back() {
        let extras = || Extras::from_iter([("extra_content".to_owned(), true.into())]);
        let call =
            |extras: Extras| RequestedCall { extras, ..RequestedCall::new("1".into(), "add".into(), "{}".into()) };
        let thought = TurnPart::Thought(Thought::Redacted("c2VjcmV0".into()));
        let own = AssistantTurn { parts: vec![thought, TurnPart::Call(call(extras()))], api: Some("a".into()) };
        let conversation = [Message::Assistant(own), answer("1")];
        assert_eq!(thoughts_and_extras(&for_provider(conversation.to_vec(), "a")[0]), (1, 1));
        assert_eq!(thoughts_and_extras(&for_provider(conversation.to_vec(), "b")[0]), (0, 0));
    }

    #[test]
    fn signed_thoughts_of_a_client_go_to_anthropic_and_nowhere_else() {
        let thought = TurnPart::Thought(Thought::Signed { text: "hm".into(), signature: "c2ln".into() });
        let turn = Message::Assistant(AssistantTurn { parts: vec![thought], api: None });
        for (api, expected) in [("anthropic ", 1), ("anthropic http://a/v1", 1), ("openai ", 0), ("bedrock ", 0)] {
            let sent = for_provider(vec![turn.clone()], api);
            assert_eq!(thoughts_and_extras(&sent[0]).0, expected, "{api}");
        }
    }

    #[test]
    fn no_id_is_sent_twice_even_if_a_provider_or_client_repeats_it() {
        let given = |ours: &'static str| (ours, Some(("a", "call_0")));
        let own = [turn(&[given("x")]), answer("x"), turn(&[given("y"), given("z")]), answer("z"), answer("y")];
        let [y, z] = ["y", "z"].map(short_id);
        let expected = ["call_0", "=call_0", &y, &z, &format!("={z}"), &format!("={y}")];
        assert_eq!(ids(&for_provider(own.to_vec(), "a")), expected);
        let taken = short_id("2 0");
        let clients = [turn(&[(&taken, None), ("1", None)]), answer("1"), turn(&[("1", None)]), answer("1")];
        let sent = ids(&for_provider(clients.to_vec(), "a"));
        assert_eq!((&sent[0], &sent[2], &sent[4]), (&taken, &format!("={}", sent[1]), &format!("={}", sent[3])));
        let calls: HashSet<_> = [&sent[0], &sent[1], &sent[3]].into();
        assert!(calls.len() == 3 && calls.iter().all(|id| fits_everywhere(id)), "{sent:?}");
    }

    #[test]
    fn mistrals_models_get_ids_of_nine_letters_and_digits() {
        let conversation = vec![turn(&[("call_0", None), ("D681PevKs", None)]), answer("call_0"), answer("D681PevKs")];
        let sent = ids(&with_short_ids(conversation));
        let short = short_id("call_0");
        assert_eq!(sent, [short.clone(), "D681PevKs".into(), format!("={short}"), "=D681PevKs".into()]);
    }

    #[test]
    fn an_id_that_strict_providers_refuse_is_replaced() {
        for foreign in ["functions.add:0", "call_1", "abc_efghi", "", &"x".repeat(41)] {
            let conversation = [turn(&[(foreign, None)]), answer(foreign)];
            let sent = ids(&for_provider(conversation.to_vec(), "a"));
            assert!(fits_everywhere(&sent[0]) && sent[1] == format!("={}", sent[0]), "{foreign}: {sent:?}");
        }
        let mistrals = [turn(&[("D681PevKs", None)]), answer("D681PevKs")];
        assert_eq!(ids(&for_provider(mistrals.to_vec(), "a")), ["D681PevKs", "=D681PevKs"]);
    }
}
