//! The calls on a path (`path_*`), each relative to an open folder.

use super::errno::Errno;
use super::handles::{Handle, OpenFile};
use super::memory::GuestMemory;
use super::records::{self, RIGHT_READ, RIGHT_WRITE};
use super::{Answer, Wasi};
use crate::files::{FileError, NodeId};

const OPEN_CREATE: u32 = 1;
const OPEN_FOLDER: u32 = 2;
const OPEN_NEW: u32 = 4;
const OPEN_EMPTIED: u32 = 8;
const FLAG_APPEND: u32 = 1;

impl Wasi {
    #[expect(clippy::too_many_arguments, reason = "the signature is preview 1's")]
    pub(super) fn path_open(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        _lookup: u32,
        path: u32,
        length: u32,
        how: u32,
        rights: u64,
        _inherited_rights: u64,
        flags: u32,
        out: u32,
    ) -> Answer {
        memory.bytes(out, 4)?;
        if !self.handles.has_capacity() {
            return Err(Errno::TooManyOpen);
        }
        let folder = self.handles.folder(fd)?;
        let writable = rights & RIGHT_WRITE != 0;
        let node = self.find_or_create(folder, memory.path(path, length)?, how)?;
        let status = self.files.status(node)?;
        let handle = if status.is_folder {
            if writable {
                return Err(Errno::IsFolder);
            }
            Handle::Folder { node, preopened: None }
        } else {
            if how & OPEN_FOLDER != 0 {
                return Err(Errno::NotFolder);
            }
            if writable && status.read_only {
                return Err(Errno::ReadOnly);
            }
            if how & OPEN_EMPTIED != 0 {
                self.files.resize(node, 0)?;
            }
            let (readable, append) = (rights & RIGHT_READ != 0, flags & FLAG_APPEND != 0);
            Handle::File(OpenFile { node, position: 0, append, readable, writable })
        };
        let opened = self.handles.insert(handle)?;
        self.files.opened(node)?;
        memory.store(out, &opened.to_le_bytes())
    }

    fn find_or_create(&mut self, folder: NodeId, path: &str, how: u32) -> Result<NodeId, Errno> {
        let creates = how & OPEN_CREATE != 0;
        match self.files.find(folder, path) {
            Ok(_) if creates && how & OPEN_NEW != 0 => Err(Errno::Exists),
            Err(FileError::Missing) if creates && how & OPEN_FOLDER == 0 && !path.is_empty() => {
                Ok(self.files.create_file(folder, path)?)
            }
            found => Ok(found?),
        }
    }

    pub(super) fn path_create_directory(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        path: u32,
        length: u32,
    ) -> Answer {
        let folder = self.handles.folder(fd)?;
        self.files.create_folder(folder, memory.path(path, length)?)?;
        Ok(())
    }

    pub(super) fn path_remove_directory(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        path: u32,
        length: u32,
    ) -> Answer {
        let folder = self.handles.folder(fd)?;
        Ok(self.files.remove_folder(folder, memory.path(path, length)?)?)
    }

    pub(super) fn path_unlink_file(&mut self, memory: &mut GuestMemory<'_>, fd: u32, path: u32, length: u32) -> Answer {
        let folder = self.handles.folder(fd)?;
        Ok(self.files.unlink(folder, memory.path(path, length)?)?)
    }

    #[expect(clippy::too_many_arguments, reason = "the signature is preview 1's")]
    pub(super) fn path_rename(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        path: u32,
        length: u32,
        new_fd: u32,
        new_path: u32,
        new_length: u32,
    ) -> Answer {
        let (folder, new_folder) = (self.handles.folder(fd)?, self.handles.folder(new_fd)?);
        let (from, to) = (memory.path(path, length)?, memory.path(new_path, new_length)?);
        Ok(self.files.rename((folder, from), (new_folder, to))?)
    }

    pub(super) fn path_filestat_get(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        _lookup: u32,
        path: u32,
        length: u32,
        out: u32,
    ) -> Answer {
        let node = self.node_at(memory, fd, path, length)?;
        let record = records::status(&self.files.status(node)?, self.clocks.start_nanoseconds);
        memory.store(out, &record)
    }

    /// As [`Wasi::fd_filestat_set_times`].
    #[expect(clippy::too_many_arguments, reason = "the signature is preview 1's")]
    pub(super) fn path_filestat_set_times(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        _lookup: u32,
        path: u32,
        length: u32,
        _accessed: u64,
        _modified: u64,
        _which: u32,
    ) -> Answer {
        let node = self.node_at(memory, fd, path, length)?;
        if self.files.status(node)?.read_only { Err(Errno::ReadOnly) } else { Ok(()) }
    }

    /// There are no links, so no path is one.
    #[expect(clippy::too_many_arguments, reason = "the signature is preview 1's")]
    pub(super) fn path_readlink(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        path: u32,
        length: u32,
        _at: u32,
        _room: u32,
        _out: u32,
    ) -> Answer {
        self.node_at(memory, fd, path, length)?;
        Err(Errno::Invalid)
    }

    /// `EPERM`: the error on Linux for a file system without links.
    #[expect(clippy::too_many_arguments, reason = "the signature is preview 1's")]
    pub(super) fn path_link(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        _lookup: u32,
        path: u32,
        length: u32,
        new_fd: u32,
        _new_path: u32,
        _new_length: u32,
    ) -> Answer {
        self.node_at(memory, fd, path, length)?;
        self.handles.folder(new_fd)?;
        Err(Errno::NotPermitted)
    }

    pub(super) fn path_symlink(
        &mut self,
        _memory: &mut GuestMemory<'_>,
        _target: u32,
        _target_length: u32,
        fd: u32,
        _path: u32,
        _length: u32,
    ) -> Answer {
        self.handles.folder(fd)?;
        Err(Errno::NotPermitted)
    }

    fn node_at(&self, memory: &GuestMemory<'_>, fd: u32, path: u32, length: u32) -> Result<NodeId, Errno> {
        let folder = self.handles.folder(fd)?;
        Ok(self.files.find(folder, memory.path(path, length)?)?)
    }
}
