//! The storage that a configuration names. Settings take precedence over the variables of the cloud (`AWS_*`,
//! `GOOGLE_*`, `AZURE_*`), which take precedence over the identity of the machine.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, RetryConfig};
use url::Url;

use super::http::Connector;
use super::{BlobError, Blobs};
use crate::Outbound;
use sekisho_config::{BlobsConfig, Secret};

/// How often a request is tried again, and from its beginning for how long.
const RETRIES: usize = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// The mode of an object that only this user may read.
const PRIVATE: u32 = 0o600;

pub(super) fn open(config: &BlobsConfig, outbound: &Outbound) -> Result<Blobs, BlobError> {
    let place: Arc<str> = config.url.as_str().trim_end_matches('/').into();
    let unusable = |error: object_store::Error| BlobError::unusable(&place, &error);
    let prefix = || ObjectPath::from_url_path(config.url.path()).map_err(|error| BlobError::unusable(&place, &error));
    let store: Arc<dyn ObjectStore> = match config.url.scheme() {
        "file" => Arc::new(folder(&config.url, &place)?),
        "s3" => Arc::new(PrefixStore::new(s3(config, outbound).map_err(unusable)?, prefix()?)),
        "gs" => Arc::new(PrefixStore::new(google(config, outbound).map_err(unusable)?, prefix()?)),
        "az" => Arc::new(PrefixStore::new(azure(config, outbound).map_err(unusable)?, prefix()?)),
        scheme => {
            let problem = format!("`{scheme}:` is no object storage that is known");
            return Err(BlobError::Unusable { place, problem });
        }
    };
    Ok(Blobs { store, place, private: None })
}

/// A folder of this machine.
pub(super) fn open_folder(path: &Path) -> Result<Blobs, BlobError> {
    let place: Arc<str> = path.display().to_string().into();
    let folder = Arc::new(folder_at(path, &place)?);
    Ok(Blobs { store: Arc::clone(&folder) as Arc<dyn ObjectStore>, place, private: Some(folder) })
}

/// Gives an object of a folder the mode of a private file of this user.
pub(super) async fn close_to_others(folder: &LocalFileSystem, key: &ObjectPath) -> object_store::Result<()> {
    let path = folder.path_to_filesystem(key)?;
    let closed = tokio::fs::set_permissions(path, Permissions::from_mode(PRIVATE)).await;
    closed.map_err(|error| object_store::Error::Generic { store: "LocalFileSystem", source: error.into() })
}

fn folder(url: &Url, place: &Arc<str>) -> Result<LocalFileSystem, BlobError> {
    let not_a_folder = "it is not the path of a folder".to_owned();
    let unusable = |()| BlobError::Unusable { place: Arc::clone(place), problem: not_a_folder };
    folder_at(&url.to_file_path().map_err(unusable)?, place)
}

/// The folder must exist: one that is created here would not be the shared one when that is not mounted.
fn folder_at(path: &Path, place: &Arc<str>) -> Result<LocalFileSystem, BlobError> {
    if !path.is_dir() {
        let problem = "there is no such folder; create it, or mount the file system that has it".to_owned();
        return Err(BlobError::Unusable { place: Arc::clone(place), problem });
    }
    let store = LocalFileSystem::new_with_prefix(path).map_err(|error| BlobError::unusable(place, &error))?;
    Ok(store.with_fsync(true))
}

fn s3(config: &BlobsConfig, outbound: &Outbound) -> object_store::Result<impl ObjectStore> {
    let BlobsConfig { url, endpoint, region, access_key_id, secret_access_key } = config;
    let builder = AmazonS3Builder::from_env().with_bucket_name(url.host_str().unwrap_or_default());
    let settings = [
        (AmazonS3ConfigKey::S3Endpoint, endpoint.as_ref().map(Url::as_str)),
        (AmazonS3ConfigKey::Region, region.as_deref()),
        (AmazonS3ConfigKey::AccessKeyId, access_key_id.as_deref()),
        (AmazonS3ConfigKey::SecretAccessKey, secret_access_key.as_ref().map(Secret::expose)),
    ];
    let set = settings.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let builder = set.fold(builder, |builder, (key, value)| builder.with_config(key, value));
    let builder = match endpoint {
        Some(endpoint) => builder.with_allow_http(endpoint.scheme() == "http"),
        None => builder,
    };
    // One object is removed at a time, and not every server that speaks S3 knows how to remove many.
    let builder = builder.with_config(AmazonS3ConfigKey::DisableBulkDelete, "true");
    builder.with_http_connector(Connector(outbound.clone())).with_retry(retries()).build()
}

fn google(config: &BlobsConfig, outbound: &Outbound) -> object_store::Result<impl ObjectStore> {
    let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(config.url.host_str().unwrap_or_default());
    builder.with_http_connector(Connector(outbound.clone())).with_retry(retries()).build()
}

fn azure(config: &BlobsConfig, outbound: &Outbound) -> object_store::Result<impl ObjectStore> {
    let url = &config.url;
    let host = url.host_str().unwrap_or_default();
    // az://CONTAINER@ACCOUNT, or az://CONTAINER with the account in a variable.
    let builder = match url.username() {
        "" => MicrosoftAzureBuilder::from_env().with_container_name(host),
        container => MicrosoftAzureBuilder::from_env().with_container_name(container).with_account(host),
    };
    builder.with_http_connector(Connector(outbound.clone())).with_retry(retries()).build()
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() }
}
