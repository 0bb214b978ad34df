use proptest::prelude::*;
use serde_json::{Value, json};

use std::sync::Arc;

use super::*;

/// A table in which two words are close to each other.
fn table() -> Vec<u8> {
    let tokens = [("▁feline", [100, 5]), ("▁cat", [100, 0]), ("▁invoice", [0, 100]), ("▁", [1, 1])];
    let mut bytes = b"sekisho embeddings 1\n".to_vec();
    bytes.extend([4, 0, 0, 0, 2, 0, 0, 0]);
    for (text, vector) in tokens {
        bytes.push(u8::try_from(text.len()).unwrap());
        bytes.extend(text.as_bytes());
        bytes.extend(1.0_f32.to_le_bytes());
        bytes.extend(vector);
    }
    bytes
}

fn tool<'a>(name: &'a str, description: &'a str, parameters: &'a Value) -> Searchable<'a> {
    Searchable { name, description, category: "", source: "", parameters }
}

fn found(index: &SearchIndex, query: &str) -> Vec<usize> {
    index.search(query, 10).into_iter().map(|(tool, _)| tool).collect()
}

#[test]
fn what_means_the_same_is_found_with_a_table_alone() {
    let tools = [tool("cat", "", &Value::Null), tool("invoice", "", &Value::Null)];
    let words = SearchIndex::build(tools, None);
    assert_eq!(found(&words, "feline"), Vec::<usize>::new());
    let meaning = SearchIndex::build(tools, Some(Arc::new(Embeddings::read(&table()).unwrap())));
    assert_eq!(found(&meaning, "feline"), [0]);
}

#[test]
fn a_file_that_is_no_table_is_refused() {
    let table = table();
    assert!(Embeddings::read(&table).is_ok());
    for length in 0..table.len() {
        assert!(Embeddings::read(&table[..length]).is_err(), "{length}");
    }
    assert!(Embeddings::read(&[table.as_slice(), &[0]].concat()).is_err());
}

#[test]
fn each_step_of_a_task_finds_its_tool() {
    let filler: Vec<_> =
        (0..50).map(|number| (format!("note_{number}"), format!("Keeps the note {number} of meetings"))).collect();
    let mut tools: Vec<_> = filler.iter().map(|(name, text)| tool(name, text, &Value::Null)).collect();
    tools.push(tool("forecast", "Tells the weather", &Value::Null));
    tools.push(tool("letter", "Posts a letter", &Value::Null));
    let index = SearchIndex::build(tools, None);
    let mut first =
        found(&index, "Look at the notes of all my meetings, tell me the weather in Oslo, then post a letter");
    first.truncate(2);
    first.sort_unstable();
    assert_eq!(first, [50, 51]);
}

#[test]
fn parameters_values_and_endings_are_searched() {
    let parameters = json!({"properties": {"unit": {"enum": ["furlong"]}}});
    let index = SearchIndex::build([tool("convert", "Converts", &parameters), tool("other", "", &Value::Null)], None);
    for query in ["furlongs", "converting", "units", "transform"] {
        assert_eq!(found(&index, query), [0], "{query}");
    }
}

#[test]
fn words_that_say_the_most_count_wherever_they_stand() {
    let index = SearchIndex::build([tool("web_search", "Looks things up", &Value::Null)], None);
    let filler: String = (0..2_000).map(|number| format!(" a{number}")).collect();
    assert_eq!(found(&index, &format!("search{filler}")), [0]);
    assert!(found(&index, "zebra").is_empty());
}

#[test]
fn what_is_used_after_such_words_and_with_the_best_tools_is_found_first_and_what_fails_last() {
    let tools = ["alpha", "beta", "figures_a", "figures_b"].map(|name| tool(name, "", &Value::Null));
    let index = SearchIndex::build(tools, None);
    let mut usage = Usage::default();
    let search = |usage: &Usage| {
        let search = Search { query: "monthly figures", at_most: 4, part: Part::All, usage: Some(usage) };
        index.search_where(search, |_| true).into_iter().map(|(tool, _)| tool).collect::<Vec<_>>()
    };
    let used = |tool, query, before, has_failed| UsedTool { tool, query, before, has_failed };
    assert_eq!(search(&usage), [2, 3]);
    usage.add(used("figures_a", None, &[], true), 1);
    assert_eq!(search(&usage), [3, 2]);
    usage.add(used("beta", Some("a monthly report"), &[], false), 1);
    usage.add(used("alpha", None, &["beta"], false), 1);
    assert_eq!(search(&usage), [3, 2, 1, 0]);
    assert_eq!(search(&Usage::default()), [2, 3]);
}

#[test]
fn only_tools_that_may_be_found_are_and_the_best_alone_are_asked_about() {
    let tools = ["find_a", "find_b", "find_c"].map(|name| tool(name, "", &Value::Null));
    let index = SearchIndex::build(tools, None);
    let mut asked = Vec::new();
    let search = Search { query: "find", at_most: 1, part: Part::All, usage: None };
    let found = index.search_where(search, |tool| {
        asked.push(tool);
        tool > 0
    });
    assert_eq!((found.len(), found[0].0), (1, 1));
    assert_eq!(asked, [0, 1]);
}

#[test]
fn a_misspelt_word_finds_what_was_meant() {
    let index = SearchIndex::build([tool("calculator", "Calculates", &Value::Null)], None);
    assert_eq!(found(&index, "caculate"), [0]);
}

proptest! {
    #[test]
    fn any_query_and_any_text_is_answered(query in "\\PC{0,80}", text in "\\PC{0,80}", many in 1_usize..400) {
        let parameters = json!({"properties": {&text: {"enum": [&text], "description": &text}}});
        let long = text.repeat(many);
        let embeddings = Arc::new(Embeddings::read(&table()).unwrap());
        for embeddings in [None, Some(embeddings)] {
            let index = SearchIndex::build([tool(&text, &long, &parameters), tool("cat", "ﬁ ǅ İ", &parameters)], embeddings);
            for query in [&query, &long, &query.repeat(many)] {
                let found = index.search(query, 10);
                prop_assert!(found.iter().all(|(_, score)| score.is_finite() && *score > 0.0 && *score < 3.0));
            }
        }
    }

    #[test]
    fn any_bytes_are_a_table_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _read = Embeddings::read(&[b"sekisho embeddings 1\n".as_slice(), &bytes].concat());
    }
}
