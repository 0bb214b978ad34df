//! The calls that the tool of a call made, and the calls that their tools made: a tree, in which each has its outcome,
//! the way to its own page and, folded, its path.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use maud::{Markup, html};

use super::call_path::CallPath;
use super::text::Texts;
use super::timeline::Row;
use super::visit::Visit;
use super::{Console, calls, format, timeline};
use sekisho_core::call::CallId;
use sekisho_core::error::CallError;
use sekisho_core::record::CallSummary;

/// Maximum calls in a tree.
const MAX_DRAWN: usize = 100;

/// The nested calls of a call, by the calls that made them.
#[derive(Debug, Default)]
pub(super) struct CallTree {
    below: HashMap<CallId, VecDeque<Arc<CallSummary>>>,
}

impl CallTree {
    /// The tree of the calls that the visitor may see, below a call that made `made` calls.
    /// Errors: the index cannot be read.
    pub(super) async fn of(console: &Console, visit: &Visit, id: CallId, made: usize) -> Result<Self, CallError> {
        if made == 0 {
            return Ok(Self::default());
        }
        Ok(Self { below: console.gateway.history().calls_below(&visit.caller, id).await? })
    }

    /// The calls below a call that made `made` calls; nothing for a call that made none.
    pub(super) fn draw(&self, texts: &Texts, id: CallId, made: usize) -> Markup {
        let mut left = MAX_DRAWN;
        html! {
            @if made > 0 {
                section aria-labelledby="nested" {
                    h2 #nested { (texts.with("nested-title", [("n", made.into())])) }
                    (self.level(texts, id, made, &mut left))
                }
            }
        }
    }

    /// The call and the calls below it, as steps in time.
    pub(super) fn rows(&self, texts: &Texts, root: &CallSummary) -> Vec<Row> {
        let depth = |call: &CallSummary| call.depth.saturating_sub(root.depth) as usize;
        let below = self.below.values().flatten().map(|call| &**call);
        std::iter::once(root).chain(below).map(|call| timeline::row_of_call(texts, call, depth(call))).collect()
    }

    /// In the order in which they ended, as far as `left` calls may still be drawn.
    fn level(&self, texts: &Texts, id: CallId, made: usize, left: &mut usize) -> Markup {
        let mut drawn = Vec::new();
        for call in self.below.get(&id).into_iter().flatten() {
            if *left == 0 {
                break;
            }
            *left -= 1;
            drawn.push(self.one(texts, call, left));
        }
        let others = made.saturating_sub(drawn.len());
        html! {
            @if !drawn.is_empty() { ol.call-tree { @for call in drawn { li { (call) } } } }
            @if others > 0 { p.quiet.small { (texts.with("nested-others", [("n", others.into())])) } }
        }
    }

    fn one(&self, texts: &Texts, call: &CallSummary, left: &mut usize) -> Markup {
        let below = self.level(texts, call.id, call.nested, left);
        html! {
            p {
                a href=(calls::path_of(call.id)) { (format::name(&call.tool)) } " "
                (calls::outcome(texts, call)) " "
                span.quiet { (format::duration(call.duration)) " · " (format::money(call.cost_usd)) }
            }
            details { summary { (texts.get("path-label")) } (CallPath::of_recent(call).draw(texts)) }
            (below)
        }
    }
}
