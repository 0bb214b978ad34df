//! A run as a file: JSON lines, of which the first is the header and the last the end. It has all that a run got from outside: answers of
//! models and tools, and the clocks and random bytes that a program read. With these the run is played again, and nothing is sent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::call::Arguments;
use crate::error::ErrorCode;
use crate::json;
use crate::reading::Reading;

/// Grows when the form changes so that earlier programs cannot read it.
pub const VERSION: u32 = 1;

/// A run that was recorded from its beginning to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFile {
    pub header: RunHeader,
    /// Without the header and the end, in the order in which they began.
    pub lines: Vec<RunLine>,
    pub end: RunEnd,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunHeader {
    pub version: u32,
    pub kind: RunKind,
    pub id: String,
    /// RFC 3339.
    pub recorded_at: String,
    /// The agent, or the tool that ran the program.
    pub name: String,
    pub caller: RunCaller,
    /// Hash of the policy set.
    pub policy_version: String,
    /// SHA-256 of `tools.lock`, in hex; none where tools are not pinned.
    pub lock_sha256: Option<String>,
}

/// Whose run it is, as policies read it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCaller {
    pub id: String,
    pub tenant: String,
    pub roles: Vec<String>,
    pub anonymous: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunKind {
    /// A run of an agent: a model in a loop with tools.
    Agent,
    /// A program that calls tools.
    Program,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum RunLine {
    Header(RunHeader),
    /// The first line of an agent's run.
    AgentInput(AgentInput),
    ModelAnswer(ModelAnswer),
    ToolCall(ToolCall),
    /// The first line of a program's run.
    ProgramInput(ProgramInput),
    ProgramRequest(ProgramRequest),
    End(RunEnd),
}

/// The input of an agent's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentInput {
    /// The settings of its profile that the loop reads, as in the configuration. No key, no header.
    pub profile: Value,
    /// The profile and the prompt for summaries of a conversation that is too long.
    pub summarizer: Option<Value>,
    /// The conversation: the system prompt first.
    pub messages: Vec<Value>,
    pub options: Value,
    pub tools: Vec<Value>,
    pub client_tools: Vec<Value>,
    /// Whether it pauses for calls that a person must approve.
    pub pauses: bool,
    /// From which the ids of its calls follow.
    pub call_ids_seed: String,
}

/// The answer of a model to one request of a run. Of a request that was sent again, the last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelAnswer {
    /// SHA-256 of the request, in hex.
    pub request_sha256: String,
    pub chunks: Vec<Value>,
    /// In place of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RecordedError>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedError {
    pub code: ErrorCode,
    pub message: String,
}

/// A call of an agent's run, with its answer as the model got it. Of a call that was made again by itself, the last answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Its id in the run.
    pub id: String,
    pub tool: String,
    pub arguments: Arguments,
    pub answer: ToolOutput,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolOutput {
    pub success: bool,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_info: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Value>,
}

/// The input of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramInput {
    /// Of the call that ran it.
    pub arguments: Arguments,
    /// Of that call, beside the arguments.
    pub context: Map<String, Value>,
    /// Its files, profile and code digest, in base64.
    pub input: String,
    /// The values that it read after its last request.
    pub last_readings: Vec<Reading>,
}

/// A request of a program to tools, with its answer, and the values that the program read before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramRequest {
    /// From 0.
    pub number: u32,
    pub question: ProgramQuestion,
    pub readings: Vec<Reading>,
    pub answer: ProgramAnswer,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramQuestion {
    /// `call`: its number among the calls of the run, from 1.
    Call { call: u32, tool: String, arguments_sha256: String },
    /// SHA-256 of a question about tools.
    Inquiry(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramAnswer {
    pub is_ok: bool,
    /// JSON.
    pub json: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEnd {
    pub reason: String,
    /// SHA-256 of the result, in hex: a run that is played again to the same one is equal. None where the file was changed.
    pub result_sha256: Option<String>,
}

/// A run as one line that only its caller opens, at a gateway with the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedRun {
    pub version: u32,
    pub id: String,
    pub sealed: String,
}

impl SealedRun {
    /// `None` for another text, such as a plain file.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text.trim()).ok().filter(|run: &Self| run.version == VERSION)
    }
}

/// Why a text is no run that this program plays.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunFileError {
    #[error("line {line}: {problem}")]
    Line { line: usize, problem: String },
    #[error("the file has version {0}, and this program reads {VERSION}; use a newer sekisho")]
    Version(u32),
    #[error("the first line is no header; give a file of `sekisho runs export`")]
    NoHeader,
    #[error("the last line is no end: the file was cut off; export the run again")]
    NoEnd,
}

