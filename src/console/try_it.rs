//! Try it: runs a tool with the caller's own rights, through the path of every call, and shows the reply and the path.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use serde_json::Value;

use super::acts::Act;
use super::call_path::CallPath;
use super::call_tree::CallTree;
use super::figures::Ranged;
use super::schema_form;
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{TOKEN_FIELD, Visit};
use super::{Console, calls, format, tool, tools};
use sekisho_calls::pipeline::{Answered, Reply};
use sekisho_calls::tool::Tool;
use sekisho_core::call::Arguments;
use sekisho_core::error::{Detail, ErrorCode};
use sekisho_core::json;

/// The field of the button that was pressed.
const MODE: &str = "mode";

/// The field by which a form that is sent again, as a page that is loaded again sends it, makes no second call.
const ONCE: &str = "once";

/// Maximum characters of a reply on the page.
const MAX_SHOWN: usize = 64 << 10;

/// Pictures that are shown: none of them runs a script.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// An attempt, and its result.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    filled: Vec<(String, String)>,
    pub(super) arguments: Option<Arguments>,
    problems: Vec<Detail>,
    answered: Option<Answered>,
    /// The calls that the tool made.
    tree: CallTree,
}

impl Attempt {
    /// None yet, with these arguments in the form.
    pub(super) fn filled_in(tool: &Tool, arguments: Arguments) -> Self {
        let filled = schema_form::filled_with(tool.input.document(), &arguments);
        Self { filled, arguments: Some(arguments), ..Self::default() }
    }
}

/// `POST /console/tools/{name}`.
pub(super) async fn run(State(console): State<Arc<Console>>, Path(name): Path<String>, request: Request) -> Response {
    let Submitted { visit, mut fields, files, .. } = match Submitted::read(&console, request, Act::TryTool).await {
        Ok(submitted) => submitted,
        Err(response) => return response,
    };
    schema_form::attach(&mut fields, files);
    let page = match tool::find(&console, &visit, &name) {
        Ok(tool) => {
            let attempt = attempt(&console, &visit, &tool, fields).await;
            tool::show(&console, &visit, &tool, &attempt, &Ranged::default()).await
        }
        Err(error) => Err(error),
    };
    visit.answer(page)
}

/// The form, and the result of the last attempt.
pub(super) fn section(visit: &Visit, tool: &Tool, attempt: &Attempt) -> Markup {
    let texts = visit.texts();
    let (Some(token), true) = (visit.form_token(), visit.may(Act::TryTool)) else {
        let reason = visit.require(Act::TryTool).err();
        return html! { p.quiet { @if let Some(error) = reason { (format::text(error.message())) } } };
    };
    let is_dangerous = tool.metadata.dangerous;
    html! {
        form.stack method="post" action={ (tools::path_of(tool.name())) "#reply" } enctype="multipart/form-data" {
            input type="hidden" name=(TOKEN_FIELD) value=(token);
            input type="hidden" name=(ONCE) value=(hex::encode(rand::random::<[u8; 16]>()));
            // The first button is the button of the Enter key: lists have buttons of their own.
            button.unseen name=(MODE) value=(if is_dangerous { "dry" } else { "run" }) tabindex="-1" aria-hidden="true" {}
            (schema_form::draw(&texts, tool.input.document(), &attempt.filled, &attempt.problems))
            div.buttons {
                @if is_dangerous { (dry_button(&texts, true)) (run_button(&texts, false)) }
                @else { (run_button(&texts, true)) (dry_button(&texts, false)) }
            }
            @if is_dangerous { p.help { (texts.get("try-dangerous")) } }
        }
        @if let Some(answered) = &attempt.answered { (reply(visit, answered, &attempt.tree)) }
    }
}

fn run_button(texts: &Texts, main: bool) -> Markup {
    html! { button.main[main] name=(MODE) value="run" { (texts.get("try-run")) } }
}

fn dry_button(texts: &Texts, main: bool) -> Markup {
    html! { button.main[main] name=(MODE) value="dry" { (texts.get("try-dry")) } }
}

async fn attempt(console: &Console, visit: &Visit, tool: &Tool, mut filled: Vec<(String, String)>) -> Attempt {
    let schema = tool.input.document();
    if schema_form::grow(schema, &mut filled) {
        return Attempt { filled, ..Attempt::default() };
    }
    let arguments = match schema_form::arguments(schema, &filled) {
        Ok(arguments) => arguments,
        Err(problems) => return Attempt { filled, problems, ..Attempt::default() },
    };
    // A form without the button is no order to run anything.
    let dry_run = !filled.iter().any(|(name, mode)| name == MODE && mode == "run");
    let mut call = visit.guest.request.call(tool.name(), &visit.caller, dry_run);
    call.resumption.idempotency_key = once_key(&filled, &arguments).filter(|_| !dry_run);
    let answered = console.gateway.pipeline.call(call, arguments.clone()).await;
    let refusal = answered.reply.outcome.as_ref().err();
    let of_fields = refusal.filter(|error| error.code() == ErrorCode::InvalidArguments);
    let problems = of_fields.map(|error| error.details().to_vec()).unwrap_or_default();
    let filled = if schema_form::is_json(&filled) { filled } else { schema_form::filled_with(schema, &arguments) };
    let receipt = &answered.reply.receipt;
    // The call is made: its page has what cannot be shown now.
    let tree = CallTree::of(console, visit, receipt.call_id, receipt.nested.count()).await.unwrap_or_default();
    Attempt { filled, arguments: Some(arguments), problems, answered: Some(answered), tree }
}

