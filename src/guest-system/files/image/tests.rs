use proptest::prelude::*;

use super::*;
use crate::files::FileError;
use crate::files::session::NODE_BYTES;

const QUOTA: Quota = Quota { bytes: 1 << 20, nodes: 64 };

/// The part that trees share, and a data file of the operator.
fn shared() -> (FrozenFiles, Vec<(String, Bytes)>) {
    let mut files = Files::new(Quota { bytes: 0, nodes: 0 });
    files.place_file("/usr/lib.zip", Bytes::from_static(b"library"), true).unwrap();
    (files.freeze(), vec![("rates.csv".to_owned(), Bytes::from(vec![7; 9_000]))])
}

fn begun(frozen: &FrozenFiles, data_files: &DataFiles) -> Files {
    let mut files = frozen.thaw(QUOTA);
    files.place_folder("/tmp", false).unwrap();
    files.place_folder("/output", false).unwrap();
    for (path, content) in data_files {
        files.place_file(&format!("/input/{path}"), content.clone(), true).unwrap();
        files.place_file(&format!("/output/{path}"), content.clone(), false).unwrap();
    }
    files
}

/// The image in parts of so many pieces, as it is sent.
fn parts(files: &Files, data_files: &DataFiles, pieces_in_part: usize) -> (Vec<u8>, Vec<Pieces>) {
    let (mut parts, mut from) = (Vec::new(), Some((0, 0)));
    while let Some(place) = from {
        let mut pieces = Pieces::default();
        let enough = |pieces: &Pieces| pieces.iter().count() >= pieces_in_part;
        from = files.read_contents(data_files, place, &mut pieces, enough);
        parts.push(pieces);
    }
    (postcard::to_stdvec(&files.image(data_files)).unwrap(), parts)
}

fn restored(
    frozen: &FrozenFiles,
    data_files: &DataFiles,
    (image, parts): &(Vec<u8>, Vec<Pieces>),
) -> Result<Files, DamagedImageError> {
    let image = postcard::from_bytes(image).map_err(|_| DamagedImageError("it is no image"))?;
    let mut restoring = frozen.restore(image, data_files)?;
    parts.iter().try_for_each(|pieces| restoring.add_contents(pieces))?;
    restoring.finish()
}

/// Everything below a folder: paths, lengths and contents.
fn listed(files: &Files, folder: NodeId, path: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for (name, status) in files.list(folder).unwrap() {
        let path = format!("{path}/{name}");
        let mut content = vec![0; usize::try_from(status.length.min(1 << 16)).unwrap()];
        if status.is_folder {
            listed(files, status.id, &path, found);
        } else {
            files.read(status.id, 0, &mut content).unwrap();
        }
        found.push((format!("{path} {} {}", status.length, status.is_known), content));
    }
}

fn content_of(files: &Files) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    listed(files, ROOT, "", &mut found);
    found
}

#[derive(Debug, Clone)]
enum Step {
    Create(usize),
    Folder(usize),
    Write(usize, u64, Vec<u8>),
    Resize(usize, u64),
    Unlink(usize),
    Rename(usize, usize),
    Open(usize),
    Place(usize, Vec<u8>),
}

fn path(number: usize) -> String {
    ["tmp/a", "tmp/b", "tmp/folder/c", "output/d", "output/rates.csv"][number % 5].to_owned()
}

fn step() -> impl Strategy<Value = Step> {
    let content = || prop::collection::vec(any::<u8>(), 0..9_000);
    let number = || 0..5_usize;
    prop_oneof![
        number().prop_map(Step::Create),
        number().prop_map(Step::Folder),
        (number(), 0..20_000_u64, content()).prop_map(|(file, at, content)| Step::Write(file, at, content)),
        (number(), 0..30_000_u64).prop_map(|(file, length)| Step::Resize(file, length)),
        number().prop_map(Step::Unlink),
        (number(), number()).prop_map(|(from, to)| Step::Rename(from, to)),
        number().prop_map(Step::Open),
        (number(), content()).prop_map(|(file, content)| Step::Place(file, content)),
    ]
}

