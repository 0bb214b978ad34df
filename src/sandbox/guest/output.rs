use crate::sandbox::files::{FileFault, Files, NodeId, ROOT};
use crate::sandbox::frame::GuestFile;

/// Where the guest leaves files for the caller.
const OUTPUT_FOLDER: &str = "output";

/// The files under [`OUTPUT_FOLDER`], holes and all, so that their sizes are checked before they are copied.
///
/// # Errors
/// When they are larger together than `most` bytes.
pub(super) fn output_files(files: &Files, most: u64) -> Result<Vec<GuestFile>, FileFault> {
    let Ok(top) = files.find(ROOT, OUTPUT_FOLDER) else { return Ok(Vec::new()) };
    let (mut left, mut found, mut folders) = (most, Vec::new(), vec![(String::new(), top)]);
    while let Some((prefix, folder)) = folders.pop() {
        for (name, status) in files.list(folder)? {
            let path = format!("{prefix}{name}");
            if status.is_folder {
                folders.push((format!("{path}/"), status.id));
            } else {
                left = left.checked_sub(status.length).ok_or(FileFault::NoSpace)?;
                found.push(GuestFile { path, content: whole(files, status.id, status.length)? });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn whole(files: &Files, id: NodeId, length: u64) -> Result<Vec<u8>, FileFault> {
    let mut content = vec![0; usize::try_from(length).map_err(|_| FileFault::TooLarge)?];
    files.read(id, 0, &mut content)?;
    Ok(content)
}
