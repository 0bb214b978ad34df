//! The records that calls write into the guest's memory, little-endian, laid out as in preview 1.

use crate::files::Status;

pub(super) const RIGHT_READ: u64 = 1 << 1;
pub(super) const RIGHT_SEEK: u64 = 1 << 2;
pub(super) const RIGHT_TELL: u64 = 1 << 5;
pub(super) const RIGHT_WRITE: u64 = 1 << 6;
pub(super) const RIGHT_READ_FOLDER: u64 = 1 << 14;
/// All thirty rights of preview 1. The file system decides about permissions, not rights.
pub(super) const RIGHTS_ALL: u64 = (1 << 30) - 1;

#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum FileType {
    Unknown = 0,
    Folder = 3,
    File = 4,
}

impl FileType {
    fn of(status: &Status) -> Self {
        if status.is_folder { Self::Folder } else { Self::File }
    }
}

/// `fdstat`.
pub(super) fn descriptor(kind: FileType, flags: u16, rights: u64) -> [u8; 24] {
    let mut record = [0; 24];
    put(&mut record, 0, &[kind as u8]);
    put(&mut record, 2, &flags.to_le_bytes());
    put(&mut record, 8, &rights.to_le_bytes());
    put(&mut record, 16, &rights.to_le_bytes());
    record
}

/// `filestat` of a file or folder, with one time for all three.
pub(super) fn status(status: &Status, nanoseconds: u64) -> [u8; 64] {
    let mut record = [0; 64];
    put(&mut record, 8, &status.id.inode().to_le_bytes());
    put(&mut record, 16, &[FileType::of(status) as u8]);
    put(&mut record, 24, &1_u64.to_le_bytes());
    put(&mut record, 32, &status.length.to_le_bytes());
    for at in [40, 48, 56] {
        put(&mut record, at, &nanoseconds.to_le_bytes());
    }
    record
}

/// `filestat` of a stream.
pub(super) fn stream_status() -> [u8; 64] {
    [0; 64]
}

/// `dirent`, followed by the name.
pub(super) fn entry(next: u64, status: &Status, name_bytes: usize) -> [u8; 24] {
    let mut record = [0; 24];
    put(&mut record, 0, &next.to_le_bytes());
    put(&mut record, 8, &status.id.inode().to_le_bytes());
    put(&mut record, 16, &u32::try_from(name_bytes).unwrap_or(u32::MAX).to_le_bytes());
    put(&mut record, 20, &[FileType::of(status) as u8]);
    record
}

/// `event` of `poll_oneoff`.
pub(super) fn event(user_data: [u8; 8], errno: u16, kind: u8) -> [u8; 32] {
    let mut record = [0; 32];
    put(&mut record, 0, &user_data);
    put(&mut record, 8, &errno.to_le_bytes());
    put(&mut record, 10, &[kind]);
    record
}

fn put(record: &mut [u8], at: usize, value: &[u8]) {
    record.iter_mut().skip(at).zip(value).for_each(|(to, from)| *to = *from);
}
