//! The effects that a program proposes, on the page of their approval.

use maud::{Markup, html};
use serde_json::Value;

use super::format;
use super::text::Texts;
use sekisho_api::ApprovalBody;

/// The kind of such an approval.
pub(super) const KIND: &str = "effects";

/// The fields with the effects that are not made.
pub(super) const STRIKE_FIELD: &str = "strike";

/// The list in its order; once an approver has struck some out, as it was left.
pub(super) fn list(texts: &Texts, approval: &ApprovalBody) -> Markup {
    html! {
        section aria-labelledby="effects" {
            h2 #effects { (texts.get("approval-effects")) }
            div.scroll tabindex="0" role="region" aria-label=(texts.get("approval-effects")) { table.list {
                thead { tr {
                    th scope="col" { (texts.get("approval-effect-call")) }
                    th scope="col" { (texts.get("tool-name")) }
                    th scope="col" { (texts.get("schema-title")) }
                    th scope="col" { (texts.get("approval-effect-cost")) }
                    th scope="col" { (texts.get("policies-reason")) }
                } }
                tbody { @for effect in effects_of(approval) { (row(texts, effect)) } }
            } }
        }
    }
}

fn row(texts: &Texts, effect: &Value) -> Markup {
    let text = |name: &str| effect[name].as_str().unwrap_or_default().to_owned();
    let all = |name: &str| {
        let texts = effect[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join("; ")
    };
    html! {
        tr {
            th scope="row" { (effect["call"].to_string()) @if effect["struck"] == true { " " span.tag { (texts.get("approval-struck")) } } }
            td { (format::name(&text("tool"))) " " span.quiet { (format::text(&all("labels"))) } }
            td.text { code { (format::text(&effect["arguments"].to_string())) } }
            td { (text("cost_usd")) }
            td.text { (format::text(&all("reasons"))) }
        }
    }
}

/// The fields that name effects which are not made.
pub(super) fn strike_fields(texts: &Texts, approval: &ApprovalBody) -> Markup {
    html! {
        @for effect in effects_of(approval) {
            @let call = effect["call"].to_string();
            @let id = format!("strike-{call}");
            div.field {
                label for=(id) {
                    input #(id) type="checkbox" name=(STRIKE_FIELD) value=(call);
                    " " (texts.with("approval-strike", [("call", call.as_str().into())])) " "
                    (format::name(effect["tool"].as_str().unwrap_or_default()))
                }
            }
        }
        p.help { (texts.get("approval-strike-help")) }
    }
}

fn effects_of(approval: &ApprovalBody) -> &[Value] {
    let list = approval.changed_arguments.as_ref().or(approval.arguments.as_ref());
    list.and_then(|list| list["effects"].as_array()).map(Vec::as_slice).unwrap_or_default()
}
