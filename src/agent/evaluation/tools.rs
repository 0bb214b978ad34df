//! The tools of a case: they answer from its file, and nothing is sent.

use std::fmt;
use std::future::ready;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::case::{Answer, Case};
use super::checks::same_members;
use crate::toolbox::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};

/// Answers a call as the file does: equal calls get its answers for them in their order, and then the last one again.
#[derive(Default)]
pub struct CaseTools {
    tools: Vec<ToolDescription>,
    /// Each with whether it was given already.
    answers: Mutex<Vec<(Answer, bool)>>,
}

impl CaseTools {
    pub fn new(case: &Case) -> Self {
        let answers = case.answers.iter().map(|answer| (answer.clone(), false)).collect();
        Self { tools: case.tools.clone(), answers: Mutex::new(answers) }
    }

    fn answer(&self, call: &ToolboxCall) -> ToolAnswer {
        let mut answers = self.answers.lock();
        let is_for = |answer: &Answer| {
            let arguments = answer.arguments.as_ref();
            answer.tool == call.tool && arguments.is_none_or(|arguments| same_members(arguments, &call.arguments))
        };
        let next = answers.iter().position(|(answer, is_given)| !is_given && is_for(answer));
        let found = next.or_else(|| answers.iter().rposition(|(answer, _)| is_for(answer)));
        let Some(place) = found else {
            let text = format!("the case has no answer of `{}` for these arguments", call.tool);
            return ToolAnswer { success: false, text, error_info: None, images: Vec::new() };
        };
        let (answer, is_given) = &mut answers[place];
        *is_given = true;
        ToolAnswer { success: !answer.is_error, text: answer.text.clone(), error_info: None, images: Vec::new() }
    }
}

impl Toolbox for CaseTools {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(self.tools.clone()) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(ready(self.answer(&call)))
    }
}

impl fmt::Debug for CaseTools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CaseTools").field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}
