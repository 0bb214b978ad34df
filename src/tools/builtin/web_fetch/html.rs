//! An HTML tokenizer: tags and texts in order, in one forward pass. It builds no tree, so that no page can
//! make it recurse or take more than linear time.

use std::borrow::Cow;

use encoding_rs::Encoding;

/// One piece of a document. Comments and declarations are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Character references not yet decoded.
    Text(&'a str),
    /// The content of an element that is not markup: a script, a style, a title, …
    RawText {
        element: &'a str,
        text: &'a str,
    },
    /// `tag` is the whole of it, `<` to `>`; `name` as written.
    Start {
        name: &'a str,
        tag: &'a str,
    },
    End {
        name: &'a str,
        tag: &'a str,
    },
}

pub(super) fn tokens(html: &str) -> Tokens<'_> {
    Tokens { rest: html, raw: None }
}

/// The tokens of a document, in order.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a str,
    /// Inside an element whose content is not markup.
    raw: Option<&'a str>,
}

/// The document's title.
pub(super) fn title(html: &str) -> Option<String> {
    const MAX_CHARACTERS: usize = 300;
    let raw = tokens(html).find_map(|token| match token {
        Token::RawText { element, text } if element.eq_ignore_ascii_case("title") => Some(text),
        _ => None,
    })?;
    // Decoding makes text shorter, and a title is short.
    let raw = &raw[..raw.floor_char_boundary(raw.len().min(MAX_CHARACTERS * 10))];
    let decoded = decode_references(raw);
    let words: Vec<_> = decoded.split_whitespace().collect();
    let title: String = words.join(" ").chars().filter(|c| !c.is_control()).take(MAX_CHARACTERS).collect();
    (!title.is_empty()).then_some(title)
}

/// The text of a document, blocks on separate lines.
pub(super) fn plain_text(html: &str) -> String {
    let mut text = String::with_capacity(html.len() / 2);
    let mut preformatted = 0_usize;
    for token in tokens(html) {
        match token {
            Token::Text(raw) if preformatted > 0 => text.push_str(&decode_references(raw)),
            Token::Text(raw) => push_words(&mut text, &decode_references(raw)),
            Token::RawText { element, text: raw } if element.eq_ignore_ascii_case("textarea") => {
                push_words(&mut text, &decode_references(raw));
            }
            Token::RawText { .. } => {}
            Token::Start { name, .. } | Token::End { name, .. } => {
                if name.eq_ignore_ascii_case("pre") {
                    let opens = matches!(token, Token::Start { .. });
                    preformatted = if opens { preformatted + 1 } else { preformatted.saturating_sub(1) };
                }
                if is_one_of(name, &BLOCKS) && !text.is_empty() && !text.ends_with('\n') {
                    text.truncate(text.trim_end_matches(' ').len());
                    text.push('\n');
                }
            }
        }
    }
    text
}

/// Appends text in which any white space is one space, and none at the start of a line.
fn push_words(text: &mut String, addition: &str) {
    let spaced = |text: &str| text.is_empty() || text.ends_with([' ', '\n']);
    if addition.starts_with(char::is_whitespace) && !spaced(text) {
        text.push(' ');
    }
    for word in addition.split_whitespace() {
        text.push_str(word);
        text.push(' ');
    }
    if !addition.ends_with(char::is_whitespace) && text.ends_with(' ') {
        text.pop();
    }
}

/// Elements that start and end a line.
const BLOCKS: [&str; 36] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "br",
    "caption",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "legend",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "tr",
    "ul",
];

/// Elements whose content is not markup.
const RAW: [&str; 8] = ["script", "style", "title", "textarea", "noscript", "iframe", "xmp", "noframes"];

pub(super) fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// `&eacute;` → `é`.
pub(super) fn decode_references(text: &str) -> Cow<'_, str> {
    if text.contains('&') { html_escape::decode_html_entities(text) } else { text.into() }
}

/// The encoding that a page declares in its first kilobyte: `<meta charset=…>`, or in a `content` attribute.
pub(super) fn charset(body: &[u8]) -> Option<&'static Encoding> {
    let start = String::from_utf8_lossy(&body[..body.len().min(1_024)]);
    let tags = tokens(&start).filter_map(|token| match token {
        Token::Start { name, tag } if name.eq_ignore_ascii_case("meta") => Some(tag.to_ascii_lowercase()),
        _ => None,
    });
    let claimed = tags.into_iter().find_map(|tag| {
        let (_, value) = tag.split_once("charset=")?;
        let label = value.trim_start_matches(['"', '\'']).split(['"', '\'', ' ', ';', '/', '>']).next()?;
        Encoding::for_label(label.as_bytes())
    });
    // A page that could be parsed up to here has an encoding compatible with ASCII.
    claimed.filter(|encoding| encoding.is_ascii_compatible())
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        if let Some(element) = self.raw.take() {
            let text = self.take(end_of_raw(self.rest, element));
            if !text.is_empty() {
                return Some(Token::RawText { element, text });
            }
        }
        while !self.rest.is_empty() {
            match kind_of(self.rest) {
                Opening::Text => {
                    // A `<` that opens no tag is text, and so is the text after it.
                    let next = self.rest.match_indices('<').map(|(at, _)| at).find(|&at| at > 0);
                    let length = next.unwrap_or(self.rest.len());
                    return Some(Token::Text(self.take(length)));
                }
                Opening::Comment => {
                    let length = self.rest[2..].find("-->").map_or(self.rest.len(), |at| at + 5);
                    self.take(length);
                }
                Opening::Declaration => {
                    let length = self.rest.find('>').map_or(self.rest.len(), |at| at + 1);
                    self.take(length);
                }
                Opening::Start => {
                    let tag = self.take(length_of_tag(self.rest));
                    let name = name_in(&tag[1..]);
                    self.raw = is_one_of(name, &RAW).then_some(name);
                    return Some(Token::Start { name, tag });
                }
                Opening::End => {
                    let tag = self.take(length_of_tag(self.rest));
                    return Some(Token::End { name: name_in(&tag[2..]), tag });
                }
            }
        }
        None
    }
}

