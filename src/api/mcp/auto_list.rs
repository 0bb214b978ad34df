//! `tools: auto`: every tool where all fit in the budget of tokens; else the tools of `search` and, in their short form, all others or
//! the most used of them. A client's list stays the same until its tools change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rmcp::model::{JsonObject, Tool as McpTool};
use serde_json::Value;

use super::catalogue::{Page, input_schema};
use super::search;
use sekisho_calls::tool::{ListedTokens, ModelText, Tool};
use sekisho_core::bounded::BoundedCache;
use sekisho_core::call::Caller;

/// Maximum callers whose lists outside of sessions are kept.
const MAX_CALLERS: usize = 4_096;

/// Maximum tools that are listed for their use.
const MAX_CHOSEN: usize = 64;

/// After this long a list outside of sessions gets the tools that were used since, as far as there is room.
const KEPT: Duration = Duration::from_secs(3_600);

/// The tools of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AutoList {
    /// Every tool, as it is.
    Whole,
    /// The tools of `search`, and all others in their short form.
    Short,
    /// The tools of `search`, and the tools with these names in their short form.
    Chosen(Arc<BTreeSet<String>>),
}

impl AutoList {
    /// Whether a tool is listed beside the tools of `search`.
    pub(super) fn has(&self, name: &str) -> bool {
        let is_chosen = match self {
            Self::Whole | Self::Short => true,
            Self::Chosen(names) => names.contains(name),
        };
        is_chosen && !search::is_own(name)
    }
}

/// The list that was last chosen for a client.
#[derive(Debug, Default)]
pub(super) struct KeptList(Mutex<Option<Kept>>);

#[derive(Debug)]
struct Kept {
    /// The digest of the client's tools.
    digest: u64,
    at: Instant,
    list: AutoList,
}

/// The lists of clients without sessions, by caller without its token.
#[derive(Debug)]
pub(super) struct CallerLists(BoundedCache<Arc<Caller>, Arc<KeptList>>);

impl KeptList {
    /// The list before while the client's tools have this digest, where it `ages` for an hour; else a new one, which `choose` makes with
    /// the names of the list before.
    pub(super) fn get(&self, digest: u64, ages: bool, choose: impl FnOnce(&BTreeSet<String>) -> AutoList) -> AutoList {
        let mut kept = self.0.lock();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.digest == digest && !(ages && kept.at.elapsed() > KEPT)) {
            return kept.list.clone();
        }
        let before = match kept.as_ref().map(|kept| &kept.list) {
            Some(AutoList::Chosen(names)) => Arc::clone(names),
            Some(AutoList::Whole | AutoList::Short) | None => Arc::default(),
        };
        let list = choose(&before);
        *kept = Some(Kept { digest, at: Instant::now(), list: list.clone() });
        list
    }
}

impl CallerLists {
    pub(super) fn new() -> Self {
        Self(BoundedCache::new(MAX_CALLERS))
    }

    pub(super) fn of(&self, caller: &Arc<Caller>) -> Arc<KeptList> {
        let caller = caller.without_token();
        let known = self.0.get(&caller, |kept| Some(Arc::clone(kept)));
        known.unwrap_or_else(|| {
            let kept = Arc::<KeptList>::default();
            self.0.insert(caller, Arc::clone(&kept), |_| false);
            kept
        })
    }
}

/// Chooses among tools, whose names are sorted. Where not all fit, those that are named `first` are taken while there is room.
pub(super) fn choose<'n>(
    names: &[&str],
    tokens: impl Fn(usize) -> ListedTokens,
    budget: usize,
    first: impl Iterator<Item = &'n str>,
) -> AutoList {
    if fit((0..names.len()).map(|at| tokens(at).whole), budget) {
        return AutoList::Whole;
    }
    let mut left = budget.saturating_sub(search_tokens());
    if fit((0..names.len()).map(|at| tokens(at).short), left) {
        return AutoList::Short;
    }
    let mut chosen = BTreeSet::new();
    for name in first.filter(|name| !search::is_own(name)) {
        if chosen.len() == MAX_CHOSEN {
            break;
        }
        let Ok(at) = names.binary_search(&name) else { continue };
        let short = tokens(at).short;
        if short <= left && chosen.insert(name.to_owned()) {
            left -= short;
        }
    }
    AutoList::Chosen(Arc::new(chosen))
}

