//! Which variables of a program's `env` are secrets: errors and log lines that repeat their values are redacted. A level of a log or the name
//! of a table is no secret, and an error without it says nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use url::Url;

use super::McpServerSettings;
use crate::Secret;
use crate::yaml::document::{Content, Document};
use sekisho_core::redaction::SentSecrets;

/// A variable is a secret if its name contains one of these, or has one of the second list as a word.
const IN_NAME: [&str; 13] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
    "ACCESSKEY",
    "PRIVATEKEY",
    "AUTHORIZATION",
    "CONNECTION_STRING",
    "CONNECTIONSTRING",
    "WEBHOOK",
];
const WORD_OF_NAME: [&str; 10] = ["KEY", "KEYS", "PASS", "PWD", "PAT", "DSN", "JWT", "COOKIE", "BEARER", "CREDS"];

/// The shortest value that may be a credential whatever the name of its variable.
const MIN_OPAQUE: usize = 20;

impl McpServerSettings {
    /// The secrets in `env`: values of variables with the name of a credential, values that a variable, a file or a program
    /// gave (`${…}`), long values of letters and digits, and passwords in URLs. Those that no name says to be one are guesses.
    pub fn env_secrets(&self) -> SentSecrets {
        let (mut secrets, mut guesses) = (SentSecrets::default(), SentSecrets::default());
        for (name, value) in &self.env {
            let value = value.expose();
            if names_credential(name) {
                secrets.add_setting(value);
            } else if self.is_credential(name, value) {
                guesses.add_setting(value);
            }
            secrets.add_password_of(value);
        }
        secrets.add_guesses(guesses);
        secrets
    }

    /// The variables that say where the program works, such as a folder or the name of a database: all but credentials, and URLs
    /// without user and password. Credentials are changed in turns; a file or a service is none, whatever its variable is called.
    pub fn env_without_credentials(&self) -> BTreeMap<&str, String> {
        let plain = self.env.iter().filter_map(|(name, value)| {
            let value = value.expose();
            let address = value.contains("://").then(|| without_user(value)).flatten();
            let is_kept = || !self.is_credential(name, value) || is_file(value) || is_host_with_port(value);
            let value = address.or_else(|| is_kept().then(|| value.to_owned()))?;
            Some((name.as_str(), value))
        });
        plain.collect()
    }

    fn is_credential(&self, name: &str, value: &str) -> bool {
        // `BASIC_AUTH` is a credential or a switch.
        let may_be = || self.env_references.contains(name) || name.to_ascii_uppercase().ends_with("AUTH");
        let is_given = || may_be() && !is_plain(value);
        names_credential(name) || is_given() || is_opaque(value)
    }
}

/// Headers that say where a request works, such as an account, as a text: those that are no credentials by their name or
/// value. Credentials are changed in turns. The text begins with NUL, which no URL has; it is empty without such headers.
pub fn identity_of_headers(headers: &BTreeMap<String, Secret>) -> String {
    let is_credential = |name: &str, value: &str| is_credential_header(name) || is_opaque(value);
    let plain = headers.iter().map(|(name, value)| (name, value.expose()));
    let plain = plain.filter(|(name, value)| !is_credential(name, value));
    plain.map(|(name, value)| format!("\0{}:{value}", name.to_ascii_lowercase())).collect()
}

/// Whether the name of a header says that its value is a credential.
pub fn is_credential_header(name: &str) -> bool {
    let name = name.replace('-', "_").to_ascii_uppercase();
    name.contains("AUTH") || names_credential(&name)
}

/// The variables of a server's `env` with a value that a variable, a file or a program gave.
pub(super) fn references(document: &Document, server: &str) -> BTreeSet<String> {
    let found = document.find(&format!("mcp.servers.{server}.env"));
    let Some((node, true)) = found else { return BTreeSet::new() };
    let Content::Mapping(entries) = &node.content else { return BTreeSet::new() };
    let given = entries.iter().filter(|(_, value)| value.first_reference().is_some());
    given.map(|(name, _)| name.name.clone()).collect()
}

fn names_credential(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    // `PWD` itself is a folder.
    let has_word = || name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| WORD_OF_NAME.contains(&word));
    IN_NAME.iter().any(|part| name.contains(part)) || (name != "PWD" && has_word())
}

fn is_file(value: &str) -> bool {
    Path::new(value).is_absolute() && Path::new(value).exists()
}

/// As the sandbox of a program reads services in `env`.
pub(crate) fn is_host_with_port(text: &str) -> bool {
    let is_host = |host: &str| host == "localhost" || host.contains('.') || host.starts_with('[');
    text.trim().rsplit_once(':').is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok())
}

/// A URL with a host, without user and password.
fn without_user(value: &str) -> Option<String> {
    let mut url = Url::parse(value).ok().filter(Url::has_host)?;
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    Some(url.into())
}

/// A word, a number, or a file or folder of this machine.
fn is_plain(value: &str) -> bool {
    let is_word = value.len() < SentSecrets::MIN_LONG_WORD && value.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_word || value.parse::<f64>().is_ok() || Path::new(value).exists()
}