/// The idempotency key of a form: a form that is sent again with other arguments, after a step back, is another call.
fn once_key(filled: &[(String, String)], arguments: &Arguments) -> Option<String> {
    let (_, once) = filled.iter().find(|(name, _)| name == ONCE)?;
    let is_ours = once.len() == 32 && once.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_ours.then(|| format!("console-{once}-{}", hex::encode(&json::digest(arguments)[..8])))
}

fn reply(visit: &Visit, answered: &Answered, tree: &CallTree) -> Markup {
    let reply: &Reply = &answered.reply;
    let (texts, receipt) = (&visit.texts(), &reply.receipt);
    html! {
        section.reply #reply aria-labelledby="reply-title" {
            h3 #reply-title {
                @match &reply.outcome {
                    Ok(_) if receipt.dry_run => { span.good-text { "✓ " (texts.get("reply-would-run")) } },
                    Ok(_) => { span.good-text { "✓ " (texts.get("reply-success")) } },
                    Err(_) => { span.bad-text { "✕ " (texts.get("reply-failed")) } },
                }
                span.quiet { " " (format::duration(reply.duration)) " · " (format::money(reply.cost_usd)) " · "
                    (texts.with("reply-tokens", [("n", reply.tokens.into())])) }
            }
            @match &reply.outcome {
                Ok(_) if receipt.dry_run => {},
                Ok(answer) => {
                    @for picture in pictures(answer.mcp.as_deref().map(|mcp| mcp.content.as_slice()).unwrap_or_default()) {
                        img.picture src=(picture) alt=(texts.get("reply-picture"));
                    }
                    (shown(texts, "reply-text", &answer.text, true))
                    (shown(texts, "reply-json", &pretty(&answer.output), false))
                },
                Err(error) => { @if let Some(output) = error.output() { (shown(texts, "reply-json", &pretty(output), true)) } },
            }
            (CallPath::of_reply(reply).draw(texts))
            (tree.draw(texts, receipt.call_id, receipt.nested.count()))
            p.quiet { (texts.get("reply-call-id")) " " a href=(calls::path_of(receipt.call_id)) { code { (receipt.call_id) } } }
        }
    }
}

/// A text that opens, cut where it is long.
pub(super) fn shown(texts: &Texts, title: &str, text: &str, open: bool) -> Markup {
    let end = text.char_indices().nth(MAX_SHOWN).map(|(end, _)| end);
    html! {
        @if !text.is_empty() {
            details open[open] {
                summary { (texts.get(title)) }
                pre tabindex="0" { code { (format::text(&text[..end.unwrap_or(text.len())])) } }
                @if end.is_some() { p.quiet { (texts.get("reply-cut")) } }
            }
        }
    }
}

/// JSON in lines.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// The pictures of a result.
fn pictures(content: &[Value]) -> Vec<String> {
    let pictures = content.iter().filter(|block| block["type"] == "image");
    pictures.filter_map(|block| picture(block["mimeType"].as_str()?, block["data"].as_str()?)).collect()
}

/// A picture as an address with its data, checked to be base64 of a kind that runs nothing.
pub(super) fn picture(media_type: &str, base64: &str) -> Option<String> {
    let is_picture = PICTURES.contains(&media_type) && STANDARD.decode(base64).is_ok();
    is_picture.then(|| format!("data:{media_type};base64,{base64}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_is_one_call_for_each_set_of_arguments() {
        let form = |once: &str| vec![("mode".to_owned(), "run".to_owned()), (ONCE.to_owned(), once.to_owned())];
        let of = |n: u32| Arguments::from_iter([("n".to_owned(), json!(n))]);
        let own = "0".repeat(32);
        assert_eq!(once_key(&form(&own), &of(1)), once_key(&form(&own), &of(1)));
        assert_ne!(once_key(&form(&own), &of(1)), once_key(&form(&own), &of(2)));
        assert_ne!(once_key(&form(&own), &of(1)), once_key(&form(&"1".repeat(32)), &of(1)));
        for other in [&form("")[..], &form("a key"), &form(&"é".repeat(16)), &[]] {
            assert_eq!(once_key(other, &of(1)), None, "{other:?}");
        }
    }

    #[test]
    fn only_pictures_that_run_nothing_are_shown() {
        let image = |media_type: &str, data: &str| json!({"type": "image", "mimeType": media_type, "data": data});
        let content = [
            image("image/png", "AAAA"),
            image("image/svg+xml", "AAAA"),
            image("text/html", "AAAA"),
            image("image/png", "\"><script>"),
            json!({"type": "text", "mimeType": "image/png", "data": "AAAA"}),
        ];
        assert_eq!(pictures(&content), ["data:image/png;base64,AAAA"]);
    }
}
