//! The map: clients, the gateway and its servers, with the traffic of the last five minutes between them and what works.

mod picture;

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use self::picture::Picture;
use super::acts::Act;
use super::address::with_query;
use super::frame::{self, Head, Section};
use super::overview::{self, Followed};
use super::servers::{path_of, state};
use super::text::Texts;
use super::visit::{Visit, Watcher};
use super::{Console, format};
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::error::CallError;
use sekisho_core::record::Status;
use sekisho_gateway::{SourceState, SourceStatus};
use sekisho_store::{CallSums, TimeRange};

pub(super) const PATH: &str = "/console/map";

/// Maximum clients, and servers, of a picture: the busiest.
const MAX_NODES: usize = 12;

/// A client or a server.
struct Node {
    name: String,
    link: String,
    sums: CallSums,
    /// Of a server.
    health: Option<Health>,
}

/// What works of a server.
struct Health {
    state: SourceState,
    has_reason: bool,
    /// For the visitor's tenant; `None` without an upstream.
    circuit: Option<BreakerState>,
}

/// Nodes of one kind, the busiest first.
struct Nodes {
    shown: Vec<Node>,
    /// How many there are besides.
    more: usize,
}

/// The map as it is now.
struct Map {
    clients: Nodes,
    servers: Nodes,
    /// All calls, also of tools without a server.
    total: CallSums,
    /// Servers of which something does not work.
    broken: usize,
}

/// `GET /console/map`.
pub(super) async fn page(State(console): State<Arc<Console>>, visit: Visit) -> Response {
    let map = match visit.require(Act::SeeServers) {
        Ok(()) => Map::of(&console, &visit).await,
        Err(error) => Err(error),
    };
    visit.answer(map.map(|map| show(&visit, &map)))
}

/// `GET /console/map/live`.
pub(super) async fn live(State(console): State<Arc<Console>>, Watcher(visit): Watcher) -> Response {
    match visit.require(Act::SeeServers) {
        Ok(()) => overview::follow(console, visit, Followed::Map),
        Err(error) => visit.answer(Err(error)),
    }
}

/// The contents of the elements with these ids.
/// Errors: the database fails.
pub(super) async fn parts(console: &Console, visit: &Visit) -> Result<Vec<(&'static str, String)>, CallError> {
    let (map, texts) = (Map::of(console, visit).await?, visit.texts());
    Ok(vec![("state", map.state(&texts).into_string()), ("map", map.draw(&texts).into_string())])
}