/// Letters and digits without an end of a word, as most credentials are.
fn is_opaque(value: &str) -> bool {
    let has = |is: fn(&u8) -> bool| value.bytes().any(|byte| is(&byte));
    let is_one_word =
        value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'='));
    value.len() >= MIN_OPAQUE && is_one_word && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(env: &[(&str, &str)], references: &[&str], text: &str) -> String {
        let settings = McpServerSettings {
            env: env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect(),
            env_references: references.iter().map(|name| (*name).to_owned()).collect(),
            ..McpServerSettings::default()
        };
        settings.env_secrets().strike(text).into_owned()
    }

    #[test]
    fn plain_settings_of_a_program_are_no_secrets() {
        let plain = [
            ("MCP_LOG_LEVEL", "error"),
            ("LOG_LEVEL", "warning"),
            ("NODE_ENV", "production"),
            ("DATA_DIR", "/data/files"),
            ("DB", "orders"),
            ("PWD", "/srv/files"),
            ("MONKEY", "capuchin"),
            ("USE_AUTH", "true"),
            ("API_URL", "https://api.example.com/v2"),
        ];
        for (name, value) in plain {
            let text = format!("Error: {value} failed");
            assert_eq!(struck(&[(name, value)], &[], &text), text, "{name}");
        }
        for (name, value) in [("LEVEL", "warning"), ("PORT", "65432"), ("FOLDER", "/tmp")] {
            let text = format!("a {value} too many");
            assert_eq!(struck(&[(name, value)], &[name], &text), text, "{name}: a reference to a plain value");
        }
    }

    #[test]
    fn credentials_are_secrets_by_their_name_their_origin_or_their_place_in_a_url() {
        let named = [
            "API_KEY",
            "GITHUB_TOKEN",
            "client_secret",
            "PGPASSWORD",
            "MYSQL_PWD",
            "GITHUB_PAT",
            "OPENAI_APIKEY",
            "SENTRY_DSN",
            "REDIS_AUTH",
            "SLACK_WEBHOOK_URL",
            "NPM_CONFIG_PASSWD",
            "AZURE_STORAGE_CONNECTION_STRING",
        ];
        for name in named {
            assert_eq!(struck(&[(name, "k3y-of-a-caller")], &[], "no k3y-of-a-caller"), "no [redacted]", "{name}");
        }
        assert_eq!(struck(&[("GH", "k3y-of-a-caller")], &["GH"], "no k3y-of-a-caller"), "no [redacted]");
        let opaque = "ghx_0123456789abcdefABCDEF";
        assert_eq!(struck(&[("GH", opaque)], &[], &format!("no {opaque}")), "no [redacted]");
        let url = "postgres://ann:hunter%2F22@db/orders";
        for text in [url, "hunter%2F22", "hunter/22"] {
            assert_eq!(struck(&[("DB_URL", url)], &[], text), "[redacted]");
        }
        assert_eq!(struck(&[("DB_URL", url)], &[], "no table orders"), "no table orders");
    }

    #[test]
    fn where_a_program_works_is_told_without_its_credentials() {
        let env = [
            ("DB_URL", "postgres://ann:hunter22@db.internal:5433/orders?sslmode=require"),
            ("SENTRY_DSN", "https://0123456789abcdef0123@sentry.example/1"),
            ("DATA_DIR", "/srv/orders"),
            ("STAGE", "test"),
            ("API_KEY", "hunter22"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/tmp"),
            ("KEY_SERVER_PASS", "10.0.0.1:3128"),
            ("GIVEN", "k3y-of-a-caller"),
        ];
        let settings = McpServerSettings {
            env: env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect(),
            env_references: ["GIVEN".to_owned()].into(),
            ..McpServerSettings::default()
        };
        let expected = [
            ("DATA_DIR", "/srv/orders"),
            ("DB_URL", "postgres://db.internal:5433/orders?sslmode=require"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/tmp"),
            ("KEY_SERVER_PASS", "10.0.0.1:3128"),
            ("SENTRY_DSN", "https://sentry.example/1"),
            ("STAGE", "test"),
        ];
        let found = settings.env_without_credentials();
        assert_eq!(found.iter().map(|(name, value)| (*name, &**value)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn headers_that_are_no_credentials_are_told() {
        let headers = |headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value)));
            identity_of_headers(&headers.collect())
        };
        let credentials = [
            ("Authorization", "Basic YTpi"),
            ("X-Api-Key", "a"),
            ("X-Auth", "b"),
            ("Cookie", "c"),
            ("X-Session", "ghx_0123456789abcdefABCDEF"),
        ];
        assert_eq!(headers(&credentials), "");
        assert_eq!(
            headers(&[("X-Stage", "live"), ("X-Api-Key", "a"), ("X-Account", "7")]),
            "\0x-account:7\0x-stage:live"
        );
    }

    #[test]
    fn a_word_as_a_password_is_redacted_as_it_is_written() {
        let text = "Orders of customers and orders";
        assert_eq!(struck(&[("DB_PASSWORD", "orders")], &[], text), "Orders of customers and [redacted]");
    }
}
