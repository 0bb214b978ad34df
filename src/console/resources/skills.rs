//! The page of a skill: its text, its files, and the tenants that have it.

use maud::{Markup, html};
use serde_json::Value;

use super::{Kind, Resource};
use crate::text::Texts;
use crate::visit::Visit;
use crate::{Console, format};
use sekisho_agent::skills::Skill;
use sekisho_api::list::Page;
use sekisho_config::TenantConfig;
use sekisho_core::error::CallError;

/// Maximum tenants that are looked at, in pages of their route.
const MAX_PAGES: usize = 10;

/// Maximum characters of a file on the page.
const MAX_SHOWN: usize = 20_000;

/// The tenants with settings, as far as the caller may read them, that have the skill.
/// Errors: the error of the route.
pub(super) async fn tenants_with(console: &Console, visit: &Visit, skill: &str) -> Result<Vec<String>, CallError> {
    let (mut tenants, mut after) = (Vec::new(), String::new());
    for _ in 0..MAX_PAGES {
        let Page { items, next } = super::list(console, visit, Kind::Tenants, &after).await?;
        let having = items.into_iter().filter(|tenant| {
            let settings = serde_json::from_value::<TenantConfig>(Value::Object(tenant.value.clone()));
            settings.is_ok_and(|settings| settings.has_skill(skill))
        });
        tenants.extend(having.map(|tenant| tenant.name));
        let Some(next) = next else { break };
        after = next;
    }
    Ok(tenants)
}

/// Its text, its files and its tenants.
pub(super) fn content(texts: &Texts, resource: &Resource, tenants: &[String]) -> Markup {
    // The route gives nothing else.
    let Skill { description, instructions, files } =
        serde_json::from_value(Value::Object(resource.value.clone())).unwrap_or_default();
    html! {
        p.description { (format::text(&description)) }
        section aria-labelledby="instructions" {
            h2 #instructions { (texts.get("skill-instructions")) }
            pre.prose tabindex="0" { (format::text(&instructions)) }
        }
        section aria-labelledby="files" {
            h2 #files { (texts.get("skill-files")) " (" (format::count(files.len() as u64)) ")" }
            @if files.is_empty() { p.quiet { (texts.get("setting-none")) } }
            @for (path, text) in &files { (file(texts, path, text)) }
        }
        section aria-labelledby="tenants" {
            h2 #tenants { (texts.get("skill-tenants")) }
            @if !tenants.is_empty() {
                ul.plain.names { @for tenant in tenants {
                    li { a href=(Kind::Tenants.path_of(tenant)) { (format::name(tenant)) } }
                } }
            }
            p.quiet { (texts.get("skill-tenants-all")) }
        }
    }
}

fn file(texts: &Texts, path: &str, text: &str) -> Markup {
    let end = text.char_indices().nth(MAX_SHOWN).map(|(end, _)| end);
    html! {
        details {
            summary { code { (format::text(path)) } span.quiet { " " (format::count(text.len() as u64)) " B" } }
            pre tabindex="0" { code { (format::text(&text[..end.unwrap_or(text.len())])) } }
            @if end.is_some() { p.quiet { (texts.get("reply-cut")) } }
        }
    }
}
