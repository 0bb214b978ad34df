//! The file descriptors of the process: each connection and file takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use sekisho_config::Config;

/// Descriptors besides connections: files, pipes of workers and MCP servers, the store.
const OTHERS: usize = 256;

/// Raises the limit to the highest one that the process may set: many systems start programs with 1,024.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "the limit of file descriptors cannot be raised");
    }
}

/// A warning for an operator if the limit is too low for the configured connections.
pub fn shortage(config: &Config) -> Option<String> {
    let limit = getrlimit(Resource::Nofile).maximum?;
    // A replica takes as many connections from others, and opens as many to them.
    let per_client = if config.cluster.forwarding().is_some() { 3 } else { 1 };
    let of_clients = config.server.max_connections.saturating_mul(per_client);
    let needed = of_clients.saturating_add(config.outbound.max_connections + OTHERS) as u64;
    (limit < needed).then(|| {
        format!(
            "the process may open {limit} files, and {needed} are needed for all connections; \
             raise the limit (`LimitNOFILE`, `ulimit -Hn`), or lower the setting"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_compared_with_the_connections() {
        raise_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        let mut config = Config::default();
        config.server.max_connections = 10;
        assert_eq!(shortage(&config), None);
        config.server.max_connections = 2_000_000_000;
        assert!(shortage(&config).is_some_and(|advice| advice.contains("LimitNOFILE")));
    }
}
