//! `wasi:filesystem` over the folders that a component reads. Nothing of them can be changed.

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::component::{HasData, Resource, ResourceTable};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, Host, HostDescriptor,
    HostDirectoryEntryStream, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult, ReaddirIterator};

use super::host_folders::{Folders, Listed};
use sekisho_guest_system::files::{FileError, NodeId};

/// Maximum length of one read.
const MAX_READ_BYTES: u64 = 64 << 10;

/// Marks the interfaces of [`FolderView`] in a linker.
pub(super) struct HasFolders;

impl HasData for HasFolders {
    type Data<'a> = FolderView<'a>;
}

/// `wasi:filesystem`, for one call. Its resources are in the table under types of our own: the types that the
/// interfaces name are files of the host.
pub(super) struct FolderView<'a> {
    pub(super) folders: &'a Folders,
    pub(super) table: &'a mut ResourceTable,
}

/// An opened file or folder.
struct Opened(NodeId);

/// A list of a folder, and how much of it was read.
struct Listing(Arc<[Listed]>, usize);

type Handle = Resource<Descriptor>;

impl FolderView<'_> {
    fn node(&self, handle: &Handle) -> FsResult<NodeId> {
        Ok(self.table.get(&Resource::<Opened>::new_borrow(handle.rep()))?.0)
    }

    fn open(&mut self, node: NodeId) -> FsResult<Handle> {
        Ok(Resource::new_own(self.table.push(Opened(node))?.rep()))
    }

    fn file(&self, handle: &Handle) -> FsResult<Bytes> {
        let node = self.node(handle)?;
        self.folders.contents.get(&node).cloned().ok_or_else(|| ErrorCode::IsDirectory.into())
    }

    /// A path does not leave its folder: a name is no `..`, and there are no links.
    fn find(&self, from: &Handle, path: &str) -> FsResult<NodeId> {
        if path.starts_with('/') || path.split('/').any(|name| name == "..") {
            return Err(ErrorCode::NotPermitted.into());
        }
        self.folders.files.find(self.node(from)?, path).map_err(|error| code_of(error).into())
    }

    fn status(&self, node: NodeId) -> FsResult<DescriptorStat> {
        let status = self.folders.files.status(node).map_err(code_of)?;
        Ok(DescriptorStat {
            type_: type_of(status.is_folder),
            link_count: 1,
            size: status.length,
            data_access_timestamp: None,
            data_modification_timestamp: None,
            status_change_timestamp: None,
        })
    }
}

fn type_of(is_folder: bool) -> DescriptorType {
    if is_folder { DescriptorType::Directory } else { DescriptorType::RegularFile }
}

fn code_of(error: FileError) -> ErrorCode {
    match error {
        FileError::Missing => ErrorCode::NoEntry,
        FileError::NotAFolder => ErrorCode::NotDirectory,
        FileError::IsAFolder => ErrorCode::IsDirectory,
        FileError::NameTooLong => ErrorCode::NameTooLong,
        _ => ErrorCode::Invalid,
    }
}

fn read_only<T>() -> FsResult<T> {
    Err(ErrorCode::ReadOnly.into())
}

fn hash_of(node: NodeId) -> MetadataHashValue {
    MetadataHashValue { lower: node.inode(), upper: 0 }
}

impl preopens::Host for FolderView<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Handle, String)>> {
        let folders = self.folders;
        let opened = folders.roots.iter().map(|(path, node)| {
            let handle = self.table.push(Opened(*node))?.rep();
            Ok::<_, wasmtime::Error>((Resource::new_own(handle), path.to_string()))
        });
        opened.collect()
    }
}

impl Host for FolderView<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    /// Reading from memory does not fail.
    fn filesystem_error_code(&mut self, _error: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(None)
    }
}

