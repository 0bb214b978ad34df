//! The calls in one of the orders of the index, which the titles of the columns choose.

use maud::Markup;

use super::{Wanted, table_in};
use crate::list::Table;
use crate::sorting::Sorting;
use crate::text::Texts;
use sekisho_api::CallBody;
use sekisho_store::FoundCalls;

/// The orders of the index, the greatest first, and their columns.
const ORDERS: [(&str, &str); 3] = [("", "time"), ("duration", "duration_seconds"), ("cost", "cost_usd")];

/// The calls, in one of the orders of the index.
pub(super) fn sorted(texts: &Texts, wanted: &Wanted, found: &FoundCalls) -> Markup {
    let order = wanted.value("sort");
    let chosen = ORDERS.iter().find(|(known, _)| *known == order).map(|(_, column)| format!("-{column}"));
    let address = |column: &str| {
        let column = column.trim_start_matches('-');
        wanted.with("sort", ORDERS.iter().find(|(_, known)| *known == column).map_or("", |(order, _)| order))
    };
    let sorting = Sorting {
        chosen: chosen.as_deref().unwrap_or_default(),
        is_open: |column| ORDERS.iter().any(|(_, known)| *known == column.name),
        address: &address,
    };
    let calls: Vec<_> = found.calls.iter().map(CallBody::of_indexed).collect();
    Table { sorting: Some(sorting), ..table_in(texts) }.table(&calls)
}
