//! Registration of a server over HTTP: a URL, never a command to run. Stored as it was sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Method, header};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;
use url::Url;
use utoipa::ToSchema;

use super::transport::authorized_http::AuthorizedHttp;
use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::{Attempt, Destination, Execution, Executor, ToolDefinition};
use sekisho_config::{McpPrefix, McpServerSettings, Secret};
use sekisho_core::administration::Ownership;
use sekisho_core::call::{Arguments, CallContext, ToolOutput, Upstream};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;
use sekisho_outbound::upstream_of;

/// The body of `POST /tools/mcp/register`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct McpRegistration {
    /// Prefix of the tools' names, `NAME__TOOL`; with `func_name` or `parameters`, the name of the single tool.
    pub name: String,
    /// Its host must be on the allowlist.
    #[schema(value_type = String)]
    pub url: Url,
    /// For a server without MCP: it receives `{"function": func_name, "args": …}` and answers with JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub func_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default = "default_category")]
    pub category: String,
    /// Sent with every request; each value is written `${NAME}`, a name in `mcp.secrets`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// JSON Schema of the one tool's arguments, or a list of them: `{name, type, description?, required?, default?,
    /// enum?}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
}

fn default_category() -> String {
    McpServerSettings::default().category
}

/// Why a registration cannot be used.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum RegistrationError {
    #[error(
        "`headers.{0}` must be `${{NAME}}`, a name in `mcp.secrets` of the configuration: a credential itself is not \
         taken, since registrations are stored"
    )]
    Literal(String),
    #[error(
        "`parameters` must be a JSON Schema, or a list of `{{name, type, description, required, default, enum}}`: {0}"
    )]
    Parameters(String),
    #[error("`headers.{header}` uses the secret {name:?}, which does not exist; add it to `mcp.secrets`")]
    UnknownSecret { header: String, name: String },
    #[error(
        "`headers.{0}` uses a secret of the configuration, which only servers of all tenants may: an administrator of the tenant \
         `default` registers these"
    )]
    SharedSecret(String),
}

/// The result of a registration.
#[derive(Debug)]
pub enum Registered {
    Server(Box<McpServerSettings>),
    Function(Box<Function>),
}

/// One tool of a server without MCP.
#[derive(Debug, Clone)]
pub struct Function {
    pub(super) owner: Ownership,
    pub(super) registration: McpRegistration,
    pub(super) headers: BTreeMap<String, Secret>,
}

impl Registered {
    pub fn owner(&self) -> &Ownership {
        match self {
            Self::Server(settings) => &settings.owner,
            Self::Function(function) => &function.owner,
        }
    }
}

impl McpRegistration {
    /// The secrets are the operator's. A tenant's server would get them, so that it cannot use any.
    pub fn read(&self, owner: &Ownership, secrets: &BTreeMap<String, Secret>) -> Result<Registered, RegistrationError> {
        let headers = self.headers.iter().map(|(header, written)| {
            let name = written.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
            let name = name.filter(|name| !name.contains(['$', '{', '}']));
            let name = name.ok_or_else(|| RegistrationError::Literal(header.clone()))?;
            if !owner.is_shared() {
                return Err(RegistrationError::SharedSecret(header.clone()));
            }
            let unknown = || RegistrationError::UnknownSecret { header: header.clone(), name: name.to_owned() };
            Ok((header.clone(), secrets.get(name).cloned().ok_or_else(unknown)?))
        });
        let headers = headers.collect::<Result<BTreeMap<_, _>, _>>()?;
        self.parameters_schema()?;
        if self.func_name.is_some() || self.parameters.is_some() {
            return Ok(Registered::Function(Box::new(Function {
                owner: owner.clone(),
                registration: self.clone(),
                headers,
            })));
        }
        Ok(Registered::Server(Box::new(McpServerSettings {
            url: Some(self.url.clone()),
            category: self.category.clone(),
            headers,
            prefix: Some(McpPrefix::Always),
            owner: owner.clone(),
            ..McpServerSettings::default()
        })))
    }
}

