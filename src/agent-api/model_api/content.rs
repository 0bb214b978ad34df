//! Images and files in the messages of clients. They come within the request: the gateway fetches no addresses for
//! callers.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use sekisho_agent::message::{Image, UserPart};
use sekisho_agent::user_file::UserFile;

/// The types that all providers read.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// An image as a data URL (RFC 2397). `field` is its name in the request.
/// Errors: why it is none.
pub(crate) fn image_of_url(field: &str, url: &str) -> Result<Image, String> {
    let (media_type, base64) = split_data_url(field, url)?;
    image(field, media_type, base64)
}

/// Errors: another type than all models read, or no base64.
pub(crate) fn image(field: &str, media_type: &str, base64: &str) -> Result<Image, String> {
    if !IMAGE_TYPES.contains(&media_type) {
        return Err(format!("`{field}` is not one of {}", IMAGE_TYPES.join(", ")));
    }
    decoded(field, base64)?;
    Ok(Image { media_type: media_type.to_owned(), base64: base64.to_owned() })
}

/// A file as a data URL, or as only base64. An image is one for the model to see.
/// Errors: why it is none.
pub(crate) fn file(field: &str, name: Option<&str>, data: &str) -> Result<UserPart, String> {
    let (media_type, base64) = match data.starts_with("data:") || data.contains("://") {
        true => split_data_url(field, data).map(|(media_type, base64)| (Some(media_type), base64))?,
        false => (None, data),
    };
    match media_type {
        Some(media_type) if IMAGE_TYPES.contains(&media_type) => image(field, media_type, base64).map(UserPart::Image),
        media_type => file_of(field, name, media_type, base64),
    }
}

/// Errors: no base64.
pub(crate) fn file_of(
    field: &str,
    name: Option<&str>,
    media_type: Option<&str>,
    base64: &str,
) -> Result<UserPart, String> {
    let content = decoded(field, base64)?;
    Ok(UserPart::File(UserFile::new(name.unwrap_or("file"), media_type.map(shortened), content)))
}

fn split_data_url<'a>(field: &str, url: &'a str) -> Result<(&'a str, &'a str), String> {
    let data = url.strip_prefix("data:").ok_or_else(|| {
        format!(
            "`{field}` is an address; the gateway fetches none for callers: send the content as a data URL \
             (`data:image/png;base64,…`)"
        )
    })?;
    data.split_once(";base64,").ok_or_else(|| format!("`{field}` is a data URL without `;base64,`"))
}

fn decoded(field: &str, base64: &str) -> Result<Vec<u8>, String> {
    match BASE64_STANDARD.decode(base64) {
        Ok(content) if !content.is_empty() => Ok(content),
        _ => Err(format!("`{field}` is empty or not valid base64")),
    }
}

fn shortened(media_type: &str) -> String {
    media_type.chars().filter(|character| !character.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_data_urls_or_base64_and_images_are_for_the_model_to_see() {
        let UserPart::File(notes) = file("data", Some("notes.txt"), "data:text/plain;base64,aGk=").unwrap() else {
            panic!("a file")
        };
        assert_eq!(
            (notes.name.as_str(), notes.media_type.as_deref(), notes.bytes),
            ("notes.txt", Some("text/plain"), 2)
        );
        let UserPart::File(bare) = file("data", None, "aGk=").unwrap() else { panic!("a file") };
        assert_eq!((bare.name.as_str(), bare.media_type), ("file", None));
        assert!(matches!(file("data", None, "data:image/png;base64,aGk="), Ok(UserPart::Image(_))));
        for (data, problem) in [
            ("https://example.com/a.pdf", "`data` is an address"),
            ("data:text/plain,hi", "without `;base64,`"),
            ("data:text/plain;base64,-", "valid base64"),
            ("", "empty"),
        ] {
            let error = file("data", None, data).unwrap_err();
            assert!(error.contains(problem), "{data}: {error}");
        }
    }
}
