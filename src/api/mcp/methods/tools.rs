//! Tools: their list, and calls of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{
    CacheScope, CallToolRequestParams, ErrorData, ListToolsResult, PaginatedRequestParams, ServerResult,
    Tool as McpTool,
};
use serde_json::{Map, Value, json};

use super::approval;
use super::tasks::with_task_support;
use super::{Context, Questionable, StartedRequest, cursor, parsed, ready};
use crate::mcp::auto_list::{self, AutoList};
use crate::mcp::catalogue::{
    Catalogue, LIST_TTL_MS, Page, for_older_clients, lists_object, page, with_short_names, without_output_schema,
};
use crate::mcp::client::Client;
use crate::mcp::extensions::{APPS, TASKS};
use crate::mcp::headers::Era;
use crate::mcp::running_request::Outcome;
use crate::mcp::tasks::TaskOwner;
use crate::mcp::{result, search};
use sekisho_calls::policy::CallerTools;
use sekisho_config::McpToolListing;
use sekisho_core::call::{Arguments, CallContext, READ_RESULT};

impl Context {
    /// The list of the tools.
    pub(super) async fn list_tools(self, request: PaginatedRequestParams) -> Outcome {
        self.server.gateway.tool_offer().offer_new_servers().await;
        self.tools(&request)
    }

    fn tools(&self, request: &PaginatedRequestParams) -> Result<ServerResult, ErrorData> {
        let cursor = cursor(request);
        let catalogue = self.server.catalogues.present(&self.server.gateway);
        let has_handles = self.client.has_handles();
        let Page { items, next } = self.page_of_tools(&catalogue, cursor)?;
        let items = items.into_iter();
        let items: Vec<_> = match has_handles {
            true => items.map(without_output_schema).collect(),
            false => items.collect(),
        };
        let items = match self.era {
            Era::Stateless => items,
            Era::Sessions => items.into_iter().map(for_older_clients).collect(),
        };
        let mut result = ListToolsResult::with_all_items(items);
        (result.next_cursor, result.ttl_ms, result.cache_scope) = (next, Some(LIST_TTL_MS), Some(CacheScope::Private));
        let result = ServerResult::ListToolsResult(result);
        let result = match self.era {
            Era::Stateless => catalogue.with_further_annotations(result),
            Era::Sessions => {
                let names_tools = matches!(self.client.listing, McpToolListing::All | McpToolListing::Auto);
                let result = with_task_support(result, |name| names_tools && catalogue.runs_as_task(name));
                catalogue.with_further_annotations(result)
            }
        };
        let max_name = self.client.endpoint.as_ref().and_then(|endpoint| endpoint.max_name_length);
        Ok(match max_name {
            Some(max) => with_short_names(result, max),
            None => result,
        })
    }

    fn page_of_tools(&self, catalogue: &Catalogue, cursor: Option<&str>) -> Result<Page<McpTool>, ErrorData> {
        let (has_handles, caller) = (self.client.has_handles(), &self.client.caller);
        if let Some(tools) = search::tools(self.client.listing) {
            let reader = catalogue.get(READ_RESULT, caller).filter(|_| has_handles);
            return page(tools.iter().chain(reader), |tool| &tool.name, cursor).map(Page::cloned);
        }
        let tools = catalogue.tools_for(caller, &self.server.gateway);
        let usable = catalogue.usable(&tools, self.declares(APPS), has_handles);
        match self.auto_list(catalogue, &tools) {
            AutoList::Whole => page(usable.map(|(shown, _)| shown), |tool| &tool.name, cursor).map(Page::cloned),
            list => {
                let chosen = usable.filter(|(_, tool)| list.has(tool.name()) || tool.metadata.reads_results());
                let chosen = chosen.map(|(shown, tool)| auto_list::short(shown, tool));
                page(search::TOOLS.iter().cloned().chain(chosen), |tool| &tool.name, cursor)
            }
        }
    }

    /// The list of a client with `tools: auto`; of others every tool.
    fn auto_list(&self, catalogue: &Catalogue, tools: &CallerTools) -> AutoList {
        let (gateway, client) = (&self.server.gateway, &self.client);
        if client.listing != McpToolListing::Auto {
            return AutoList::Whole;
        }
        let choose = |before: &BTreeSet<String>| {
            let usable: Vec<_> = catalogue.usable(tools, self.declares(APPS), false).map(|(_, tool)| tool).collect();
            let names: Vec<_> = usable.iter().map(|tool| tool.name()).collect();
            let most_used = gateway.pipeline.policy.used_tools().most_used(&client.caller);
            let first = before.iter().chain(&most_used).map(String::as_str);
            let budget = gateway.configuration().current().server.mcp.max_listed_tokens;
            auto_list::choose(&names, |at| usable[at].listed_tokens(), budget, first)
        };
        let digest = catalogue.digest_for(&client.caller, gateway);
        match &client.session {
            Some(session) => session.listed.get(digest, false, choose),
            None => self.server.caller_lists.of(&client.caller).get(digest, true, choose),
        }
    }

