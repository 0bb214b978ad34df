//! Files of users go to the workspace of the request's session, where tools read them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use sekisho_agent::Message;
use sekisho_agent::message::UserPart;
use sekisho_agent::user_file::UserFile;
use sekisho_api::{RequestMeta, SessionFile};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::session::Session;
use sekisho_gateway::Gateway;

const FILE_WRITE: &str = "file_write";

/// Writes the files that the user has sent since the last answer; earlier files were written with their message. Each
/// is a call of `file_write`, with its roles, limits and audit. A file that the model reads in the message, a short
/// text or a PDF that it takes, needs neither a session nor these roles.
/// Errors: `invalid_request` for a file without a session, and why one cannot be written.
pub(super) async fn place(
    messages: &mut [Message],
    meta: &RequestMeta,
    gateway: &Arc<Gateway>,
    session: Option<&Arc<Session>>,
    reads_documents: bool,
) -> Result<(), CallError> {
    let may_write = gateway.pipeline.tools_for(&meta.caller).usable().any(|tool| tool.name() == FILE_WRITE);
    let last_answer = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)));
    for (index, message) in messages.iter_mut().enumerate() {
        let is_new = last_answer.is_none_or(|answer| index > answer);
        for file in files_of(message) {
            let Some(content) = file.unwritten.take() else { continue };
            let is_read = file.is_shown() || reads_documents && file.document().is_some();
            match session {
                None if is_read => continue,
                None => return Err(no_session(file)),
                Some(_) if !may_write && is_read => continue,
                Some(_) if !may_write => return Err(not_allowed(file)),
                Some(session) if is_new => write(file, &content, meta, gateway, session).await?,
                Some(_) => {}
            }
            file.path = Some(file.workspace_path());
        }
    }
    Ok(())
}

/// Drops the content that would be written.
pub(super) fn forget_contents(messages: &mut [Message]) {
    messages.iter_mut().flat_map(files_of).for_each(|file| file.unwritten = None);
}

fn files_of(message: &mut Message) -> impl Iterator<Item = &mut UserFile> {
    let parts = match message {
        Message::User(message) => &mut message.parts[..],
        Message::System(_) | Message::Assistant(_) | Message::Tool(_) => &mut [],
    };
    parts.iter_mut().filter_map(|part| match part {
        UserPart::File(file) => Some(file),
        UserPart::Text(_) | UserPart::Image(_) => None,
    })
}

fn no_session(file: &UserFile) -> CallError {
    CallError::invalid(format!(
        "the agent's model does not read the file `{}`, so that it needs a workspace, and the request belongs to no session; send the id \
         of the conversation in the header `X-OpenWebUI-Chat-Id`",
        file.name
    ))
}

/// The tool that would write it is hidden from the caller, also by its name.
fn not_allowed(file: &UserFile) -> CallError {
    let message = format!(
        "the agent's model does not read the file `{}`, so that it needs a workspace, to which you may not write; ask the operators for \
         the role",
        file.name
    );
    CallError::new(ErrorCode::Denied, message)
}

async fn write(
    file: &UserFile,
    content: &[u8],
    meta: &RequestMeta,
    gateway: &Arc<Gateway>,
    session: &Session,
) -> Result<(), CallError> {
    let target = SessionFile::new(session.id.to_string(), file.workspace_path());
    let mut incoming = target.into_call(STANDARD.encode(content), meta, gateway)?;
    // It is of the request's own call.
    incoming.call.resumption.idempotency_key = None;
    incoming.call.resumption.approval = None;
    let answered = Box::pin(gateway.pipeline.call(incoming.call, incoming.arguments)).await;
    match &answered.reply.outcome {
        Ok(_) => Ok(()),
        Err(error) => Err(CallError::new(
            error.code(),
            format!("the file `{}` cannot be written to the workspace: {}", file.name, error.message()),
        )),
    }
}
