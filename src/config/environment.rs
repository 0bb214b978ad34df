//! The environment: the process's variables, and as a fallback the variables of a `.env` file (E78).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::yaml::error::ConfigError;

/// Variables that name files of programs, servers and editors, or open what may be reached, or by whom. A `.env` file that is not
/// beside the configuration may not set them: it may be one of a folder that an editor has opened.
const ONLY_BESIDE_THE_CONFIGURATION: [&str; 16] = [
    "AWS_CONFIG_FILE",
    "AWS_ENDPOINT_URL_STS",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "HOME",
    "MCP_ALLOWED_DOMAINS",
    "OPENAPI_ALLOWED_DOMAINS",
    "PYTHON_WASI_WASM_PATH",
    "SEKISHO_ALLOW_NETWORKS",
    "SEKISHO_LISTEN",
    "SEKISHO_MCP_CONFIG",
    "SEKISHO_STATE_DIRECTORY",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];

/// Variables by name. Values may be secrets: `Debug` shows only names.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The process's variables, and as a fallback the variables of a `.env` file: the one beside the configuration
    /// file, otherwise the one in the working directory. The process takes precedence. Without `HOME`, it is the home
    /// folder of the user.
    /// Errors: a `.env` file that cannot be read or parsed, or one of the working directory that sets a variable it may
    /// not set.
    pub fn of_process(configuration: Option<&Path>) -> Result<Self, ConfigError> {
        // Invalid Unicode becomes U+FFFD, which no number, host or key of ours accepts.
        let mut environment: Self = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        if environment.get("HOME").is_none()
            && let Some(home) = std::env::home_dir().filter(|home| home.is_absolute())
        {
            environment.set("HOME", home.to_string_lossy());
        }
        let beside = beside(configuration).filter(|file| file.is_file());
        let in_working_directory = PathBuf::from(DOTENV);
        match beside {
            Some(file) => environment.underlay(&file, &[])?,
            None if in_working_directory.is_file() => {
                environment.underlay(&in_working_directory, &ONLY_BESIDE_THE_CONFIGURATION)?;
            }
            None => {}
        }
        Ok(environment)
    }

    /// The value of a variable. An empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Sets a variable here, not in the process: used for options of the command line.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.insert(name.to_owned(), value.into());
    }

    /// Adds the variables of a file that are not set. `refused`: names that it may not set.
    fn underlay(&mut self, file: &Path, refused: &[&str]) -> Result<(), ConfigError> {
        let text = fs::read_to_string(file).map_err(|error| ConfigError::unreadable(file, &error))?;
        let entries =
            dotenvy::from_read_iter(text.as_bytes()).map(|entry| entry.map_err(|error| malformed(file, &text, &error)));
        // Of a name that is given twice the last value counts, as in a shell.
        for (name, value) in entries.collect::<Result<BTreeMap<_, _>, _>>()? {
            if refused.contains(&name.as_str()) && !value.is_empty() && !self.variables.contains_key(&name) {
                return Err(not_beside(file, &text, &name));
            }
            self.variables.entry(name).or_insert(value);
        }
        Ok(())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self { variables: variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.variables.keys()).finish()
    }
}

const DOTENV: &str = ".env";

/// Where a `.env` file may be, first choice first.
pub fn dotenv_files(configuration: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    beside(configuration).into_iter().chain([PathBuf::from(DOTENV)])
}

fn beside(configuration: Option<&Path>) -> Option<PathBuf> {
    configuration.and_then(Path::parent).map(|folder| folder.join(DOTENV))
}

fn not_beside(file: &Path, text: &str, name: &str) -> ConfigError {
    let sets = |line: &str| line.trim_start().trim_start_matches("export ").trim_start().starts_with(name);
    let line = text.lines().position(sets).map_or(1, |index| index + 1);
    let message = format!("{name} cannot be set in this file, since it is not beside the configuration");
    ConfigError::in_file(file, line, 1, message).advise(
        "it may come with a folder that an editor has opened; set the variable where the gateway is started, or in a `.env` \
         file beside the configuration file",
    )
}