    /// How tools are listed, as far as it matters for a call: with `auto` the tools of `search` answer where they are listed.
    fn listing_for(&self, called: &str) -> McpToolListing {
        if self.client.listing != McpToolListing::Auto || !search::is_own(called) {
            return self.client.listing;
        }
        let catalogue = self.server.catalogues.present(&self.server.gateway);
        let tools = catalogue.tools_for(&self.client.caller, &self.server.gateway);
        match self.auto_list(&catalogue, &tools) {
            AutoList::Whole => McpToolListing::All,
            AutoList::Short | AutoList::Chosen(_) => McpToolListing::Search,
        }
    }

    pub(super) fn call_tool(&self, mut params: Map<String, Value>) -> Result<StartedRequest, ErrorData> {
        let task = params.remove("task").filter(|_| self.era == Era::Sessions);
        let request: CallToolRequestParams = parsed(params)?;
        let arguments = request.arguments.unwrap_or_default();
        let listing = self.listing_for(&request.name);
        let (name, arguments) = match search::answer(listing, &request.name, &arguments, &self.server, &self.client) {
            search::Answer::Result(result) => return result.map(|result| ready(result.into())),
            search::Answer::Call(name, arguments) => (name, arguments),
            search::Answer::NotOurs => {
                let catalogue = self.server.catalogues.present(&self.server.gateway);
                let endpoint = self.client.endpoint.as_deref();
                (catalogue.own_name(&request.name, endpoint, &self.client.caller).to_owned(), arguments)
            }
        };
        if let Some(wanted) = &task {
            self.check_task(wanted, &name)?;
        }
        let as_task = task.is_some();
        let (given, state) = (request.input_responses, request.request_state);
        let request = Questionable { method: "tools/call", name, arguments, given, state };
        let started = self.start_or_resume(request, |context, mut call, client, arguments| {
            call.client.as_task = as_task;
            context.work_of_tool(call, client, arguments)
        })?;
        match task {
            Some(wanted) => self.start_task(started, &wanted),
            None if self.era == Era::Stateless && self.declares(TASKS) => {
                Ok(StartedRequest { task: Some(TaskOwner::of(&self.client, self.era)), ..started })
            }
            None => Ok(started),
        }
    }

    /// The work of a tool call, with the result in the form of the client's revision.
    fn work_of_tool(
        &self,
        call: CallContext,
        client: Arc<Client>,
        arguments: Arguments,
    ) -> BoxFuture<'static, Outcome> {
        let (gateway, context, era) = (Arc::clone(&self.server.gateway), Arc::clone(&self.client), self.era);
        let mut call = Box::new(call);
        async move {
            let snapshot = gateway.pipeline.registry.snapshot();
            // The pipeline refuses a tool that is hidden from the caller like an unknown one.
            let tool = snapshot.get(&call.tool).filter(|tool| !tool.metadata.is_hidden_from(&context.caller));
            // A client's files and interpreters exist as long as its session.
            let session = context.session_id.as_ref().filter(|_| tool.is_some_and(|tool| tool.metadata.session_aware));
            let session = match session.map(|id| gateway.pipeline.sessions.prepare(&context.caller, id)).transpose() {
                Ok(session) => session,
                Err(error) => return Ok(result::of_error(&error).into()),
            };
            let has_output_schema = tool.is_some_and(|tool| tool.output.is_some());
            let unknown = tool.is_none().then(|| context.call(call.tool.clone(), Arc::clone(&client)));
            let asking = Arc::clone(&client);
            let max_wait = move |needed| approval::ask(Arc::clone(&asking), needed).boxed();
            (call.origin.session, call.origin.handles) = (session, context.handles(&gateway));
            let answered = gateway.approvals().call_when_approved(call, arguments, max_wait).await.answered;
            if let Err(error) = &answered.reply.outcome {
                context.was_refused(error);
                if let Some(call) = unknown
                    && let Some(server) = Box::pin(gateway.mcp_servers().of_tool_in_session(&call, &call.tool)).await
                {
                    return Err(result::added_in_session(&call.tool, &server));
                }
            }
            if era == Era::Stateless
                && let Some(missing) = result::missing_capability(&answered.reply, &client)
            {
                return Err(missing);
            }
            if era == Era::Sessions
                && let Some(refusal) = result::needed_pages(&answered.reply, &client)
            {
                return Err(refusal);
            }
            let mut result = result::of_reply(&answered.reply, has_output_schema)?;
            if era == Era::Sessions {
                // Older revisions allow only objects as structured content, and require it of a tool that lists a schema.
                result.structured_content = match result.structured_content.take() {
                    Some(value) if !value.is_object() => {
                        tool.is_some_and(|tool| lists_object(tool)).then(|| json!({"output": value}))
                    }
                    structured => structured,
                };
            }
            Ok(result::with_other_members(era, result, &answered.reply))
        }
        .boxed()
    }
}
