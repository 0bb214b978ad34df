//! Security schemes, and which operations require them.

use std::collections::BTreeMap;

use serde_json::Value;
use url::Url;

use super::{Reader, strings, text};
use crate::load::document::Version;
use crate::read::operation::{Location, SecurityRequirement, SecurityScheme, UserFlow};

/// Flows of OAuth 2.0 with a token URL, the one that needs no user first.
const FLOWS: [&str; 4] = ["clientCredentials", "authorizationCode", "password", "deviceAuthorization"];

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
            "http" => http(&text(written.get("scheme"))),
            "openIdConnect" => {
                let discovery_url = written.get("openIdConnectUrl").and_then(|url| self.absolute(url.as_str()?));
                SecurityScheme::OpenIdConnect { discovery_url }
            }
            "oauth2" => self.oauth2(written),
            "mutualTLS" => SecurityScheme::MutualTls,
            other => SecurityScheme::Other(format!("the type {other:?}")),
        }
    }

    /// Many documents have only flows for users, and servers that issue tokens to clients all the same.
    fn oauth2(&self, written: &Value) -> SecurityScheme {
        let address = |flow: &Value, name: &str| self.absolute(flow.get(name)?.as_str()?);
        let token_url = |flow: &Value| address(flow, "tokenUrl");
        let user_flow = |flow: &Value| {
            Some(UserFlow { authorization_url: address(flow, "authorizationUrl")?, token_url: token_url(flow)? })
        };
        // In 2.0 a scheme has one flow, written in the scheme itself.
        let Some(flows) = written.get("flows") else {
            return SecurityScheme::OAuth2 { token_url: token_url(written), user_flow: user_flow(written) };
        };
        let user_flow = flows.get("authorizationCode").and_then(user_flow);
        let flows = FLOWS.iter().filter_map(|flow| flows.get(*flow));
        SecurityScheme::OAuth2 { token_url: flows.into_iter().find_map(token_url), user_flow }
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

fn http(scheme: &str) -> SecurityScheme {
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => SecurityScheme::Bearer,
        "basic" => SecurityScheme::Basic,
        "digest" => SecurityScheme::Digest,
        "hoba" | "mutual" | "negotiate" | "scram-sha-1" | "scram-sha-256" | "gnap" | "privatetoken" => {
            SecurityScheme::Challenge(scheme.to_owned())
        }
        _ => SecurityScheme::Http(scheme.to_owned()),
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
