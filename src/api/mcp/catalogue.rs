//! The tools as MCP clients see them: built once for each state of the registry, filtered for each caller, paged, and
//! sorted by name.
//!
//! [`CallerTools`] decides and caches which tools a caller may use; a list changes with the registry and the
//! policies.

mod output;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use rmcp::model::{CustomResult, ErrorData, JsonObject, ServerResult, Tool as McpTool, ToolAnnotations};
use serde::Serialize;
use serde_json::{Map, Value, json};

use sekisho_calls::policy::CallerTools;
use sekisho_calls::registry::Snapshot;
use sekisho_calls::tool::{BUILTIN, Metadata, Tool, shortened_name};
use sekisho_config::McpEndpoint;
use sekisho_core::call::Caller;
use sekisho_gateway::Gateway;

pub(super) use self::output::lists_object;

/// Items of a page. Many clients read only the first page, so it is large.
pub(super) const PAGE: usize = 2_000;

/// Maximum bytes of a page's items as JSON: the official Python client accepts no event above 1 MiB.
const MAX_PAGE: usize = 1_000_000;

/// How long a client may cache a list; changes are also sent as notifications.
pub(super) const LIST_TTL_MS: u64 = 10_000;

/// The catalogue of the registry's current state.
#[derive(Debug, Default)]
pub(super) struct Catalogues {
    present: ArcSwapOption<Catalogue>,
}

#[derive(Debug)]
pub(super) struct Catalogue {
    snapshot: Arc<Snapshot>,
    /// In the order of `snapshot`.
    tools: Vec<McpTool>,
    /// A digest of each tool's description, comparable with other catalogues of this process. Computed on first use.
    digests: OnceLock<Vec<u64>>,
    /// Tools with arguments that must also be sent in headers (SEP-2243).
    in_headers: HashSet<String>,
    /// Annotations of servers beside the protocol's, by tool.
    further_annotations: HashMap<String, Map<String, Value>>,
}

/// One page, and the cursor of the next.
#[derive(Debug)]
pub(super) struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

impl Catalogues {
    pub(super) fn present(&self, gateway: &Gateway) -> Arc<Catalogue> {
        let snapshot = gateway.pipeline.registry.snapshot();
        if let Some(catalogue) = self.present.load_full()
            && Arc::ptr_eq(&catalogue.snapshot, &snapshot)
        {
            return catalogue;
        }
        let tools: Vec<_> = snapshot.tools().iter().map(|tool| described(tool)).collect();
        let in_headers = snapshot.tools().iter().filter(|tool| speaks_of_headers(tool.input.document()));
        let in_headers = in_headers.map(|tool| tool.name().to_owned()).collect();
        let further = snapshot.tools().iter().zip(&tools);
        let further =
            further.filter_map(|(tool, shown)| Some((tool.name().to_owned(), further_annotations(tool, shown)?)));
        let further_annotations = further.collect();
        let catalogue =
            Arc::new(Catalogue { snapshot, tools, digests: OnceLock::new(), in_headers, further_annotations });
        self.present.store(Some(Arc::clone(&catalogue)));
        catalogue
    }
}

impl Catalogue {
    /// The tools that the caller may use, if need be with further scopes. Tools only for apps are among them only if
    /// the client shows apps, and the tool that reads stored results only if the client gets handles of them.
    pub(super) fn usable(
        &self,
        by: &CallerTools,
        shows_apps: bool,
        has_handles: bool,
    ) -> impl Iterator<Item = (&McpTool, &Arc<Tool>)> {
        let tools = self.tools.iter().zip(self.snapshot.tools()).zip(by.access());
        let usable = tools.filter(|(_, access)| access.is_usable_with_scopes()).map(|(tool, _)| tool);
        let is_listed = move |metadata: &Metadata| match metadata.reads_results() {
            true => has_handles,
            false => shows_apps || metadata.is_for_models(),
        };
        usable.filter(move |(_, tool)| is_listed(&tool.metadata))
    }

