//! The paths of integers that became strings, in responses that are joined or reshaped.

use serde_json::Value;

use super::pagination;
use sekisho_config::PaginationSettings;
use sekisho_core::call::ToolOutput;
use sekisho_core::json::LARGE_NUMBERS;

/// The digits of the large numbers in the response.
pub(crate) fn of(output: &ToolOutput) -> Vec<Value> {
    paths(output).filter_map(|path| output.value.pointer(path).cloned()).collect()
}

/// Their paths in a value that an adapter has reshaped.
pub(crate) fn found_again(output: &mut ToolOutput, digits: &[Value]) {
    if digits.is_empty() {
        return;
    }
    let mut found = Vec::new();
    search(&output.value, digits, String::new(), &mut found);
    output.metadata.insert(LARGE_NUMBERS.into(), found.into());
    // The vendor's text is not the returned value.
    output.text = None;
}

/// Adds the large numbers of a further page whose list is about to be added.
pub(crate) fn of_page(output: &mut ToolOutput, settings: &PaginationSettings, page: &ToolOutput) {
    // The text of the first page is not the text of all pages.
    output.text = None;
    let before = pagination::items(settings, &output.value).map_or(0, Vec::len);
    let moved = |path: &str| {
        let (index, below) = split_index(path.strip_prefix(&settings.items)?)?;
        Some(Value::from(format!("{}/{}{below}", settings.items, index + before)))
    };
    let moved: Vec<Value> = paths(page).filter_map(moved).collect();
    if !moved.is_empty() {
        let all = output.metadata.entry(LARGE_NUMBERS).or_insert_with(|| Value::Array(Vec::new()));
        all.as_array_mut().into_iter().for_each(|all| all.extend_from_slice(&moved));
    }
}

fn paths(output: &ToolOutput) -> impl Iterator<Item = &str> {
    output.metadata.get(LARGE_NUMBERS).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// `/3/id` is the third item's `/id`.
fn split_index(path: &str) -> Option<(usize, &str)> {
    let path = path.strip_prefix('/')?;
    let end = path.find('/').unwrap_or(path.len());
    Some((path[..end].parse().ok()?, &path[end..]))
}

fn search(value: &Value, digits: &[Value], path: String, found: &mut Vec<String>) {
    match value {
        Value::String(_) if digits.contains(value) => found.push(path),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| search(item, digits, format!("{path}/{index}"), found));
        }
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                search(member, digits, format!("{path}/{name}"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DIGITS: &str = "99999999999999999999";

    fn output(value: Value, large: Value) -> ToolOutput {
        let mut output = ToolOutput { text: Some("as received".into()), ..value.into() };
        output.metadata.insert(LARGE_NUMBERS.into(), large);
        output
    }

    #[test]
    fn the_numbers_of_further_pages_are_found_in_the_list_of_all() {
        let settings = PaginationSettings { items: "/items".into(), ..PaginationSettings::default() };
        let mut all = output(json!({"items": [1, DIGITS]}), json!(["/items/1"]));
        let page = output(json!({"items": [2, {"id": DIGITS}], "n": DIGITS}), json!(["/items/1/id", "/n"]));
        of_page(&mut all, &settings, &page);
        assert_eq!(all.metadata[LARGE_NUMBERS], json!(["/items/1", "/items/3/id"]));
        assert_eq!(all.text, None);
    }

    #[test]
    fn the_numbers_of_a_shaped_answer_are_where_they_went() {
        let mut shaped = output(json!({"id": DIGITS}), json!(["/id"]));
        let digits = of(&shaped);
        shaped.value = json!({"a/b": [DIGITS, 1]});
        found_again(&mut shaped, &digits);
        assert_eq!((&shaped.metadata[LARGE_NUMBERS], shaped.text), (&json!(["/a~1b/0"]), None));
    }
}