impl McpRegistration {
    /// The schema of the one tool's arguments.
    fn parameters_schema(&self) -> Result<Value, RegistrationError> {
        match &self.parameters {
            None | Some(Value::Object(_)) => Ok(super::server::catalogue::repaired(self.parameters.as_ref())),
            Some(list) => {
                let listed = Vec::<ListedParameter>::deserialize(list);
                let listed = listed.map_err(|error| RegistrationError::Parameters(error.to_string()))?;
                Ok(schema_of(listed))
            }
        }
    }
}

/// One argument of the list form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedParameter {
    name: String,
    #[serde(default)]
    r#type: ParameterType,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    default: Option<Value>,
    #[serde(default)]
    r#enum: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ParameterType {
    #[default]
    String,
    Integer,
    #[serde(alias = "float")]
    Number,
    Boolean,
    Array,
    Object,
}

fn schema_of(listed: Vec<ListedParameter>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for parameter in listed {
        let mut property = Map::from_iter([("type".to_owned(), json!(parameter.r#type))]);
        property.extend(parameter.description.map(|text| ("description".to_owned(), text.into())));
        property.extend(parameter.default.map(|value| ("default".to_owned(), value)));
        property.extend(parameter.r#enum.map(|values| ("enum".to_owned(), values.into())));
        if parameter.required {
            required.push(json!(parameter.name));
        }
        properties.insert(parameter.name, property.into());
    }
    json!({"type": "object", "properties": properties, "required": required})
}

impl Function {
    /// The tool, called over `access`.
    pub(super) fn definition(&self, access: AuthorizedHttp, rate_limit: u32) -> ToolDefinition {
        let registration = &self.registration;
        let function = registration.func_name.clone().unwrap_or_else(|| registration.name.clone());
        let metadata = Metadata {
            name: registration.name.clone(),
            description: registration.description.clone().unwrap_or_default(),
            category: registration.category.clone(),
            author: registration.name.clone(),
            source: super::server::catalogue::source(&registration.name),
            rate_limit,
            owner: self.owner.clone(),
            ..Metadata::default()
        };
        // Checked when it was read.
        let parameters = registration.parameters_schema().unwrap_or_default();
        ToolDefinition {
            metadata,
            parameters: parameters.into(),
            output_schema: None,
            executor: Arc::new(FunctionTool { function, access }),
        }
    }
}

#[derive(Debug)]
struct FunctionTool {
    function: String,
    access: AuthorizedHttp,
}

impl Executor for FunctionTool {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(self.run(attempt.call, arguments))
    }

    fn marks_sent(&self) -> bool {
        true
    }

    fn upstream(&self, _arguments: &Arguments) -> Option<Upstream> {
        Some(upstream_of(&self.access.url))
    }

    fn reaches(&self) -> Option<String> {
        Some(format!("{} {}", upstream_of(&self.access.url).name, self.function))
    }

    fn destination<'a>(&'a self, _call: &'a CallContext, _arguments: &'a Arguments) -> Option<Destination<'a>> {
        let address = format!("{} {}", upstream_of(&self.access.url).name, self.function).into();
        let coding = Some("application/json".into());
        Some(Destination { method: "POST".into(), address, coding, ..Destination::default() })
    }

    fn identity(&self) -> Option<String> {
        Some(self.access.url.to_string())
    }
}

impl FunctionTool {
    async fn run(&self, call: &CallContext, arguments: &Arguments) -> Result<ToolOutput, CallError> {
        let body = json!({"function": self.function, "args": Map::clone(arguments)});
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, http::HeaderValue::from_static("application/json"));
        let url = &self.access.url;
        let (body, on_behalf) = (Some(body.to_string().into()), Some(call.on_behalf()));
        let answer = self.access.open_for(Method::POST, url, headers, body, on_behalf).await?;
        let response = self.access.whole(answer, url).await?;
        sekisho_outbound::check_status(&response)?;
        let (value, large) = json::parse_answer(&response.body).map_err(|problem| {
            CallError::new(ErrorCode::UpstreamError, "the server's answer is not JSON")
                .caused_by(problem)
                .redacted(&response.sent.secrets())
        })?;
        let mut output = ToolOutput::from(value);
        if !large.is_empty() {
            output.metadata.insert(json::LARGE_NUMBERS.into(), large.into());
            output.text = Some(String::from_utf8_lossy(&response.body).into_owned());
        }
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(registration: Value) -> Result<Registered, RegistrationError> {
        let secrets = BTreeMap::from([("docs_key".to_owned(), Secret::new("t0p"))]);
        serde_json::from_value::<McpRegistration>(registration).unwrap().read(&Ownership::Shared, &secrets)
    }

    #[test]
    fn a_registration_names_its_secrets_and_never_holds_one() {
        let server = json!({"name": "docs", "url": "https://mcp.example.com/mcp", "headers": {"X-Key": "${docs_key}"}});
        let Ok(Registered::Server(settings)) = read(server) else { panic!("it is a server") };
        assert_eq!(settings.headers["X-Key"].expose(), "t0p");
        let with = |value: &str| json!({"name": "d", "url": "https://a.example/", "headers": {"X-Key": value}});
        assert_eq!(read(with("hunter2")).unwrap_err(), RegistrationError::Literal("X-Key".into()));
        assert!(matches!(read(with("${other}")), Err(RegistrationError::UnknownSecret { .. })));
    }

    #[test]
    fn a_server_of_a_tenant_has_its_owner_and_no_secret_of_the_configuration() {
        let secrets = BTreeMap::from([("docs_key".to_owned(), Secret::new("t0p"))]);
        let acme = Ownership::Tenant("acme".into());
        let read = |registration: Value| {
            serde_json::from_value::<McpRegistration>(registration).unwrap().read(&acme, &secrets)
        };
        for more in [json!({}), json!({"func_name": "f"})] {
            let mut server = json!({"name": "docs", "url": "https://mcp.example.com/mcp"});
            server.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            assert_eq!(*read(server.clone()).unwrap().owner(), acme);
            server["headers"] = json!({"X-Key": "${docs_key}"});
            assert_eq!(read(server).unwrap_err(), RegistrationError::SharedSecret("X-Key".into()));
        }
    }

    #[test]
    fn a_list_of_parameters_becomes_a_schema() {
        let registration = |parameters: Value| {
            let body = json!({"name": "d", "url": "https://a.example/", "func_name": "f", "parameters": parameters});
            serde_json::from_value::<McpRegistration>(body).unwrap()
        };
        let listed = json!([
            {"name": "n", "type": "integer", "required": true, "description": "How many"},
            {"name": "ratio", "type": "float", "default": 0.5},
            {"name": "kind", "enum": ["a", "b"]}
        ]);
        let expected = json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer", "description": "How many"},
                "ratio": {"type": "number", "default": 0.5},
                "kind": {"type": "string", "enum": ["a", "b"]}
            },
            "required": ["n"]
        });
        assert_eq!(registration(listed).parameters_schema(), Ok(expected));
        for wrong in [json!([{"type": "integer"}]), json!([{"name": "n", "type": "int"}]), json!("n"), json!([7])] {
            let error = registration(wrong.clone()).read(&Ownership::Shared, &BTreeMap::new()).unwrap_err();
            assert!(matches!(error, RegistrationError::Parameters(_)), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_function_is_one_tool_of_the_registrations_name() {
        for more in [json!({"func_name": "f"}), json!({"parameters": {"properties": {}}})] {
            let mut registration = json!({"name": "d", "url": "https://a.example/"});
            registration.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            assert!(matches!(read(registration), Ok(Registered::Function(_))));
        }
        let command = json!({"name": "d", "url": "https://a.example/", "command": "sh"});
        assert!(serde_json::from_value::<McpRegistration>(command).is_err(), "an API never adds a command to run");
    }
}