crate::as_str!(RunKind);

impl RunFile {
    /// Errors: the text is no such file, or one of a newer program.
    pub fn parse(text: &str) -> Result<Self, RunFileError> {
        let mut numbered = (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty());
        let (line, first) = numbered.next().ok_or(RunFileError::NoHeader)?;
        // Before the rest, which may have another form.
        let version = json::parse(first.as_bytes()).ok().and_then(|first| first["version"].as_u64());
        match version.map(u32::try_from) {
            Some(Ok(VERSION)) => {}
            Some(other) => return Err(RunFileError::Version(other.unwrap_or(u32::MAX))),
            None => return Err(RunFileError::NoHeader),
        }
        let RunLine::Header(header) = parse_line(line, first)? else { return Err(RunFileError::NoHeader) };
        let mut lines = numbered.map(|(line, text)| parse_line(line, text)).collect::<Result<Vec<_>, _>>()?;
        let Some(RunLine::End(end)) = lines.pop() else { return Err(RunFileError::NoEnd) };
        match lines.iter().position(|line| matches!(line, RunLine::Header(_) | RunLine::End(_))) {
            Some(at) => {
                Err(RunFileError::Line { line: at + 2, problem: "a header or an end in the middle".to_owned() })
            }
            None => Ok(Self { header, lines, end }),
        }
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let Self { header, lines, end } = self;
        let mut text = RunLine::Header(header.clone()).to_text();
        for line in lines {
            text.push_str(&line.to_text());
        }
        text.push_str(&RunLine::End(end.clone()).to_text());
        text
    }

    /// The calls of an agent's run, with their answers.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.lines.iter().filter_map(|line| match line {
            RunLine::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

impl RunLine {
    /// With the end of the line.
    pub fn to_text(&self) -> String {
        // Never fails: no map has keys that are not strings.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn parse_line(line: usize, text: &str) -> Result<RunLine, RunFileError> {
    json::parse_as(text.as_bytes()).map_err(|problem| RunFileError::Line { line, problem: problem.to_string() })
}

/// The digest of a value in a file: SHA-256 of canonical JSON, in hex.
pub fn digest_of(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    hex::encode(json::digest(&Map::from_iter([("value".to_owned(), value)])))
}

/// The lines of a run while it goes on. What would be more than its maximum of bytes is dropped, with all before it.
#[derive(Debug)]
pub struct RunLines {
    /// Each with its key: a later line with the same key replaces it.
    lines: Vec<(String, String)>,
    bytes: usize,
    max_bytes: usize,
    is_too_large: bool,
}

impl RunLines {
    pub fn new(max_bytes: usize) -> Self {
        Self { lines: Vec::new(), bytes: 0, max_bytes, is_too_large: false }
    }

    /// Adds a line, or replaces the line with the same key.
    pub fn put(&mut self, key: String, line: &RunLine) {
        if self.is_too_large {
            return;
        }
        let text = line.to_text();
        let known = self.lines.iter_mut().find(|(known, _)| *known == key);
        let replaced = known.as_ref().map_or(0, |known| known.1.len());
        self.bytes = self.bytes + text.len() - replaced;
        match known {
            Some(known) => known.1 = text,
            None => self.lines.push((key, text)),
        }
        if self.bytes > self.max_bytes {
            (self.lines, self.bytes, self.is_too_large) = (Vec::new(), 0, true);
        }
    }

