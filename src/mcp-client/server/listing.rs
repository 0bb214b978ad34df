//! Reads the lists of a server page by page, within limits.

use std::collections::HashSet;

use rmcp::model::ErrorCode as McpErrorCode;
use serde_json::{Map, Value};

use super::session::Session;
use crate::text::bounded;
use crate::transport::message::Failure;
use sekisho_calls::tool::OfferKind;
use sekisho_core::json;
use sekisho_process_sandbox::packages::Package;

/// Pages of one list. A server may send as many as it likes, and each is a request.
const MAX_PAGES: usize = 1_000;

/// Memory that all lists of one server may take, in bytes.
const MAX_BYTES: usize = 32 << 20;

/// Resources, templates and prompts of one server, of each.
const MAX_ITEMS: usize = 10_000;

/// The lists of one server, as it wrote them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Listing {
    /// As JSON texts: they are looked at only when they are others, and take a fraction of the memory.
    pub(crate) tools: Vec<Box<str>>,
    /// Tools that the server describes in a way that they cannot be called, with the reason.
    pub(crate) uncallable: Vec<(String, String)>,
    /// Whether the server has more tools than the limit.
    pub(crate) tools_cut: bool,
    /// The names of tools that `include` and `exclude` leave out, as many as tools may be offered.
    pub(crate) left_out: Vec<String>,
    /// Lists beside the tools that could not be read whole, with the reason.
    pub(crate) incomplete: Vec<(OfferKind, String)>,
    pub(crate) resources: Vec<Value>,
    pub(crate) templates: Vec<Value>,
    pub(crate) prompts: Vec<Value>,
    pub(crate) instructions: Option<String>,
    /// Of the program that listed them.
    pub(crate) package: Option<Package>,
}

impl Listing {
    /// Asks for everything the server says it has; for tools, only for the ones whose names are `wanted`.
    /// Errors: why the tools cannot be listed, in words for an operator. Another list that cannot be had is empty, and
    /// the reason is kept.
    pub async fn of(session: &Session, most_tools: usize, wanted: impl Fn(&str) -> bool) -> Result<Self, String> {
        let capabilities = &session.info.capabilities;
        let mut room = MAX_BYTES;
        let mut listing = Self { instructions: session.info.instructions.clone(), ..Self::default() };
        if capabilities.tools.is_some() {
            let pages = Pages { method: "tools/list", member: "tools", most: most_tools };
            let (mut uncallable, mut left_out) = (Vec::new(), Vec::new());
            let keep = |tool: Value| {
                let name = name_of(&tool);
                if !wanted(name) {
                    if left_out.len() < most_tools {
                        left_out.push(bounded(name));
                    }
                    return None;
                }
                match session.can_call(&tool) {
                    Ok(()) => Some(tool.to_string().into()),
                    Err(reason) => {
                        if uncallable.len() < most_tools {
                            uncallable.push((bounded(name), reason));
                        }
                        None
                    }
                }
            };
            (listing.tools, listing.tools_cut) =
                pages.read(session, &mut room, keep).await.map_err(|failure| failure.reason)?;
            listing.uncallable = uncallable;
            listing.left_out = left_out;
        }
        if capabilities.resources.is_some() {
            let pages = Pages { method: "resources/list", member: "resources", most: MAX_ITEMS };
            listing.resources = listing.beside_tools(OfferKind::Resource, pages, session, &mut room).await;
            let pages = Pages { method: "resources/templates/list", member: "resourceTemplates", most: MAX_ITEMS };
            listing.templates = listing.beside_tools(OfferKind::ResourceTemplate, pages, session, &mut room).await;
        }
        if capabilities.prompts.is_some() {
            let pages = Pages { method: "prompts/list", member: "prompts", most: MAX_ITEMS };
            listing.prompts = listing.beside_tools(OfferKind::Prompt, pages, session, &mut room).await;
        }
        Ok(listing)
    }

    async fn beside_tools(&mut self, kind: OfferKind, pages: Pages, session: &Session, room: &mut usize) -> Vec<Value> {
        match pages.read(session, room, Some).await {
            Ok((items, is_cut)) => {
                if is_cut {
                    let read = items.len();
                    let reason = format!("the server lists more than the {read} that are read of {}", pages.method);
                    self.incomplete.push((kind, reason));
                }
                items
            }
            // Many servers announce more than they implement: such a list is empty.
            Err(ListFailure { is_unknown_method: true, .. }) => Vec::new(),
            Err(ListFailure { reason, .. }) => {
                self.incomplete.push((kind, reason));
                Vec::new()
            }
        }
    }
}

/// As the server calls the tool; empty where it does not.
pub(crate) fn name_of(tool: &Value) -> &str {
    tool.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Why a list cannot be had.
struct ListFailure {
    /// The server does not know the method.
    is_unknown_method: bool,
    reason: String,
}

struct Pages {
    method: &'static str,
    member: &'static str,
    most: usize,
}

impl Pages {
    /// The items that `keep` returns, and whether there are more. `room` is the remaining number of bytes.
    async fn read<T: PartialEq>(
        &self,
        session: &Session,
        room: &mut usize,
        mut keep: impl FnMut(Value) -> Option<T>,
    ) -> Result<(Vec<T>, bool), ListFailure> {
        let mut items = Vec::new();
        let (mut cursors, mut cursor) = (HashSet::new(), None::<String>);
        let mut page_before = 0;
        for _ in 0..MAX_PAGES {
            let params = cursor.iter().map(|cursor| ("cursor".to_owned(), Value::from(cursor.as_str())));
            let params = params.collect::<Map<_, _>>();
            let mut page = session.ask(self.method, params).await.map_err(|error| self.failed(&error))?;
            let Some(Value::Array(found)) = page.get_mut(self.member).map(Value::take) else {
                let reason = format!("its answer to {} has no list of {}", self.method, self.member);
                return Err(ListFailure { is_unknown_method: false, reason });
            };
            let this_page = items.len();
            for item in found {
                let size = json::footprint(&item);
                let Some(item) = keep(item) else { continue };
                if items.len() >= self.most || size > *room {
                    return Ok((items, true));
                }
                *room -= size;
                items.push(item);
            }
            let Some(next) = page.get("nextCursor").and_then(Value::as_str) else { return Ok((items, false)) };
            // A server that returns a cursor again would never end. One that ignores cursors sent the same page again.
            if !cursors.insert(next.to_owned()) {
                if items[page_before..this_page] == items[this_page..] {
                    items.truncate(this_page);
                }
                return Ok((items, false));
            }
            cursor = Some(next.to_owned());
            page_before = this_page;
        }
        Ok((items, true))
    }

    fn failed(&self, failure: &Failure) -> ListFailure {
        let is_unknown_method =
            matches!(failure, Failure::Refused(error) if error.code == McpErrorCode::METHOD_NOT_FOUND);
        let reason = match failure {
            Failure::Refused(error) => format!("it refused {}: {}", self.method, bounded(&error.message)),
            Failure::Call(error) => format!("{} failed: {}", self.method, error.message()),
            Failure::Invalid => format!("its answer to {} is invalid", self.method),
            Failure::Lost => format!("it disconnected during {}", self.method),
        };
        ListFailure { is_unknown_method, reason }
    }
}
