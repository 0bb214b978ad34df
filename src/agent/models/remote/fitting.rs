//! A request as its model takes it, by the table of models.

use std::sync::Arc;

use super::Protocol;
use crate::models::{ModelRequest, tool_search};
use sekisho_config::{Effort, ModelRow, RefusedFeature, Thinking};

/// `row`: of the model; `None` for an unknown one, of which nothing is left out.
pub(super) fn fitted(mut request: Arc<ModelRequest>, protocol: Protocol, row: Option<&ModelRow>) -> Arc<ModelRequest> {
    let refuses = |feature| row.is_some_and(|row| row.refuses(feature));
    let asked = &request.options;
    let fitting = (
        thinking(&request, protocol, row),
        asked.temperature.filter(|_| !refuses(RefusedFeature::Temperature)),
        asked.top_p.filter(|_| !refuses(RefusedFeature::TopP)),
    );
    if fitting != (asked.thinking, asked.temperature, asked.top_p) {
        let options = &mut Arc::make_mut(&mut request).options;
        (options.thinking, options.temperature, options.top_p) = fitting;
    }
    let searches =
        matches!(protocol, Protocol::Anthropic | Protocol::Responses) && row.is_some_and(|row| row.deferred_tools > 0);
    if !searches && tool_search::is_used(&request.tools) {
        Arc::make_mut(&mut request).tools.retain(|tool| !tool.is_deferred);
    }
    request
}

fn thinking(request: &ModelRequest, protocol: Protocol, row: Option<&ModelRow>) -> Option<Thinking> {
    const NONE: Thinking = Thinking::Effort(Effort::None);
    let is_of_openai = matches!(protocol, Protocol::Openai | Protocol::Responses);
    let takes_none = is_of_openai && row.is_some_and(|row| row.efforts.contains(&Effort::None));
    let refuses_both = row.is_some_and(|row| row.refuses(RefusedFeature::ToolsWithReasoning));
    if protocol == Protocol::Openai && refuses_both && !request.tools.is_empty() {
        return takes_none.then_some(NONE);
    }
    let asked = request.options.thinking.or(request.options.without_thinking.then_some(NONE))?;
    match (asked, row) {
        (NONE, _) => Some(NONE).filter(|_| takes_none || protocol == Protocol::Gemini),
        (Thinking::BudgetTokens(_), _) if !is_of_openai => Some(asked),
        (asked, Some(row)) if !row.efforts.is_empty() => Some(Thinking::Effort(row.nearest_effort(asked.effort()))),
        (asked, _) => Some(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::remote::provider;
    use crate::options::ModelOptions;
    use crate::toolbox::ToolDescription;

    #[test]
    fn options_that_a_model_refuses_are_left_out_or_made_to_fit() {
        let row = |efforts: &[Effort], refuses: &[RefusedFeature]| ModelRow {
            efforts: efforts.to_vec(),
            refuses: refuses.to_vec(),
            ..ModelRow::default()
        };
        let new = row(&[Effort::None, Effort::Low, Effort::High], &[RefusedFeature::ToolsWithReasoning]);
        let old = row(&[Effort::Low, Effort::High], &[RefusedFeature::Temperature]);
        let effort = |effort| Some(Thinking::Effort(effort));
        let tokens = Some(Thinking::BudgetTokens(20_000));
        for (protocol, row, asked, without, expected) in [
            (Protocol::Responses, Some(&new), effort(Effort::Max), false, effort(Effort::High)),
            (Protocol::Responses, Some(&new), None, true, effort(Effort::None)),
            (Protocol::Responses, Some(&new), tokens, false, effort(Effort::High)),
            (Protocol::Responses, Some(&old), None, true, None),
            (Protocol::Openai, Some(&new), effort(Effort::High), false, effort(Effort::None)),
            (Protocol::Openai, Some(&old), effort(Effort::Minimal), false, effort(Effort::Low)),
            (Protocol::Openai, None, effort(Effort::Minimal), false, effort(Effort::Minimal)),
            (Protocol::Openai, None, None, true, None),
            (Protocol::Anthropic, Some(&old), tokens, false, tokens),
            (Protocol::Anthropic, None, effort(Effort::None), false, None),
            (Protocol::Gemini, None, None, true, effort(Effort::None)),
        ] {
            let options = ModelOptions { thinking: asked, without_thinking: without, ..ModelOptions::default() };
            let request = ModelRequest { options, ..provider::request(provider::question()) };
            let found = fitted(Arc::new(request), protocol, row).options.thinking;
            assert_eq!(found, expected, "{protocol:?}, {row:?}, {asked:?}");
        }
        let request = || Arc::new(provider::request(provider::question()));
        assert_eq!(fitted(request(), Protocol::Openai, Some(&old)).options.temperature, None);
        assert_eq!(fitted(request(), Protocol::Openai, Some(&new)).options.temperature, Some(0.2));
    }

    #[test]
    fn deferred_tools_go_only_to_a_provider_that_searches_them() {
        let searching = ModelRow { deferred_tools: 9, ..ModelRow::default() };
        let request = provider::request(provider::question());
        let deferred = ToolDescription { is_deferred: true, ..request.tools[0].clone() };
        let request = Arc::new(ModelRequest { tools: vec![request.tools[0].clone(), deferred], ..request });
        for (protocol, row, expected) in [
            (Protocol::Anthropic, Some(&searching), 2),
            (Protocol::Responses, Some(&searching), 2),
            (Protocol::Openai, Some(&searching), 1),
            (Protocol::Bedrock, Some(&searching), 1),
            (Protocol::Anthropic, Some(&ModelRow::default()), 1),
            (Protocol::Anthropic, None, 1),
        ] {
            assert_eq!(fitted(Arc::clone(&request), protocol, row).tools.len(), expected, "{protocol:?}");
        }
    }
}
