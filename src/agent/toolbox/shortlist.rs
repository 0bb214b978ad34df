//! Selects the tools to offer if there are more than the model accepts.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use crate::message::{AssistantTurn, Message};
use sekisho_calls::registry::{SearchIndex, Searchable};
use sekisho_core::call::READ_RESULT;

/// How many of the latest user messages are searched.
const LATEST_MESSAGES: usize = 4;

/// At most `max` of the tools, in their order: first the one that reads stored results and those that the conversation has
/// called, then those that best match the user's messages. Deferred ones are not counted, and stay.
pub fn shortlist(mut tools: Vec<ToolDescription>, max: usize, conversation: &[Message]) -> Vec<ToolDescription> {
    let deferred = tools.iter().filter(|tool| tool.is_deferred).count();
    if tools.len() - deferred <= max {
        return tools;
    }
    let kept = chosen(&tools, max, conversation);
    tracing::info!(
        tools = tools.len(),
        offered = kept.len(),
        "there are more tools than `max_tools`: the model is offered the best matches"
    );
    let mut place = 0..;
    tools.retain(|tool| place.next().is_some_and(|place| tool.is_deferred || kept.contains(&place)));
    tools
}

/// All of the tools if there are at most `max`. Else the better half of as many is shown, and at most `deferred` others are for the
/// search of the model's provider; without such a search the model is offered the [`shortlist`].
pub fn with_deferred(
    mut tools: Vec<ToolDescription>,
    (max, deferred): (usize, usize),
    conversation: &[Message],
) -> Vec<ToolDescription> {
    if tools.len() <= max || deferred == 0 {
        return shortlist(tools, max, conversation);
    }
    tools.iter_mut().for_each(|tool| tool.is_deferred = false);
    let shown = chosen(&tools, max / 2, conversation);
    let kept = chosen(&tools, shown.len().saturating_add(deferred), conversation);
    for (place, tool) in tools.iter_mut().enumerate() {
        tool.is_deferred = !shown.contains(&place);
    }
    let mut place = 0..;
    tools.retain(|_| place.next().is_some_and(|place| kept.contains(&place)));
    tools
}

/// The indexes of the selected tools, without deferred ones.
fn chosen(tools: &[ToolDescription], max: usize, conversation: &[Message]) -> BTreeSet<usize> {
    let turns = conversation.iter().filter_map(Message::as_assistant);
    let called: HashSet<_> = turns.flat_map(AssistantTurn::calls).map(|call| call.tool.as_str()).collect();
    let user_text = conversation.iter().rev().filter_map(|message| match message {
        Message::User(message) => Some(message.text()),
        _ => None,
    });
    let user_text = user_text.take(LATEST_MESSAGES).collect::<Vec<_>>().join("\n");
    let index = SearchIndex::build(tools.iter().map(Searchable::from), None);
    let is_known = |name: &str| name == READ_RESULT || called.contains(name);
    let known = (0..tools.len()).filter(|place| is_known(&tools[*place].name));
    let fitting = index.search(&user_text, max).into_iter().map(|(place, _)| place);
    let mut kept = BTreeSet::new();
    for place in known.chain(fitting).chain(0..tools.len()).filter(|place| !tools[*place].is_deferred) {
        if kept.len() >= max {
            break;
        }
        kept.insert(place);
    }
    kept
}

impl<'a> From<&'a ToolDescription> for Searchable<'a> {
    fn from(tool: &'a ToolDescription) -> Self {
        let ToolDescription { name, description, parameters, .. } = tool;
        Self { name, description, category: "", source: "", parameters }
    }
}

/// A toolbox that offers some of its tools.
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
    use crate::message::RequestedCall;

    fn tools() -> Vec<ToolDescription> {
        let tool = |name: String, description: &str| ToolDescription {
            name,
            description: description.into(),
            parameters: Arc::new(json!({"type": "object"})),
            is_deferred: false,
        };
        let many = (0..200).map(|number| tool(format!("api__operation_{number}"), "Changes a record."));
        many.chain([tool("weather".into(), "The forecast of a city."), tool("mail".into(), "Sends a letter.")])
            .collect()
    }

    fn names(tools: &[ToolDescription]) -> Vec<&str> {
        tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    #[test]
    fn matching_and_previously_called_tools_are_offered() {
        let call = RequestedCall::new("a".into(), "api__operation_150".into(), "{}".into());
        let turn = AssistantTurn::new("", [call]);
        let earlier = vec![Message::User("send a letter".into()), Message::Assistant(turn)];
        let conversation = [earlier, vec![Message::User("and the forecast for the city of Oslo?".into())]].concat();
        for (max, expected) in [
            (1, vec!["api__operation_150"]),
            (2, vec!["api__operation_150", "mail"]),
            (3, vec!["api__operation_150", "weather", "mail"]),
            (4, vec!["api__operation_0", "api__operation_150", "weather", "mail"]),
            (0, vec![]),
        ] {
            assert_eq!(names(&shortlist(tools(), max, &conversation)), expected);
        }
        let reader = ToolDescription { name: READ_RESULT.into(), ..tools()[0].clone() };
        let with_reader = [tools(), vec![reader]].concat();
        assert_eq!(names(&shortlist(with_reader, 2, &conversation)), ["api__operation_150", READ_RESULT]);
        assert_eq!(shortlist(tools(), 128, &conversation).len(), 128);
        assert_eq!(shortlist(tools(), 202, &conversation), tools());
    }

    #[test]
    fn tools_beyond_the_maximum_are_deferred_where_the_provider_searches() {
        let conversation = [Message::User("send a letter about the forecast for the city of Oslo".into())];
        let offered = |max, deferred| {
            let offered = with_deferred(tools(), (max, deferred), &conversation);
            let (deferred, shown): (Vec<_>, Vec<_>) = offered.into_iter().partition(|tool| tool.is_deferred);
            (names(&shown).join(" "), deferred.len())
        };
        for (max, deferred, expected) in [
            (202, 1_000, (names(&tools()).join(" "), 0)),
            (4, 1_000, ("weather mail".to_owned(), 200)),
            (4, 50, ("weather mail".to_owned(), 50)),
            (2, 0, ("weather mail".to_owned(), 0)),
        ] {
            assert_eq!(offered(max, deferred), expected, "{max}, {deferred}");
        }
        let offered = with_deferred(tools(), (4, 50), &conversation);
        assert_eq!(shortlist(offered.clone(), 2, &conversation), offered, "the run keeps them");
        assert_eq!(shortlist(offered, 1, &conversation).len(), 51);
    }
}
