//! The two lists in the folder of tools. `requirements.txt` is the operator's: a name in each line, with its versions if
//! not any will do. `requirements.lock` has a wheel for each, by its SHA-256 sum, in the form that pip reads.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The operator's list.
pub(super) const REQUIREMENTS: &str = "requirements.txt";

/// The list of pins.
pub(super) const LOCK: &str = "requirements.lock";

const MAX_LIST_BYTES: u64 = 64 << 10;
const MAX_REQUIREMENTS: usize = 100;

/// Between a pin and the requirement that it is for.
const FOR: &str = "  # ";
const HASH: &str = "--hash=sha256:";

/// How a version is compared.
const COMPARISONS: [&str; 8] = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];

/// Both lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) requirements: Vec<Requirement>,
    pub(super) pins: Vec<Pin>,
}

/// A line of `requirements.txt`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    pub(super) line: usize,
    /// As [`normalized`] writes it.
    pub(super) name: String,
    /// Without spaces and comments.
    pub(super) text: String,
}

/// A line of `requirements.lock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pin {
    pub(super) name: String,
    pub(super) version: String,
    /// SHA-256 of the wheel.
    pub(super) sha256: String,
    /// The text of the requirement that it was fetched for.
    pub(super) requirement: String,
}

impl Listed {
    /// Errors: a file that cannot be read, or the line that is not understood.
    pub(super) fn read(tools: &Path) -> Result<Self, String> {
        let Some(requirements) = text_of(tools, REQUIREMENTS)? else { return Ok(Self::default()) };
        let requirements = parse_requirements(&requirements)?;
        let pins = text_of(tools, LOCK)?.map(|text| parse_lock(&text)).transpose()?.unwrap_or_default();
        Ok(Self { requirements, pins })
    }

    /// The pin of a requirement that is as it was when it was pinned.
    pub(super) fn pin_of(&self, requirement: &Requirement) -> Option<&Pin> {
        self.pins.iter().find(|pin| pin.requirement == requirement.text && pin.name == requirement.name)
    }
}

impl Pin {
    fn line(&self) -> String {
        let Self { name, version, sha256, requirement } = self;
        format!("{name}=={version} {HASH}{sha256}{FOR}{requirement}\n")
    }
}

/// The text of `requirements.lock` with these pins.
pub(super) fn lock_text(pins: &[Pin]) -> String {
    let head = "# The wheels of requirements.txt. `sekisho tools lock` writes this file.\n".to_owned();
    pins.iter().map(Pin::line).fold(head, |text, line| text + &line)
}

/// A name of a package as PyPI compares them (PEP 503).
pub(super) fn normalized(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// The name that a requirement begins with.
pub(super) fn name_in(requirement: &str) -> &str {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    let end = requirement.find(|character| !is_of_name(character)).unwrap_or(requirement.len());
    requirement.split_at(end).0
}

/// Errors: the first line that is not understood.
fn parse_requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut found: Vec<Requirement> = Vec::new();
    for (line, text) in lines(text) {
        let requirement = Requirement::parse(line, text)?;
        if let Some(other) = found.iter().find(|other| other.name == requirement.name) {
            return Err(format!("{REQUIREMENTS}:{line}: line {} names it too: remove one of them", other.line));
        }
        found.push(requirement);
        if found.len() > MAX_REQUIREMENTS {
            return Err(format!("{REQUIREMENTS}:{line}: there are more than {MAX_REQUIREMENTS} packages; name fewer"));
        }
    }
    Ok(found)
}

impl Requirement {
    fn parse(line: usize, text: &str) -> Result<Self, String> {
        let text: String = text.chars().filter(|character| !character.is_whitespace()).collect();
        let name = name_in(&text);
        let versions = text.strip_prefix(name).unwrap_or_default();
        let ends = |character: char| character.is_ascii_alphanumeric();
        let has_name = name.starts_with(ends) && name.ends_with(ends);
        if has_name && (versions.is_empty() || versions.split(',').all(is_comparison)) {
            return Ok(Self { line, name: normalized(name), text });
        }
        Err(format!(
            "{REQUIREMENTS}:{line}: `{text}` is no name of a package with versions: write `name`, `name==1.2` or \
             `name>=1.2,<2`; options, extras, markers, files and addresses are not read"
        ))
    }
}

fn is_comparison(part: &str) -> bool {
    COMPARISONS.iter().find_map(|comparison| part.strip_prefix(comparison)).is_some_and(is_version)
}

/// Whether all its characters are characters of a version.
pub(super) fn is_version(text: &str) -> bool {
    let is_of_version =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'*' | b'+' | b'!' | b'-' | b'_');
    !text.is_empty() && text.bytes().all(is_of_version)
}

