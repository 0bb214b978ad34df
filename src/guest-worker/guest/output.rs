use sekisho_guest_protocol::GuestFile;
use sekisho_guest_system::files::{FileError, Files, NodeId, ROOT};

/// Folder in which the guest writes files for the caller.
pub(super) const OUTPUT_FOLDER: &str = "output";

/// The files under [`OUTPUT_FOLDER`], including holes, so that their sizes are checked before they are copied. Paths
/// of files and folders have a limit of their own, separate from contents: a program that fills the folder with
/// contents gets an error while it runs, and its report is not lost because of names.
/// Errors: when the contents, or the paths, are more than `most` bytes.
pub(super) fn output_files(files: &Files, most: u64) -> Result<Vec<GuestFile>, FileError> {
    let Ok(top) = files.find(ROOT, OUTPUT_FOLDER) else { return Ok(Vec::new()) };
    let (mut content_left, mut paths_left) = (most, most);
    let (mut found, mut folders) = (Vec::new(), vec![(String::new(), top)]);
    while let Some((prefix, folder)) = folders.pop() {
        // Files that were sent to the program, or returned by an earlier call of its session, are there too. They are
        // not sent back unless the program changed them.
        for (name, status) in files.list(folder)?.filter(|(_, status)| !status.is_known) {
            let path_length = (prefix.len() + name.len()) as u64;
            paths_left = paths_left.checked_sub(path_length).ok_or(FileError::NoSpace)?;
            content_left = content_left.checked_sub(status.length).ok_or(FileError::NoSpace)?;
            let path = format!("{prefix}{name}");
            if status.is_folder {
                folders.push((format!("{path}/"), status.id));
            } else {
                found.push(GuestFile { path, content: whole(files, status.id, status.length)? });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn whole(files: &Files, id: NodeId, length: u64) -> Result<Vec<u8>, FileError> {
    let mut content = vec![0; usize::try_from(length).map_err(|_| FileError::TooLarge)?];
    files.read(id, 0, &mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_guest_system::files::Quota;

    /// As a program can create it: a deep folder built from its end, since a single path cannot be that long.
    fn deep(files: &mut Files, depth: usize, names: usize) {
        let (name, output) = ("d".repeat(250), files.find(ROOT, OUTPUT_FOLDER).unwrap());
        let top = files.create_folder(output, "top").unwrap();
        (0..names).for_each(|number| _ = files.create_file(top, &format!("{number}{}", &name[..240])).unwrap());
        for _ in 0..depth {
            files.create_folder(output, "base").unwrap();
            files.rename((output, "top"), (output, &format!("base/{name}"))).unwrap();
            files.rename((output, "base"), (output, "top")).unwrap();
        }
    }

    #[test]
    fn paths_have_the_same_limit_as_contents() {
        let tree = |depth, names| {
            let mut files = Files::new(Quota { bytes: 1 << 20, nodes: 8_192 });
            files.place_folder(OUTPUT_FOLDER, false).unwrap();
            deep(&mut files, depth, names);
            files
        };
        let small = output_files(&tree(2, 3), 1 << 20).unwrap();
        assert_eq!(small.len(), 3);
        for most in [0, 2_000] {
            assert_eq!(output_files(&tree(2, 3), most).unwrap_err(), FileError::NoSpace, "{most}");
        }
        // Folders without files count too. The test counts paths without building 281 MB of them.
        assert_eq!(output_files(&tree(300, 0), 1 << 20).unwrap_err(), FileError::NoSpace);
        assert_eq!(output_files(&tree(800, 1_400), 16 << 20).unwrap_err(), FileError::NoSpace);
    }

    #[test]
    fn what_the_host_placed_is_returned_once_the_program_has_changed_it() {
        let mut files = Files::new(Quota { bytes: 1 << 20, nodes: 9 });
        files.place_folder("/output", false).unwrap();
        let [_, changed] = ["same.csv", "data/changed.csv"]
            .map(|path| files.place_file(&format!("/output/{path}"), b"sent"[..].into(), false).unwrap());
        assert_eq!(output_files(&files, 1 << 20).unwrap(), []);
        files.write(changed, 0, b"S").unwrap();
        let expected = GuestFile { path: "data/changed.csv".to_owned(), content: b"Sent".to_vec() };
        assert_eq!(output_files(&files, 1 << 20).unwrap(), [expected]);
    }
}
