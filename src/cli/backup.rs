//! `sekisho backup` and `sekisho restore`.

use std::path::Path;

use tokio::runtime::Builder;

use super::{Common, Exit, present, with_config};
use sekisho_audit::backup::{self, BackupContents, BackupError, StatePlaces};
use sekisho_config::Config;
use sekisho_store::StoreLocation;
use sekisho_store::state_lock::StateLock;
use sekisho_store::temporary_folder::private_folder;

pub(super) fn write(common: &Common, file: &Path) -> Exit {
    with_config(common, |config| {
        let progress = present::progress("writing the backup");
        let written = written(&config, file);
        progress.finish_and_clear();
        show(common, written, |contents| format!("{}: {}", file.display(), described(contents)))
    })
}

pub(super) fn restore(common: &Common, file: &Path) -> Exit {
    with_config(common, |config| {
        let progress = present::progress("restoring the backup");
        let restored = restored(&config, file);
        progress.finish_and_clear();
        let folder = config.state_directory();
        if restored.is_ok() && config.secrets.key.is_none() {
            present::info(&format!(
                "copy `secrets.key` of the old state directory to {}, if it has one: a backup does not have it, and without it what it sealed \
                 is lost (calls that wait for approval, large results, sign-ins)",
                folder.display()
            ));
        }
        show(common, restored, |contents| format!("restored to {}: {}", folder.display(), described(contents)))
    })
}

fn written(config: &Config, file: &Path) -> Result<BackupContents, String> {
    if let StoreLocation::PostgreSql(_) = StoreLocation::of(config) {
        return Err(with_other_engine());
    }
    let places = StatePlaces::of(config);
    let folder = private_folder().map_err(|error| format!("the folder for temporary files: {error}"))?;
    let copy = folder.path().join("copy.db");
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(sekisho_store::copy(&StoreLocation::of(config), &copy)).map_err(|error| error.to_string())?;
    let database = copy.exists().then_some(&*copy);
    backup::write(&places, database, file).map_err(|error: BackupError| error.to_string())
}

fn restored(config: &Config, file: &Path) -> Result<BackupContents, String> {
    if let StoreLocation::PostgreSql(_) = StoreLocation::of(config) {
        return Err(with_other_engine());
    }
    let _lock = StateLock::acquire(&config.state_directory()).map_err(|error| error.to_string())?;
    backup::restore(&StatePlaces::of(config), file).map_err(|error| error.to_string())
}

fn with_other_engine() -> String {
    "the store is the database at `store.url`: back it up and restore it with its own tools, as docs/operations.md shows".to_owned()
}

fn described(contents: &BackupContents) -> String {
    let BackupContents { audit_lines, workspace_files } = contents;
    format!("the store, lines of the audit trail: {audit_lines}, files of sessions: {workspace_files}")
}

fn show(common: &Common, outcome: Result<BackupContents, String>, text: impl Fn(&BackupContents) -> String) -> Exit {
    match outcome {
        Ok(contents) if common.json => present::json(&contents),
        Ok(contents) => {
            present::line(&text(&contents));
            Exit::Done
        }
        Err(problem) => {
            present::problem(&problem);
            Exit::Failed
        }
    }
}
