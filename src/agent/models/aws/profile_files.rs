//! Profiles in the files that AWS's tools share
//! (<https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html>).

use std::collections::HashMap;
use std::path::Path;
use std::{fs, io};

use aws_credential_types::Credentials;

use super::Source;
use super::web_identity::WebIdentity;
use sekisho_config::AwsConfig;

/// The profile for which no name is needed.
const DEFAULT: &str = "default";

/// The settings of one profile. The credentials file comes before the config file.
pub(super) struct FileProfile {
    name: String,
    settings: HashMap<String, String>,
    /// Whether the configuration names it.
    is_named: bool,
}

impl FileProfile {
    /// `None` if the configuration names no profile and there is no default.
    /// Errors: a profile that is named does not exist, or a file cannot be read.
    pub(super) fn read(aws: &AwsConfig) -> Result<Option<Self>, String> {
        let name = aws.profile.as_deref().unwrap_or(DEFAULT);
        let mut settings = HashMap::new();
        let mut exists = false;
        for (file, prefix) in [(&aws.config_file, "profile "), (&aws.credentials_file, "")] {
            let Some(text) = file.as_deref().map(text_of).transpose()?.flatten() else { continue };
            // The default has no prefix in either file.
            let section = if name == DEFAULT { name.to_owned() } else { format!("{prefix}{name}") };
            if let Some(found) = section_of(&text, &section) {
                exists = true;
                settings.extend(found);
            }
        }
        match (exists, &aws.profile) {
            (true, named) => Ok(Some(Self { name: name.to_owned(), settings, is_named: named.is_some() })),
            (false, None) => Ok(None),
            (false, Some(_)) => {
                let shown = |file: &Option<std::path::PathBuf>| file.as_ref().map(|file| file.display().to_string());
                let files: Vec<_> = [&aws.credentials_file, &aws.config_file].into_iter().filter_map(shown).collect();
                Err(format!("there is no AWS profile `{name}` in {}; correct `aws.profile`", files.join(" or ")))
            }
        }
    }

    pub(super) fn region(&self) -> Option<&str> {
        self.get("region")
    }

    /// `None` for a default profile without credentials.
    /// Errors: a named profile has no credentials that can be used.
    pub(super) fn source(&self, aws: &AwsConfig, region: &str) -> Result<Option<Source>, String> {
        if let (Some(id), Some(secret)) = (self.get("aws_access_key_id"), self.get("aws_secret_access_key")) {
            let token = self.get("aws_session_token").map(str::to_owned);
            return Ok(Some(Source::Keys(Credentials::new(id, secret, token, None, "sekisho"))));
        }
        if let (Some(role), Some(file)) = (self.get("role_arn"), self.get("web_identity_token_file")) {
            return Ok(Some(Source::WebIdentity(WebIdentity::new(aws, role, Path::new(file), region))));
        }
        if !self.is_named {
            return Ok(None);
        }
        Err(format!(
            "the AWS profile `{}` has neither access keys nor a role with `web_identity_token_file`; other kinds \
             (`sso_session`, `credential_process`, `source_profile`) are not supported, so export their keys as \
             AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
            self.name
        ))
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// `None` if there is no such file.
fn text_of(file: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
    }
}

/// The settings of a section; `None` if there is none of that name. Indented lines belong to a setting and are ignored.
fn section_of(text: &str, name: &str) -> Option<HashMap<String, String>> {
    let mut found: Option<HashMap<String, String>> = None;
    let mut is_inside = false;
    for line in text.lines().map(without_comment) {
        if let Some(header) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let words: Vec<_> = header.split_whitespace().collect();
            is_inside = words.join(" ") == name;
            if is_inside {
                found.get_or_insert_default();
            }
        } else if let (true, Some(settings), Some((key, value))) = (is_inside, &mut found, line.split_once('='))
            && !line.starts_with([' ', '\t'])
        {
            settings.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    found
}

/// A comment begins a line, or stands after a space.
fn without_comment(line: &str) -> &str {
    if line.starts_with(['#', ';']) {
        return "";
    }
    let ends = [" #", " ;", "\t#", "\t;"].into_iter().filter_map(|mark| line.find(mark));
    ends.min().and_then(|end| line.get(..end)).unwrap_or(line)
}