/// Steps that fail change nothing.
fn take(files: &mut Files, step: &Step) -> Result<(), FileError> {
    let found = |files: &Files, number: usize| files.find(ROOT, &path(number));
    match step {
        Step::Create(number) => files.create_file(ROOT, &path(*number)).map(drop),
        Step::Folder(number) => {
            let name = if *number == 0 { "tmp/folder".to_owned() } else { path(*number) };
            files.create_folder(ROOT, &name).map(drop)
        }
        Step::Write(number, at, content) => files.write(found(files, *number)?, *at, content).map(drop),
        Step::Resize(number, length) => files.resize(found(files, *number)?, *length),
        Step::Unlink(number) => files.unlink(ROOT, &path(*number)),
        Step::Rename(from, to) => files.rename((ROOT, &path(*from)), (ROOT, &path(*to))),
        Step::Open(number) => files.opened(found(files, *number)?),
        Step::Place(number, content) => {
            let content = Bytes::from(content.clone());
            files.replace_file(&format!("/input/{number}"), content.clone(), true)?;
            files.replace_file(&format!("/output/{number}"), content, false).map(drop)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_is_restored_as_it_was(
        steps in prop::collection::vec(step(), 0..40),
        later in prop::collection::vec(step(), 0..20),
        pieces_in_part in 1..9_usize,
    ) {
        let (frozen, data_files) = shared();
        let mut files = begun(&frozen, &data_files);
        for step in &steps {
            let _ = take(&mut files, step);
        }
        let mut again = restored(&frozen, &data_files, &parts(&files, &data_files, pieces_in_part)).unwrap();
        prop_assert_eq!(again.image(&data_files), files.image(&data_files));
        prop_assert_eq!(content_of(&again), content_of(&files));
        let of_operator = || data_files.iter().map(|(_, content)| content);
        prop_assert_eq!(again.held_bytes(of_operator()), files.held_bytes(of_operator()));
        // It goes on in the same way: quotas and ids are the same as before.
        for step in &later {
            prop_assert_eq!(take(&mut again, step), take(&mut files, step), "{:?}", step);
        }
        prop_assert_eq!(again.used_bytes(), files.used_bytes());
        prop_assert_eq!(again.image(&data_files), files.image(&data_files));
    }

    #[test]
    fn a_damaged_image_is_refused_or_is_a_tree(
        steps in prop::collection::vec(step(), 0..20),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (frozen, data_files) = shared();
        let mut files = begun(&frozen, &data_files);
        for step in &steps {
            let _ = take(&mut files, step);
        }
        let (mut image, contents) = parts(&files, &data_files, 4);
        for (at, byte) in changes {
            let at = at.index(image.len());
            image[at] = byte;
        }
        if let Ok(mut again) = restored(&frozen, &data_files, &(image, contents)) {
            for step in &steps {
                let _ = take(&mut again, step);
            }
            let _ = again.is_within(NodeId(3), NodeId(2));
        }
    }
}

#[test]
fn what_the_operator_placed_is_not_in_the_image_and_must_be_there_again() {
    let (frozen, data_files) = shared();
    let files = begun(&frozen, &data_files);
    let image = parts(&files, &data_files, 100);
    assert!(image.1.iter().all(|pieces| pieces.len() == 0), "{image:?}");
    let changed = vec![("rates.csv".to_owned(), Bytes::from_static(b"new"))];
    let again = restored(&frozen, &changed, &image).unwrap();
    assert_eq!(again.status(again.find(ROOT, "output/rates.csv").unwrap()).unwrap().length, 3);
    let refused = restored(&frozen, &[], &image).unwrap_err();
    assert_eq!(refused, DamagedImageError("a data file of the operator is gone"));
}

#[test]
fn a_content_that_is_there_twice_is_in_the_image_once() {
    let (frozen, data_files) = shared();
    let mut files = begun(&frozen, &data_files);
    take(&mut files, &Step::Place(1, vec![1; 5_000])).unwrap();
    let image = parts(&files, &data_files, 1);
    assert_eq!(image.1.iter().map(Pieces::len).sum::<usize>(), 5_000);
    let again = restored(&frozen, &data_files, &image).unwrap();
    let of_nodes = NODE_BYTES * again.nodes.len() as u64;
    assert_eq!(again.held_bytes(data_files.iter().map(|(_, content)| content)), 5_000 + of_nodes);
    let mut incomplete = image.clone();
    incomplete.1.remove(0);
    assert!(restored(&frozen, &data_files, &incomplete).is_err());
    let mut twice = image;
    twice.1.push(twice.1[0].clone());
    assert!(restored(&frozen, &data_files, &twice).is_err());
}

#[test]
fn folders_within_themselves_are_refused() {
    let (frozen, data_files) = shared();
    let mut files = begun(&frozen, &data_files);
    let inner = files.create_folder(ROOT, "tmp/one").and_then(|one| files.create_folder(one, "two")).unwrap();
    let one = files.find(ROOT, "tmp/one").unwrap();
    if let Some(Node { kind: Kind::Folder { parent, .. }, .. }) = files.nodes.get_mut(&one) {
        *parent = inner;
    }
    let image = parts(&files, &data_files, 100);
    assert_eq!(restored(&frozen, &data_files, &image).unwrap_err(), DamagedImageError("its folders are no tree"));
}

#[test]
fn folders_that_are_in_several_or_in_themselves_are_refused() {
    for (folder, has) in [("output", "output"), ("tmp", "output"), ("output", "")] {
        let (frozen, data_files) = shared();
        let mut files = begun(&frozen, &data_files);
        let id = |files: &Files, path: &str| files.find(ROOT, path).unwrap_or(ROOT);
        let (folder, entry) = (id(&files, folder), id(&files, has));
        if let Some(Node { kind: Kind::Folder { entries, .. }, .. }) = files.nodes.get_mut(&folder) {
            entries.insert("again".into(), entry);
        }
        let refused = restored(&frozen, &data_files, &parts(&files, &data_files, 100)).unwrap_err();
        assert_eq!(refused, DamagedImageError("its folders are no tree"), "{has}");
    }
}
