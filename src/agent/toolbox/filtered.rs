//! The tools that an agent's profile admits.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_config::ToolFilter;

/// A toolbox without the tools that the filter leaves out: they are neither listed nor run, nor called by a tool that is.
pub struct Filtered {
    pub filter: ToolFilter,
    pub toolbox: Arc<dyn Toolbox>,
}

impl Toolbox for Filtered {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async {
            let mut tools = self.toolbox.list().await?;
            tools.retain(|tool| self.filter.admits(&tool.name));
            Ok(tools)
        })
    }

    fn call(&self, mut call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        if self.filter.admits(&call.tool) {
            let ToolFilter { include, exclude } = &self.filter;
            call.nested_scope = call.nested_scope.narrowed(include, exclude.iter().cloned());
            return self.toolbox.call(call);
        }
        let text = format!("there is no tool `{}` for this agent; use another", call.tool);
        Box::pin(async { ToolAnswer { success: false, text, error_info: None, images: Vec::new() } })
    }
}

impl std::fmt::Debug for Filtered {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Filtered").field("filter", &self.filter).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_core::call::Arguments;

    /// Answers every call with the names of the tools that its tool may call.
    struct Names;

    impl Toolbox for Names {
        fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
            let tool = |name: &str| ToolDescription {
                name: name.into(),
                description: String::new(),
                parameters: Arc::new(json!({})),
                is_deferred: false,
            };
            Box::pin(async move { Ok(["fs__read", "fs__write", "search"].map(tool).into()) })
        }

        fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
            let names = ["fs__read", "fs__write", "search"].into_iter().filter(|name| call.nested_scope.admits(name));
            let text = names.collect::<Vec<_>>().join(" ");
            let answer = ToolAnswer { success: true, text, error_info: None, images: Vec::new() };
            Box::pin(async { answer })
        }
    }

    #[tokio::test]
    async fn tools_that_are_left_out_are_neither_listed_nor_run() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (include, exclude, expected) in [
            (&["fs__*"][..], &["fs__write"][..], &["fs__read"][..]),
            (&[], &["fs__*"], &["search"]),
            (&["search"], &[], &["search"]),
            (&[], &[], &["fs__read", "fs__write", "search"]),
        ] {
            let filter = ToolFilter { include: names(include), exclude: names(exclude) };
            let toolbox = Filtered { filter, toolbox: Arc::new(Names) };
            let listed: Vec<_> = toolbox.list().await.unwrap().into_iter().map(|tool| tool.name).collect();
            assert_eq!(listed, expected);
            for tool in ["fs__read", "fs__write", "search"] {
                let call = ToolboxCall::new("a", tool, Arguments::new());
                let answer = toolbox.call(call).await;
                assert_eq!(answer.success, expected.contains(&tool), "{tool}");
                assert!(!answer.success || answer.text == expected.join(" "), "{tool}: {}", answer.text);
            }
        }
    }
}
