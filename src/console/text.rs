//! The interface's own texts, in the languages that there are. Texts of errors, tools and policies stay as they are.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_LANGUAGE;
use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource, FluentValue};
use unic_langid::LanguageIdentifier;

type Bundle = FluentBundle<FluentResource>;

/// A language of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Language {
    English,
    Japanese,
}

/// The texts of one language.
#[derive(Clone, Copy)]
pub(super) struct Texts {
    pub(super) language: Language,
    bundle: &'static Bundle,
}

static ENGLISH: LazyLock<Bundle> = LazyLock::new(|| bundle(Language::English, include_str!("text/en.ftl")));
static JAPANESE: LazyLock<Bundle> = LazyLock::new(|| bundle(Language::Japanese, include_str!("text/ja.ftl")));

impl Language {
    pub(super) const ALL: [Self; 2] = [Self::English, Self::Japanese];

    /// The tag (BCP 47).
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Japanese => "ja",
        }
    }

    /// Its own name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Japanese => "日本語",
        }
    }

    /// The language with this tag.
    pub(super) fn of_tag(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.tag() == tag)
    }

    /// The first one of `Accept-Language` (RFC 9110 §12.5.4) that there is, by its weight.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let text = headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut best = (0.0, Self::English);
        for range in text.split(',') {
            let mut parts = range.split(';');
            let tag = parts.next().unwrap_or_default().trim();
            let weight = parts.find_map(|part| part.trim().strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            if let Some(language) = Self::of_tag(tag.split('-').next().unwrap_or_default())
                && weight > best.0
            {
                best = (weight, language);
            }
        }
        best.1
    }
}

impl Texts {
    pub(super) fn new(language: Language) -> Self {
        let bundle = match language {
            Language::English => &*ENGLISH,
            Language::Japanese => &*JAPANESE,
        };
        Self { language, bundle }
    }

    /// The text with this id.
    pub(super) fn get(&self, id: &str) -> Cow<'static, str> {
        self.formatted(id, None)
    }

    /// The text with this id, with its variables filled in.
    pub(super) fn with<'a>(
        &self,
        id: &str,
        variables: impl IntoIterator<Item = (&'a str, FluentValue<'a>)>,
    ) -> Cow<'static, str> {
        let arguments: FluentArgs<'a> = variables.into_iter().collect();
        self.formatted(id, Some(&arguments))
    }

    fn formatted(&self, id: &str, arguments: Option<&FluentArgs<'_>>) -> Cow<'static, str> {
        let Some(pattern) = self.bundle.get_message(id).and_then(|message| message.value()) else {
            // A test checks that there is none.
            return id.to_owned().into();
        };
        self.bundle.format_pattern(pattern, arguments, &mut Vec::new()).into_owned().into()
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Texts({:?})", self.language)
    }
}

fn bundle(language: Language, catalogue: &str) -> Bundle {
    let identifier: LanguageIdentifier = language.tag().parse().unwrap_or_default();
    let mut bundle = Bundle::new_concurrent(vec![identifier]);
    // The texts are put into HTML, which isolates directions by itself.
    bundle.set_use_isolating(false);
    // A test parses the catalogues without an error.
    let resource = FluentResource::try_new(catalogue.to_owned()).unwrap_or_else(|(parsed, _)| parsed);
    bundle.add_resource_overriding(resource);
    bundle
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use sekisho_core::checkout::checkout;

    const CATALOGUES: [(&str, &str); 2] = [("en", include_str!("text/en.ftl")), ("ja", include_str!("text/ja.ftl"))];

    fn ids(catalogue: &str) -> BTreeSet<&str> {
        assert!(FluentResource::try_new(catalogue.to_owned()).is_ok());
        let lines = catalogue.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
        lines.filter_map(|line| Some(line.split_once('=')?.0.trim())).collect()
    }

    fn code_below(folder: &str) -> String {
        let (mut code, mut folders) = (String::new(), vec![checkout().join(folder)]);
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                match path.extension() {
                    Some(extension) if extension == "rs" => code.push_str(&std::fs::read_to_string(path).unwrap()),
                    None => folders.push(path),
                    Some(_) => {}
                }
            }
        }
        code
    }

    #[test]
    fn the_catalogues_have_the_texts_that_the_pages_use_and_no_others() {
        let [(_, english), (_, japanese)] = CATALOGUES;
        assert_eq!(ids(english), ids(japanese));
        // The columns of the API's lists name their titles.
        let (code, api) = (code_below("src/console"), code_below("src/api") + &code_below("src/agent-api"));
        let is_used = |id: &str| code.contains(&format!("\"{id}\"")) || api.contains(&format!(".titled(\"{id}\")"));
        let unused: Vec<_> = ids(english).into_iter().filter(|id| !is_used(id)).collect();
        assert!(unused.is_empty(), "{unused:?}");
        let titles = api.split(".titled(\"").skip(1);
        let named = code.split(".get(\"").chain(code.split(".with(\"")).skip(1).chain(titles);
        let named = named.filter_map(|rest| rest.split('"').next()).filter(|name| name.contains("-"));
        let missing: BTreeSet<_> = named.filter(|name| !ids(english).contains(name) && !name.contains('/')).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn the_language_is_the_accepted_one_with_the_highest_weight() {
        for (header, language) in [
            ("", Language::English),
            ("ja", Language::Japanese),
            ("ja-JP,ja;q=0.9,en;q=0.8", Language::Japanese),
            ("fr, en;q=0.9, ja;q=0.3", Language::English),
            ("fr", Language::English),
            (";;,q=,ja;q=x", Language::Japanese),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_LANGUAGE, header.parse().unwrap())]);
            assert_eq!(Language::accepted(&headers), language, "{header}");
        }
        assert_eq!(Texts::new(Language::Japanese).get("nav-tools"), "ツール");
        let counted = |n: usize| Texts::new(Language::English).with("tools-count", [("count", n.into())]);
        assert_ne!(counted(1), counted(2));
    }
}
