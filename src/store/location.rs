use std::fmt;
use std::path::PathBuf;

use url::Url;

use sekisho_config::{Config, Secret};

/// Where the tables are. Displayed without the password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// A SQLite file.
    File(PathBuf),
    /// The URL of a PostgreSQL database.
    PostgreSql(Secret),
}

impl StoreLocation {
    /// `store.url`, else a file in the state directory.
    pub fn of(config: &Config) -> Self {
        match &config.store.url {
            Some(url) => Self::PostgreSql(url.clone()),
            None => Self::File(config.store_file()),
        }
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::PostgreSql(url) => match Url::parse(url.expose()) {
                // The query may have a password too.
                Ok(url) => write!(formatter, "{}://{}{}", url.scheme(), authority(&url), url.path()),
                Err(_) => formatter.write_str("store.url"),
            },
        }
    }
}

/// User, host and port.
fn authority(url: &Url) -> String {
    let user = if url.username().is_empty() { String::new() } else { format!("{}@", url.username()) };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{user}{}{port}", url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_displayed_without_its_password() {
        for (url, expected) in [
            ("postgres://ann:s3cret@db.example:5433/sekisho?sslmode=require", "postgres://ann@db.example:5433/sekisho"),
            ("postgres://db/sekisho?password=s3cret", "postgres://db/sekisho"),
            ("postgresql:///sekisho?host=/run/postgresql", "postgresql:///sekisho"),
            ("s3cret", "store.url"),
        ] {
            let location = StoreLocation::PostgreSql(Secret::new(url));
            assert_eq!(location.to_string(), expected);
            assert!(!format!("{location:?}").contains("s3cret"));
        }
    }
}