/// Whether the sum is within the budget. Ends with the first tool that is too much.
fn fit(mut tokens: impl Iterator<Item = usize>, budget: usize) -> bool {
    let mut left = budget;
    tokens.all(|tokens| match left.checked_sub(tokens) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    })
}

fn search_tokens() -> usize {
    let tokens = search::TOOLS.iter().map(|tool| {
        let schema = Value::Object(JsonObject::clone(&tool.input_schema));
        let description = tool.description.as_deref().unwrap_or_default();
        ModelText { name: &tool.name, description, schema: &schema }.tokens()
    });
    tokens.sum()
}

/// A tool in its short form.
pub(super) fn short(shown: &McpTool, tool: &Tool) -> McpTool {
    let (description, schema) = tool.model_text().short();
    let mut short = shown.clone();
    short.description = (!description.is_empty()).then(|| description.into());
    short.input_schema = input_schema(&schema);
    short
}

impl Page<&McpTool> {
    /// Whole tools are cloned for one page only.
    pub(super) fn cloned(self) -> Page<McpTool> {
        Page { items: self.items.into_iter().cloned().collect(), next: self.next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["call_tool", "draw", "mail", "sum"];

    fn chosen(names: &[&str]) -> AutoList {
        AutoList::Chosen(Arc::new(names.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn all_are_listed_where_they_fit_and_else_the_first_while_there_is_room() {
        let beside = search_tokens();
        let tokens = |_: usize| ListedTokens { whole: 1_000, short: 400 };
        for (budget, first, expected) in [
            (4_000, vec![], AutoList::Whole),
            (3_999, vec![], AutoList::Short),
            (beside + 1_600, vec![], AutoList::Short),
            (beside + 1_599, vec![], chosen(&[])),
            (beside + 1_599, vec!["sum", "gone", "sum", "call_tool", "mail", "draw"], chosen(&["draw", "mail", "sum"])),
            (beside + 900, vec!["sum", "mail", "draw"], chosen(&["mail", "sum"])),
            (beside, vec!["sum"], chosen(&[])),
            (1, vec!["sum"], chosen(&[])),
        ] {
            assert_eq!(choose(&NAMES, tokens, budget, first.into_iter()), expected, "{budget}");
        }
    }

    #[test]
    fn a_bounded_number_of_tools_is_chosen_and_none_with_a_name_of_a_search_tool() {
        let names: Vec<_> = (100..300).map(|number| format!("tool_{number}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let tokens = |at: usize| ListedTokens { whole: 100_000, short: if at < 150 { 1 } else { 100_000 } };
        let AutoList::Chosen(found) = choose(&names, tokens, 20_000, names.iter().copied()) else {
            panic!("some are chosen")
        };
        assert_eq!(found.len(), MAX_CHOSEN);
        for (list, expected) in
            [(AutoList::Short, true), (chosen(&["draw", "call_tool"]), true), (chosen(&["sum"]), false)]
        {
            assert_eq!((list.has("draw"), list.has("call_tool")), (expected, false), "{list:?}");
        }
    }

    #[test]
    fn a_list_is_kept_until_the_tools_change_and_then_its_tools_come_first() {
        let kept = KeptList::default();
        assert_eq!(
            kept.get(1, false, |before| chosen(if before.is_empty() { &["a"] } else { &["b"] })),
            chosen(&["a"])
        );
        for ages in [false, true] {
            assert_eq!(kept.get(1, ages, |_| AutoList::Whole), chosen(&["a"]));
        }
        let again = kept.get(2, false, |before| {
            assert_eq!(before.iter().collect::<Vec<_>>(), ["a"]);
            chosen(&["a", "b"])
        });
        assert_eq!(again, chosen(&["a", "b"]));
    }

    #[test]
    fn callers_have_lists_of_their_own() {
        let lists = CallerLists::new();
        let caller = |key: &str| Arc::new(Caller::new(key, "tenant", Vec::new()));
        lists.of(&caller("ada")).get(1, true, |_| chosen(&["a"]));
        assert_eq!(lists.of(&caller("ada")).get(1, true, |_| AutoList::Whole), chosen(&["a"]));
        assert_eq!(lists.of(&caller("eve")).get(1, true, |_| AutoList::Whole), AutoList::Whole);
    }
}
