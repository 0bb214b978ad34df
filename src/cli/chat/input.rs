//! The task of the command line and of standard input together.

use std::io::{self, IsTerminal, Read};

/// Bytes of standard input that become part of a message.
const MAX_INPUT_BYTES: u64 = 1 << 20;

/// The task; `None` for a conversation on a terminal. The piped text follows `given`.
/// Errors: standard input cannot be read or is too long, or there is no task.
pub(super) fn task(given: Option<&str>) -> Result<Option<String>, String> {
    match (given, io::stdin().is_terminal()) {
        (None, true) => Ok(None),
        (Some(given), true) => joined(Some(given), "").map(Some),
        (given, false) => joined(given, &read(io::stdin().lock())?).map(Some),
    }
}

fn read(input: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = input.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("standard input cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err("standard input has more than 1 MiB; send the part that matters".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "standard input is no text in UTF-8".to_owned())
}

fn joined(given: Option<&str>, piped: &str) -> Result<String, String> {
    let text = match given {
        Some(given) if piped.trim().is_empty() => given.to_owned(),
        Some(given) => format!("{given}\n\n{piped}"),
        None => piped.to_owned(),
    };
    if text.trim().is_empty() { Err("the prompt is empty; describe the task".into()) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_piped_in_follows_the_task() {
        for (given, piped, expected) in [
            (Some("sum"), "1\n2\n", Some("sum\n\n1\n2\n")),
            (Some("sum"), " \n", Some("sum")),
            (None, "1 + 1?\n", Some("1 + 1?\n")),
            (Some(" "), "", None),
            (None, "\n", None),
        ] {
            assert_eq!(joined(given, piped).ok().as_deref(), expected, "{given:?} {piped:?}");
        }
    }

    #[test]
    fn standard_input_is_bounded_text() {
        let most = usize::try_from(MAX_INPUT_BYTES).expect("a size");
        assert_eq!(read(&vec![b'a'; most][..]).map(|text| text.len()), Ok(most));
        for (input, problem) in [(vec![b'a'; most + 1], "1 MiB"), (vec![0xff], "UTF-8")] {
            let error = read(&input[..]).expect_err(problem);
            assert!(error.contains(problem), "{error}");
        }
    }
}
