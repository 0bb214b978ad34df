//! The steps of a task: its sentences, the items of its lists, and the parts of a sentence that follow each other.

use crate::words::words;

/// Maximum steps; of a longer task only the first ones.
const MAX_STEPS: usize = 8;

/// Minimum words of a step; a shorter part belongs to the one before it.
const MIN_WORDS: usize = 3;

/// Ends of sentences, and what separates items of lists.
const ENDS: [char; 11] = ['.', '!', '?', ';', ':', '\n', '。', '；', '、', '，', '！'];

/// What stands between the parts of a sentence.
const BETWEEN: [&str; 9] = [", ", " and ", " then ", " und ", " dann ", " puis ", " et ", " y ", " luego "];

/// The steps of a task in their order; none if it is one step.
pub(crate) fn steps(task: &str) -> Vec<String> {
    let mut parts: Vec<&str> = task.split(ENDS).collect();
    for between in BETWEEN {
        parts = parts.into_iter().flat_map(|part| part.split(between)).collect();
    }
    let mut steps = Vec::<String>::new();
    for part in parts {
        let (length, is_full) = (words(part).len(), steps.len() == MAX_STEPS);
        match steps.last_mut() {
            _ if length == 0 => {}
            Some(last) if length < MIN_WORDS => last.extend([" ", part]),
            _ if is_full => break,
            _ => steps.push(part.to_owned()),
        }
    }
    if steps.len() < 2 { Vec::new() } else { steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_split_into_steps() {
        for (task, expected) in [
            ("Find the cheapest flight and then book a hotel", vec!["Find the cheapest flight", "then book a hotel"]),
            ("Read the file. Draw a chart", vec!["Read the file", " Draw a chart"]),
            ("Send a mail to Ada, Bob and Eve", vec![]),
            ("weather", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(steps(task), expected, "{task}");
        }
        assert_eq!(steps(&"do this thing. ".repeat(1_000)).len(), MAX_STEPS);
    }
}
