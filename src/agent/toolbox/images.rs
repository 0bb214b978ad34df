//! Images in tool results, for models that accept them.

use serde_json::Value;

use crate::message::Image;

/// Further images of one result are left out: each costs a model about a thousand tokens.
const MAX_IMAGES: usize = 8;

/// An image is recognized by this many bytes: they contain the signature and the size.
const TELLING_BYTES: usize = 48;

/// The images of a tool result, and its text without their bytes.
pub(super) fn find_images<'a>(given: impl IntoIterator<Item = &'a Value>, text: String) -> (Vec<Image>, String) {
    let mut images = Vec::new();
    given.into_iter().for_each(|value| collect(value, &mut images));
    let text = images.iter().fold(text, |text, image| without_bytes(text, &image.base64));
    (images, text)
}

/// The text without an image's bytes; a text that was cut may hold only their start.
fn without_bytes(mut text: String, base64: &str) -> String {
    let beginning = base64.get(..TELLING_BYTES).unwrap_or(base64);
    if let Some(at) = text.find(beginning) {
        let same = text.bytes().skip(at).zip(base64.bytes()).take_while(|(one, other)| one == other).count();
        text.replace_range(at..at + same, "[image]");
    }
    text
}

/// Data URLs (RFC 2397), image blocks of the Model Context Protocol and figures of `python_executor`, in the order of
/// the output.
fn collect(value: &Value, found: &mut Vec<Image>) {
    match value {
        _ if found.len() >= MAX_IMAGES => {}
        Value::String(text) => add(data_url(text), found),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(members) => match image_block(value) {
            Some(image) => add(Some(image), found),
            None => members.values().for_each(|member| collect(member, found)),
        },
        _ => {}
    }
}

/// An output and its form for MCP clients contain the same image twice.
fn add(image: Option<Image>, found: &mut Vec<Image>) {
    found.extend(image.filter(|image| !found.contains(image)));
}

fn data_url(text: &str) -> Option<Image> {
    let (media_type, base64) = text.strip_prefix("data:")?.split_once(";base64,")?;
    image(media_type, base64)
}

fn image_block(block: &Value) -> Option<Image> {
    let text = |key: &str| block.get(key).and_then(Value::as_str);
    let figure = || text("media_type").zip(text("content_base64"));
    let (media_type, base64) =
        text("mimeType").filter(|_| text("type") == Some("image")).zip(text("data")).or_else(figure)?;
    image(media_type, base64)
}

fn image(media_type: &str, base64: &str) -> Option<Image> {
    let is_seen = matches!(media_type, "image/png" | "image/jpeg") && !base64.is_empty() && base64.is_ascii();
    is_seen.then(|| Image { media_type: media_type.to_owned(), base64: base64.to_owned() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_found_as_data_urls_and_as_blocks() {
        let output = json!({
            "chart": "data:image/png;base64,AAAA",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "mimeType": "image/jpeg", "data": "BBBB"},
                {"type": "image", "mimeType": "image/svg+xml", "data": "CCCC"},
            ],
            "page": "data:text/html;base64,DDDD",
            "images": [{"media_type": "image/png", "content_base64": "EEEE"}],
        });
        let (found, text) = find_images([&output, &output], "AAAA and DDDD".into());
        assert_eq!(text, "[image] and DDDD");
        let found: Vec<_> = found.iter().map(|image| (image.media_type.as_str(), image.base64.as_str())).collect();
        assert_eq!(found, [("image/png", "AAAA"), ("image/jpeg", "BBBB"), ("image/png", "EEEE")]);
        let long = "iVBORw0KGgo=".repeat(20);
        let (_, cut) = find_images(
            [&json!({"chart": format!("data:image/png;base64,{long}")})],
            format!("see {}… [cut]", &long[..100]),
        );
        assert_eq!(cut, "see [image]… [cut]");
        let urls: Vec<_> = (0..20).map(|number| format!("data:image/png;base64,AAA{number}")).collect();
        let (many, _) = find_images([&json!(urls)], String::new());
        assert_eq!(many.len(), MAX_IMAGES);
    }
}
