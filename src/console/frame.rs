//! The frame of every page: head, navigation, title.

use maud::{DOCTYPE, Markup, html};

use super::assets::{ICON, LIVE, PAGE, STYLE};
pub(super) use super::navigation::Section;
use super::text::Language;
use super::visit::{Guest, TOKEN_FIELD, Visit};
use super::{format, navigation, search};

/// The head of a page's content.
#[derive(Debug, Default)]
pub(super) struct Head<'a> {
    pub title: &'a str,
    /// One sentence on the state of things.
    pub state: Option<Markup>,
    /// The one main action.
    pub action: Option<Markup>,
}

impl<'a> Head<'a> {
    pub(super) fn new(title: &'a str) -> Self {
        Self { title, ..Self::default() }
    }
}

/// A whole page.
pub(super) fn page(visit: &Visit, section: Option<Section>, head: &Head<'_>, body: &Markup) -> Markup {
    let texts = visit.texts();
    document(
        &visit.guest,
        head.title,
        &html! {
            a.skip href="#main" { (texts.get("frame-skip")) }
            div.frame {
                header.side {
                    a.brand href="/console" { (mark()) "sekisho" }
                    (palette(visit))
                    (navigation::draw(visit, section))
                    (account(visit))
                    (languages(&visit.guest))
                }
                main #main tabindex="-1" {
                    div.head {
                        div {
                            h1 { (format::text(head.title)) }
                            @if let Some(state) = &head.state { p.state { (state) } }
                        }
                        @if let Some(action) = &head.action { div.action { (action) } }
                    }
                    saved-views data-title=(texts.get("views-title")) data-name=(texts.get("views-name"))
                        data-save=(texts.get("views-save")) data-remove=(texts.get("views-remove")) {}
                    (body)
                }
            }
        },
    )
}

/// The search over the console. With the script it is a palette, which shows results while one types.
fn palette(visit: &Visit) -> Markup {
    let texts = visit.texts();
    html! {
        form.palette method="get" action=(search::PATH) role="search" aria-label=(texts.get("search-title")) data-palette {
            input type="search" name="q" aria-label=(texts.get("search-title")) placeholder=(texts.get("search-hint"))
                autocomplete="off" spellcheck="false";
            button.unseen name="open" value="1" tabindex="-1" aria-hidden="true" {}
            div #palette aria-live="polite" {}
        }
    }
}

/// A page without navigation, for who is not signed in.
pub(super) fn narrow(guest: &Guest, title: &str, body: &Markup) -> Markup {
    document(
        guest,
        title,
        &html! {
            main.narrow #main {
                p.brand { (mark()) "sekisho" }
                (body)
                (languages(guest))
            }
        },
    )
}

fn document(guest: &Guest, title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang=(guest.texts.language.tag()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (format::text(title)) " · sekisho" }
                link rel="icon" href=(ICON.path()) type="image/svg+xml";
                link rel="stylesheet" href=(STYLE.path());
                script type="module" src=(PAGE.path()) {}
                script type="module" src=(LIVE.path()) {}
            }
            body { (body) }
        }
    }
}

/// The signed-in caller, and the way out.
fn account(visit: &Visit) -> Markup {
    let texts = visit.texts();
    html! {
        div.account {
            @match visit.form_token() {
                Some(token) => {
                    p.who title=(format::text(&visit.caller.id)) { strong { (format::text(&visit.caller.id)) } span { (format::text(&visit.caller.tenant)) " · "
                        (visit.roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")) } }
                    form method="post" action="/console/sign-out" {
                        input type="hidden" name=(TOKEN_FIELD) value=(token);
                        button.plain { (texts.get("frame-sign-out")) }
                    }
                }
                None => {
                    p.who { strong { (texts.get("frame-anonymous")) } span { (texts.get("frame-reads-own")) } }
                    a href="/console/sign-in" { (texts.get("frame-sign-in")) }
                }
            }
        }
    }
}

/// The same page in the other languages.
fn languages(guest: &Guest) -> Markup {
    html! {
        p.languages {
            @for language in Language::ALL.into_iter().filter(|language| *language != guest.texts.language) {
                a href=(guest.address_in(language)) lang=(language.tag()) hreflang=(language.tag()) { (language.name()) }
            }
        }
    }
}

/// The gate: two posts and two beams.
fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 20 20" width="20" height="20" aria-hidden="true" focusable="false" {
            path d="M1 4.5c6 1.6 12 1.6 18 0M3 8.5h14M5.5 5.6V18M14.5 5.6V18" {}
        }
    }
}