fn show(visit: &Visit, map: &Map) -> Markup {
    let texts = visit.texts();
    let title = texts.get("nav-map");
    let head = Head { state: Some(html! { span #state { (map.state(&texts)) } }), ..Head::new(&title) };
    let body = html! {
        live-parts src={ (PATH) "/live" } data-live=(texts.get("live-live")) data-lost=(texts.get("live-lost")) {}
        div #map { (map.draw(&texts)) }
    };
    frame::page(visit, Some(Section::Map), &head, &body)
}

impl Map {
    /// Errors: the database fails.
    async fn of(console: &Console, visit: &Visit) -> Result<Self, CallError> {
        let (gateway, caller) = (&console.gateway, &visit.caller);
        let mut tools = gateway.history().sums_of_tools(caller, TimeRange::LATEST).await?;
        let clients = gateway.history().sums_of_clients(caller, TimeRange::LATEST).await?;
        let mut total = CallSums::default();
        clients.values().for_each(|sums| total.add_all(sums));
        let own = |tenant: &str| *tenant == *caller.tenant;
        let clients = clients.into_iter().map(|((tenant, id), sums)| Node {
            link: with_query("/console/calls", [("caller", &*id), ("tenant", &*tenant)]),
            name: if own(&tenant) { id } else { format!("{id} ({tenant})") },
            sums,
            health: None,
        });
        let sources = gateway.sources().list(caller).await;
        let sources: Vec<_> = sources.into_iter().filter(|source| source.state != SourceState::Disabled).collect();
        let broken = sources.iter().filter(|source| source.state != SourceState::Works).count();
        let servers = sources.iter().map(|source| {
            let mut sums = CallSums::default();
            source.tools.iter().filter_map(|tool| tools.remove(tool)).for_each(|more| sums.add_all(&more));
            let circuit = circuit(console, source, &caller.tenant);
            let health = Some(Health { state: source.state, has_reason: source.reason.is_some(), circuit });
            Node { name: source.name.clone(), link: path_of(source.kind, &source.name), sums, health }
        });
        let servers = Nodes::busiest(servers.collect());
        Ok(Self { clients: Nodes::busiest(clients.collect()), servers, total, broken })
    }

    fn state(&self, texts: &Texts) -> Markup {
        let failed = self.total.of(Status::Error);
        let variables =
            [("count", self.total.calls().into()), ("failed", failed.into()), ("broken", self.broken.into())];
        html! { (texts.with("map-state", variables)) }
    }

    fn draw(&self, texts: &Texts) -> Markup {
        html! {
            (Picture { texts, map: self }.draw())
            (self.table(texts))
        }
    }

    /// All that the picture shows.
    fn table(&self, texts: &Texts) -> Markup {
        let (title, kinds) = (texts.get("nav-map"), [("map-client", &self.clients), ("map-server", &self.servers)]);
        html! {
            div.scroll tabindex="0" role="region" aria-label=(title) { table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("server-name")) }
                    th scope="col" { (texts.get("server-kind")) }
                    th.number scope="col" { (texts.get("map-per-minute")) }
                    th.number scope="col" { (texts.get("map-failed")) }
                    th.number scope="col" { (texts.get("status-refused")) }
                    th scope="col" { (texts.get("map-health")) }
                    th scope="col" { (texts.get("limit-circuit")) }
                } }
                tbody {
                    @for (kind, nodes) in kinds { @for node in &nodes.shown { (node.row(texts, kind)) } }
                }
            } }
            @for (kind, nodes) in kinds.into_iter().filter(|(_, nodes)| nodes.more > 0) {
                p.quiet.small { (texts.get(kind)) ": " (more(texts, nodes.more)) }
            }
        }
    }
}

impl Nodes {
    fn busiest(mut all: Vec<Node>) -> Self {
        all.sort_by(|one, other| {
            (Reverse(one.sums.calls()), &one.name).cmp(&(Reverse(other.sums.calls()), &other.name))
        });
        let more = all.len().saturating_sub(MAX_NODES);
        all.truncate(MAX_NODES);
        Self { shown: all, more }
    }
}

impl Node {
    fn row(&self, texts: &Texts, kind: &str) -> Markup {
        html! { tr {
            th scope="row" { a href=(self.link) { (format::name(&self.name)) } }
            td { (texts.get(kind)) }
            td.number data-label=(texts.get("map-per-minute")) { (per_minute(&self.sums)) }
            td.number data-label=(texts.get("map-failed")) { (format::count(self.sums.of(Status::Error))) }
            td.number data-label=(texts.get("status-refused")) { (format::count(self.sums.of(Status::Refused))) }
            td data-label=(texts.get("map-health")) { @match &self.health { Some(health) => (state(texts, health.state, health.has_reason)), None => "–" } }
            td data-label=(texts.get("limit-circuit")) { @match self.circuit() { Some(circuit) => (circuit.as_str()), None => "–" } }
        } }
    }

    fn circuit(&self) -> Option<BreakerState> {
        self.health.as_ref()?.circuit
    }
}

fn more(texts: &Texts, more: usize) -> String {
    texts.with("map-more", [("n", more.into())]).into_owned()
}

/// The calls of a minute, with a digit after the point where it is not zero.
fn per_minute(sums: &CallSums) -> String {
    let parts = TimeRange::LATEST.parts.unsigned_abs();
    let tenths = sums.calls().saturating_mul(10) / parts;
    match tenths % 10 {
        0 => format::count(tenths / 10),
        digit => format!("{}.{digit}", format::count(tenths / 10)),
    }
}

/// The circuit of a server's first tool with one: all tools of a server have the same upstream, and most of a document.
fn circuit(console: &Console, source: &SourceStatus, tenant: &str) -> Option<BreakerState> {
    let pipeline = &console.gateway.pipeline;
    let snapshot = pipeline.registry.snapshot();
    let upstream = source.tools.iter().find_map(|tool| snapshot.get(tool)?.upstream())?;
    Some(pipeline.breakers.state(&upstream, tenant))
}
