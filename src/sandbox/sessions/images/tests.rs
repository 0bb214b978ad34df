use futures_util::FutureExt;
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::Builder;

use super::*;
use sekisho_config::{Secret, SecretsConfig};
use sekisho_core::call::NotStored;
use sekisho_outbound::blobs::test_support::{folder_storage, storage_out_of_reach};
use sekisho_store::test_support::test_store;

struct Made {
    images: SessionImages,
    folder: TempDir,
}

async fn made() -> Made {
    let folder = TempDir::new().unwrap();
    Made { images: images_in(&folder_storage(folder.path())).await, folder }
}

async fn images_in(blobs: &Blobs) -> SessionImages {
    let secrets = SecretsConfig { key: Some(Secret::new("1f".repeat(32))), ..SecretsConfig::default() };
    SessionImages::new(&Config { secrets, ..Config::default() }, &test_store().await, blobs, None).unwrap()
}

fn key(name: &str) -> SessionKey {
    let owner = Owner { tenant: "tenant".into(), caller: "tenant\u{1f}ann".into() };
    SessionKey { owner, name: name.into() }
}

fn base() -> ImageBase {
    ImageBase { profile: "data".to_owned(), interpreter: "i1".to_owned(), snapshot: "s1".to_owned() }
}

fn programs() -> PastPrograms {
    PastPrograms { rights: Rights([7; 32]), digest: [8; 32] }
}

async fn written(images: &SessionImages, parts: &[Vec<u8>]) -> Result<SessionImage, NotStored> {
    let mut writer = images.writer();
    for part in parts {
        writer = writer.add(part.clone()).await?;
    }
    images.write(&key("a"), 1, (base(), programs()), writer).await
}

async fn read(
    images: &SessionImages,
    key: &SessionKey,
    generation: u64,
    image: &SessionImage,
) -> Result<Vec<Vec<u8>>, OpenImageError> {
    let (mut reader, mut parts) = (images.read(key, generation, image).await?, Vec::new());
    loop {
        let (rest, part) = reader.next().await?;
        let Some(part) = part else { return Ok(parts) };
        parts.push(part);
        reader = rest;
    }
}

#[tokio::test]
async fn an_image_opens_for_whom_it_was_sealed_alone() {
    let made = made().await;
    let parts = vec![b"state".to_vec(), b"memory".to_vec()];
    let image = written(&made.images, &parts).await.unwrap();
    assert_eq!(read(&made.images, &key("a"), 1, &image).await.unwrap(), parts);
    let other_owner = |tenant: &str, caller: &str| SessionKey {
        owner: Owner { tenant: tenant.into(), caller: caller.into() },
        name: "a".into(),
    };
    for (key, generation) in [
        (key("b"), 1),
        (key("a"), 2),
        (other_owner("tenant", "tenant\u{1f}bob"), 1),
        (other_owner("other", "tenant\u{1f}ann"), 1),
    ] {
        let refused = read(&made.images, &key, generation, &image).await.unwrap_err();
        assert!(matches!(refused, OpenImageError::Lost(_)), "{key:?}: {refused}");
    }
    for other in [
        SessionImage { interpreter: "i2".to_owned(), ..image.clone() },
        SessionImage { snapshot: "s2".to_owned(), ..image.clone() },
        SessionImage { rights: "09".repeat(32), ..image.clone() },
        SessionImage { rights: String::new(), ..image.clone() },
        SessionImage { programs: "09".repeat(32), ..image.clone() },
    ] {
        assert!(matches!(read(&made.images, &key("a"), 1, &other).await, Err(OpenImageError::Lost(_))), "{other:?}");
    }
    let stored = std::fs::read(made.folder.path().join(image.object.key.to_string())).unwrap();
    assert!(!stored.windows(6).any(|part| part == b"memory"), "it is sealed");
}

