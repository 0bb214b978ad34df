use proptest::prelude::*;

use super::*;

const QUOTA: Quota = Quota { bytes: 64 * 1024, nodes: 8 };

fn files() -> (Files, NodeId) {
    let mut files = Files::new(QUOTA);
    let tmp = files.place_folder("/tmp", false).unwrap();
    files.place_file("/input/data.csv", Bytes::from_static(b"a,b\n"), true).unwrap();
    (files, tmp)
}

fn content(files: &Files, id: NodeId) -> Vec<u8> {
    let mut buffer = vec![0xAA; usize::try_from(files.status(id).unwrap().length).unwrap()];
    let count = files.read(id, 0, &mut buffer).unwrap();
    assert_eq!(count, buffer.len());
    buffer
}

#[test]
fn files_of_the_host_can_be_read_and_not_changed() {
    let (mut files, tmp) = files();
    let data = files.find(ROOT, "input/data.csv").unwrap();
    assert_eq!(content(&files, data), b"a,b\n");
    let refusals = [
        files.write(data, 0, b"x").unwrap_err(),
        files.resize(data, 0).unwrap_err(),
        files.unlink(ROOT, "input/data.csv").unwrap_err(),
        files.create_file(ROOT, "input/new").unwrap_err(),
        files.create_folder(ROOT, "new").unwrap_err(),
        files.rename((ROOT, "input/data.csv"), (tmp, "mine")).unwrap_err(),
        files.remove_folder(ROOT, "tmp").unwrap_err(),
    ];
    assert_eq!(refusals, [FileError::ReadOnly; 7]);
    files.create_file(tmp, "own").unwrap();
    assert_eq!(files.rename((tmp, "own"), (ROOT, "input/own")), Err(FileError::ReadOnly));
}

#[test]
fn no_path_leads_out_of_the_root() {
    let (files, tmp) = files();
    for path in ["../../..", "/../..", "x/.."] {
        let found = files.find(tmp, path);
        assert!(matches!(found, Ok(ROOT) | Err(FileError::Missing)), "{path}: {found:?}");
    }
    assert_eq!(files.find(tmp, "../../etc/passwd"), Err(FileError::Missing));
}

#[test]
fn invalid_paths_have_their_own_errors() {
    let (mut files, tmp) = files();
    let deep = "d/".repeat(3000);
    let cases = [
        ("a\0b", FileError::BadPath),
        ("", FileError::Missing),
        ("missing/x", FileError::Missing),
        ("../input/data.csv/x", FileError::NotAFolder),
        ("../input/data.csv/", FileError::NotAFolder),
        (&"n".repeat(256), FileError::NameTooLong),
        (&deep, FileError::NameTooLong),
    ];
    for (path, error) in cases {
        assert_eq!(files.find(tmp, path), Err(error), "{}", path.escape_debug());
    }
    assert_eq!(files.create_file(tmp, ".."), Err(FileError::BadPath));
    assert_eq!(files.create_file(tmp, "name/"), Err(FileError::IsAFolder));
}

#[test]
fn a_byte_far_out_costs_one_chunk_and_reads_back_behind_zeros() {
    let (mut files, tmp) = files();
    let id = files.create_file(tmp, "big").unwrap();
    assert_eq!(files.write(id, 1 << 40, b"x"), Ok(1));
    assert_eq!(files.status(id).unwrap().length, (1 << 40) + 1);
    assert_eq!(files.used_bytes(), CHUNK_BYTES as u64);
    let mut end = [0xAA; 3];
    assert_eq!(files.read(id, (1 << 40) - 2, &mut end), Ok(3));
    assert_eq!(&end, b"\0\0x");
    assert_eq!(files.write(id, u64::MAX, b"x"), Err(FileError::TooLarge));
    files.unlink(tmp, "big").unwrap();
    assert_eq!(files.used_bytes(), 0);
}

#[test]
fn bytes_past_the_quota_are_refused_after_a_short_write() {
    let (mut files, tmp) = files();
    let id = files.create_file(tmp, "full").unwrap();
    assert_eq!(files.write(id, 0, &vec![7; 100 * 1024]), Ok(64 * 1024));
    assert_eq!(files.write(id, 64 * 1024, b"x"), Err(FileError::NoSpace));
    assert_eq!(files.write(id, 0, b"over"), Ok(4), "existing bytes can be overwritten");
    files.resize(id, 0).unwrap();
    assert_eq!(files.write(id, 0, b"again"), Ok(5));
}