    /// The text of the file; `None` if the run is too large.
    pub fn end(&mut self, header: RunHeader, end: RunEnd) -> Option<String> {
        let lines = std::mem::take(&mut self.lines);
        let middle = lines.iter().map(|(_, text)| text.as_str());
        let (first, last) = (RunLine::Header(header).to_text(), RunLine::End(end).to_text());
        (!self.is_too_large).then(|| [first.as_str()].into_iter().chain(middle).chain([last.as_str()]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file() -> RunFile {
        let header = RunHeader {
            version: VERSION,
            kind: RunKind::Agent,
            id: "r".to_owned(),
            recorded_at: "2026-01-31T10:00:00Z".to_owned(),
            name: "main".to_owned(),
            caller: RunCaller { id: "ann".to_owned(), ..RunCaller::default() },
            policy_version: "p".to_owned(),
            lock_sha256: None,
        };
        let input = ProgramInput {
            arguments: Arguments::from_iter([("code".to_owned(), json!("1"))]),
            context: Map::new(),
            input: "AQ".to_owned(),
            last_readings: vec![Reading::Real(u64::MAX), Reading::Random(vec![0, 255]), Reading::Waited(None)],
        };
        let question = ProgramQuestion::Call { call: 1, tool: "t".to_owned(), arguments_sha256: "00".to_owned() };
        let request = ProgramRequest {
            number: 0,
            question,
            readings: vec![Reading::Elapsed(7)],
            answer: ProgramAnswer { is_ok: true, json: "\"\\n\"".to_owned() },
        };
        let error = RecordedError { code: ErrorCode::Timeout, message: "late".to_owned() };
        let answer =
            ModelAnswer { request_sha256: "ab".to_owned(), chunks: vec![json!({"text": "a"})], error: Some(error) };
        let call = ToolCall {
            id: "c".to_owned(),
            tool: "t".to_owned(),
            arguments: Arguments::new(),
            answer: ToolOutput { success: true, text: "関所\nb".to_owned(), ..ToolOutput::default() },
        };
        let lines = vec![
            RunLine::ProgramInput(input),
            RunLine::ProgramRequest(request),
            RunLine::ModelAnswer(answer),
            RunLine::ToolCall(call),
        ];
        RunFile { header, lines, end: RunEnd { reason: "stop".to_owned(), result_sha256: Some("cd".to_owned()) } }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        assert_eq!(RunFile::parse(&file().to_text()), Ok(file()));
    }

    #[test]
    fn a_text_that_is_no_whole_run_is_refused_with_its_place() {
        let text = file().to_text();
        let lines: Vec<_> = text.lines().collect();
        let joined = |lines: &[&str]| RunFile::parse(&lines.join("\n"));
        assert_eq!(RunFile::parse(""), Err(RunFileError::NoHeader));
        assert_eq!(RunFile::parse("hello"), Err(RunFileError::NoHeader));
        assert_eq!(joined(&lines[1..]), Err(RunFileError::NoHeader));
        assert_eq!(joined(&lines[..5]), Err(RunFileError::NoEnd));
        assert_eq!(RunFile::parse("{\"line\":\"header\",\"version\":2}"), Err(RunFileError::Version(2)));
        let twice = joined(&[lines[0], lines[0], lines[5]]);
        assert!(matches!(twice, Err(RunFileError::Line { line: 2, .. })), "{twice:?}");
        let unknown = joined(&[lines[0], lines[1], "{\"line\":\"dance\"}", lines[5]]);
        assert!(matches!(unknown, Err(RunFileError::Line { line: 3, .. })), "{unknown:?}");
    }

    #[test]
    fn a_later_line_replaces_the_one_with_its_key_and_too_many_bytes_drop_all() {
        let RunFile { header, lines, end } = file();
        let mut recorded = RunLines::new(2_000);
        recorded.put("a".to_owned(), &lines[2]);
        recorded.put("b".to_owned(), &lines[3]);
        recorded.put("a".to_owned(), &lines[1]);
        let text = recorded.end(header.clone(), end.clone()).unwrap();
        assert_eq!(RunFile::parse(&text).unwrap().lines, [lines[1].clone(), lines[3].clone()]);
        let mut small = RunLines::new(lines[2].to_text().len());
        small.put("a".to_owned(), &lines[2]);
        small.put("b".to_owned(), &lines[3]);
        small.put("a".to_owned(), &lines[2]);
        assert_eq!(small.end(header, end), None);
    }
}
