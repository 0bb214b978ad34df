//! Tools in lists that models read: the short form, and the tokens of both forms.

use serde_json::Value;

use super::schema::{short_schema, short_text};

/// Maximum bytes of a tool's description in the short form.
const MAX_DESCRIPTION: usize = 600;

/// Bytes of a token, by estimate: each model has tokens of its own.
const BYTES_OF_A_TOKEN: usize = 4;

/// The text about a tool that models read: name, description and schema of the arguments.
#[derive(Debug, Clone, Copy)]
pub struct ModelText<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub schema: &'a Value,
}

/// The estimated tokens of a tool, or of several ones, in both forms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListedTokens {
    pub whole: usize,
    pub short: usize,
}

impl ModelText<'_> {
    pub fn tokens(&self) -> usize {
        let schema = self.schema.to_string();
        (self.name.len() + self.description.len() + schema.len()).div_ceil(BYTES_OF_A_TOKEN)
    }

    /// The description and the schema of the short form.
    pub fn short(&self) -> (String, Value) {
        (short_text(self.description, MAX_DESCRIPTION), short_schema(self.schema))
    }

    pub fn listed_tokens(&self) -> ListedTokens {
        let (description, schema) = self.short();
        let short = ModelText { name: self.name, description: &description, schema: &schema };
        ListedTokens { whole: self.tokens(), short: short.tokens() }
    }
}

impl ListedTokens {
    /// The maximum tokens of a list with `tools: auto`.
    pub fn of_auto(self, budget: usize) -> usize {
        self.whole.min(budget)
    }
}

impl std::iter::Sum for ListedTokens {
    fn sum<I: Iterator<Item = Self>>(tokens: I) -> Self {
        tokens.fold(Self::default(), |sum, tokens| Self {
            whole: sum.whole + tokens.whole,
            short: sum.short + tokens.short,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn five_hundred_tools_take_fewer_tokens_in_the_short_form() {
        let text = "Sends the record to the warehouse. ".repeat(60);
        let place = json!({"title": "Place", "type": "object", "properties": {
            "street": {"title": "Street", "type": "string", "description": "The street, with the number of the house."},
            "city": {"title": "City", "type": "string", "examples": ["Kyoto", "Nara", "Osaka"]},
        }});
        let schema = json!({"type": "object", "properties": {"from": place, "to": place, "through": place}});
        let names: Vec<_> = (0..500).map(|number| format!("crm__send_{number}")).collect();
        let tools = names.iter().map(|name| ModelText { name, description: &text, schema: &schema });
        let ListedTokens { whole, short } = tools.map(|tool| tool.listed_tokens()).sum::<ListedTokens>();
        assert!(short * 2 < whole && whole > 200_000, "{whole} tokens, {short} in the short form");
        assert_eq!(ListedTokens { whole, short }.of_auto(8_000), 8_000);
    }
}
