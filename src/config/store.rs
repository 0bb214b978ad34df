use schemars::JsonSchema;
use serde::Deserialize;

use super::Secret;
use super::check::Findings;

/// Where usage, registrations, summaries and replies to calls with an idempotency key are kept.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// URL of a PostgreSQL database, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters of libpq, such as
    /// `sslmode`. Without it: the SQLite file `sekisho.db` in the state directory.
    pub url: Option<Secret>,
}

impl StoreConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
        let Some(url) = self.url.as_ref().map(Secret::expose) else { return };
        if !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) || url::Url::parse(url).is_err() {
            findings.add_secret(
                "store.url",
                "is not the URL of a PostgreSQL database",
                "write postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            );
        }
    }
}
