//! The same over a folder and over a server that speaks S3, and the errors of a failing server.

use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use object_store::ClientOptions;
use object_store::client::{HttpConnector, HttpRequest, HttpRequestBody};

use super::http::Connector;
use super::test_support::{config, folder_storage, outbound};
use super::*;
use crate::test_server::serve;
use sekisho_config::Secret;

/// The behaviour of every storage.
async fn behaves_as_storage(blobs: &Blobs) {
    blobs.probe().await.unwrap();
    assert!(blobs.list(&BlobKey::of(["probes"])).await.unwrap().is_empty(), "a probe leaves nothing");
    let tenant = BlobKey::of_tenant("replies", "acme / ü");
    let stored = blobs.add(&tenant, Bytes::from_static(b"one")).await.unwrap();
    assert_eq!(blobs.read(&stored).await.unwrap(), "one");
    let before = Timestamp::now() - jiff::SignedDuration::from_hours(1);
    let [listed] = blobs.list(&BlobKey::of(["replies"])).await.unwrap().try_into().unwrap();
    assert_eq!((&listed.key, listed.bytes), (&stored.key, 3));
    assert!(listed.modified > before, "{listed:?}");
    assert_eq!(BlobKey::parse(&listed.key.to_string()), Some(listed.key));
    assert!(blobs.list(&BlobKey::of_tenant("replies", "other")).await.unwrap().is_empty());

    // Changed, then longer, then gone.
    for changed in ["two", "longer"] {
        blobs.put(&stored.key, Bytes::from(changed)).await.unwrap();
        let error = blobs.read(&stored).await.unwrap_err();
        assert!(matches!(error, BlobError::Damaged { .. }), "{error}");
    }
    let error = blobs.get(&stored.key, 3).await.unwrap_err();
    assert!(matches!(error, BlobError::TooLarge { bytes: 6, max: 3, .. }), "{error}");
    blobs.delete(&stored.key).await.unwrap();
    blobs.delete(&stored.key).await.unwrap();
    assert_eq!(blobs.get(&stored.key, 10).await.unwrap(), None);
    let error = blobs.read(&stored).await.unwrap_err();
    assert!(matches!(error, BlobError::Missing { .. }), "{error}");

    // More than one page of a list, and an object of some size.
    let many = BlobKey::of(["many"]);
    for n in 0..3 {
        blobs.put(&many.child(&format!("{n}")), Bytes::from(vec![n; 6 << 20])).await.unwrap();
    }
    let names: Vec<_> = blobs.list(&many).await.unwrap().iter().map(|found| found.key.name().to_owned()).collect();
    assert_eq!(names, ["0", "1", "2"]);
    assert_eq!(blobs.get(&many.child("2"), 6 << 20).await.unwrap().unwrap(), vec![2; 6 << 20]);
}

#[tokio::test]
async fn objects_of_a_folder_of_this_machine_are_closed_to_other_users() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::open_folder(folder.path()).unwrap();
    behaves_as_storage(&blobs).await;
    let mode = |key: &BlobKey| {
        let path = folder.path().join(key.to_string());
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    let key = BlobKey::of(["many"]).child("0");
    assert_eq!(mode(&key), 0o600);
    blobs.put(&key, Bytes::from_static(b"other")).await.unwrap();
    assert_eq!(mode(&key), 0o600, "one that is replaced");
}