    /// The list of tools with the annotations that the protocol's model lacks, such as `category`.
    pub(super) fn with_further_annotations(&self, result: ServerResult) -> ServerResult {
        if self.further_annotations.is_empty() {
            return result;
        }
        let Ok(mut written) = serde_json::to_value(&result) else { return result };
        for tool in written.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
            let further = tool["name"].as_str().and_then(|name| self.further_annotations.get(name));
            let shown = tool.get_mut("annotations").and_then(Value::as_object_mut);
            if let (Some(further), Some(shown)) = (further, shown) {
                shown.extend(further.clone());
            }
        }
        ServerResult::CustomResult(CustomResult(written))
    }

    /// The name of the tool that a client of an endpoint with a `max_name_length` calls by a shorter one. One that several tools have,
    /// which a server can bring about, is the name of none.
    pub(super) fn own_name<'a>(&'a self, given: &'a str, endpoint: Option<&McpEndpoint>, caller: &Caller) -> &'a str {
        let max = endpoint.and_then(|endpoint| endpoint.max_name_length).filter(|max| given.len() == *max);
        let Some(max) = max.filter(|_| self.snapshot.get(given).is_none()) else { return given };
        let is_meant = |tool: &&Arc<Tool>| {
            tool.name().len() > max
                && shortened_name(tool.name(), max) == given
                && !tool.metadata.is_hidden_from(caller)
        };
        let mut meant = self.snapshot.tools().iter().filter(is_meant);
        match (meant.next(), meant.next()) {
            (Some(only), None) => only.name(),
            _ => given,
        }
    }

    /// Whether calls of a tool can run as tasks.
    pub(super) fn runs_as_task(&self, name: &str) -> bool {
        self.snapshot.get(name).is_some_and(|tool| tool.metadata.runs_as_task())
    }

    /// The caller's tools in this catalogue.
    pub(super) fn tools_for(&self, caller: &Arc<Caller>, gateway: &Gateway) -> CallerTools {
        gateway.pipeline.policy.tools_for(&self.snapshot, caller)
    }

    /// A digest that differs if the caller's list differs.
    pub(super) fn digest_for(&self, caller: &Arc<Caller>, gateway: &Gateway) -> u64 {
        let by = self.tools_for(caller, gateway);
        let digests = self.digests.get_or_init(|| self.tools.iter().map(digest).collect());
        let usable = digests.iter().zip(by.access()).filter(|(_, access)| access.is_usable_with_scopes());
        let mut hasher = DefaultHasher::new();
        usable.for_each(|(digest, _)| digest.hash(&mut hasher));
        hasher.finish()
    }

    /// The tool with that name, unless it is hidden from the caller.
    pub(super) fn get(&self, name: &str, caller: &Caller) -> Option<&McpTool> {
        let at = self.snapshot.tools().binary_search_by(|tool| tool.name().cmp(name)).ok()?;
        let hidden = self.snapshot.tools().get(at)?.metadata.is_hidden_from(caller);
        self.tools.get(at).filter(|_| !hidden)
    }

    /// The tool's input schema, if arguments must also be sent in headers; `None` for a tool that is hidden from the
    /// caller.
    pub(super) fn schema_with_headers(&self, name: &str, caller: &Caller) -> Option<Arc<JsonObject>> {
        let tool = self.in_headers.contains(name).then(|| self.get(name, caller)).flatten()?;
        Some(Arc::clone(&tool.input_schema))
    }
}

/// The list of tools, with names of at most `max` characters.
pub(super) fn with_short_names(result: ServerResult, max: usize) -> ServerResult {
    let Ok(mut written) = serde_json::to_value(&result) else { return result };
    for tool in written.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        let short = tool["name"].as_str().map(|name| shortened_name(name, max).into_owned());
        if let Some(short) = short {
            tool["name"] = short.into();
        }
    }
    ServerResult::CustomResult(CustomResult(written))
}

