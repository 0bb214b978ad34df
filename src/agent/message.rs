//! A conversation in the gateway's own form, independent of the provider.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::call_ids::ProviderId;
use super::output_format::unfenced;
use super::user_file::UserFile;
use sekisho_core::call::Arguments;
use sekisho_core::json;

/// One message of a conversation, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    System(String),
    User(UserMessage),
    Assistant(AssistantTurn),
    Tool(ToolMessage),
}

impl Message {
    /// The text of a system prompt.
    pub(super) fn as_system(&self) -> Option<&str> {
        match self {
            Self::System(text) => Some(text),
            Self::User(_) | Self::Assistant(_) | Self::Tool(_) => None,
        }
    }

    pub(super) fn as_assistant(&self) -> Option<&AssistantTurn> {
        match self {
            Self::Assistant(turn) => Some(turn),
            Self::System(_) | Self::User(_) | Self::Tool(_) => None,
        }
    }

    /// Removes thoughts that a provider takes back only after the messages, the system prompt and the tools with which they were
    /// made. Plain ones stay: some servers require them back.
    pub(super) fn forget_bound_thoughts(&mut self) {
        let Self::Assistant(turn) = self else { return };
        turn.parts.retain(|part| match part {
            TurnPart::Thought(thought) => matches!(thought, Thought::Unsigned { .. }),
            TurnPart::Text(_) | TurnPart::Call(_) => true,
        });
    }

    /// Leaves the user's documents to the workspace.
    pub(super) fn forget_documents(&mut self) {
        let Self::User(message) = self else { return };
        for part in &mut message.parts {
            if let UserPart::File(file) = part {
                file.forget_document();
            }
        }
    }

    /// Estimated memory, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::System(text) => text.len(),
            Self::User(message) => message.parts.iter().map(UserPart::bytes).sum(),
            Self::Assistant(turn) => turn.parts.iter().map(TurnPart::bytes).sum(),
            Self::Tool(result) => result.text.len() + result.images.iter().map(Image::bytes).sum::<usize>(),
        }
    }
}

/// The user's text, images and files, in their order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    pub parts: Vec<UserPart>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserPart {
    /// Shared by the copies of a conversation: it may be long.
    Text(Arc<str>),
    Image(Image),
    File(UserFile),
}

impl UserMessage {
    /// All texts, joined.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            UserPart::Text(text) => Some(&**text),
            UserPart::Image(_) | UserPart::File(_) => None,
        });
        texts.collect()
    }

    /// The images and files.
    pub(super) fn attachments(&self) -> Vec<UserPart> {
        self.parts.iter().filter(|part| !matches!(part, UserPart::Text(_))).cloned().collect()
    }
}

impl UserPart {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Image(image) => image.bytes(),
            Self::File(file) => file.memory(),
        }
    }
}

impl<T: Into<Arc<str>>> From<T> for UserMessage {
    fn from(text: T) -> Self {
        Self { parts: vec![UserPart::Text(text.into())] }
    }
}

/// A picture for models that accept one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    pub base64: String,
}

impl Image {
    fn bytes(&self) -> usize {
        self.base64.len()
    }
}

/// The model's output of one turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantTurn {
    /// In the order of the model's output.
    pub parts: Vec<TurnPart>,
    /// The API that generated it; see [`api_of`](super::call_ids::api_of). `None`: a client's transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnPart {
    Text(String),
    Thought(Thought),
    Call(RequestedCall),
}

impl AssistantTurn {
    /// A text, which may be empty, and calls.
    pub fn new(text: impl Into<String>, calls: impl IntoIterator<Item = RequestedCall>) -> Self {
        let mut turn = Self::default();
        turn.push_text(&text.into());
        turn.parts.extend(calls.into_iter().map(TurnPart::Call));
        turn
    }