#[tokio::test]
async fn what_the_storage_does_not_give_may_come_later() {
    let made = made().await;
    let image = written(&made.images, &[b"state".to_vec()]).await.unwrap();
    let away = images_in(&storage_out_of_reach()).await;
    assert_eq!(written(&away, &[b"state".to_vec()]).await.unwrap_err(), NotStored::Unavailable);
    assert!(matches!(read(&away, &key("a"), 1, &image).await, Err(OpenImageError::Unavailable(_))));
}

#[tokio::test]
async fn objects_that_no_session_has_are_removed_later() {
    let made = made().await;
    let (session, object) = (key("a"), |image: &SessionImage| made.folder.path().join(image.object.key.to_string()));
    let taken = made.images.take(&session, Deadline::after(Duration::ZERO)).await.unwrap();
    made.images.begin(&session, taken.fence, (false, Duration::ZERO), None).await.unwrap();
    let (named, orphan) = (written(&made.images, &[]).await.unwrap(), written(&made.images, &[]).await.unwrap());
    let new = NewSessionImage { image: &named, every_call: false, calls: 1, releases: true };
    assert!(made.images.keep(&session, taken.fence, new, None).await.unwrap());
    made.images.remove_orphans().await.unwrap();
    assert!(object(&orphan).exists(), "its row may be written yet");
    let old = std::time::SystemTime::now() - Duration::from_secs(2 * 3_600);
    for image in [&named, &orphan] {
        std::fs::File::options().write(true).open(object(image)).unwrap().set_modified(old).unwrap();
    }
    made.images.remove_orphans().await.unwrap();
    assert!(object(&named).exists() && !object(&orphan).exists());
}

/// Whoever stores a session may be gone by then: its call was cancelled.
#[tokio::test]
async fn an_image_is_named_although_nobody_waits_for_it() {
    let made = made().await;
    let session = key("a");
    let taken = made.images.take(&session, Deadline::after(Duration::ZERO)).await.unwrap();
    made.images.begin(&session, taken.fence, (false, Duration::ZERO), None).await.unwrap();
    let image = written(&made.images, &[]).await.unwrap();
    let new = NewSessionImage { image: &image, every_call: false, calls: 1, releases: true };
    assert!(made.images.keep(&session, taken.fence, new, None).now_or_never().is_none());
    for _ in 0..500 {
        if made.images.store.interpreter_sessions().has_image_in(&image.object.key).await.unwrap() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("the row does not name it");
}

#[test]
fn none_is_stored_without_a_key_or_where_none_may_be_as_large() {
    let folder = TempDir::new().unwrap();
    let blobs = folder_storage(folder.path());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(test_store());
    let url = sekisho_config::StoreConfig { url: Some(Secret::new("postgres://localhost/sekisho")) };
    let shared = Config { store: url, ..Config::default() };
    assert!(SessionImages::new(&shared, &store, &blobs, None).is_none(), "no key is configured");
    let mut none = Config::default();
    none.sandbox.sessions.max_image_bytes = 0;
    assert!(SessionImages::new(&none, &store, &blobs, None).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn images_are_read_as_they_were_written_and_not_at_all_when_they_were_changed(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3_000), 0..5),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
        is_cut in any::<bool>(),
    ) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let made = made().await;
            let mut image = written(&made.images, &parts).await.unwrap();
            let found = read(&made.images, &key("a"), 1, &image).await.unwrap();
            prop_assert_eq!(&found, &parts);
            // With its digest in the row, as whoever writes to both can.
            let file = made.folder.path().join(image.object.key.to_string());
            let mut bytes = std::fs::read(&file).unwrap();
            let at = at.index(bytes.len());
            if is_cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
            std::fs::write(&file, &bytes).unwrap();
            image.object.bytes = bytes.len() as u64;
            image.object.sha256 = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&bytes));
            prop_assert!(matches!(read(&made.images, &key("a"), 1, &image).await, Err(OpenImageError::Lost(_))));
            Ok(())
        })?;
    }
}