fn digest(tool: &McpTool) -> u64 {
    struct Hashing(DefaultHasher);
    impl io::Write for Hashing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hashing = Hashing(DefaultHasher::new());
    // A tool that cannot be serialized is not listed either.
    let _unwritable = serde_json::to_writer(&mut hashing, tool);
    hashing.0.finish()
}

/// The items after the one whose key is in `cursor`.
/// Errors: invalid params: the cursor matches no item of the current list.
pub(super) fn page<T: Serialize>(
    items: impl Iterator<Item = T>,
    key: impl Fn(&T) -> &str,
    cursor: Option<&str>,
) -> Result<Page<T>, ErrorData> {
    let mut items = items.peekable();
    if let Some(cursor) = cursor {
        let named = cursor.strip_prefix(CURSOR).filter(|after| items.any(|item| key(&item) == *after));
        if named.is_none() {
            let message = "this cursor matches no item of the current list; list again without a cursor";
            return Err(ErrorData::invalid_params(message, None));
        }
    }
    let (mut shown, mut bytes) = (Vec::new(), 0);
    while let Some(item) = items.next_if(|item| {
        bytes += size(item);
        shown.is_empty() || (shown.len() < PAGE && bytes <= MAX_PAGE)
    }) {
        shown.push(item);
    }
    let more = items.peek().is_some();
    let next = shown.last().filter(|_| more).map(|last| format!("{CURSOR}{}", key(last)));
    Ok(Page { items: shown, next })
}

/// Bytes of an item as JSON, including the separator.
pub(super) fn size(item: &impl Serialize) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(1);
    // An item that cannot be serialized is not sent either.
    let _unwritable = serde_json::to_writer(&mut counter, item);
    counter.0
}

/// Prefix of our cursors.
const CURSOR: &str = "after:";

/// The tool as its own MCP server describes it, if it has one; name, description and schemas come from the registry.
fn described(tool: &Tool) -> McpTool {
    let metadata = &tool.metadata;
    let field = |name: &str| metadata.mcp_annotations.get(name).cloned();
    let mut described = McpTool::new_with_raw(
        metadata.name.clone(),
        (!metadata.description.is_empty()).then(|| metadata.description.clone().into()),
        input_schema(tool.input.document()),
    );
    described.output_schema = output::listed(tool);
    described.title = field("title").and_then(|title| serde_json::from_value(title).ok());
    described.icons = field("icons").and_then(|icons| serde_json::from_value(icons).ok());
    described.meta = field("_meta").and_then(|meta| serde_json::from_value(meta).ok());
    described.annotations = match field("annotations") {
        Some(annotations) => serde_json::from_value(annotations).ok(),
        None => own_annotations(&tool.metadata),
    };
    described
}

/// Annotations of the tool's server that `shown` lacks.
fn further_annotations(tool: &Tool, shown: &McpTool) -> Option<Map<String, Value>> {
    let said = tool.metadata.mcp_annotations.get("annotations")?.as_object()?;
    let shown = serde_json::to_value(shown.annotations.as_ref()?).ok()?;
    let further: Map<_, _> = said
        .iter()
        .filter(|(name, value)| !value.is_null() && shown.get(name).is_none())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (!further.is_empty()).then_some(further)
}

/// Clients refuse a whole list if one schema lacks `type: object`.
pub(super) fn input_schema(document: &Value) -> Arc<JsonObject> {
    let mut schema = document.as_object().cloned().unwrap_or_default();
    if !schema.contains_key("type") {
        schema.insert("type".into(), json!("object"));
    }
    Arc::new(schema)
}

fn speaks_of_headers(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(key, value)| key == "x-mcp-header" || speaks_of_headers(value)),
        Value::Array(items) => items.iter().any(speaks_of_headers),
        _ => false,
    }
}

