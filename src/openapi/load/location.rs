//! The location of a document, and resolution of its references against it.

use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;
use url::Url;

/// A document's own address, without a fragment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    Url(Url),
    /// Absolute, without `..`.
    File(PathBuf),
}

impl Location {
    /// Resolves `address`, a reference without its fragment, against the location `home` of its document.
    /// Errors: a message: there is no base to resolve against, or the address is invalid.
    pub(crate) fn resolve(address: &str, home: Option<&Self>) -> Result<Self, String> {
        match (Url::parse(address), home) {
            (Ok(url), _) => Self::of_url(url),
            (Err(_), Some(Self::Url(base))) => {
                let joined = base.join(address).map_err(|error| format!("it is not an address: {error}"))?;
                Self::of_url(joined)
            }
            (Err(_), Some(Self::File(file))) => {
                let decoded =
                    percent_decode_str(address).decode_utf8().map_err(|_| "it is not a file name".to_owned())?;
                let folder = file.parent().unwrap_or(file);
                Ok(Self::File(without_dots(&folder.join(&*decoded))))
            }
            (Err(_), None) => Err("the document has no address to resolve it against".to_owned()),
        }
    }

    fn of_url(mut url: Url) -> Result<Self, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("the scheme `{}` is not supported", url.scheme()));
        }
        url.set_fragment(None);
        Ok(Self::Url(url))
    }

    pub(crate) fn as_url(&self) -> Option<&Url> {
        match self {
            Self::Url(url) => Some(url),
            Self::File(_) => None,
        }
    }

    /// The last part of the address, without its extension: a name for the document.
    pub(crate) fn stem(&self) -> String {
        let last = match self {
            Self::Url(url) => url.path_segments().and_then(|mut segments| segments.next_back()).map(str::to_owned),
            Self::File(path) => path.file_name().map(|name| name.to_string_lossy().into_owned()),
        };
        let last = last.unwrap_or_default();
        let stem = last.split('.').next().unwrap_or_default();
        let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let stem: String = stem.chars().map(allowed).take(60).collect();
        if stem.is_empty() { "document".to_owned() } else { stem }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => url.fmt(formatter),
            Self::File(path) => path.display().fmt(formatter),
        }
    }
}

/// `a/./b/../c` as `a/c`, without looking at the file system.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_counts_from_its_own_document() {
        let at = |url: &str| Location::Url(Url::parse(url).unwrap());
        let file = |path: &str| Location::File(path.into());
        for (address, home, expected) in [
            ("pet.yaml", Some(at("https://a.example/v1/api.yaml")), Ok(at("https://a.example/v1/pet.yaml"))),
            ("../pet.yaml?v=2", Some(at("https://a.example/v1/api.yaml")), Ok(at("https://a.example/pet.yaml?v=2"))),
            ("//b.example/pet.yaml", Some(at("https://a.example/")), Ok(at("https://b.example/pet.yaml"))),
            ("./a%20b/../pet.yaml", Some(file("/docs/v1/api.yaml")), Ok(file("/docs/v1/pet.yaml"))),
            ("../../../etc/passwd", Some(file("/docs/api.yaml")), Ok(file("/etc/passwd"))),
            ("https://b.example/pet.yaml", Some(file("/docs/api.yaml")), Ok(at("https://b.example/pet.yaml"))),
            ("https://b.example/pet.yaml", None, Ok(at("https://b.example/pet.yaml"))),
            ("pet.yaml", None, Err("has no address")),
            ("file:///etc/passwd", Some(at("https://a.example/")), Err("`file`")),
            ("urn:example:pet", Some(file("/docs/api.yaml")), Err("`urn`")),
        ] {
            match (Location::resolve(address, home.as_ref()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{address}"),
                (Err(problem), Err(expected)) => assert!(problem.contains(expected), "{address}: {problem}"),
                (found, expected) => panic!("{address}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_stem_is_a_name_without_slashes_and_dots() {
        for (location, expected) in [
            (Location::File("/docs/pet store.v1.yaml".into()), "pet_store"),
            (Location::Url(Url::parse("https://a.example/schemas/pet.json").unwrap()), "pet"),
            (Location::Url(Url::parse("https://a.example/").unwrap()), "document"),
        ] {
            assert_eq!(location.stem(), expected);
        }
    }
}