/// Reports the place and not the text: the line most likely contains a secret.
fn malformed(file: &Path, text: &str, error: &dotenvy::Error) -> ConfigError {
    let error = match error {
        dotenvy::Error::LineParse(line, _) => {
            let start = line.lines().next().unwrap_or_default();
            let number = text.lines().position(|candidate| candidate.contains(start));
            ConfigError::in_file(file, number.map_or(1, |index| index + 1), 1, "this line is not `NAME=value`")
        }
        _ => ConfigError::of_file(file, "this file cannot be read as lines of `NAME=value`"),
    };
    error.advise("put values with spaces, `#` or quotes into single quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_dotenv(text: &str) -> Result<Environment, ConfigError> {
        with_dotenv_that_may_not_set(text, &[])
    }

    fn with_dotenv_that_may_not_set(text: &str, refused: &[&str]) -> Result<Environment, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".env");
        fs::write(&file, text).unwrap();
        let mut environment = Environment::from_iter([("SET_BY_PROCESS", "process")]);
        environment.underlay(&file, refused).map(|()| environment)
    }

    #[test]
    fn a_file_of_the_working_directory_names_no_files_and_opens_nothing() {
        for name in ONLY_BESIDE_THE_CONFIGURATION {
            let text = format!("OPENAI_API_KEY=a\nexport {name}=evil.json\n");
            let error = with_dotenv_that_may_not_set(&text, &ONLY_BESIDE_THE_CONFIGURATION).unwrap_err().to_string();
            assert!(error.contains(".env:2:1: ") && error.contains(name), "{error}");
            assert!(error.contains("beside the configuration file") && !error.contains("evil"), "{error}");
        }
        let refused = ["SET_BY_PROCESS", "EMPTY"];
        let environment = with_dotenv_that_may_not_set("SET_BY_PROCESS=file\nEMPTY=\nA=1\n", &refused).unwrap();
        assert_eq!((environment.get("SET_BY_PROCESS"), environment.get("A")), (Some("process"), Some("1")));
    }

    #[test]
    fn the_process_takes_precedence_over_the_file() {
        let environment = with_dotenv("SET_BY_PROCESS=file\nWEATHER_API_KEY='a b'\n").unwrap();
        assert_eq!(environment.get("SET_BY_PROCESS"), Some("process"));
        assert_eq!(environment.get("WEATHER_API_KEY"), Some("a b"));
        assert_eq!(environment.get("GITHUB_TOKEN"), None);
    }

    #[test]
    fn the_last_value_of_a_name_in_the_file_counts() {
        let environment = with_dotenv("HOSTS=*\nSET_BY_PROCESS=file\nHOSTS=a.example\n").unwrap();
        assert_eq!((environment.get("HOSTS"), environment.get("SET_BY_PROCESS")), (Some("a.example"), Some("process")));
    }

    #[test]
    fn the_file_beside_the_configuration_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".env"), "SEKISHO_TEST_BESIDE=yes").unwrap();
        let environment = Environment::of_process(Some(&folder.path().join("sekisho.yaml"))).unwrap();
        assert_eq!(environment.get("SEKISHO_TEST_BESIDE"), Some("yes"));
        assert!(environment.get("PATH").is_some());
    }

    #[test]
    fn a_malformed_line_is_named_but_not_shown() {
        let error = with_dotenv("A=1\nKEY=a b hunter2\n").unwrap_err().to_string();
        assert!(error.contains(".env:2:1: this line is not"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        assert_eq!(Environment::from_iter([("A", "")]).get("A"), None);
    }

    #[test]
    fn debug_shows_names_only() {
        assert_eq!(format!("{:?}", Environment::from_iter([("TOKEN", "hunter2")])), r#"{"TOKEN"}"#);
    }
}