#[test]
fn files_past_the_quota_are_refused_until_one_is_removed() {
    let (mut files, tmp) = files();
    for number in 0..QUOTA.nodes {
        files.create_file(tmp, &format!("f{number}")).unwrap();
    }
    assert_eq!(files.create_file(tmp, "more"), Err(FileError::NoSpace));
    files.unlink(tmp, "f0").unwrap();
    files.create_folder(tmp, "more").unwrap();
}

#[test]
fn an_unlinked_file_is_kept_until_its_last_handle_is_closed() {
    let (mut files, tmp) = files();
    let id = files.create_file(tmp, "f").unwrap();
    files.opened(id).unwrap();
    files.write(id, 0, b"still here").unwrap();
    files.unlink(tmp, "f").unwrap();
    assert_eq!(content(&files, id), b"still here");
    files.closed(id);
    assert_eq!(files.status(id), Err(FileError::Missing));
    assert_eq!(files.used_bytes(), 0);
}

#[test]
fn nothing_can_be_created_in_a_removed_folder_or_moved_there() {
    let (mut files, tmp) = files();
    let gone = files.create_folder(tmp, "d").unwrap();
    files.opened(gone).unwrap();
    files.remove_folder(tmp, "d").unwrap();
    assert_eq!(files.create_file(gone, "lost"), Err(FileError::Missing));
    let kept = files.create_file(tmp, "kept").unwrap();
    assert_eq!(files.rename((tmp, "kept"), (gone, "lost")), Err(FileError::Missing));
    assert_eq!(files.find(tmp, "kept"), Ok(kept));
}

#[test]
fn rename_follows_posix() {
    let (mut files, tmp) = files();
    let outer = files.create_folder(tmp, "outer").unwrap();
    files.create_folder(outer, "inner").unwrap();
    let moved = files.create_file(tmp, "f").unwrap();
    files.create_file(tmp, "g").unwrap();
    assert_eq!(files.rename((tmp, "outer"), (tmp, "outer/inner/x")), Err(FileError::IntoItself));
    assert_eq!(files.rename((tmp, "f"), (tmp, "outer")), Err(FileError::IsAFolder));
    assert_eq!(files.rename((tmp, "outer"), (tmp, "f")), Err(FileError::NotAFolder));
    assert_eq!(files.rename((tmp, "f"), (tmp, "f")), Ok(()));
    files.rename((tmp, "f"), (tmp, "g")).unwrap();
    assert_eq!(files.find(tmp, "g"), Ok(moved));
    assert_eq!(files.find(tmp, "f"), Err(FileError::Missing));
    files.rename((tmp, "outer/inner"), (tmp, "inner")).unwrap();
    assert_eq!(files.find(tmp, "inner/.."), Ok(tmp));
}

#[test]
fn folders_are_listed_by_name_and_only_empty_ones_removed() {
    let (mut files, tmp) = files();
    let folder = files.create_folder(tmp, "d").unwrap();
    files.create_file(folder, "b").unwrap();
    files.create_file(folder, "a").unwrap();
    let names: Vec<_> = files.list(folder).unwrap().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(files.remove_folder(tmp, "d"), Err(FileError::NotEmpty));
    assert_eq!(files.unlink(tmp, "d"), Err(FileError::IsAFolder));
    assert_eq!(files.remove_folder(tmp, "d/a"), Err(FileError::NotAFolder));
}