/// Whether it is a SHA-256 sum in lower-case hexadecimal.
pub(super) fn is_sum(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Errors: the first line that `sekisho tools lock` did not write.
fn parse_lock(text: &str) -> Result<Vec<Pin>, String> {
    let lines = text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty() && !text.starts_with('#'));
    let parsed = lines.map(|(at, text)| {
        Pin::parse(text).ok_or_else(|| {
            format!("{LOCK}:{}: it is no pin of a wheel: remove the line, and run `sekisho tools lock`", at + 1)
        })
    });
    parsed.collect()
}

impl Pin {
    fn parse(line: &str) -> Option<Self> {
        let (pin, requirement) = line.split_once(FOR)?;
        let (package, hash) = pin.split_once(' ')?;
        let (name, version) = package.split_once("==")?;
        let sha256 = hash.strip_prefix(HASH)?;
        let is_name = !name.is_empty() && normalized(name) == name;
        (is_sum(sha256) && is_name && is_comparison(package.strip_prefix(name)?)).then(|| Self {
            name: name.to_owned(),
            version: version.to_owned(),
            sha256: sha256.to_owned(),
            requirement: requirement.trim().to_owned(),
        })
    }
}

/// The lines with something besides comments, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let uncommented = |line: &str| line.find('#').unwrap_or(line.len());
    let lines = text.lines().enumerate().map(move |(at, line)| (at + 1, line.split_at(uncommented(line)).0.trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

/// `None` where there is no such file.
fn text_of(tools: &Path, name: &str) -> Result<Option<String>, String> {
    let path = tools.join(name);
    let mut text = String::new();
    // A pipe would not end.
    if !path.is_file() {
        return if path.exists() { Err(format!("{name}: it is no file")) } else { Ok(None) };
    }
    let read = File::open(&path).and_then(|file| file.take(MAX_LIST_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(length) if length as u64 > MAX_LIST_BYTES => {
            Err(format!("{name}: it has more than {} KiB; name fewer packages", MAX_LIST_BYTES >> 10))
        }
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{name}: it cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_names_with_versions() {
        let text = "# Ours.\nMarkdown_It.py >= 3, <4   # the parser\n\nmdurl==0.1.2\n";
        let found = parse_requirements(text).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.line, one.name.as_str(), one.text.as_str())).collect();
        assert_eq!(found, [(2, "markdown-it-py", "Markdown_It.py>=3,<4"), (4, "mdurl", "mdurl==0.1.2")]);
        for line in [
            "-r other.txt",
            "--index-url https://pypi.example",
            "./local",
            "a @ https://pypi.example/a.whl",
            "a[extra]",
            "a; python_version < '3'",
            "a==",
            "a=1",
            "a=>1",
            "-a",
            "a-",
            "é",
        ] {
            let problem = parse_requirements(&format!("fine\n{line}")).unwrap_err();
            assert!(problem.starts_with("requirements.txt:2: ") && problem.contains("`name==1.2`"), "{problem}");
        }
        assert!(parse_requirements("a-b\nA_b==1").unwrap_err().contains("line 1 names it too"));
        let many: String = (0..101).map(|number| format!("a{number}\n")).collect();
        assert!(parse_requirements(&many).unwrap_err().contains("more than 100"));
    }

    #[test]
    fn pins_are_read_as_they_were_written() {
        let pins = ["a", "b-c"].map(|name| Pin {
            name: name.to_owned(),
            version: "1.0+local".to_owned(),
            sha256: "0f".repeat(32),
            requirement: format!("{name}>=1,<2"),
        });
        let text = lock_text(&pins);
        assert_eq!(parse_lock(&text).unwrap(), pins);
        let damaged = text.replace("sha256:0f", "sha256:0");
        assert!(parse_lock(&damaged).unwrap_err().starts_with("requirements.lock:2: "));
        for line in ["a==1", "a==1 --hash=md5:00  # a", "../a==1 --hash=sha256:00  # a", "a"] {
            assert!(parse_lock(line).unwrap_err().contains("run `sekisho tools lock`"), "{line}");
        }
    }

    #[test]
    fn a_pin_is_for_the_requirement_that_it_was_fetched_for() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Listed::read(folder.path()), Ok(Listed::default()));
        std::fs::write(folder.path().join(REQUIREMENTS), "a >= 2\nb\n").unwrap();
        let pin = |name: &str, requirement: &str| Pin {
            name: name.to_owned(),
            version: "1".to_owned(),
            sha256: "ab".repeat(32),
            requirement: requirement.to_owned(),
        };
        std::fs::write(folder.path().join(LOCK), lock_text(&[pin("a", "a>=1"), pin("b", "b")])).unwrap();
        let listed = Listed::read(folder.path()).unwrap();
        let pinned: Vec<_> = listed.requirements.iter().map(|one| listed.pin_of(one).is_some()).collect();
        assert_eq!(pinned, [false, true]);
    }
}
