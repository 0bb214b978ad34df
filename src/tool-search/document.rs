//! The searched texts of a tool.

use serde_json::Value;

/// Maximum parameters of a tool that are read, those in objects too.
const MAX_PARAMETERS: usize = 128;
/// Maximum levels of objects that are read.
const MAX_DEPTH: usize = 4;
/// Maximum values of an enumeration, and examples, that are read.
const MAX_VALUES: usize = 32;

/// The searched texts of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Searchable<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub category: &'a str,
    /// Where the tool comes from, such as `mcp:files`; tools of one source belong together.
    pub source: &'a str,
    /// JSON Schema of the arguments.
    pub parameters: &'a Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Name,
    Description,
    Category,
    ParameterName,
    ParameterText,
    /// Of an enumeration, a constant, a default or an example.
    Value,
}

impl Field {
    pub(crate) fn weight(self) -> f32 {
        match self {
            Self::Name => 4.0,
            Self::ParameterName => 1.5,
            Self::Description | Self::Category | Self::ParameterText => 1.0,
            Self::Value => 0.5,
        }
    }
}

impl<'a> Searchable<'a> {
    /// The source, or else the beginning of the name, which the tools of one source share.
    pub(crate) fn group(&self) -> Option<&'a str> {
        let prefix = self.name.split_once("__").map(|(prefix, _)| prefix);
        Some(self.source).filter(|source| !source.is_empty()).or(prefix)
    }

    /// Calls `visit` with each text, of parameters up to the limits.
    pub(crate) fn for_each_text(&self, mut visit: impl FnMut(Field, &'a str)) {
        visit(Field::Name, self.name);
        visit(Field::Description, self.description);
        visit(Field::Category, self.category);
        visit(Field::Category, self.source);
        let mut left = MAX_PARAMETERS;
        visit_parameters(self.parameters, MAX_DEPTH, &mut left, &mut visit);
    }
}

fn visit_parameters<'a>(schema: &'a Value, depth: usize, left: &mut usize, visit: &mut impl FnMut(Field, &'a str)) {
    if depth == 0 {
        return;
    }
    for (name, parameter) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        visit(Field::ParameterName, name);
        if let Some(text) = parameter.get("description").and_then(Value::as_str) {
            visit(Field::ParameterText, text);
        }
        for key in ["enum", "examples"] {
            let values = parameter.get(key).and_then(Value::as_array).into_iter().flatten();
            values.take(MAX_VALUES).filter_map(Value::as_str).for_each(|value| visit(Field::Value, value));
        }
        for nested in [Some(parameter), parameter.get("items")].into_iter().flatten() {
            visit_parameters(nested, depth - 1, left, visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_texts_of_parameters_are_visited_up_to_the_limits() {
        let nested = json!({"type": "array", "items": {"properties": {"inner": {"examples": ["x"]}}}});
        let parameters = json!({"properties": {"unit": {"description": "A unit", "enum": ["km", 3]}, "list": nested}});
        let tool = Searchable { name: "a", description: "b", category: "c", source: "d", parameters: &parameters };
        let mut texts = Vec::new();
        tool.for_each_text(|_, text| texts.push(text.to_owned()));
        assert_eq!(texts, ["a", "b", "c", "d", "unit", "A unit", "km", "list", "inner", "x"]);
        let many: serde_json::Map<_, _> = (0..1_000).map(|number| (number.to_string(), json!({}))).collect();
        let parameters = json!({"properties": many});
        let mut count = 0;
        Searchable { parameters: &parameters, ..tool }.for_each_text(|_, _| count += 1);
        assert_eq!(count, 4 + MAX_PARAMETERS);
    }

    #[test]
    fn tools_of_one_source_or_with_one_prefix_are_a_group() {
        let tool = |name, source| Searchable { name, description: "", category: "", source, parameters: &Value::Null };
        assert_eq!(tool("files__read", "mcp:files").group(), Some("mcp:files"));
        assert_eq!(tool("files__read", "").group(), Some("files"));
        assert_eq!(tool("read_file", "").group(), None);
    }
}
