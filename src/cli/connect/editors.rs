//! The editors: where each keeps its MCP servers, and how it writes them.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;

use super::document::Format;
use sekisho_config::Environment;

/// The name of the gateway in an editor's file.
pub(super) const GATEWAY: &str = "sekisho";

/// One editor. The form of its file is the one its documentation describes, on Linux.
#[derive(Debug)]
pub(super) struct Editor {
    /// On the command line.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    folder: Folder,
    /// Below the folder.
    file: &'static str,
    /// A folder, also below it, that exists where the editor is used and has no file yet.
    home: &'static str,
    pub(super) format: Format,
    /// The member of the file with its servers by name.
    pub(super) list: &'static str,
    /// Entries name their transport in `type`.
    pub(super) is_typed: bool,
    pub(super) variables: Variables,
    /// The member of an entry with the address of a server over HTTP; `None`: the file has programs only.
    pub(super) url: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
enum Folder {
    Home,
    /// `~/.config`, unless `XDG_CONFIG_HOME` is set.
    Config,
    /// The home folder, unless `CLAUDE_CONFIG_DIR` is set.
    Claude,
    /// `~/.codex`, unless `CODEX_HOME` is set.
    Codex,
}

/// How texts of a file name variables of the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variables {
    /// Texts are literal.
    None,
    /// Texts are literal. Members with names of their own name variables: `bearer_token_env_var`.
    Members,
    /// `${NAME}` and `${NAME:-default}`.
    Braces,
    /// `$NAME` too.
    Dollar,
    /// `${env:NAME}`; other words before the colon are values of the editor.
    Prefixed,
}

pub(super) static EDITORS: [Editor; 8] = [
    Editor {
        name: "claude-code",
        title: "Claude Code",
        folder: Folder::Claude,
        file: ".claude.json",
        home: ".claude",
        format: Format::Json,
        list: "mcpServers",
        is_typed: true,
        variables: Variables::Braces,
        url: Some("url"),
    },
    Editor {
        name: "claude-desktop",
        title: "Claude Desktop",
        folder: Folder::Config,
        file: "Claude/claude_desktop_config.json",
        home: "Claude",
        format: Format::Json,
        list: "mcpServers",
        is_typed: false,
        variables: Variables::None,
        url: None,
    },
    Editor {
        name: "cursor",
        title: "Cursor",
        folder: Folder::Home,
        file: ".cursor/mcp.json",
        home: ".cursor",
        format: Format::Json,
        list: "mcpServers",
        is_typed: false,
        variables: Variables::Prefixed,
        url: Some("url"),
    },
    Editor {
        name: "vscode",
        title: "Visual Studio Code",
        folder: Folder::Config,
        file: "Code/User/mcp.json",
        home: "Code/User",
        format: Format::Json,
        list: "servers",
        is_typed: true,
        variables: Variables::Prefixed,
        url: Some("url"),
    },
    Editor {
        name: "codex",
        title: "Codex",
        folder: Folder::Codex,
        file: "config.toml",
        home: "",
        format: Format::Toml,
        list: "mcp_servers",
        is_typed: false,
        variables: Variables::Members,
        url: Some("url"),
    },
    Editor {
        name: "zed",
        title: "Zed",
        folder: Folder::Config,
        file: "zed/settings.json",
        home: "zed",
        format: Format::Json,
        list: "context_servers",
        is_typed: false,
        variables: Variables::None,
        url: Some("url"),
    },
    Editor {
        name: "windsurf",
        title: "Windsurf",
        folder: Folder::Home,
        file: ".codeium/windsurf/mcp_config.json",
        home: ".codeium/windsurf",
        format: Format::Json,
        list: "mcpServers",
        is_typed: false,
        variables: Variables::Prefixed,
        url: Some("serverUrl"),
    },
    Editor {
        name: "gemini",
        title: "Gemini CLI",
        folder: Folder::Home,
        file: ".gemini/settings.json",
        home: ".gemini",
        format: Format::Json,
        list: "mcpServers",
        is_typed: false,
        variables: Variables::Dollar,
        url: Some("httpUrl"),
    },
];

/// The names, for the command line.
pub(super) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(EDITORS.iter().map(|editor| editor.name))
}

/// The folders of a user that hold the files.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    home: PathBuf,
    config: PathBuf,
    claude: PathBuf,
    codex: PathBuf,
}

impl Folders {
    /// Errors: `HOME` is not set.
    pub(super) fn of(environment: &Environment) -> Result<Self, String> {
        let set = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = set("HOME").ok_or("HOME is not set to an absolute path: it has the files of the editors")?;
        Ok(Self {
            config: set("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
            claude: set("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.clone()),
            codex: set("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
            home,
        })
    }

    fn path(&self, folder: Folder) -> &PathBuf {
        match folder {
            Folder::Home => &self.home,
            Folder::Config => &self.config,
            Folder::Claude => &self.claude,
            Folder::Codex => &self.codex,
        }
    }
}

impl Editor {
    pub(super) fn file(&self, folders: &Folders) -> PathBuf {
        folders.path(self.folder).join(self.file)
    }

    /// Whether this user has the editor.
    pub(super) fn is_found(&self, folders: &Folders) -> bool {
        self.file(folders).is_file() || folders.path(self.folder).join(self.home).is_dir()
    }
}
