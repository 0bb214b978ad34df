//! A disk for tests, which refuses when it is told to.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use sekisho_config::{AuditConfig, Durability};
use sekisho_observe::readiness::Readiness;

use crate::Audit;
use crate::chain::Chain;
use crate::disk::{Disk, Found};
use crate::open::Opened;

/// A disk that can be set to fail, and that then writes only a part.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultyDisk {
    state: Arc<Mutex<Plate>>,
}

#[derive(Debug, Default)]
pub(crate) struct Plate {
    pub(crate) text: Vec<u8>,
    pub(crate) full: bool,
    pub(crate) syncs: u32,
}

impl FaultyDisk {
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Plate) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }

    pub(crate) fn audit(&self, durability: Durability, max_lines: usize, readiness: &Arc<Readiness>) -> Audit {
        let opened = Opened { disk: self.clone(), chain: Chain::EMPTY, segment: None, damage: None, signer: None };
        Audit::start(
            opened,
            &AuditConfig { durability, max_queued: max_lines, ..AuditConfig::default() },
            Arc::clone(readiness),
            u64::MAX,
        )
        .unwrap()
    }
}

/// A trail that takes lines and never gets one onto the disk.
pub fn strict_on_a_full_disk() -> Audit {
    let disk = FaultyDisk::default();
    disk.with(|plate| plate.full = true);
    disk.audit(Durability::Strict, 100, &Arc::default())
}

impl Disk for FaultyDisk {
    fn path(&self) -> &Path {
        Path::new("audit.jsonl")
    }

    fn found(&self) -> io::Result<Found> {
        Ok(Found::Own { bytes: self.with(|plate| plate.text.len() as u64) })
    }

    fn start_file(&mut self, _text: &[u8], _keep_as: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        self.with(|plate| {
            let fits = if plate.full { text.len() / 2 } else { text.len() };
            plate.text.extend_from_slice(&text[..fits]);
            if plate.full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.with(|plate| plate.syncs += 1);
        Ok(())
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.with(|plate| plate.text.truncate(usize::try_from(bytes).unwrap()));
        Ok(())
    }

    fn write_head(&mut self, _head: &Chain) -> io::Result<()> {
        Ok(())
    }
}
