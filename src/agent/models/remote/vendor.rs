//! Whose server a profile names: by its protocol, and by the host of its address.

use url::Url;

use super::Protocol;

/// Vendors whose servers differ from the protocol that they have, or that are told apart in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(in crate::models) enum Vendor {
    Anthropic,
    Openai,
    Azure,
    Bedrock,
    /// <https://ai.google.dev/gemini-api/docs/openai>
    Gemini,
    Mistral,
    Deepseek,
    Groq,
    Moonshot,
    Openrouter,
    Xai,
    Zai,
    /// A server of the operator's own, or of a vendor that is not in this list.
    Other,
}

/// Ends of the names of hosts.
const HOSTS: [(&str, Vendor); 15] = [
    ("anthropic.com", Vendor::Anthropic),
    ("openai.com", Vendor::Openai),
    ("openai.azure.com", Vendor::Azure),
    ("services.ai.azure.com", Vendor::Azure),
    ("cognitiveservices.azure.com", Vendor::Azure),
    ("generativelanguage.googleapis.com", Vendor::Gemini),
    ("aiplatform.googleapis.com", Vendor::Gemini),
    ("mistral.ai", Vendor::Mistral),
    ("deepseek.com", Vendor::Deepseek),
    ("groq.com", Vendor::Groq),
    ("moonshot.ai", Vendor::Moonshot),
    ("moonshot.cn", Vendor::Moonshot),
    ("openrouter.ai", Vendor::Openrouter),
    ("x.ai", Vendor::Xai),
    ("z.ai", Vendor::Zai),
];

impl Vendor {
    /// `base_url`: of the profile. Without one it is the protocol's own server.
    pub(in crate::models) fn of(protocol: Protocol, base_url: Option<&Url>) -> Self {
        let Some(base_url) = base_url else {
            return match protocol {
                Protocol::Anthropic => Self::Anthropic,
                Protocol::Openai | Protocol::Responses => Self::Openai,
                Protocol::Gemini => Self::Gemini,
                Protocol::Bedrock => Self::Bedrock,
            };
        };
        if protocol == Protocol::Bedrock {
            return Self::Bedrock;
        }
        let host = base_url.host_str().unwrap_or_default();
        let is_of =
            |name: &str| host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with(['.', '-']));
        HOSTS.iter().find(|(name, _)| is_of(name)).map_or(Self::Other, |(_, vendor)| *vendor)
    }

    /// Its label in metrics.
    pub(in crate::models) fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_host() {
        for (protocol, base_url, expected) in [
            (Protocol::Openai, None, Vendor::Openai),
            (Protocol::Anthropic, None, Vendor::Anthropic),
            (Protocol::Bedrock, Some("http://127.0.0.1:8000"), Vendor::Bedrock),
            (Protocol::Openai, Some("https://api.x.ai/v1"), Vendor::Xai),
            (Protocol::Openai, Some("https://api.max.ai/v1"), Vendor::Other),
            (Protocol::Openai, Some("https://europe-west1-aiplatform.googleapis.com/v1/openapi"), Vendor::Gemini),
            (Protocol::Openai, Some("https://me.openai.azure.com/openai/v1"), Vendor::Azure),
            (Protocol::Anthropic, Some("https://api.deepseek.com/anthropic"), Vendor::Deepseek),
            (Protocol::Openai, Some("https://mistral.ai.example.com/v1"), Vendor::Other),
            (Protocol::Openai, Some("http://127.0.0.1:8000/v1"), Vendor::Other),
        ] {
            let base_url = base_url.map(|text| Url::parse(text).unwrap());
            assert_eq!(Vendor::of(protocol, base_url.as_ref()), expected, "{base_url:?}");
        }
    }
}