#[tokio::test]
async fn a_folder_is_object_storage() {
    let shared = tempfile::tempdir().unwrap();
    behaves_as_storage(&folder_storage(shared.path())).await;
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_not_created() {
    let parent = tempfile::tempdir().unwrap();
    let missing = parent.path().join("not mounted");
    let error = Blobs::open(&config(&format!("file://{}", missing.display())), &outbound()).unwrap_err();
    assert!(error.to_string().contains("mount the file system"), "{error}");
    assert!(!missing.exists());
}

/// `OBJECT_STORAGE`: the address of a server that speaks S3, without buckets. `scripts/with-object-storage` starts one.
#[tokio::test]
#[ignore = "needs a server that speaks S3"]
async fn a_server_that_speaks_s3_is_object_storage_on_s3() {
    let endpoint = std::env::var("OBJECT_STORAGE").expect("OBJECT_STORAGE");
    let blobs = |bucket: &str| {
        let config = BlobsConfig {
            endpoint: Some(endpoint.parse().unwrap()),
            region: Some("us-east-1".into()),
            access_key_id: Some("testing".into()),
            secret_access_key: Some(Secret::new("hunter2")),
            ..config(&format!("s3://{bucket}/some/prefix"))
        };
        Blobs::open(&config, &outbound()).unwrap()
    };
    let error = blobs("no-such-bucket").probe().await.unwrap_err().to_string();
    assert!(error.contains("s3://no-such-bucket/some/prefix") && error.contains("create the bucket"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    behaves_as_storage(&blobs("sekisho")).await;
}

/// Storage whose server answers every request like this.
async fn answering(respond: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Blobs {
    let address = serve(Router::new().fallback(move || async move { respond() })).await;
    let config = BlobsConfig {
        endpoint: Some(format!("http://{address}").parse().unwrap()),
        access_key_id: Some("testing".into()),
        secret_access_key: Some(Secret::new("hunter2")),
        ..config("s3://bucket")
    };
    Blobs::open(&config, &outbound()).unwrap()
}

#[tokio::test]
async fn a_refusal_says_what_where_and_what_to_do() {
    let blobs =
        answering(|| (StatusCode::FORBIDDEN, "<Error>\n<Code>AccessDenied</Code></Error>").into_response()).await;
    let error = blobs.put(&BlobKey::of(["a"]), Bytes::from("x")).await.unwrap_err().to_string();
    for part in
        ["a cannot be written in object storage s3://bucket: ", "AccessDenied", "give its credentials the right"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = [(header::LOCATION, "http://127.0.0.1:1/")];
    let blobs = answering(move || (StatusCode::TEMPORARY_REDIRECT, elsewhere.clone()).into_response()).await;
    let error = blobs.get(&BlobKey::of(["a"]), 10).await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("redirect"), "{error}");
}

#[tokio::test]
async fn a_page_of_an_error_is_shortened() {
    let blobs = answering(|| (StatusCode::BAD_REQUEST, "no ".repeat(10_000)).into_response()).await;
    let error = blobs.delete(&BlobKey::of(["a"])).await.unwrap_err().to_string();
    assert!(error.len() < 1_000, "{} characters", error.len());
}

#[tokio::test]
async fn what_is_longer_than_an_object_is_not_read() {
    let endless = || Body::from_stream(futures_util::stream::repeat(Ok::<_, Infallible>(vec![0; 1 << 20])));
    let headers = [(header::CONTENT_LENGTH, "5"), (header::LAST_MODIFIED, "Wed, 25 Nov 2026 00:00:00 GMT")];
    let blobs = answering(move || (headers.clone(), "12345").into_response()).await;
    assert!(matches!(blobs.get(&BlobKey::of(["a"]), 4).await.unwrap_err(), BlobError::TooLarge { bytes: 5, .. }));
    let blobs = answering(move || endless().into_response()).await;
    let error = blobs.list(&BlobKey::of(["a"])).await.unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
}

#[tokio::test]
async fn without_encryption_only_a_configured_endpoint_is_used() {
    let service = Connector(outbound()).connect(&ClientOptions::new()).unwrap();
    let request = HttpRequest::new(HttpRequestBody::empty());
    let request = |address: &str| {
        let mut request = request.clone();
        *request.uri_mut() = address.parse().unwrap();
        request
    };
    let error = service.execute(request("http://127.0.0.1:1/")).await.unwrap_err().to_string();
    assert!(error.contains("cluster.blobs.endpoint"), "{error}");
    let error = service.execute(request("https://127.0.0.1:1/")).await.unwrap_err().to_string();
    assert!(error.contains("no connection"), "{error}");
}
