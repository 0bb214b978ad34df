//! `SERVER__sign_in`: the one tool of a server whose tools are listed once a caller has signed in.

use std::sync::Arc;

use serde_json::json;

use super::Server;
use super::catalogue::source;
use sekisho_calls::tool::{
    Attempt, Effects, Execution, Executor, FlowMetadata, Metadata, ToolDefinition, qualified_name,
};
use sekisho_core::call::{Arguments, ToolOutput};
use sekisho_core::error::CallError;
use sekisho_user_tokens::{User, UserSource};

/// Its name, behind the prefix of the server's tools.
const NAME: &str = "sign_in";

#[derive(Debug)]
struct SignInTool {
    server: Arc<Server>,
    source: Arc<UserSource>,
}

impl Server {
    /// The tool, as long as no tools of the server are listed.
    pub(super) fn sign_in_tool(self: &Arc<Self>) -> Option<ToolDefinition> {
        let user_source = self.connector.user_source.as_ref()?;
        if !self.connector.lists_as_user() || !self.listing.load().tools.is_empty() {
            return None;
        }
        let settings = self.settings();
        let prefix = settings.alias.as_deref().unwrap_or(self.name());
        let metadata = Metadata {
            name: qualified_name(prefix, NAME).to_string(),
            description: format!(
                "Signs the caller in to {}. Its tools are listed after that: call this tool, open the page that it names, then \
                 list the tools again.",
                self.name()
            ),
            category: settings.category.clone(),
            author: self.name().to_owned(),
            source: source(self.name()),
            labels: settings.labels.0.names.clone().unwrap_or_default(),
            flow: FlowMetadata { trusts_annotations: settings.trusted, ..FlowMetadata::of_source(&settings.labels.0) },
            timeout_seconds: settings.timeout_seconds,
            roles: settings.roles.clone(),
            owner: settings.owner.clone(),
            requires_auth: true,
            effects: Some(Effects { read_only: true, destructive: None, open_world: true }),
            ..Metadata::default()
        };
        let executor = Arc::new(SignInTool { server: Arc::clone(self), source: Arc::clone(user_source) });
        Some(ToolDefinition { metadata, parameters: json!({"type": "object"}).into(), output_schema: None, executor })
    }
}

impl Executor for SignInTool {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(self.run(attempt))
    }
}

impl SignInTool {
    async fn run(&self, attempt: Attempt<'_>) -> Result<ToolOutput, CallError> {
        let user = User::of(&attempt.call.caller)?;
        self.source.token_for(attempt.call, &user).await?;
        // The sign-in may have ended at another replica.
        self.server.caller_signed_in();
        let text = format!("You are signed in to {}. Its tools are being listed.", self.server.name());
        Ok(ToolOutput { text: Some(text.clone()), ..ToolOutput::from(json!({"signed_in": true, "note": text})) })
    }
}
