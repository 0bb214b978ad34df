//! The additions of a run to its profile: the system prompt's parts (C10), and the time limit of conversations (C40).

use std::sync::Arc;
use std::time::Duration;

use super::request::RunRequest;
use crate::conversation_prompt::{WorkspaceInfo, folder_of, for_conversation};
use crate::skills::Skill;
use sekisho_config::AgentProfile;
use sekisho_tools::builtin::Workspaces;

/// The longest run of a conversation (C40); a profile may have a shorter one.
const MAX_RUN: Duration = Duration::from_secs(300);

/// The folder of a workspace in the sandbox.
const WORKSPACE: &str = "/output";

/// Files of a workspace that are listed at most.
const MAX_LISTED: usize = 1_000;

/// How long a run may take.
pub(super) fn max_run(profile: &AgentProfile) -> Duration {
    profile.max_run().min(MAX_RUN)
}

/// The profile of a run: with the prompt of the conversation, and the time limit of conversations.
pub(super) fn profile(request: &RunRequest, workspace: Option<&WorkspaceInfo>) -> Arc<AgentProfile> {
    let mut profile = AgentProfile::clone(&request.profile);
    profile.max_run_seconds = max_run(&profile).as_secs_f64();
    profile.prompt = for_conversation(&profile.prompt, &request.tenant, workspace, &request.skills);
    Arc::new(profile)
}

/// The workspace of a run, with the files of its skills, and whether these could be listed; `None` for a conversation without one.
pub(super) async fn workspace(request: &RunRequest, workspaces: &Workspaces) -> Option<(WorkspaceInfo, bool)> {
    let session = request.toolbox.session.as_ref()?;
    let of_skill = |(name, skill): &(String, Skill)| {
        let folder = folder_of(name);
        let files = skill.files.iter().map(|(path, text)| (format!("{folder}/{path}"), text.clone()));
        files.collect::<Vec<_>>()
    };
    let files: Vec<_> = request.skills.iter().flat_map(of_skill).collect();
    if !files.is_empty()
        && let Err(error) = workspaces.write_files(session.workspace_name(), files).await
    {
        tracing::warn!(%error, conversation = request.conversation.id, "a workspace has not all files of its skills");
    }
    let files = workspaces.files(session.workspace_name(), MAX_LISTED).await;
    let is_listed = files.is_ok();
    let files = files.unwrap_or_else(|error| {
        tracing::warn!(%error, conversation = request.conversation.id, "the files of a workspace cannot be listed");
        Vec::new()
    });
    Some((WorkspaceInfo { path: WORKSPACE.to_owned(), files }, is_listed))
}
