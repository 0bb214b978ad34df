//! Snapshots of pages, as Playwright's MCP server (B11–B14) and others with its tools give them: the part that a step
//! needs, and a fresh snapshot where a call used an element of an old one.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::memory::relevant;
use crate::prompts::beginning;
use crate::toolbox::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_core::call::Arguments;

/// Part of the name of every tool of a browser.
const BROWSER: &str = "browser_";

/// The tool that takes a snapshot, after the prefix of its server.
const SNAPSHOT: &str = "browser_snapshot";

/// How the line with a page's address begins.
const ADDRESS: &str = "- Page URL:";

/// Before the reference of an element.
const REFERENCE: &str = "[ref=";

/// Elements of a page that an observation has.
const MAX_ELEMENTS: usize = 20;

/// Maximum characters of an element.
const MAX_ELEMENT: usize = 200;

/// The last answer that shows a page, of calls in their order with the names of their tools. An answer with only the page's
/// address ends an earlier snapshot: a click may have led to another page.
pub(super) fn last<'a>(answers: impl DoubleEndedIterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    let shows_page = |answer: &str| has_elements(answer) || answer.lines().any(|line| line.trim().starts_with(ADDRESS));
    answers.rev().find(|(tool, answer)| tool.contains(BROWSER) && shows_page(answer)).map(|(_, answer)| answer)
}

/// Whether an answer has a snapshot: its elements have references.
pub(super) fn has_elements(answer: &str) -> bool {
    answer.contains(REFERENCE)
}

/// The part of a page that a step needs: its address and title, and the elements that fit the step best.
pub(super) fn digest(page: &str, step: &str) -> String {
    let lines: Vec<_> = page.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_page = |line: &&&str| line.starts_with(ADDRESS) || line.starts_with("- Page Title:");
    let page = lines.iter().filter(is_page).copied();
    let elements: Vec<_> = lines.iter().copied().filter(|line| line.contains(REFERENCE)).collect();
    let page: Vec<_> = page.chain(relevant(&elements, step, MAX_ELEMENTS)).collect();
    page.into_iter().map(|line| format!("{}\n", beginning(line, MAX_ELEMENT))).collect()
}

/// A toolbox that follows a call with an old reference by a fresh snapshot, which the model gets with the failure.
pub(super) struct FreshSnapshots(pub(super) Arc<dyn Toolbox>);

impl Toolbox for FreshSnapshots {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        self.0.list()
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(async move {
            let prefix = call.tool.split_once(BROWSER).map(|(prefix, _)| prefix.to_owned());
            let has_reference = call.arguments.contains_key("ref") || call.arguments.contains_key("target");
            let id = format!("{}_snapshot", call.id);
            let answer = self.0.call(call).await;
            let Some(prefix) = prefix.filter(|_| has_reference && is_stale(&answer)) else { return answer };
            let tool = format!("{prefix}{SNAPSHOT}");
            let snapshot = ToolboxCall::new(id, tool, Arguments::new());
            let fresh = self.0.call(snapshot).await;
            if !fresh.success {
                return answer;
            }
            let text =
                format!("{}\n\nThe page has changed. This is a fresh snapshot of it:\n{}", answer.text, fresh.text);
            ToolAnswer { text, ..answer }
        })
    }
}

fn is_stale(answer: &ToolAnswer) -> bool {
    let text = answer.text.to_ascii_lowercase();
    !answer.success && text.contains("ref") && (text.contains("not found") || text.contains("stale"))
}

impl std::fmt::Debug for FreshSnapshots {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FreshSnapshots").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    const PAGE: &str = "### Page state\n- Page URL: http://shop/\n- Page Title: Shop\n```yaml\n- heading \"Weather\" [ref=e2]\n- button \"Buy shoes\" [ref=e3]\n- text: x\n```";

    #[test]
    fn an_observation_has_the_page_and_the_elements_that_the_step_needs() {
        let digest = digest(PAGE, "buy the shoes");
        assert_eq!(digest, "- Page URL: http://shop/\n- Page Title: Shop\n- button \"Buy shoes\" [ref=e3]\n");
    }

    #[test]
    fn a_newer_address_ends_an_older_snapshot() {
        let left =
            "### Page\n- Page URL: http://shop/results\n- Page Title: Results\n### Snapshot\n- [Snapshot](page-2.yml)";
        let (click, typed) = ("pw__browser_click", ("pw__browser_type", "### Ran Playwright code"));
        let (navigate, snapshot) =
            (("pw__browser_navigate", "- Page URL: http://shop/"), ("pw__browser_snapshot", PAGE));
        for (answers, expected) in [
            (vec![navigate, snapshot, typed], Some(PAGE)),
            (vec![navigate, snapshot, typed, (click, left)], Some(left)),
            (vec![navigate, snapshot, (click, left), snapshot], Some(PAGE)),
            (vec![navigate], Some(navigate.1)),
            (vec![("web_fetch", PAGE), ("browser_tabs", "none")], None),
            (vec![], None),
        ] {
            assert_eq!(last(answers.clone().into_iter()), expected, "{answers:?}");
        }
        assert_eq!(digest(left, "search"), "- Page URL: http://shop/results\n- Page Title: Results\n");
        assert!(has_elements(PAGE) && !has_elements(left));
    }

    /// Refuses the reference `e1`, and records the tools called.
    #[derive(Default)]
    struct Page(Mutex<Vec<String>>);

    impl Toolbox for Page {
        fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
            let success = call.arguments.get("ref") != Some(&json!("e1"));
            let text = if success { PAGE } else { "Error: Ref e1 not found in the current page snapshot." };
            self.0.lock().push(call.tool);
            Box::pin(async move { ToolAnswer { success, text: text.into(), error_info: None, images: Vec::new() } })
        }
    }

    #[tokio::test]
    async fn an_old_reference_leads_to_a_fresh_snapshot_by_the_same_server() {
        let page = Arc::new(Page::default());
        let toolbox = FreshSnapshots(Arc::<Page>::clone(&page));
        let click = |reference: &str| {
            let arguments = Arguments::from_iter([("ref".to_owned(), json!(reference))]);
            ToolboxCall::new("a", "pw__browser_click", arguments)
        };
        let answer = toolbox.call(click("e1")).await;
        assert!(!answer.success && answer.text.contains("fresh snapshot") && answer.text.contains("[ref=e3]"));
        assert_eq!(*page.0.lock(), ["pw__browser_click", "pw__browser_snapshot"]);
        assert!(toolbox.call(click("e3")).await.success);
        assert_eq!(page.0.lock().len(), 3);
    }
}