    /// Continues the text, if it was the last part, or begins one.
    pub fn push_text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(TurnPart::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.parts.push(TurnPart::Text(text.to_owned())),
        }
    }

    /// All texts, joined.
    pub fn text(&self) -> String {
        let text = |part: &TurnPart| match part {
            TurnPart::Text(text) => Some(text.clone()),
            TurnPart::Thought(_) | TurnPart::Call(_) => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// Whether its text has one of these words. Case does not count.
    pub(super) fn has_word(&self, words: &[String]) -> bool {
        let text = self.text().to_lowercase();
        words.iter().any(|word| text.contains(&word.to_lowercase()))
    }

    pub fn calls(&self) -> impl Iterator<Item = &RequestedCall> {
        self.parts.iter().filter_map(|part| match part {
            TurnPart::Call(call) => Some(call),
            TurnPart::Text(_) | TurnPart::Thought(_) => None,
        })
    }

    /// The calls for which a run paused, whether or not they have an answer by now.
    pub fn paused_calls(&self) -> impl Iterator<Item = &RequestedCall> {
        self.calls().filter(|call| call.approval.is_some())
    }

    pub(super) fn calls_mut(&mut self) -> impl Iterator<Item = &mut RequestedCall> {
        self.parts.iter_mut().filter_map(|part| match part {
            TurnPart::Call(call) => Some(call),
            TurnPart::Text(_) | TurnPart::Thought(_) => None,
        })
    }

    /// Keeps the calls for which this holds.
    pub(super) fn retain_calls(&mut self, keep: impl Fn(&RequestedCall) -> bool) {
        self.parts.retain(|part| !matches!(part, TurnPart::Call(call) if !keep(call)));
    }

    /// Removes the parts that only the API that generated the turn accepts.
    pub(super) fn remove_foreign(&mut self) {
        self.parts.retain(|part| !matches!(part, TurnPart::Thought(_)));
        self.calls_mut().for_each(|call| call.extras.clear());
    }

    pub fn thoughts(&self) -> impl Iterator<Item = &Thought> {
        self.parts.iter().filter_map(|part| match part {
            TurnPart::Thought(thought) => Some(thought),
            TurnPart::Text(_) | TurnPart::Call(_) => None,
        })
    }
}

impl TurnPart {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Thought(thought) => thought.bytes(),
            Self::Call(call) => call.arguments.len() + call.extras.iter().map(bytes_of_extra).sum::<usize>(),
        }
    }
}

/// A part of the model's reasoning, as its provider takes it back: unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thought {
    /// With the provider's signature.
    Signed { text: String, signature: String },
    /// Encrypted by the provider.
    Redacted(String),
    /// In a field of this name, from a server with OpenAI's or Anthropic's API.
    Unsigned { text: String, field: &'static str },
    /// The blocks of `reasoning_details`, from a router with OpenAI's API.
    Details(Vec<Value>),
}

impl Thought {
    pub(super) fn details(&self) -> Option<&[Value]> {
        match self {
            Self::Details(blocks) => Some(blocks),
            Self::Signed { .. } | Self::Redacted(_) | Self::Unsigned { .. } => None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Signed { text, signature } => text.len() + signature.len(),
            Self::Redacted(text) | Self::Unsigned { text, .. } => text.len(),
            Self::Details(blocks) => blocks.iter().map(|block| block.to_string().len()).sum(),
        }
    }
}

/// A [`Thought`] in the store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredThought {
    Signed { text: String, signature: String },
    Redacted(String),
    Unsigned { text: String, field: String },
    Details(Vec<Value>),
}

