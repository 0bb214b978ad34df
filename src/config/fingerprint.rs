//! Digests of the topics of a configuration, by which two processes notice that theirs differ.

use std::collections::BTreeMap;
use std::fmt::Debug;

use sha2::{Digest, Sha256};

use super::{ClusterConfig, Config, ServerConfig};

impl Config {
    /// The topics, each with a digest of its settings. Not included: the address on which a gateway listens and its
    /// log, which matter to no command; the state directory, by which processes find each other; the time at which a
    /// change is applied; changes of the store over the file, which a command that reads the file does not have; and the
    /// values of secrets.
    pub fn fingerprint(&self) -> BTreeMap<String, String> {
        let alone = self.with_changes(&[]);
        let Self {
            file: _,
            set: _,
            references: _,
            state_directory: _,
            config: _,
            server,
            auth,
            console,
            tools,
            sandbox,
            openapi,
            mcp,
            catalogue,
            python_tools,
            components,
            agent,
            tenants,
            limits,
            policy,
            flow,
            approvals,
            budget,
            breaker,
            execution,
            outbound,
            session,
            results,
            recording,
            store,
            secrets,
            cluster,
            audit,
            telemetry: _,
        } = alone.as_ref().unwrap_or(self);
        let ServerConfig { listen, metrics_listen, .. } = ServerConfig::default();
        let server = ServerConfig { listen, metrics_listen, ..server.clone() };
        let cluster = ClusterConfig { address: None, ..cluster.clone() };
        let topics: [(&str, &dyn Debug); 27] = [
            ("server", &server),
            ("auth", auth),
            ("console", console),
            ("tools", tools),
            ("sandbox", sandbox),
            ("openapi", openapi),
            ("mcp", mcp),
            ("catalogue", catalogue),
            ("python_tools", python_tools),
            ("components", components),
            ("agent", agent),
            ("tenants", tenants),
            ("limits", limits),
            ("policy", policy),
            ("flow", flow),
            ("approvals", approvals),
            ("budget", budget),
            ("breaker", breaker),
            ("execution", execution),
            ("outbound", outbound),
            ("session", session),
            ("results", results),
            ("recording", recording),
            ("store", store),
            ("secrets", secrets),
            ("cluster", &cluster),
            ("audit", audit),
        ];
        // `Debug` has every setting, and no secret.
        let digest = |settings: &dyn Debug| hex::encode(&Sha256::digest(format!("{settings:?}"))[..8]);
        topics.into_iter().map(|(topic, settings)| (topic.to_owned(), digest(settings))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_topic_has_another_digest_and_the_address_has_none() {
        let one = Config::default();
        let mut other = Config::default();
        other.server.listen.set_port(1);
        other.cluster.address = Some(([10, 0, 0, 3], 8790).into());
        other.telemetry.log = "debug".into();
        other.state_directory = Some("/srv".into());
        assert_eq!(one.fingerprint(), other.fingerprint());
        other.server.max_body_bytes = 1;
        other.budget.max_cost_per_request = rust_decimal::Decimal::ONE;
        let differ: Vec<_> =
            other.fingerprint().into_iter().filter(|(topic, of)| one.fingerprint()[topic] != *of).collect();
        assert_eq!(differ.iter().map(|(topic, _)| &**topic).collect::<Vec<_>>(), ["budget", "server"]);
    }
}
