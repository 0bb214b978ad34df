//! The names of sources of the configuration, which no tenant gives to a source of its own: rules of the configuration for `NAME__*` would be for both.

use sekisho_config::Config;

/// Whether a source of the configuration has the name, in upper or lower case, or one of both names begins with the other and `__`. The
/// store knows the names of registrations.
pub(super) fn is_of_configured_source(name: &str, config: &Config) -> bool {
    let servers = &config.mcp.servers;
    let aliases = servers.values().filter_map(|settings| settings.alias.as_ref());
    let mut configured = servers.keys().chain(aliases).chain(config.openapi.collections.keys());
    configured.any(|known| share_tools(known, name))
}

/// Whether a rule for the tools of one may be for tools of the other.
fn share_tools(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|name| format!("{}__", name.to_ascii_lowercase()));
    one.starts_with(&other) || other.starts_with(&one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_the_same_beginning_are_known_in_upper_and_lower_case() {
        for (one, other, expected) in [
            ("up", "up", true),
            ("up", "UP", true),
            ("up", "Up__more", true),
            ("up__more", "up", true),
            ("up", "ups", false),
            ("up", "up_more", false),
            ("up__a", "up__b", false),
        ] {
            assert_eq!(share_tools(one, other), expected, "{one} {other}");
        }
    }
}
