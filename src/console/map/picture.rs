//! The map as SVG: clients on the left, the gateway, servers on the right. It is for the eye: the table beside it says the same.

use maud::{Markup, html};

use super::{Map, Node, Nodes, more, per_minute};
use crate::format;
use crate::text::Texts;
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::record::Status;
use sekisho_gateway::SourceState;

const WIDTH: usize = 900;
/// Of the nodes of clients and servers.
const NODE: usize = 270;
const NODE_HEIGHT: usize = 38;
const ROW: usize = 46;
/// Of the gateway.
const LEFT: usize = 375;
const RIGHT: usize = 525;
/// Characters of a name that a node has room for.
const CHARACTERS: usize = 28;

pub(super) struct Picture<'a> {
    pub texts: &'a Texts,
    pub map: &'a Map,
}

/// On which side of the gateway nodes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Clients,
    Servers,
}

impl Picture<'_> {
    pub(super) fn draw(&self) -> Markup {
        let Map { clients, servers, .. } = self.map;
        let rows = |nodes: &Nodes| nodes.shown.len() + usize::from(nodes.more > 0);
        let height = rows(clients).max(rows(servers)).max(2) * ROW;
        let nodes = clients.shown.iter().chain(&servers.shown);
        let most = nodes.map(|node| node.sums.calls()).max().unwrap_or_default();
        html! {
            figure.map {
                svg viewBox={ "0 0 " (WIDTH) " " (height) } aria-hidden="true" {
                    (self.side(clients, Side::Clients, height, most))
                    (self.side(servers, Side::Servers, height, most))
                    rect.gateway x=(LEFT) y=(height / 2 - 26) width=(RIGHT - LEFT) height="52" {}
                    text.name.middle x=(WIDTH / 2) y=(height / 2 - 2) { "sekisho" }
                    text.small.middle x=(WIDTH / 2) y=(height / 2 + 15) { (self.rate(&per_minute(&self.map.total))) }
                }
            }
        }
    }

    fn rate(&self, calls: &str) -> String {
        format!("{calls} {}", self.texts.get("map-per-minute"))
    }

    fn side(&self, nodes: &Nodes, side: Side, height: usize, most: u64) -> Markup {
        let x = if side == Side::Clients { 1 } else { WIDTH - NODE - 1 };
        let rows = nodes.shown.len() + usize::from(nodes.more > 0);
        let top = (height - rows * ROW) / 2;
        html! {
            @for (at, node) in nodes.shown.iter().enumerate() {
                @let y = top + at * ROW + (ROW - NODE_HEIGHT) / 2;
                (edge(node, side, y + NODE_HEIGHT / 2, height / 2, most))
                a href=(node.link) tabindex="-1" { (self.node(node, x, y)) }
            }
            @if nodes.more > 0 { text.small x=(x + 10) y=(top + nodes.shown.len() * ROW + 26) { (more(self.texts, nodes.more)) } }
        }
    }

    fn node(&self, node: &Node, x: usize, y: usize) -> Markup {
        let failed = node.sums.of(Status::Error);
        let (class, sign) = appearance(node);
        let shown = format::text(&node.name);
        let name: String = match shown.chars().count() {
            0..=CHARACTERS => shown.into_owned(),
            _ => shown.chars().take(CHARACTERS - 1).chain(['…']).collect(),
        };
        let failed = match failed {
            0 => String::new(),
            failed => format!(" · {} {}", format::count(failed), self.texts.get("map-failed")),
        };
        html! {
            title { (format::text(&node.name)) }
            rect class={ "node " (class) } x=(x) y=(y) width=(NODE) height=(NODE_HEIGHT) {}
            text.name x=(x + 10) y=(y + 16) { (sign) " " (name) }
            text.small x=(x + 10) y=(y + 31) { (self.rate(&per_minute(&node.sums))) (failed) }
        }
    }
}

