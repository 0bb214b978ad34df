//! The calls on a descriptor (`fd_*`), and those on sockets, which do not exist.

use super::errno::Errno;
use super::handles::Handle;
use super::memory::GuestMemory;
use super::records::{self, FileType, RIGHT_READ, RIGHT_READ_FOLDER, RIGHT_SEEK, RIGHT_TELL, RIGHT_WRITE, RIGHTS_ALL};
use super::{Answer, MAX_TRANSFER_BYTES, Wasi};
use crate::files::{NodeId, Status};

const FLAG_APPEND: u16 = 1;

/// Cookies of a folder's own two entries. Each other entry has its inode plus one, which only grows: a listing
/// continues where it stopped, whatever entries were added or removed meanwhile.
const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;

impl Wasi {
    pub(super) fn fd_advise(&mut self, _: &mut GuestMemory<'_>, fd: u32, _: u64, _: u64, _: u32) -> Answer {
        self.handles.file(fd).map(drop)
    }

    pub(super) fn fd_allocate(&mut self, _: &mut GuestMemory<'_>, fd: u32, _: u64, _: u64) -> Answer {
        self.handles.file(fd)?;
        Err(Errno::NotSupported)
    }

    pub(super) fn fd_close(&mut self, _: &mut GuestMemory<'_>, fd: u32) -> Answer {
        let closed = self.handles.remove(fd)?;
        self.release(&closed);
        Ok(())
    }

    pub(super) fn fd_renumber(&mut self, _: &mut GuestMemory<'_>, from: u32, to: u32) -> Answer {
        if let Some(replaced) = self.handles.renumber(from, to)? {
            self.release(&replaced);
        }
        Ok(())
    }

    /// Files are in memory: there is nothing to sync.
    pub(super) fn fd_sync(&mut self, _: &mut GuestMemory<'_>, fd: u32) -> Answer {
        self.handles.get(fd).map(drop)
    }

    pub(super) fn fd_datasync(&mut self, memory: &mut GuestMemory<'_>, fd: u32) -> Answer {
        self.fd_sync(memory, fd)
    }

    pub(super) fn fd_fdstat_get(&mut self, memory: &mut GuestMemory<'_>, fd: u32, out: u32) -> Answer {
        let (kind, flags, rights) = match self.handles.get(fd)? {
            // Not a terminal, which would be a character device.
            Handle::Input => (FileType::Unknown, 0, RIGHT_READ),
            Handle::Output | Handle::Error => (FileType::Unknown, 0, RIGHT_WRITE),
            Handle::Folder { .. } => (FileType::Folder, 0, RIGHTS_ALL & !(RIGHT_SEEK | RIGHT_TELL)),
            Handle::File(file) => {
                let mut rights = RIGHTS_ALL & !(RIGHT_READ | RIGHT_WRITE | RIGHT_READ_FOLDER);
                rights |= if file.readable { RIGHT_READ } else { 0 };
                rights |= if file.writable { RIGHT_WRITE } else { 0 };
                (FileType::File, if file.append { FLAG_APPEND } else { 0 }, rights)
            }
        };
        memory.store(out, &records::descriptor(kind, flags, rights))
    }

    pub(super) fn fd_fdstat_set_flags(&mut self, _: &mut GuestMemory<'_>, fd: u32, flags: u32) -> Answer {
        if let Handle::File(file) = self.handles.get_mut(fd)? {
            file.append = flags & u32::from(FLAG_APPEND) != 0;
        }
        Ok(())
    }

    pub(super) fn fd_fdstat_set_rights(&mut self, _: &mut GuestMemory<'_>, fd: u32, _: u64, _: u64) -> Answer {
        self.handles.get(fd)?;
        Err(Errno::NotSupported)
    }

    pub(super) fn fd_filestat_get(&mut self, memory: &mut GuestMemory<'_>, fd: u32, out: u32) -> Answer {
        let record = match self.handles.get(fd)?.node() {
            Some(node) => records::status(&self.files.status(node)?, self.clocks.start_nanoseconds),
            None => records::stream_status(),
        };
        memory.store(out, &record)
    }

