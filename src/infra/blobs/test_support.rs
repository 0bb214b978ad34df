//! Object storage for tests of other modules.

use std::path::Path;

use super::Blobs;
use crate::config::{BlobsConfig, OutboundConfig, Secret};
use crate::infra::outbound::Outbound;

pub(crate) fn folder_storage(path: &Path) -> Blobs {
    Blobs::open(&config(&format!("file://{}", path.display())), &outbound()).unwrap()
}

/// A server that speaks S3, at an address where nothing listens.
pub(crate) fn storage_out_of_reach() -> Blobs {
    let config = BlobsConfig {
        endpoint: Some("http://127.0.0.1:1".parse().unwrap()),
        access_key_id: Some("testing".into()),
        secret_access_key: Some(Secret::new("hunter2")),
        ..config("s3://bucket")
    };
    Blobs::open(&config, &outbound()).unwrap()
}

pub(super) fn config(url: &str) -> BlobsConfig {
    BlobsConfig {
        url: url.parse().unwrap(),
        endpoint: None,
        region: None,
        access_key_id: None,
        secret_access_key: None,
    }
}

pub(super) fn outbound() -> Outbound {
    Outbound::new(&OutboundConfig::default()).unwrap()
}
