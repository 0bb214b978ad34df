//! The collector of each topic's check, and the rules that several topics share.

use std::net::IpAddr;

use ipnet::IpNet;

use super::yaml::error::{ConfigError, ConfigLocation};

/// Maximum duration, in seconds: a year. A longer one is a typing error, and close to the range of a clock.
pub(super) const MAX_SECONDS: u64 = 366 * 86_400;

/// Settings with the right type and an invalid value.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) found: Vec<Finding>,
}

#[derive(Debug)]
pub(super) struct Finding {
    /// `topic.key[index]`, as in the file.
    pub(super) setting: String,
    message: String,
    advice: String,
    /// The value is a secret.
    pub(super) secret: bool,
}

impl Finding {
    /// The same as an error at `place`.
    pub(super) fn into_error(self, place: ConfigLocation) -> ConfigError {
        let message = match &place {
            ConfigLocation::Setting(_) => self.message,
            _ => format!("`{}`: {}", self.setting, self.message),
        };
        ConfigError::new(place, message).advise(self.advice)
    }

    /// The same for settings that are in no file.
    pub(super) fn sentence(self) -> String {
        format!("`{}` {}: {}", self.setting, self.message, self.advice)
    }
}

impl Findings {
    pub(super) fn add(&mut self, setting: impl Into<String>, message: impl Into<String>, advice: impl Into<String>) {
        self.found.push(Finding {
            setting: setting.into(),
            message: message.into(),
            advice: advice.into(),
            secret: false,
        });
    }

    /// About a secret, which no excerpt may show.
    pub(super) fn add_secret(&mut self, setting: impl Into<String>, message: &str, advice: &str) {
        self.add(setting, message, advice);
        if let Some(finding) = self.found.last_mut() {
            finding.secret = true;
        }
    }

    pub(super) fn above_zero(&mut self, setting: &str, value: impl TryInto<u64>) {
        if value.try_into().is_ok_and(|value| value == 0) {
            self.add(setting, "must be above zero", "set a number above zero");
        }
    }

    /// Like [`above_zero`](Self::above_zero); `None` means no limit.
    pub(super) fn above_zero_or_none(&mut self, setting: &str, value: Option<impl TryInto<u64>>) {
        if value.is_some_and(|value| value.try_into().is_ok_and(|value| value == 0)) {
            self.add(setting, "must be above zero", "for no limit, omit the setting");
        }
    }

    pub(super) fn seconds(&mut self, setting: &str, value: u64) {
        self.above_zero(setting, value);
        self.at_most_a_year(setting, value);
    }

    pub(super) fn at_most_a_year(&mut self, setting: &str, value: u64) {
        if value > MAX_SECONDS {
            self.add(setting, "is longer than a year", "set fewer seconds");
        }
    }

    /// Seconds with a fraction, above zero.
    pub(super) fn duration(&mut self, setting: &str, seconds: f64) {
        // Written so that NaN is refused too.
        if !(seconds > 0.0 && seconds <= 86_400.0) {
            self.add(setting, "must be above zero and at most a day", "set seconds, such as 2.5");
        }
    }

    /// Names used in keys, logs and headers: not blank, no control characters.
    pub(super) fn name(&mut self, setting: &str, value: &str) {
        if value.trim().is_empty() {
            self.add(setting, "is empty", "set a name");
        } else if value.chars().any(char::is_control) {
            self.add(setting, "contains a control character", "use letters, digits and punctuation");
        }
    }

    pub(super) fn names(&mut self, setting: &str, values: &[String]) {
        for (index, value) in values.iter().enumerate() {
            self.name(&format!("{setting}[{index}]"), value);
        }
    }

    /// Hosts of an allowlist. `*` means every host, where it is permitted.
    pub(super) fn domains(&mut self, setting: &str, domains: &[String], star_allowed: bool) {
        for (index, domain) in domains.iter().enumerate() {
            let setting = format!("{setting}[{index}]");
            if domain == "*" && !star_allowed {
                self.add(setting, "`*` is not a host", "leave the list empty to allow every public host");
            } else if domain != "*"
                && (domain.starts_with('.') || domain.contains('*') || url::Host::parse(domain).is_err())
            {
                self.add(setting, "is not a host name", "write `example.com`, without scheme, port or path");
            }
        }
    }

    /// Addresses, and ranges of them.
    pub(super) fn networks(&mut self, setting: &str, networks: &[String]) {
        for (index, network) in networks.iter().enumerate() {
            if !is_network(network) {
                let advice =
                    "write it like 10.0.0.0/8 or fd00::/8, with no bit set after the prefix, or write a single address";
                self.add(format!("{setting}[{index}]"), "is not an address range", advice);
            }
        }
    }
}

/// An address, or a range without bits after the prefix: `10.0.0.1/8` was most likely meant as one host.
fn is_network(text: &str) -> bool {
    let is_range = |text: &str| text.parse().is_ok_and(|network: IpNet| network == network.trunc());
    text.parse::<IpAddr>().is_ok() || is_range(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_ranges_and_addresses_are_networks() {
        for network in ["10.0.0.0/8", "0.0.0.0/0", "127.0.0.1/32", "fd00::/8", "::/0", "::1/128", "127.0.0.1", "::1"] {
            assert!(is_network(network), "{network}");
        }
        for other in ["10.0.0.1/8", "10.0.0", "10.0.0.0/33", "fd00::1/8", "::/129", "localhost/8", "10.0.0.0/-1", ""] {
            assert!(!is_network(other), "{other}");
        }
    }
}