    pub(super) fn fd_filestat_set_size(&mut self, _: &mut GuestMemory<'_>, fd: u32, length: u64) -> Answer {
        let file = self.handles.file(fd)?;
        if !file.writable {
            return Err(Errno::Invalid);
        }
        Ok(self.files.resize(file.node, length)?)
    }

    /// Accepted and ignored, so that a copy "with its times" works: files show the start of the run.
    pub(super) fn fd_filestat_set_times(&mut self, _: &mut GuestMemory<'_>, fd: u32, _: u64, _: u64, _: u32) -> Answer {
        match self.handles.get(fd)?.node() {
            Some(node) if self.files.status(node)?.read_only => Err(Errno::ReadOnly),
            _ => Ok(()),
        }
    }

    pub(super) fn fd_prestat_get(&mut self, memory: &mut GuestMemory<'_>, fd: u32, out: u32) -> Answer {
        let length = u32::try_from(self.preopened(fd)?.len()).map_err(|_| Errno::Overflow)?;
        // Tag 0: a folder.
        memory.store(out, &[0; 4])?;
        memory.store(out.checked_add(4).ok_or(Errno::Fault)?, &length.to_le_bytes())
    }

    pub(super) fn fd_prestat_dir_name(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        at: u32,
        length: u32,
    ) -> Answer {
        let path = self.preopened(fd)?;
        if path.len() > length as usize {
            return Err(Errno::NameTooLong);
        }
        memory.store(at, path.as_bytes())
    }

    pub(super) fn fd_read(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        buffers: u32,
        count: u32,
        out: u32,
    ) -> Answer {
        memory.bytes(out, 4)?;
        let Self { handles, files, input, .. } = self;
        let read = match handles.get_mut(fd)? {
            Handle::Input => memory.transfer((buffers, count), MAX_TRANSFER_BYTES, |to, _| Ok(input.read(to)))?,
            Handle::Output | Handle::Error => return Err(Errno::BadDescriptor),
            Handle::Folder { .. } => return Err(Errno::IsFolder),
            Handle::File(file) if !file.readable => return Err(Errno::BadDescriptor),
            Handle::File(file) => {
                let (node, start) = (file.node, file.position);
                let read = memory.transfer((buffers, count), MAX_TRANSFER_BYTES, |to, done| {
                    Ok(files.read(node, start.saturating_add(done.into()), to)?)
                })?;
                file.position = start.saturating_add(read.into());
                read
            }
        };
        memory.store(out, &read.to_le_bytes())
    }

    pub(super) fn fd_pread(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        buffers: u32,
        count: u32,
        offset: u64,
        out: u32,
    ) -> Answer {
        memory.bytes(out, 4)?;
        let file = self.handles.file(fd)?;
        if !file.readable {
            return Err(Errno::BadDescriptor);
        }
        let (node, files) = (file.node, &self.files);
        let read = memory.transfer((buffers, count), MAX_TRANSFER_BYTES, |to, done| {
            Ok(files.read(node, offset.saturating_add(done.into()), to)?)
        })?;
        memory.store(out, &read.to_le_bytes())
    }

    pub(super) fn fd_write(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        buffers: u32,
        count: u32,
        out: u32,
    ) -> Answer {
        memory.bytes(out, 4)?;
        let Self { handles, files, stdout, stderr, .. } = self;
        let written = match handles.get_mut(fd)? {
            Handle::Input => return Err(Errno::BadDescriptor),
            Handle::Output => memory.transfer((buffers, count), u32::MAX, |from, _| Ok(stdout.write(from)))?,
            Handle::Error => memory.transfer((buffers, count), u32::MAX, |from, _| Ok(stderr.write(from)))?,
            Handle::Folder { .. } => return Err(Errno::IsFolder),
            Handle::File(file) if !file.writable => return Err(Errno::BadDescriptor),
            Handle::File(file) => {
                let node = file.node;
                let start = if file.append { files.status(node)?.length } else { file.position };
                let written = memory.transfer((buffers, count), MAX_TRANSFER_BYTES, |from, done| {
                    Ok(files.write(node, start.saturating_add(done.into()), from)?)
                })?;
                file.position = start.saturating_add(written.into());
                written
            }
        };
        memory.store(out, &written.to_le_bytes())
    }

