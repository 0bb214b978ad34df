//! Object storage for tests of other modules.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::TcpListener;
use std::path::Path;

use super::Blobs;
use crate::Outbound;
use sekisho_config::{BlobsConfig, OutboundConfig, Secret};

pub fn folder_storage(path: &Path) -> Blobs {
    Blobs::open(&config(&format!("file://{}", path.display())), &outbound()).unwrap()
}

/// A server that speaks S3, at an address where nothing listens.
pub fn storage_out_of_reach() -> Blobs {
    storage_at("http://127.0.0.1:1")
}

/// A storage that takes connections and answers nothing, as long as its listener is there.
pub fn silent_storage() -> (Blobs, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (storage_at(&format!("http://{address}")), listener)
}

fn storage_at(endpoint: &str) -> Blobs {
    let config = BlobsConfig {
        endpoint: Some(endpoint.parse().unwrap()),
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