impl<'a> Tokens<'a> {
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}

enum Opening {
    Text,
    Comment,
    Declaration,
    Start,
    End,
}

fn kind_of(rest: &str) -> Opening {
    match rest.as_bytes() {
        [b'<', b'!', b'-', b'-', ..] => Opening::Comment,
        [b'<', b'!' | b'?', ..] => Opening::Declaration,
        [b'<', b'/', letter, ..] if letter.is_ascii_alphabetic() => Opening::End,
        [b'<', letter, ..] if letter.is_ascii_alphabetic() => Opening::Start,
        _ => Opening::Text,
    }
}

fn name_in(tag: &str) -> &str {
    let end = tag.find(|c: char| c.is_ascii_whitespace() || c == '/' || c == '>').unwrap_or(tag.len());
    &tag[..end]
}

/// Up to the `>` that is not in a quoted value, or to the end.
fn length_of_tag(rest: &str) -> usize {
    let mut quote = None;
    let mut after_equals = false;
    for (at, byte) in rest.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'>') => return at + 1,
            // A quote opens a value only after `=`; elsewhere it is a typing error.
            (None, b'"' | b'\'') if after_equals => quote = Some(byte),
            (None, _) => {}
        }
        after_equals = byte == b'=' || (after_equals && byte.is_ascii_whitespace());
    }
    rest.len()
}

/// The position of `</element`, or the end.
fn end_of_raw(rest: &str, element: &str) -> usize {
    let bytes = rest.as_bytes();
    let closes = |at: usize| {
        let name = bytes.get(at + 2..at + 2 + element.len());
        name.is_some_and(|name| name.eq_ignore_ascii_case(element.as_bytes()))
    };
    rest.match_indices("</").map(|(at, _)| at).find(|&at| closes(at)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;
    use sekisho_core::slack::slack;

    #[test]
    fn tags_texts_and_raw_texts_are_distinguished() {
        use Token::{End, RawText, Start, Text};
        let html =
            "a<!-- <b> --><!--><P class=\"x>y\">1 < 2<br/></p><SCRIPT>if (a<b) '</div>'</script ><!doctype x>&lt;";
        assert_eq!(
            tokens(html).collect::<Vec<_>>(),
            [
                Text("a"),
                Start { name: "P", tag: "<P class=\"x>y\">" },
                Text("1 "),
                Text("< 2"),
                Start { name: "br", tag: "<br/>" },
                End { name: "p", tag: "</p>" },
                Start { name: "SCRIPT", tag: "<SCRIPT>" },
                RawText { element: "SCRIPT", text: "if (a<b) '</div>'" },
                End { name: "script", tag: "</script >" },
                Text("&lt;"),
            ]
        );
    }

    #[test]
    fn the_words_of_a_page_come_out_in_lines() {
        let html = "<title>no</title><h1>One &amp;\n two</h1><p>Caf&eacute;&nbsp;<b>au</b> lait</p><script>x</script>\
                    <ul><li>a<li>b</ul><pre>  if x:\n    y</pre>end";
        assert_eq!(plain_text(html).trim(), "One & two\nCafé au lait\na\nb\n  if x:\n    y\nend");
    }

    #[test]
    fn the_title_is_one_decoded_line() {
        assert_eq!(title("<head><TITLE>\n A &mdash; B\n</TITLE>").as_deref(), Some("A — B"));
        assert_eq!(title("<title></title>"), None);
        assert_eq!(title("<p>none</p>"), None);
        assert_eq!(title(&format!("<title>{}", "é".repeat(9_999))).unwrap().chars().count(), 300);
    }

    #[test]
    fn hostile_pages_take_no_longer_than_others() {
        let size = 200_000;
        for unit in ["<", "<!--", "<a ", "<a b='", "</", "<script>", "<title>", "</script", "<div>", "&", "&#", "&amp"]
        {
            let html = unit.repeat(size / unit.len());
            let start = Instant::now();
            plain_text(&html);
            title(&html);
            assert!(start.elapsed() < slack(Duration::from_secs(5)), "{unit:?} took {:?}", start.elapsed());
        }
    }

    proptest! {
        #[test]
        fn no_page_breaks_it(html in "([<>/!='\"&;a-c é日-]|<!--|-->|<script>|</script|<pre>|<p|title){0,80}") {
            plain_text(&html);
            title(&html);
            let whole: usize = tokens(&html).map(|token| match token {
                Token::Text(text) | Token::RawText { text, .. } => text.len(),
                Token::Start { tag, .. } | Token::End { tag, .. } => tag.len(),
            }).sum();
            prop_assert!(whole <= html.len());
        }
    }
}