    pub(super) fn fd_pwrite(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        buffers: u32,
        count: u32,
        offset: u64,
        out: u32,
    ) -> Answer {
        memory.bytes(out, 4)?;
        let file = self.handles.file(fd)?;
        if !file.writable {
            return Err(Errno::BadDescriptor);
        }
        let (node, files) = (file.node, &mut self.files);
        let written = memory.transfer((buffers, count), MAX_TRANSFER_BYTES, |from, done| {
            Ok(files.write(node, offset.saturating_add(done.into()), from)?)
        })?;
        memory.store(out, &written.to_le_bytes())
    }

    pub(super) fn fd_seek(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        offset: i64,
        whence: u32,
        out: u32,
    ) -> Answer {
        let file = self.handles.file(fd)?;
        let from = match whence {
            0 => 0,
            1 => file.position,
            2 => self.files.status(file.node)?.length,
            _ => return Err(Errno::Invalid),
        };
        let position = from.checked_add_signed(offset).filter(|at| i64::try_from(*at).is_ok()).ok_or(Errno::Invalid)?;
        memory.store(out, &position.to_le_bytes())?;
        file.position = position;
        Ok(())
    }

    pub(super) fn fd_tell(&mut self, memory: &mut GuestMemory<'_>, fd: u32, out: u32) -> Answer {
        memory.store(out, &self.handles.file(fd)?.position.to_le_bytes())
    }

    /// Fills the buffer with entries and truncates the last one at its end; a buffer that is not full means that
    /// there are no more.
    pub(super) fn fd_readdir(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: u32,
        at: u32,
        length: u32,
        cookie: u64,
        out: u32,
    ) -> Answer {
        let folder = self.handles.folder(fd)?;
        memory.bytes(out, 4)?;
        let mut room = memory.bytes_mut(at, length)?;
        for (next, name, status) in self.entries_after(folder, cookie)? {
            for part in [&records::entry(next, &status, name.len())[..], name.as_bytes()] {
                let count = part.len().min(room.len());
                let (here, rest) = std::mem::take(&mut room).split_at_mut(count);
                here.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                room = rest;
            }
            if room.is_empty() {
                break;
            }
        }
        let used = length - u32::try_from(room.len()).unwrap_or(0);
        memory.store(out, &used.to_le_bytes())
    }

    /// A folder's entries with their cookies, from the one after `cookie` on.
    fn entries_after(&self, folder: NodeId, cookie: u64) -> Result<Vec<(u64, &str, Status)>, Errno> {
        let own = self.files.status(folder)?;
        let parent = self.files.status(self.files.find(folder, "..")?).unwrap_or(own);
        let mut entries = vec![(COOKIE_SELF, ".", own), (COOKIE_PARENT, "..", parent)];
        entries
            .extend(self.files.list(folder)?.map(|(name, status)| (status.id.inode().saturating_add(1), name, status)));
        entries.retain(|(next, ..)| *next > cookie);
        entries.sort_unstable_by_key(|(next, ..)| *next);
        Ok(entries)
    }

    pub(super) fn sock_accept(&mut self, _: &mut GuestMemory<'_>, fd: u32, _: u32, _: u32) -> Answer {
        self.no_socket(fd)
    }

    #[expect(clippy::too_many_arguments, reason = "the WASI function has as many")]
    pub(super) fn sock_recv(
        &mut self,
        _: &mut GuestMemory<'_>,
        fd: u32,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
    ) -> Answer {
        self.no_socket(fd)
    }

    pub(super) fn sock_send(&mut self, _: &mut GuestMemory<'_>, fd: u32, _: u32, _: u32, _: u32, _: u32) -> Answer {
        self.no_socket(fd)
    }

    pub(super) fn sock_shutdown(&mut self, _: &mut GuestMemory<'_>, fd: u32, _: u32) -> Answer {
        self.no_socket(fd)
    }

    fn no_socket(&self, fd: u32) -> Answer {
        self.handles.get(fd)?;
        Err(Errno::NotSocket)
    }

    fn preopened(&self, fd: u32) -> Result<&str, Errno> {
        match self.handles.get(fd)? {
            Handle::Folder { preopened: Some(path), .. } => Ok(path),
            _ => Err(Errno::BadDescriptor),
        }
    }

    fn release(&mut self, handle: &Handle) {
        if let Some(node) = handle.node() {
            self.files.closed(node);
        }
    }
}
