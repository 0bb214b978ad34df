//! The tools of a request, and which of them the model is to call.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::model_api::client_tools::{self, DescribedTool};
use crate::openai::terms::ToolChoiceMode;
use sekisho_agent::ToolChoice;
use sekisho_core::error::CallError;

/// The type of a tool that stands for several functions, as Codex sends them.
pub(super) const NAMESPACE: &str = "namespace";

pub(super) const SEPARATOR: &str = "__";

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[schema(as = FunctionTool)]
pub(crate) struct RequestTool {
    /// `function`, or `namespace` for several functions.
    pub(super) r#type: String,
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(super) name: Option<String>,
    description: Option<String>,
    #[schema(value_type = Option<Object>)]
    parameters: Option<Value>,
    strict: Option<bool>,
    /// The functions of a `namespace`. A call of one has its `namespace`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub(super) tools: Vec<RequestTool>,
}

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = FunctionChoice)]
pub(super) enum RequestedToolChoice {
    Mode(ToolChoiceMode),
    /// `function` is the only type.
    Function {
        r#type: String,
        name: Option<String>,
    },
}

impl RequestTool {
    /// The function, or the functions of a namespace.
    pub(super) fn described(&self) -> Vec<DescribedTool> {
        match self.r#type.as_str() {
            NAMESPACE => {
                let within = |tool: &Self| {
                    let (name, description, parameters) = tool.function()?;
                    Ok((name_in(self.name.as_deref().ok_or("it has no `name`")?, &name), description, parameters))
                };
                self.tools.iter().map(within).collect()
            }
            _ => vec![self.function()],
        }
    }

    fn function(&self) -> DescribedTool {
        if self.r#type != "function" {
            return Err(client_tools::not_of_the_client(&self.r#type, "`function` or `namespace`"));
        }
        let name = self.name.clone().ok_or("it has no `name`")?;
        Ok((name, self.description.clone(), self.parameters.clone()))
    }
}

/// The model's name for a function of a namespace.
pub(in crate::responses) fn name_in(namespace: &str, function: &str) -> String {
    format!("{namespace}{SEPARATOR}{function}")
}

impl RequestedToolChoice {
    pub(super) fn read(&self) -> Result<ToolChoice, CallError> {
        match self {
            Self::Mode(mode) => Ok((*mode).into()),
            Self::Function { r#type, name: Some(name) } if r#type == "function" => Ok(ToolChoice::Tool(name.clone())),
            Self::Function { r#type, .. } => {
                let shown: String = r#type.chars().take(40).collect();
                Err(CallError::invalid(format!(
                    "`tool_choice` of the type {shown:?} is not supported; name a `function`"
                )))
            }
        }
    }
}