/// Annotations of the gateway's own tools. A tool whose MCP server sends none gets none: clients then use the
/// protocol's defaults, which are the cautious ones.
fn own_annotations(metadata: &Metadata) -> Option<ToolAnnotations> {
    let annotations = ToolAnnotations::new().idempotent(metadata.idempotent);
    let Some(effects) = metadata.effects else {
        return (metadata.source == BUILTIN).then(|| annotations.destructive(metadata.dangerous));
    };
    // An operation marked dangerous is destructive, even if its method is not.
    let mut annotations =
        annotations.read_only(effects.read_only && !metadata.dangerous).open_world(effects.open_world);
    annotations.destructive_hint = if metadata.dangerous { Some(true) } else { effects.destructive };
    Some(annotations)
}

/// For clients that get a preview of a large result, which has another schema.
pub(super) fn without_output_schema(mut tool: McpTool) -> McpTool {
    tool.output_schema = None;
    tool
}

/// Revisions before 2026-07-28 allow only output schemas of objects, and their clients refuse others.
pub(super) fn for_older_clients(mut tool: McpTool) -> McpTool {
    let is_object = |schema: &Arc<Map<String, Value>>| schema.get("type").is_some_and(|kind| kind == "object");
    tool.output_schema = tool.output_schema.filter(is_object);
    tool
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_calls::tool::Effects;

    fn names(page: &Page<String>) -> (usize, Option<&str>) {
        (page.items.len(), page.next.as_deref())
    }

    #[test]
    fn unknown_tools_have_no_annotations() {
        let effects = |read_only, destructive| Some(Effects { read_only, destructive, open_world: true });
        let of = |source: &str, dangerous, effects| {
            let metadata = Metadata { source: source.into(), dangerous, effects, ..Metadata::default() };
            serde_json::to_value(own_annotations(&metadata)).expect("annotations")
        };
        let own = |dangerous| json!({"destructiveHint": dangerous, "idempotentHint": false});
        let all = |read_only, destructive| json!({"readOnlyHint": read_only, "destructiveHint": destructive, "idempotentHint": false, "openWorldHint": true});
        assert_eq!(of("builtin", false, None), own(false));
        assert_eq!(of("builtin", true, None), own(true));
        assert_eq!(of("mcp:files", false, None), Value::Null);
        assert_eq!(of("mcp:files", true, None), Value::Null, "an override is for this gateway");
        assert_eq!(of("openapi:pets", false, effects(true, Some(false))), all(true, false));
        assert_eq!(of("openapi:pets", true, effects(true, Some(false))), all(false, true));
        let post = json!({"readOnlyHint": false, "idempotentHint": false, "openWorldHint": true});
        assert_eq!(of("openapi:pets", false, effects(false, None)), post);
        assert_eq!(of("openapi:pets", false, effects(false, Some(true))), all(false, true));
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        let all: Vec<String> = (0..PAGE + 3).map(|number| format!("tool-{number:05}")).collect();
        let first = page(all.iter().cloned(), |name| name, None).expect("a page");
        assert_eq!(names(&first), (PAGE, Some("after:tool-01999")));
        let second = page(all.iter().cloned(), |name| name, first.next.as_deref()).expect("a page");
        assert_eq!(names(&second), (3, None));
        assert_eq!([first.items, second.items].concat(), all);
    }

    #[test]
    fn a_page_ends_before_it_is_too_large_for_a_client() {
        let all: Vec<String> = (0..3).map(|number| format!("{number}").repeat(MAX_PAGE / 2)).collect();
        let first = page(all.iter().cloned(), |name| name, None).expect("a page");
        let second = page(all.iter().cloned(), |name| name, first.next.as_deref()).expect("a page");
        assert_eq!((first.items.len(), second.items.len()), (1, 1), "two would be just too many");
        let huge = ["a".repeat(2 * MAX_PAGE), "b".to_owned()];
        let first = page(huge.into_iter(), |name| name, None).expect("a page");
        assert_eq!(first.items.len(), 1, "a page has at least one item");
    }

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        for cursor in ["after:gone", "tool-1", ""] {
            let error = page(["tool-1".to_owned()].into_iter(), |name| name, Some(cursor)).expect_err("no such cursor");
            assert_eq!(error.code.0, -32602, "{cursor}");
        }
    }
}