impl Serialize for Thought {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = match self.clone() {
            Self::Signed { text, signature } => StoredThought::Signed { text, signature },
            Self::Redacted(text) => StoredThought::Redacted(text),
            Self::Unsigned { text, field } => StoredThought::Unsigned { text, field: field.to_owned() },
            Self::Details(blocks) => StoredThought::Details(blocks),
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Thought {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(StoredThought::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl TryFrom<StoredThought> for Thought {
    type Error = String;

    fn try_from(stored: StoredThought) -> Result<Self, String> {
        Ok(match stored {
            StoredThought::Signed { text, signature } => Self::Signed { text, signature },
            StoredThought::Redacted(text) => Self::Redacted(text),
            StoredThought::Unsigned { text, field } => {
                let known = REASONING_FIELDS.into_iter().find(|known| *known == field);
                Self::Unsigned { text, field: known.ok_or_else(|| format!("no provider has the field {field:?}"))? }
            }
            StoredThought::Details(blocks) => Self::Details(blocks),
        })
    }
}

/// The fields in which compatible servers put the model's thoughts.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", UNSIGNED_THINKING];

/// The field of a thought without a signature, from a server with Anthropic's API.
pub(super) const UNSIGNED_THINKING: &str = "thinking";

/// Fields of a provider's own, which it requires back.
pub type Extras = Map<String, Value>;

fn bytes_of_extra((name, value): (&String, &Value)) -> usize {
    name.len() + value.to_string().len()
}

/// A tool call requested by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// In a model's output the provider's id; in a conversation ours, or the one in the client's transcript.
    pub id: String,
    pub tool: String,
    /// The text as received; the run checks whether it is a JSON object.
    pub arguments: String,
    /// The provider's id, if `id` is ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
    /// For the API that requested the call.
    #[serde(default, skip_serializing_if = "Extras::is_empty")]
    pub extras: Extras,
    /// The id of the approval for which its run paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Arc<str>>,
}

impl RequestedCall {
    pub fn new(id: String, tool: String, arguments: String) -> Self {
        Self { id, tool, arguments, provider_id: None, extras: Extras::new(), approval: None }
    }

    /// A call for which a run paused, as a client sends it back: the stored messages of the run have the rest of it.
    pub fn paused(id: String, tool: String, approval: impl Into<Arc<str>>) -> Self {
        Self { approval: Some(approval.into()), ..Self::new(id, tool, "{}".to_owned()) }
    }

    /// The call's arguments. Models send an empty text for a tool without parameters, and some encode the object twice, or
    /// write a Markdown fence around it.
    /// Errors: the text is not a JSON object, or not one that the gateway accepts.
    pub(super) fn read_arguments(&self) -> Result<Arguments, String> {
        let text = unfenced(self.arguments.trim());
        let text = if text.is_empty() { "{}" } else { text };
        match json::parse(text.as_bytes()) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(Value::String(inner)) => match json::parse(inner.as_bytes()) {
                Ok(Value::Object(arguments)) => Ok(arguments),
                _ => Err("it is a text and not an object".to_owned()),
            },
            Ok(_) => Err("it is not an object".to_owned()),
            Err(problem) => Err(problem.to_string()),
        }
    }

    /// Whether acceptable arguments are an object that was encoded twice.
    pub(super) fn is_encoded_twice(&self) -> bool {
        self.arguments.trim_start().starts_with('"')
    }

    /// Whether a token limit that ended the turn may have cut this call off: true of the last call, and of each whose
    /// arguments are missing or incomplete.
    pub(super) fn may_be_cut(&self, is_last: bool) -> bool {
        is_last || self.arguments.trim().is_empty() || self.read_arguments().is_err()
    }

    /// The arguments as providers accept them back: an object, empty if the model sent none.
    pub(super) fn parsed_arguments(&self) -> Value {
        let parse = |text: &str| json::parse_answer(text.as_bytes()).ok().map(|(parsed, _)| parsed);
        let parsed = parse(unfenced(self.arguments.trim())).and_then(|parsed| match parsed {
            Value::String(inner) => parse(&inner),
            parsed => Some(parsed),
        });
        parsed.filter(Value::is_object).unwrap_or_else(|| Value::Object(Map::new()))
    }
}

/// The result of one call (D16).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolMessage {
    pub call_id: String,
    pub tool: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The call failed or was refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}
