//! The output of an installer: its end is kept, without secrets, and the line that says what failed.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of an installer's output that are kept, the last ones.
const KEPT_OUTPUT: usize = 64 << 10;

/// Maximum characters of the line that an error has.
const MAX_LINE: usize = 400;

/// Words in the output of an installer that reaches no registry.
const NO_CONNECTION: [&str; 14] = [
    "ConnectionRefused",
    "NewConnectionError",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENOTFOUND",
    "ETIMEDOUT",
    "EACCES connect",
    "Connection refused",
    "dns error",
    "error sending request",
    "client error (Connect)",
];

/// Words in the output of an installer that does not know the authority of a registry's certificate.
const UNTRUSTED: [&str; 5] = [
    "CERTIFICATE_VERIFY_FAILED",
    "SELF_SIGNED_CERT",
    "UNABLE_TO_GET_ISSUER_CERT",
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "UnknownIssuer",
];

/// Removes secrets from the output of an installer, which errors and the log repeat.
pub type Redaction<'a> = &'a (dyn Fn(&str) -> String + Sync);

/// Without control characters, which could stand in the middle of a secret, and without secrets.
pub(super) fn readable(output: &str, redaction: Redaction<'_>) -> String {
    let text: String = output.chars().filter(|character| *character == '\n' || !character.is_control()).collect();
    redaction(&text)
}

/// The end of a stream, which is read whole. It begins with a whole line: the rest of a longer one may be a part of a secret.
pub(super) async fn last_bytes(stream: Option<impl AsyncRead + Unpin>) -> String {
    let (mut kept, mut part, mut is_cut) = (VecDeque::new(), vec![0; 1 << 13], false);
    if let Some(mut stream) = stream {
        while let Ok(length @ 1..) = stream.read(&mut part).await {
            kept.extend(part.iter().take(length));
            let left_out = kept.len().saturating_sub(KEPT_OUTPUT);
            is_cut |= left_out > 0;
            kept.drain(..left_out);
        }
    }
    let text = String::from_utf8_lossy(kept.make_contiguous());
    match text.split_once('\n') {
        Some((_, rest)) if is_cut => rest.to_owned(),
        None if is_cut => String::new(),
        _ => text.into_owned(),
    }
}

/// Whether the installer reached no registry. One with another certificate was reached.
pub(super) fn has_no_connection(output: &str) -> bool {
    NO_CONNECTION.iter().any(|word| output.contains(word)) && !output.contains("certificate")
}

/// Whether the installer does not know the authority of the registry's certificate.
pub(super) fn is_untrusted(output: &str) -> bool {
    UNTRUSTED.iter().any(|word| output.contains(word))
}

/// The line of an output that says what failed.
pub(super) fn reason(output: &str) -> String {
    // npm ends with the name of its log.
    let is_about_log = |line: &str| line.contains("A complete log of this run") || line.contains("-debug-0.log");
    let lines: Vec<_> = output.lines().map(str::trim).filter(|line| !line.is_empty() && !is_about_log(line)).collect();
    let begins = ["npm error code E", "ERR_PNPM_", "error:", "ERROR:", "× ", "Caused by:"];
    let says = |line: &&&str| begins.iter().any(|begin| line.starts_with(begin));
    let first = lines.iter().position(|line| says(&line)).unwrap_or(lines.len().saturating_sub(1));
    let lines = lines.get(first..).unwrap_or_default();
    // uv ends with the first cause.
    let text = match (lines.first(), lines.iter().rfind(|line| line.starts_with("cause:"))) {
        (Some(first), Some(cause)) => format!("{first} {cause}"),
        _ => lines.iter().take(4).copied().collect::<Vec<_>>().join(" "),
    };
    text.chars().take(MAX_LINE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_in_the_output_whatever_stands_in_it() {
        let strike = |text: &str| text.replace("s3cret", "[redacted]");
        assert_eq!(readable("a s3cret\nb s3\u{1b}cr\ret\n", &strike), "a [redacted]\nb [redacted]\n");
        let line = reason(&readable(&format!("error: {}", "s3cret".repeat(MAX_LINE)), &strike));
        assert!(line.chars().count() <= MAX_LINE && !line.contains("s3"), "{line}");
    }

    #[tokio::test]
    async fn the_rest_of_a_line_that_was_cut_is_left_out() {
        let output = format!("{}s3cret\nthe end\n", "x".repeat(KEPT_OUTPUT));
        assert_eq!(last_bytes(Some(output.as_bytes())).await, "the end\n");
        assert_eq!(last_bytes(Some(&b"s3cret"[..])).await, "s3cret");
        let one_line = "x".repeat(KEPT_OUTPUT + 1);
        assert_eq!(last_bytes(Some(one_line.as_bytes())).await, "");
        assert_eq!(last_bytes(None::<&[u8]>).await, "");
    }
}
