//! The run of a program as a file, and its journal when it is played again: all requests have their answers in the file, and no
//! other one is made.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rust_decimal::Decimal;

use super::entry::{Entry, Part, Past, PastRequest, RunStart};
use super::{JournalAnswer, JournalQuestion, Journals, Owner, RecordedCall, RunJournal, digest};
use sekisho_core::call::{Arguments, CallContext};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;
use sekisho_core::reading::Reading;
use sekisho_core::run_file::{
    ProgramAnswer, ProgramInput, ProgramQuestion, ProgramRequest, RunEnd, RunFile, RunKind, RunLine,
};

impl RunJournal {
    /// Keeps the whole run as a file, before its end is stored. `last`: the values that the program read after its last request.
    pub async fn record(&self, call: &CallContext, policy_version: &str, last: Vec<Reading>, end: RunEnd) {
        let recordings = &self.journals().recordings;
        let (run, caller) = (self.id(), &call.caller);
        if let Some(reason) = self.lost() {
            tracing::info!(run = &**run, reason, "the run of a program is not recorded");
            return;
        }
        match self.parts().await.and_then(|parts| lines_of(parts, last)) {
            Ok(lines) => {
                let header = recordings.header((RunKind::Program, run, &call.tool), caller, policy_version).await;
                let text = RunFile { header: header.clone(), lines, end }.to_text();
                recordings.keep((&caller.tenant, &caller.key), &header, &text).await;
            }
            Err(error) => tracing::warn!(%error, run = &**run, "the run of a program could not be recorded"),
        }
    }
}

impl Journals {
    /// The journal of a run that is played again from a file, by a call of the same tool with the same arguments.
    /// Errors: `invalid_request`: it is no run of a program.
    pub fn replay(
        self: &Arc<Self>,
        call: &CallContext,
        arguments: &Arguments,
        file: &RunFile,
    ) -> Result<(RunJournal, Past), CallError> {
        let past = past_of(file)?;
        let (id, expected) = (call.id.to_string().into(), file.end.result_sha256.clone());
        Ok((RunJournal::replaying(self, id, (Owner::of(call), digest(arguments)), &past, expected), past))
    }

    /// The call that began the run of a file.
    /// Errors: `invalid_request`: it is no run of a program.
    pub fn call_of_file(file: &RunFile) -> Result<RecordedCall, CallError> {
        let input = input_of(file)?;
        let context = serde_json::from_value(input.context.clone().into());
        let context = context.map_err(|problem| wrong(&format!("`context`: {problem}")))?;
        Ok(RecordedCall { arguments: input.arguments.clone(), context })
    }
}

/// The lines of a file between its header and its end.
fn lines_of(parts: Vec<Part>, last_readings: Vec<Reading>) -> Result<Vec<RunLine>, CallError> {
    let (mut start, mut requests, mut places) = (None, Vec::new(), HashMap::new());
    for part in parts {
        start = start.or(part.start);
        for entry in part.entries {
            match entry {
                Entry::Asked { number, question, readings, .. } => {
                    places.insert(number, requests.len());
                    requests.push((number, question, readings, None));
                }
                Entry::Answered { number, answer } => {
                    if let Some(request) = places.get(&number).and_then(|place| requests.get_mut(*place)) {
                        request.3 = Some(answer);
                    }
                }
                Entry::Paused { .. } | Entry::Made { .. } | Entry::Charged { .. } | Entry::Settled { .. } => {}
            }
        }
    }
    let start = start.ok_or_else(|| CallError::internal("the journal has no beginning"))?;
    let input = ProgramInput {
        arguments: json::parse_as(start.arguments.as_bytes()).map_err(CallError::internal)?,
        context: serde_json::from_str(&start.context).map_err(CallError::internal)?,
        input: STANDARD_NO_PAD.encode(&start.input),
        last_readings,
    };
    let mut lines = vec![RunLine::ProgramInput(input)];
    for (number, question, readings, answer) in requests {
        // The program ended without this answer.
        let Some(JournalAnswer { is_ok, json }) = answer else {
            return Err(CallError::internal(format!("its request {number} has no answer")));
        };
        let (question, answer) = (question_of(question), ProgramAnswer { is_ok, json });
        lines.push(RunLine::ProgramRequest(ProgramRequest { number, question, readings, answer }));
    }
    Ok(lines)
}

fn question_of(question: JournalQuestion) -> ProgramQuestion {
    match question {
        JournalQuestion::Call { ordinal, tool, arguments } => {
            ProgramQuestion::Call { call: ordinal + 1, tool, arguments_sha256: hex::encode(arguments) }
        }
        JournalQuestion::Other(digest) => ProgramQuestion::Inquiry(hex::encode(digest)),
    }
}

fn input_of(file: &RunFile) -> Result<&ProgramInput, CallError> {
    match file.lines.first() {
        Some(RunLine::ProgramInput(input)) => Ok(input),
        _ => Err(wrong("its first line after the header is no `program_input`")),
    }
}

fn past_of(file: &RunFile) -> Result<Past, CallError> {
    let ProgramInput { arguments, context, input, last_readings } = input_of(file)?;
    let start = RunStart {
        arguments: serde_json::to_string(arguments).map_err(CallError::internal)?,
        context: serde_json::to_string(context).map_err(CallError::internal)?,
        input: STANDARD_NO_PAD.decode(input).map_err(|problem| wrong(&format!("`input`: {problem}")))?,
    };
    let (mut readings, mut requests) = (VecDeque::new(), HashMap::new());
    for line in &file.lines[1..] {
        let RunLine::ProgramRequest(request) = line else {
            return Err(wrong("a line between its input and its end is no `program_request`"));
        };
        readings.extend(request.readings.iter().cloned());
        let ProgramAnswer { is_ok, json } = request.answer.clone();
        let past = PastRequest {
            question: journal_question(&request.question)?,
            may_repeat: false,
            answer: Some(JournalAnswer { is_ok, json }),
            approval: None,
            settled: None,
        };
        if requests.insert(request.number, past).is_some() {
            return Err(wrong(&format!("there are two requests {}", request.number)));
        }
    }
    readings.extend(last_readings.iter().cloned());
    Ok(Past { start, bytes: 0, spent_usd: Decimal::ZERO, readings, requests })
}

fn journal_question(question: &ProgramQuestion) -> Result<JournalQuestion, CallError> {
    let digest = |text: &str| {
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).map_err(|_| wrong(&format!("{text:?} is no SHA-256 in hex")))?;
        Ok::<_, CallError>(digest)
    };
    Ok(match question {
        ProgramQuestion::Call { call, tool, arguments_sha256 } => JournalQuestion::Call {
            ordinal: call.checked_sub(1).ok_or_else(|| wrong("calls are numbered from 1"))?,
            tool: tool.clone(),
            arguments: digest(arguments_sha256)?,
        },
        ProgramQuestion::Inquiry(text) => JournalQuestion::Other(digest(text)?),
    })
}

fn wrong(problem: &str) -> CallError {
    let message = format!("the file is not the run of a program: {problem}; give a file of `sekisho runs export`");
    CallError::new(ErrorCode::InvalidRequest, message)
}
