//! The tools that a model is offered where there are more than it takes.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use crate::agent::message::Message;
use crate::registry::{SearchIndex, Searchable};

/// What the user said last is looked at first, and of what he said before so many messages.
const LATEST_MESSAGES: usize = 4;

/// At most so many of the tools, in their order: those that the conversation has called, then those that fit what the
/// user said best.
pub fn shortlist(mut tools: Vec<ToolDescription>, most: usize, conversation: &[Message]) -> Vec<ToolDescription> {
    if tools.len() <= most {
        return tools;
    }
    let kept = chosen(&tools, most, conversation);
    tracing::info!(
        tools = tools.len(),
        offered = kept.len(),
        "a model is offered the tools that fit best: there are more than `max_tools`"
    );
    let mut place = 0..;
    tools.retain(|_| place.next().is_some_and(|place| kept.contains(&place)));
    tools
}

/// The places of the tools that are kept.
fn chosen(tools: &[ToolDescription], most: usize, conversation: &[Message]) -> BTreeSet<usize> {
    let calls = conversation.iter().filter_map(|message| match message {
        Message::Assistant(turn) => Some(&turn.calls),
        _ => None,
    });
    let called: HashSet<_> = calls.flatten().map(|call| call.tool.as_str()).collect();
    let said = conversation.iter().rev().filter_map(|message| match message {
        Message::User(text) => Some(text.as_str()),
        _ => None,
    });
    let said = said.take(LATEST_MESSAGES).collect::<Vec<_>>().join("\n");
    let index = SearchIndex::build(tools.iter().map(Searchable::from));
    let known = (0..tools.len()).filter(|place| called.contains(tools[*place].name.as_str()));
    let fitting = index.search(&said, most).into_iter().map(|(place, _)| place);
    let mut kept = BTreeSet::new();
    for place in known.chain(fitting).chain(0..tools.len()) {
        if kept.len() >= most {
            break;
        }
        kept.insert(place);
    }
    kept
}

impl<'a> From<&'a ToolDescription> for Searchable<'a> {
    fn from(tool: &'a ToolDescription) -> Self {
        Self { name: &tool.name, description: &tool.description, category: "", parameters: &tool.parameters }
    }
}

/// A toolbox of which some tools are shown.
pub struct Shortlist {
    pub tools: Vec<ToolDescription>,
    pub toolbox: Arc<dyn Toolbox>,
}

impl Toolbox for Shortlist {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(self.tools.clone()) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        self.toolbox.call(call)
    }
}

impl std::fmt::Debug for Shortlist {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shortlist").field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::message::{AssistantTurn, RequestedCall};

    fn tools() -> Vec<ToolDescription> {
        let tool = |name: String, description: &str| ToolDescription {
            name,
            description: description.into(),
            parameters: json!({"type": "object"}),
        };
        let many = (0..200).map(|number| tool(format!("api__operation_{number}"), "Changes a record."));
        many.chain([tool("weather".into(), "The forecast of a city."), tool("mail".into(), "Sends a letter.")])
            .collect()
    }

    fn names(tools: &[ToolDescription]) -> Vec<&str> {
        tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    #[test]
    fn what_fits_the_question_and_what_was_called_before_is_offered() {
        let call = RequestedCall::new("a".into(), "api__operation_150".into(), "{}".into());
        let turn = AssistantTurn { calls: vec![call], ..AssistantTurn::default() };
        let earlier = vec![Message::User("send a letter".into()), Message::Assistant(turn)];
        let asked = [earlier, vec![Message::User("and the forecast for Oslo?".into())]].concat();
        for (most, expected) in [
            (1, vec!["api__operation_150"]),
            (2, vec!["api__operation_150", "weather"]),
            (3, vec!["api__operation_150", "weather", "mail"]),
            (4, vec!["api__operation_0", "api__operation_150", "weather", "mail"]),
            (0, vec![]),
        ] {
            assert_eq!(names(&shortlist(tools(), most, &asked)), expected);
        }
        assert_eq!(shortlist(tools(), 128, &asked).len(), 128);
        assert_eq!(shortlist(tools(), 202, &asked), tools());
    }
}