/// The class and the sign of a node.
fn appearance(node: &Node) -> (&'static str, &'static str) {
    let Some(health) = &node.health else { return ("client", "") };
    match health.state {
        SourceState::Down => ("bad", "✕"),
        _ if health.circuit == Some(BreakerState::Open) => ("bad", "✕"),
        _ if health.circuit == Some(BreakerState::HalfOpen) => ("warn", "▲"),
        SourceState::Degraded | SourceState::NeedsSignIn => ("warn", "▲"),
        SourceState::Works if health.has_reason => ("warn", "▲"),
        SourceState::Works => ("good", "✓"),
        SourceState::Connecting | SourceState::Disabled => ("client", "…"),
    }
}

/// The line between a node and the gateway: the wider, the more calls.
fn edge(node: &Node, side: Side, y: usize, middle: usize, most: u64) -> Markup {
    let (calls, failed) = (node.sums.calls(), node.sums.of(Status::Error));
    let class = match (calls, failed) {
        (0, _) => "idle",
        _ if failed.saturating_mul(2) >= calls => "bad",
        (_, 1..) => "warn",
        _ => "flows",
    };
    // From 1 to 7 units.
    let width = 1 + calls.saturating_mul(6).checked_div(most).unwrap_or_default();
    let (from, to) = match side {
        Side::Clients => (NODE + 1, LEFT),
        Side::Servers => (RIGHT, WIDTH - NODE - 1),
    };
    let (start, end) = if side == Side::Clients { (y, middle) } else { (middle, y) };
    let half = usize::midpoint(from, to);
    html! { path class={ "edge " (class) } d=(format!("M{from} {start}C{half} {start} {half} {end} {to} {end}")) stroke-width=(width) {} }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::map::{Health, MAX_NODES};
    use crate::text::Language;
    use sekisho_core::call::{CallContext, Caller, Stage, Via};
    use sekisho_core::error::{CallError, ErrorCode};
    use sekisho_core::record::CallSummary;
    use sekisho_store::CallSums;

    fn sums(calls: u64, failed: u64) -> CallSums {
        let call = CallContext::new("crm__get", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest);
        let mut sums = CallSums::default();
        sums.add(&CallSummary::new(&call, None, None, String::new()), calls - failed);
        let error = CallError::new(ErrorCode::ToolError, "no").at_stage(Stage::Execute);
        sums.add(&CallSummary::new(&call, None, Some(&error), String::new()), failed);
        sums
    }

    fn node(name: &str, calls: u64, failed: u64, health: Option<(SourceState, BreakerState)>) -> Node {
        let health = health.map(|(state, circuit)| Health { state, has_reason: false, circuit: Some(circuit) });
        Node { name: name.to_owned(), link: format!("/x/{name}"), sums: sums(calls, failed), health }
    }

    #[test]
    fn the_busiest_are_drawn_with_their_traffic_and_health_and_the_rest_is_counted() {
        let clients = (0..MAX_NODES as u64 + 3).map(|at| node(&format!("c{at}"), at * 5, 0, None)).collect();
        let works = (SourceState::Works, BreakerState::Closed);
        let servers = vec![
            node("crm<b>", 100, 60, Some(works)),
            node("docs", 5, 1, Some((SourceState::Works, BreakerState::Open))),
            node("idle", 0, 0, Some(works)),
        ];
        let (clients, servers) = (Nodes::busiest(clients), Nodes::busiest(servers));
        let map = Map { clients, servers, total: sums(200, 61), broken: 0 };
        let texts = Texts::new(Language::English);
        let drawn = map.draw(&texts).into_string();
        assert!(drawn.contains("c14") && !drawn.contains(">c2<") && drawn.contains("and 3 more"), "{drawn}");
        for part in [
            r#"<path class="edge bad" d="#,
            r#"<path class="edge warn" d="#,
            r#"<path class="edge idle" d="#,
            r#"<rect class="node bad""#,
            "crm&lt;b&gt;",
            "20 calls a minute · 60 failed",
            "40 calls a minute",
            r#"stroke-width="7""#,
            r#"aria-hidden="true""#,
        ] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        assert!(!drawn.contains("<b>"), "{drawn}");
    }
}