#[test]
fn shared_content_is_the_same_in_each_tree_and_changed_in_none() {
    let mut common = Files::new(QUOTA);
    let library = common.place_file("/usr/lib/library.zip", Bytes::from_static(b"code"), true).unwrap();
    let common = common.freeze();
    let mut one = common.thaw(QUOTA);
    let mut other = common.thaw(QUOTA);
    let tmp = one.place_folder("/tmp", false).unwrap();
    assert_ne!(tmp, library);
    one.create_file(tmp, "own").unwrap();
    assert_eq!(one.find(ROOT, "usr/lib/library.zip"), Ok(library));
    assert_eq!(content(&other, library), b"code");
    assert_eq!(other.find(ROOT, "tmp"), Err(FileError::Missing));
    assert_eq!(one.find(library, "x"), Err(FileError::NotAFolder));
    assert_eq!(one.find(one.find(ROOT, "usr/lib").unwrap(), "../.."), Ok(ROOT));
    one.opened(library).unwrap();
    one.closed(library);
    let lib = one.find(ROOT, "usr/lib").unwrap();
    let refusals = [
        one.write(library, 0, b"x").unwrap_err(),
        one.resize(library, 0).unwrap_err(),
        one.unlink(lib, "library.zip").unwrap_err(),
        one.create_file(lib, "new").unwrap_err(),
        one.rename((lib, "library.zip"), (tmp, "mine")).unwrap_err(),
        one.rename((tmp, "own"), (lib, "library.zip")).unwrap_err(),
        other.place_file("/usr/lib/more", Bytes::new(), true).unwrap_err(),
    ];
    assert_eq!(refusals, [FileError::ReadOnly; 7]);
}

proptest! {
    /// Compared with the simplest model: a vector.
    #[test]
    fn a_file_behaves_like_a_vector(steps in prop::collection::vec((any::<bool>(), 0_u16..20_000, 0_usize..9_000), 1..12)) {
        let (mut files, tmp) = files();
        let id = files.create_file(tmp, "f").unwrap();
        let mut model: Vec<u8> = Vec::new();
        for (number, (writes, offset, count)) in steps.into_iter().enumerate() {
            let start = usize::from(offset);
            if writes && count > 0 {
                let data = vec![u8::try_from(number + 1).unwrap(); count];
                prop_assert_eq!(files.write(id, start as u64, &data), Ok(count));
                model.resize(model.len().max(start + count), 0);
                model[start..start + count].copy_from_slice(&data);
            } else {
                files.resize(id, start as u64).unwrap();
                model.resize(start, 0);
            }
            prop_assert_eq!(&content(&files, id), &model);
        }
        files.unlink(tmp, "f").unwrap();
        prop_assert_eq!(files.used_bytes(), 0);
    }
}

#[test]
fn a_placed_file_that_may_be_written_is_copied_by_the_first_write() {
    let mut files = Files::new(Quota { bytes: 3 * CHUNK_BYTES as u64, nodes: 4 });
    let original = Bytes::from(vec![b'x'; CHUNK_BYTES + 1]);
    let placed =
        |files: &mut Files, name: &str| files.place_file(&format!("/output/{name}"), original.clone(), false).unwrap();
    let (read, written, emptied, too_large) =
        (placed(&mut files, "a"), placed(&mut files, "b"), placed(&mut files, "c"), placed(&mut files, "d"));
    files.place_folder("/output", false).unwrap();
    assert_eq!(files.write(written, 0, b"y").unwrap(), 1);
    files.resize(emptied, 0).unwrap();
    let is_known = [read, written, emptied].map(|id| files.status(id).unwrap().is_known);
    assert_eq!(is_known, [true, false, false]);
    let mut content = [0; 2];
    files.read(written, 0, &mut content).unwrap();
    assert_eq!((&content, files.status(written).unwrap().length), (b"yx", original.len() as u64));
    assert_eq!(files.used_bytes(), 2 * CHUNK_BYTES as u64, "the copy alone");
    assert_eq!(files.write(too_large, 0, b"y"), Err(FileError::NoSpace));
    assert_eq!(files.read(too_large, 0, &mut content), Ok(2), "it is as before");
    files.unlink(ROOT, "output/a").unwrap();
    assert_eq!(files.find(ROOT, "output/a"), Err(FileError::Missing));
}

#[test]
fn names_that_leave_a_folder_elsewhere_are_refused() {
    let mut files = Files::new(Quota { bytes: 1 << 20, nodes: 9 });
    files.place_folder("/output", false).unwrap();
    for name in ["a\nb", "a\u{1b}[2J", "..\\..\\evil.txt", "C:evil.txt", "c:\\x"] {
        assert_eq!(files.create_file(ROOT, &format!("output/{name}")), Err(FileError::BadName), "{name:?}");
        assert_eq!(files.create_folder(ROOT, &format!("output/{name}")), Err(FileError::BadName), "{name:?}");
    }
    files.create_file(ROOT, "output/12:30 – ü.csv").unwrap();
    let moved = files.rename((ROOT, "output/12:30 – ü.csv"), (ROOT, "output/..\\x"));
    assert_eq!(moved, Err(FileError::BadName));
}
