//! Security schemes, and which operations require them.

use std::collections::BTreeMap;

use serde_json::Value;
use url::Url;

use super::{Reader, strings, text};
use crate::sources::openapi::load::document::Version;
use crate::sources::openapi::read::operation::{Location, SecurityRequirement, SecurityScheme};

impl Reader<'_> {
    pub(super) fn security_schemes(&mut self) -> BTreeMap<String, SecurityScheme> {
        let document = self.document;
        let written = match self.version {
            Version::Swagger2 => document.get("securityDefinitions"),
            _ => document.get("components").and_then(|components| components.get("securitySchemes")),
        };
        let mut schemes = BTreeMap::new();
        for (name, written) in written.and_then(Value::as_object).into_iter().flatten() {
            match self.references.follow(written) {
                Ok(written) => {
                    schemes.insert(name.clone(), self.security_scheme(written));
                }
                Err(broken) => self.approximated(format!("the security scheme {name} was left out: {broken}")),
            }
        }
        schemes
    }

    fn security_scheme(&self, written: &Value) -> SecurityScheme {
        let kind = text(written.get("type"));
        match kind.as_str() {
            "apiKey" => api_key(written),
            "basic" => SecurityScheme::Basic,
            "http" => match text(written.get("scheme")).to_ascii_lowercase().as_str() {
                "bearer" => SecurityScheme::Bearer,
                "basic" => SecurityScheme::Basic,
                other => SecurityScheme::Other(format!("HTTP authentication {other:?}")),
            },
            "openIdConnect" => SecurityScheme::Bearer,
            "oauth2" => self.oauth2(written),
            other => SecurityScheme::Other(other.to_owned()),
        }
    }

    /// Client credentials where the document has that flow: it needs no user interaction.
    fn oauth2(&self, written: &Value) -> SecurityScheme {
        // In 2.0 a scheme has one flow, written in the scheme itself.
        let flow = match written.get("flows") {
            Some(flows) => flows.get("clientCredentials"),
            None => Some(written).filter(|written| text(written.get("flow")) == "application"),
        };
        let token_url = flow.and_then(|flow| self.absolute(flow.get("tokenUrl")?.as_str()?));
        match (flow, token_url) {
            (Some(flow), Some(token_url)) => {
                let scopes = flow.get("scopes").and_then(Value::as_object).into_iter().flatten();
                SecurityScheme::ClientCredentials {
                    token_url,
                    scopes: scopes.map(|(scope, _)| scope.clone()).collect(),
                }
            }
            _ => SecurityScheme::Other("OAuth 2.0 with an interactive flow".into()),
        }
    }

    fn absolute(&self, written: &str) -> Option<Url> {
        match self.base {
            Some(base) => base.join(written).ok(),
            None => Url::parse(written).ok(),
        }
    }

    /// `None` where nothing is specified.
    pub(super) fn requirements(&mut self, written: Option<&Value>) -> Option<Vec<SecurityRequirement>> {
        let Value::Array(written) = written? else {
            self.approximated("its `security` is not a list; the document's applies");
            return None;
        };
        let alternatives = written.iter().filter_map(Value::as_object);
        Some(
            alternatives
                .map(|requirement| {
                    requirement.iter().map(|(name, scopes)| (name.clone(), strings(Some(scopes)))).collect()
                })
                .collect(),
        )
    }
}

fn api_key(written: &Value) -> SecurityScheme {
    let location = match text(written.get("in")).as_str() {
        "header" => Location::Header,
        "query" => Location::Query,
        "cookie" => Location::Cookie,
        other => return SecurityScheme::Other(format!("an API key in {other:?}")),
    };
    SecurityScheme::ApiKey { name: text(written.get("name")), location }
}
