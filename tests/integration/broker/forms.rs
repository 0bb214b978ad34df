//! Forms: how they are sent, and the form of the page of consent.

use regex::Regex;
use serde_json::{Map, Value, json};
use url::Url;

/// What a browser sends, with its cookies.
pub(super) fn is_page(path: &str) -> bool {
    !["/oauth/register", "/oauth/token", "/oauth/revoke", "/oauth/introspect", "/tools", "/admin"]
        .iter()
        .any(|of_programs| path.starts_with(of_programs))
}

pub(super) fn registration(redirects: &[&str]) -> Map<String, Value> {
    object(json!({
        "client_name": "An editor", "redirect_uris": redirects, "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"], "token_endpoint_auth_method": "none",
    }))
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("no object: {other}"),
    }
}

pub(super) fn pairs(url: &Url) -> Map<String, Value> {
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned().into())).collect()
}

pub(super) fn encoded(fields: &Map<String, Value>) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields {
        form.append_pair(name, value.as_str().unwrap_or_else(|| panic!("{name} is no text: {value}")));
    }
    form.finish()
}

/// The address and the fields of the page's form, with its button for consent: the first that has a name.
pub(super) fn consent_form(page: &str) -> (String, Map<String, Value>) {
    let attribute = |tag: &str, name: &str| {
        let found = Regex::new(&format!(r#"\s{name}="([^"]*)""#)).unwrap().captures(tag)?;
        Some(found[1].replace("&quot;", "\"").replace("&#x2F;", "/").replace("&#38;", "&").replace("&amp;", "&"))
    };
    let forms = page.split("<form").skip(1).find(|form| form.contains("/oauth/consent"));
    let form = forms.unwrap_or_else(|| panic!("no page of consent: {page}")).split("</form>").next().unwrap();
    let action = attribute(&format!(" {form}"), "action").unwrap();
    let mut fields = Map::new();
    for tag in Regex::new("<input[^>]*>").unwrap().find_iter(form).map(|tag| tag.as_str()) {
        if attribute(tag, "type").as_deref() == Some("hidden") {
            fields.insert(attribute(tag, "name").unwrap(), attribute(tag, "value").unwrap().into());
        }
    }
    let buttons = Regex::new("<button[^>]*>").unwrap();
    let named = buttons.find_iter(form).find_map(|tag| Some((attribute(tag.as_str(), "name")?, tag.as_str())));
    if let Some((name, tag)) = named {
        fields.insert(name, attribute(tag, "value").unwrap().into());
    }
    (action, fields)
}
