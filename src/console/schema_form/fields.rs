//! The fields of a form, with their earlier content and its problems.

use maud::{Markup, html};
use serde_json::Value;

use super::controls::{Control, options, shown};
use super::reading::nearest;
use super::{
    AS_JSON, COUNT_PREFIX, FILE_PREFIX, Filled, MAX_ENTRIES, MORE, PREFIX, Part, field_name, parts, takes_any, value_of,
};
use crate::format;
use crate::schema_table::kind;
use crate::text::Texts;
use sekisho_core::error::Detail;

/// Maximum characters of a file's base64 that the form keeps for the next time; a longer one is chosen again.
const MAX_KEPT_FILE: usize = 256 << 10;

/// All fields.
pub(crate) fn draw(texts: &Texts, schema: &Value, filled: &Filled, problems: &[Detail]) -> Markup {
    let parts = parts(schema, filled);
    let json = value_of(filled, AS_JSON).unwrap_or_default();
    let form = Form { texts, whole: schema, filled, problems, parts: &parts };
    html! {
        @if !problems.is_empty() { (form.summary()) }
        @for part in &parts { (form.part(part)) }
        @if parts.is_empty() && !takes_any(schema) { p.quiet { (texts.get("try-no-arguments")) } }
        details.json open[!json.is_empty() || parts.is_empty() && takes_any(schema)] {
            summary { (texts.get("try-as-json")) }
            div.field {
                label for="json" { (texts.get("try-json-label")) }
                textarea #json name=(AS_JSON) rows="6" spellcheck="false" aria-describedby="json-help" { "\n" (json) }
                p.help #json-help { (texts.get("try-json-help")) }
            }
        }
    }
}

/// The data of the fields.
struct Form<'a> {
    texts: &'a Texts,
    whole: &'a Value,
    filled: &'a Filled,
    problems: &'a [Detail],
    parts: &'a [Part<'a>],
}

impl Form<'_> {
    /// The problems, each with a link to its field.
    fn summary(&self) -> Markup {
        html! {
            div.notice.bad #problems role="alert" tabindex="-1" {
                p { (self.texts.with("try-problems", [("n", self.problems.len().into())])) }
                ul { @for problem in self.problems {
                    @match nearest(self.parts, &problem.path) {
                        Some(part) => li { a href={ "#" (id(part)) } { (format::text(&part.name)) } ": " (format::text(&problem.message)) },
                        None => li { a href="#json" { (if problem.path.is_empty() { "JSON".into() } else { format::text(&problem.path) }) } ": " (format::text(&problem.message)) },
                    }
                } }
            }
        }
    }

    fn part(&self, part: &Part<'_>) -> Markup {
        match part.control {
            Control::Object => self.group(part, &html! { @for member in &part.parts { (self.part(member)) } }),
            Control::List => self.group(part, &self.entries(part)),
            Control::Choices => self.group(part, &self.choices(part)),
            _ => self.field(part),
        }
    }

    fn group(&self, part: &Part<'_>, body: &Markup) -> Markup {
        html! {
            fieldset.group #(id(part)) tabindex="-1" {
                legend { (self.title(part)) }
                @if let Some(description) = part.schema["description"].as_str() { p.help { (format::text(description)) } }
                (self.errors(part))
                (body)
            }
        }
    }

    fn entries(&self, part: &Part<'_>) -> Markup {
        html! {
            input type="hidden" name=(field_name(COUNT_PREFIX, &part.path)) value=(part.parts.len());
            @for entry in &part.parts { (self.part(entry)) }
            @if part.parts.len() < MAX_ENTRIES {
                div { button.small name=(MORE) value=(part.path) formaction={ "#" (id(part)) } { "+ " (self.texts.get("try-more")) } }
            }
        }
    }

    fn choices(&self, part: &Part<'_>) -> Markup {
        let name = field_name(PREFIX, &part.path);
        let is_chosen = |value: &str| self.filled.iter().any(|(known, text)| *known == name && text == value);
        html! {
            div.choices {
                @for option in options(self.whole, part.schema).iter().map(shown) {
                    label.choice { input type="checkbox" name=(name) value=(option) checked[is_chosen(&option)]; " " code { (format::text(&option)) } }
                }
            }
        }
    }

    fn field(&self, part: &Part<'_>) -> Markup {
        let described = format!("{}-help", id(part));
        html! {
            div.field {
                label for=(id(part)) { (self.title(part)) }
                (self.control(part, &described))
                p.help #(described) {
                    @if let Some(description) = part.schema["description"].as_str() { (format::text(description)) }
                    @if part.control == Control::Json { " " (self.texts.get("try-needs-json")) }
                }
                (self.errors(part))
            }
        }
    }

    fn title(&self, part: &Part<'_>) -> Markup {
        html! {
            code { (format::text(&part.name)) } span.kind { (kind(part.schema).replace(" | null", "")) }
            @if part.is_required { span.tag { (self.texts.get("schema-required")) } }
        }
    }

    fn control(&self, part: &Part<'_>, described: &str) -> Markup {
        let (id, name) = (id(part), field_name(PREFIX, &part.path));
        let value = value_of(self.filled, &name).unwrap_or_default();
        let default = part.schema.get("default").filter(|default| !default.is_null()).map(shown).unwrap_or_default();
        let invalid = self.wrong(part).next().map(|_| "true");
        html! {
            @match part.control {
                Control::Select => select #(id) name=(name) aria-describedby=(described) aria-invalid=[invalid] {
                    option value="" { (self.texts.get("try-unset")) @if !default.is_empty() { " (" (default) ")" } }
                    @for option in options(self.whole, part.schema).iter().map(shown) {
                        option value=(option) selected[option == value] { (format::text(&option)) }
                    }
                },
                Control::LongText | Control::Json => textarea #(id) name=(name) rows="3" spellcheck="false"
                    placeholder=(default) aria-describedby=(described) aria-invalid=[invalid] { "\n" (value) },
                Control::File => {
                    @if !value.is_empty() && value.len() <= MAX_KEPT_FILE {
                        input type="hidden" name=(name) value=(value);
                        p.small { (self.texts.with("try-file-kept", [("size", format::count(value.len() as u64 / 4 * 3).into())])) }
                    }
                    input #(id) type="file" name=(field_name(FILE_PREFIX, &part.path)) aria-describedby=(described) aria-invalid=[invalid];
                },
                // The browser keeps no password over the end of a session.
                _ => input #(id) type=[(part.schema["format"] == "password").then_some("password")] name=(name) value=(value) placeholder=(default)
                    inputmode=[(part.control == Control::Number).then_some("decimal")] autocomplete="off" spellcheck="false"
                    aria-describedby=(described) aria-invalid=[invalid];
            }
        }
    }

    fn errors(&self, part: &Part<'_>) -> Markup {
        html! { @for problem in self.wrong(part) { p.error { (format::text(&problem.message)) } } }
    }

    /// The problems of this part, without the problems of parts within it.
    fn wrong<'p>(&'p self, part: &'p Part<'_>) -> impl Iterator<Item = &'p Detail> {
        let is_here = |problem: &&Detail| nearest(self.parts, &problem.path).is_some_and(|near| near.id == part.id);
        self.problems.iter().filter(is_here)
    }
}

fn id(part: &Part<'_>) -> String {
    format!("a{}", part.id)
}