impl HostDescriptor for FolderView<'_> {
    fn read_via_stream(&mut self, handle: Handle, offset: u64) -> FsResult<Resource<DynInputStream>> {
        let content = self.file(&handle)?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let stream: DynInputStream = Box::new(MemoryInputPipe::new(content.slice(offset..)));
        Ok(self.table.push(stream)?)
    }

    fn write_via_stream(&mut self, _handle: Handle, _offset: u64) -> FsResult<Resource<DynOutputStream>> {
        read_only()
    }

    fn append_via_stream(&mut self, _handle: Handle) -> FsResult<Resource<DynOutputStream>> {
        read_only()
    }

    async fn advise(&mut self, _handle: Handle, _offset: u64, _length: u64, _advice: Advice) -> FsResult<()> {
        Ok(())
    }

    async fn sync_data(&mut self, _handle: Handle) -> FsResult<()> {
        Ok(())
    }

    async fn get_flags(&mut self, _handle: Handle) -> FsResult<DescriptorFlags> {
        Ok(DescriptorFlags::READ)
    }

    async fn get_type(&mut self, handle: Handle) -> FsResult<DescriptorType> {
        let node = self.node(&handle)?;
        Ok(self.status(node)?.type_)
    }

    async fn set_size(&mut self, _handle: Handle, _size: u64) -> FsResult<()> {
        read_only()
    }

    async fn set_times(&mut self, _handle: Handle, _read: NewTimestamp, _changed: NewTimestamp) -> FsResult<()> {
        read_only()
    }

    async fn read(&mut self, handle: Handle, length: u64, offset: u64) -> FsResult<(Vec<u8>, bool)> {
        let content = self.file(&handle)?;
        let all = content.len() as u64;
        let begin = offset.min(all);
        let end = begin.saturating_add(length.min(MAX_READ_BYTES)).min(all);
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        Ok((content.slice(place(begin)..place(end)).to_vec(), end == all))
    }

    async fn write(&mut self, _handle: Handle, _content: Vec<u8>, _offset: u64) -> FsResult<u64> {
        read_only()
    }

    async fn read_directory(&mut self, handle: Handle) -> FsResult<Resource<ReaddirIterator>> {
        let node = self.node(&handle)?;
        let listed = self.folders.lists.get(&node).ok_or(ErrorCode::NotDirectory)?;
        Ok(Resource::new_own(self.table.push(Listing(Arc::clone(listed), 0))?.rep()))
    }

    async fn sync(&mut self, _handle: Handle) -> FsResult<()> {
        Ok(())
    }

    async fn create_directory_at(&mut self, _handle: Handle, _path: String) -> FsResult<()> {
        read_only()
    }

    async fn stat(&mut self, handle: Handle) -> FsResult<DescriptorStat> {
        let node = self.node(&handle)?;
        self.status(node)
    }

    async fn stat_at(&mut self, handle: Handle, _flags: PathFlags, path: String) -> FsResult<DescriptorStat> {
        let node = self.find(&handle, &path)?;
        self.status(node)
    }

    async fn set_times_at(
        &mut self,
        _handle: Handle,
        _flags: PathFlags,
        _path: String,
        _read: NewTimestamp,
        _changed: NewTimestamp,
    ) -> FsResult<()> {
        read_only()
    }

    async fn link_at(
        &mut self,
        _handle: Handle,
        _flags: PathFlags,
        _path: String,
        _new: Handle,
        _new_path: String,
    ) -> FsResult<()> {
        read_only()
    }

    async fn open_at(
        &mut self,
        handle: Handle,
        _flags: PathFlags,
        path: String,
        how: OpenFlags,
        rights: DescriptorFlags,
    ) -> FsResult<Handle> {
        let creates = [OpenFlags::CREATE, OpenFlags::EXCLUSIVE, OpenFlags::TRUNCATE];
        let changes = [DescriptorFlags::WRITE, DescriptorFlags::MUTATE_DIRECTORY];
        if creates.into_iter().any(|flag| how.contains(flag)) || changes.into_iter().any(|flag| rights.contains(flag)) {
            return read_only();
        }
        let node = self.find(&handle, &path)?;
        if how.contains(OpenFlags::DIRECTORY) && !self.folders.files.status(node).map_err(code_of)?.is_folder {
            return Err(ErrorCode::NotDirectory.into());
        }
        self.open(node)
    }

    async fn readlink_at(&mut self, _handle: Handle, _path: String) -> FsResult<String> {
        Err(ErrorCode::Invalid.into())
    }

    async fn remove_directory_at(&mut self, _handle: Handle, _path: String) -> FsResult<()> {
        read_only()
    }

    async fn rename_at(&mut self, _handle: Handle, _path: String, _new: Handle, _new_path: String) -> FsResult<()> {
        read_only()
    }

    async fn symlink_at(&mut self, _handle: Handle, _target: String, _path: String) -> FsResult<()> {
        read_only()
    }

    async fn unlink_file_at(&mut self, _handle: Handle, _path: String) -> FsResult<()> {
        read_only()
    }

    async fn is_same_object(&mut self, one: Handle, other: Handle) -> wasmtime::Result<bool> {
        Ok(self.node(&one)? == self.node(&other)?)
    }

    async fn metadata_hash(&mut self, handle: Handle) -> FsResult<MetadataHashValue> {
        Ok(hash_of(self.node(&handle)?))
    }

    async fn metadata_hash_at(
        &mut self,
        handle: Handle,
        _flags: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        Ok(hash_of(self.find(&handle, &path)?))
    }

    fn drop(&mut self, handle: Handle) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Opened>::new_own(handle.rep()))?;
        Ok(())
    }
}

impl HostDirectoryEntryStream for FolderView<'_> {
    async fn read_directory_entry(&mut self, listed: Resource<ReaddirIterator>) -> FsResult<Option<DirectoryEntry>> {
        let Listing(entries, at) = self.table.get_mut(&Resource::<Listing>::new_borrow(listed.rep()))?;
        let Some(Listed { name, is_folder }) = entries.get(*at) else { return Ok(None) };
        *at += 1;
        Ok(Some(DirectoryEntry { type_: type_of(*is_folder), name: name.clone() }))
    }

    fn drop(&mut self, listed: Resource<ReaddirIterator>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Listing>::new_own(listed.rep()))?;
        Ok(())
    }
}

/// Adds both interfaces in place of those over files of the host.
/// Errors: when the linker has one of the names for something else.
pub(super) fn add_to_linker<T: Send + 'static>(
    linker: &mut wasmtime::component::Linker<T>,
    view: fn(&mut T) -> FolderView<'_>,
) -> wasmtime::Result<()> {
    preopens::add_to_linker::<T, HasFolders>(linker, view)?;
    types::add_to_linker::<T, HasFolders>(linker, view)
}
