use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;
use super::check::Findings;

/// Object storage for what replicas share as bytes: a bucket, or a folder that all of them have.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobsConfig {
    /// `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER@ACCOUNT/PREFIX`, or `file:///FOLDER` of a shared file
    /// system; the prefix may be left out. The same at each replica.
    pub url: Url,
    /// Address of a server that speaks S3 and is not Amazon's, with `s3:` alone.
    #[serde(default)]
    pub endpoint: Option<Url>,
    /// Of the bucket, with `s3:` alone. Default: us-east-1.
    #[serde(default)]
    pub region: Option<String>,
    /// A key of S3. Without one: what the variables of the cloud say (`AWS_*`, `GOOGLE_*`, `AZURE_*`), else the identity
    /// of the machine.
    #[serde(default)]
    pub access_key_id: Option<String>,
    #[serde(default)]
    pub secret_access_key: Option<Secret>,
}

impl BlobsConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        self.check_url(findings);
        for (key, is_set) in [
            ("endpoint", self.endpoint.is_some()),
            ("region", self.region.is_some()),
            ("access_key_id", self.access_key_id.is_some()),
            ("secret_access_key", self.secret_access_key.is_some()),
        ] {
            if is_set && self.url.scheme() != "s3" {
                findings.add(
                    format!("cluster.blobs.{key}"),
                    "belongs to S3, and the URL does not",
                    "remove it; `gs:` and `az:` read the variables GOOGLE_* and AZURE_*",
                );
            }
        }
        if self.access_key_id.is_some() != self.secret_access_key.is_some() {
            findings.add_secret(
                "cluster.blobs",
                "has one of `access_key_id` and `secret_access_key`, or the variable of the other is empty",
                "set both, or neither to use the variables AWS_* or the identity of the machine",
            );
        }
        if let Some(endpoint) = self.endpoint.as_ref().filter(|endpoint| !is_web_address(endpoint)) {
            let scheme = endpoint.scheme();
            findings.add(
                "cluster.blobs.endpoint",
                format!("is no address of a server ({scheme}:), or has a user name, password or query"),
                "write it as https://HOST:PORT",
            );
        }
    }

    fn check_url(&self, findings: &mut Findings) {
        const SETTING: &str = "cluster.blobs.url";
        let url = &self.url;
        if url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            findings.add_secret(SETTING, "has a password, query or fragment", "write nothing but bucket and prefix");
            return;
        }
        match url.scheme() {
            "file" if url.host_str().is_some() || url.path() == "/" => findings.add(
                SETTING,
                "is not the whole path of a folder",
                "write it from the root, with three slashes: file:///shared/sekisho",
            ),
            "file" => {}
            "s3" | "gs" | "az" if url.host_str().is_none_or(str::is_empty) => {
                findings.add(SETTING, "names no bucket", "write s3://BUCKET/PREFIX, gs:// or az:// likewise");
            }
            "s3" | "gs" if !url.username().is_empty() => {
                findings.add_secret(SETTING, "has a user name", "put keys into `access_key_id` or into variables");
            }
            "s3" | "gs" | "az" => {}
            scheme => findings.add(
                SETTING,
                format!("`{scheme}:` is no object storage that is known"),
                "use s3:, gs:, az:, or file: for a folder that all replicas have",
            ),
        }
    }
}

fn is_web_address(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
}
