//! HTML to Markdown with fast_html2md. Parts that it would lose, or take too long on, are prepared first: preformatted
//! blocks are taken out, character references decoded, giant tags stripped, and a page that is nested too deeply is not
//! converted.

use std::collections::HashSet;
use std::fmt::Write;

use futures_util::{FutureExt, stream};
use url::Url;

use super::html::{Token, decode_references, is_one_of, tokens};
use super::page::Stop;

/// The page as Markdown; `None` when it is too deeply nested, takes too long, or is too ambiguous to convert.
pub(super) fn convert(html: &str, base: &Url, max_depth: usize, stop: &Stop) -> Option<String> {
    let prepared = Prepared::new(html, max_depth)?;
    let chunks = prepared.html.as_bytes().chunks(CHUNK_BYTES);
    let until_stopped = chunks.map(|chunk| if stop.requested() { Err(Stopped) } else { Ok(chunk) });
    let ignored = Some(NOT_CONTENT.map(str::to_owned).into_iter().collect::<HashSet<_>>());
    let source = stream::iter(until_stopped);
    // It never waits, so the first poll completes it.
    let markdown = html2md::rewrite_html_stream_custom_with_url(source, &ignored, false, &Some(base.clone()))
        .now_or_never()?
        .ok()?;
    let markdown = prepared.with_blocks(&markdown);
    (!markdown.trim().is_empty()).then_some(markdown)
}

/// Bytes converted between two checks of the clock.
const CHUNK_BYTES: usize = 8_192;

/// Elements removed with their content, in addition to scripts, styles, `nav` and `footer`.
const NOT_CONTENT: [&str; 3] = ["title", "iframe", "textarea"];

/// The time of the conversion is up.
#[derive(Debug)]
struct Stopped;

/// Each line in a quotation repeats the marks of all those around it: a page could grow without end.
const MAX_QUOTATIONS: usize = 8;
const QUOTATIONS: [&str; 3] = ["blockquote", "q", "cite"];

/// Removed first: a drawing has more tags than the page around it.
const LEFT_OUT: [&str; 2] = ["svg", "template"];

/// Elements whose end tag may be left out before the next of their kind.
const IMPLIED_END: [&str; 8] = ["p", "li", "tr", "td", "th", "dt", "dd", "option"];

/// Elements that have no end tag.
const VOID: [&str; 14] =
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"];

/// A longer tag is kept without its attributes: an image inside a `data:` address, or hostile input.
const MAX_TAG_BYTES: usize = 8_192;

/// A block's placeholder: a number between two private-use characters.
const BLOCK_START: char = '\u{e000}';
const BLOCK_END: char = '\u{e001}';

/// A page prepared for conversion.
#[derive(Debug, Default)]
struct Prepared<'a> {
    html: String,
    /// The elements open right now, as the converter will see them.
    open: Vec<&'a str>,
    kept: KeptOut<'a>,
    /// The preformatted blocks taken out, by number; each has one placeholder in the page.
    blocks: Vec<Option<String>>,
}

/// Content that is not passed to the converter.
#[derive(Debug, Default)]
enum KeptOut<'a> {
    #[default]
    Nothing,
    /// A preformatted block.
    Block(String),
    /// Everything up to the end of this element.
    LeftOut(&'a str),
}

impl<'a> Prepared<'a> {
    /// `None` when elements are nested more than `max_depth` deep.
    fn new(html: &'a str, max_depth: usize) -> Option<Self> {
        let mut prepared = Self { html: String::with_capacity(html.len()), ..Self::default() };
        for token in tokens(html) {
            prepared.kept = match std::mem::take(&mut prepared.kept) {
                KeptOut::Nothing => prepared.content(token, max_depth)?,
                KeptOut::Block(block) => prepared.block(block, token),
                KeptOut::LeftOut(name) => match token {
                    Token::End { name: end, .. } if end.eq_ignore_ascii_case(name) => KeptOut::Nothing,
                    _ => KeptOut::LeftOut(name),
                },
            };
        }
        if let KeptOut::Block(block) = std::mem::take(&mut prepared.kept) {
            prepared.take_out(block);
        }
        Some(prepared)
    }

    fn content(&mut self, token: Token<'a>, max_depth: usize) -> Option<KeptOut<'a>> {
        match token {
            // The content of scripts and the like is not visible, and could confuse the converter.
            Token::RawText { .. } => {}
            Token::Text(text) => self.push_text(text),
            Token::Start { name, .. } if name.eq_ignore_ascii_case("pre") => {
                return Some(KeptOut::Block(String::new()));
            }
            Token::Start { name, .. } if is_one_of(name, &LEFT_OUT) => return Some(KeptOut::LeftOut(name)),
            Token::Start { name, tag } => {
                self.start(name, tag);
                let quotations = self.open.iter().filter(|name| is_one_of(name, &QUOTATIONS)).take(MAX_QUOTATIONS + 1);
                if self.open.len() > max_depth || (is_one_of(name, &QUOTATIONS) && quotations.count() > MAX_QUOTATIONS)
                {
                    return None;
                }
            }
            Token::End { name, tag } => {
                if let Some(at) = self.open.iter().rposition(|open| open.eq_ignore_ascii_case(name)) {
                    // Their end tags were left out.
                    for inner in self.open.drain(at..).skip(1).rev() {
                        let _ = write!(self.html, "</{inner}>");
                    }
                }
                self.html.push_str(tag);
            }
        }
        Some(KeptOut::Nothing)
    }

    fn start(&mut self, name: &'a str, tag: &str) {
        let again = self.open.last().is_some_and(|open| open.eq_ignore_ascii_case(name));
        if again && is_one_of(name, &IMPLIED_END) {
            self.open.pop();
            let _ = write!(self.html, "</{name}>");
        }
        if !is_one_of(name, &VOID) {
            self.open.push(name);
        }
        if tag.len() <= MAX_TAG_BYTES {
            self.html.push_str(tag);
        } else if name.len() <= MAX_TAG_BYTES {
            let _ = write!(self.html, "<{name}>");
        }
    }

    fn block(&mut self, mut block: String, token: Token<'a>) -> KeptOut<'a> {
        match token {
            Token::End { name, .. } if name.eq_ignore_ascii_case("pre") => {
                self.take_out(block);
                return KeptOut::Nothing;
            }
            Token::Start { name, .. } if name.eq_ignore_ascii_case("br") => block.push('\n'),
            Token::Text(text) => block.push_str(&decode_references(text)),
            _ => {}
        }
        KeptOut::Block(block)
    }

    fn take_out(&mut self, block: String) {
        let _ = write!(self.html, "<div>{BLOCK_START}{}{BLOCK_END}</div>", self.blocks.len());
        self.blocks.push(Some(block));
    }

    /// Decodes references that the converter does not decode; references that would become markup stay as they are.
    fn push_text(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find('&') {
            self.html.push_str(&rest[..at]);
            let (reference, after) = split_reference(&rest[at..]);
            match &*decode_references(reference) {
                "\u{a0}" => self.html.push(' '),
                decoded if decoded.is_ascii() => self.html.push_str(reference),
                decoded => self.html.push_str(decoded),
            }
            rest = after;
        }
        self.html.push_str(rest);
    }

    /// Replaces the placeholders with the blocks, fenced.
    fn with_blocks(mut self, markdown: &str) -> String {
        let mut pieces = markdown.split(BLOCK_START);
        let mut whole = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            match self.block_for(piece) {
                Some((block, after)) => {
                    let fence = fence_for(&block);
                    let _ = write!(whole, "\n{fence}\n{}\n{fence}\n{after}", block.trim_matches(['\n', '\r']));
                }
                // An icon font's character.
                None => whole.push_str(piece),
            }
        }
        whole
    }

    fn block_for<'t>(&mut self, piece: &'t str) -> Option<(String, &'t str)> {
        let (number, after) = piece.split_once(BLOCK_END)?;
        let block = self.blocks.get_mut(number.parse::<usize>().ok()?)?.take()?;
        Some((block, after))
    }
}

/// `&name;` or `&#123;` at the start, or only the `&`; and the rest.
fn split_reference(text: &str) -> (&str, &str) {
    let name = text[1..].bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'#').count();
    let whole = text[1 + name..].starts_with(';');
    text.split_at(if whole { name + 2 } else { 1 })
}

/// Longer than any row of backticks in the block.
fn fence_for(block: &str) -> String {
    let longest = block.split(|character| character != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(longest.max(2) + 1)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use sekisho_core::slack::slack;

    fn markdown(html: &str) -> Option<String> {
        let base = Url::parse("https://example.com/docs/page").unwrap();
        convert(html, &base, 256, &Stop::after(Duration::from_secs(60)))
    }

    #[test]
    fn a_page_becomes_markdown() {
        let html = r#"<!DOCTYPE html><html><head><title>T</title><style>p {}</style></head><body>
            <nav><a href="/">Home</a></nav><h1>Hello &amp; welcome</h1>
            <p>Caf&eacute;&nbsp;au <b>lait</b> &copy;, <i>1 &lt; 2</i>. <a href="/about">About</a></p>
            <ul><li>one<li>two</ul><ol><li>first</li><li>second</li></ol>
            <table><tr><th>A<th>B</tr><tr><td>1<td>2</tr></table>
            <svg><path d="M0"/><path d="M1"/></svg><script>alert("x")</script>
            <pre><code>if a_b:<br>    print("*")</code></pre><p>日本語</p><footer>F</footer></body></html>"#;
        insta::assert_snapshot!(markdown(html).unwrap(), @r#"
        # Hello & welcome
        Café au **lait** ©, *1 \< 2*. [About](https://example.com/about)
        * one
        * two
        1. first
        2. second
        |A|B|
        |1|2|

        ```
        if a_b:
            print("*")
        ```

        日本語
        "#);
    }

    #[test]
    fn a_page_nested_too_deeply_is_left_alone() {
        let nested = |depth: usize, unit: &str, end: &str| format!("{}x{}", unit.repeat(depth), end.repeat(depth));
        assert!(markdown(&nested(256, "<div>", "</div>")).is_some());
        for (unit, end) in [("<div>", "</div>"), ("<div>", ""), ("<b/>", ""), ("<p><a>", ""), ("<x y='/'>", "</x>")] {
            assert_eq!(markdown(&nested(257, unit, end)), None, "{unit}");
        }
        assert!(markdown(&nested(8, "<blockquote>", "</blockquote>")).is_some());
        assert_eq!(markdown(&nested(9, "<blockquote/>", "")), None, "each line would repeat every mark");
        let list = format!("<ul>{}</ul><p>{}", "<li>item".repeat(5_000), "text<p>".repeat(5_000));
        assert!(markdown(&list).is_some(), "end tags may be left out");
    }

    #[test]
    fn a_block_is_restored_once_and_complete() {
        let html = "<p>a</p><pre>\n  x ``` y\n\n\tz &lt;b&gt;</pre><p>b \u{e000}0\u{e001} \u{e000} c</p><pre>unclosed";
        let page = markdown(html).unwrap();
        assert_eq!(page.matches("````\n  x ``` y\n\n\tz <b>\n````").count(), 1, "{page}");
        assert!(page.contains("```\nunclosed\n```"), "{page}");
        let giant = format!("<pre>{}</pre>{}", "x".repeat(10_000), "<a href='%EE%80%800%EE%80%81'>y</a>".repeat(1_000));
        assert!(markdown(&giant).unwrap().len() < 100_000, "a block cannot be multiplied");
    }

    #[test]
    fn a_giant_tag_keeps_nothing_but_its_name() {
        let html = format!("<p>before<img alt=pic src='data:image/png;base64,{}'>after</p>", "A".repeat(100_000));
        assert!(markdown(&html).unwrap().len() < 100);
    }

    #[test]
    fn a_conversion_stops_on_signal() {
        let html = "<p>some text</p>".repeat(10_000);
        let base = Url::parse("https://example.com/").unwrap();
        assert_eq!(convert(&html, &base, 256, &Stop::after(Duration::ZERO)), None);
    }

    #[test]
    fn hostile_pages_stay_small_and_quick() {
        let size = 200_000;
        for unit in [
            "<blockquote>a</blockquote>",
            "<q>",
            "<p",
            "<a href=/x>",
            "a|\n",
            "<td>a",
            "<b>*</b>",
            "&",
            "&lt;",
            "<!--",
            "<select><xmp>",
            "<li>a",
            "<pre>",
            "<table><tr><td></table>",
            "<svg/>",
            "<p>a<div>b</p></div>",
            "\u{e000}1\u{e001}",
        ] {
            let html = unit.repeat(size / unit.len());
            let start = Instant::now();
            let length = markdown(&html).map_or(0, |markdown| markdown.len());
            assert!(length < 10 * size, "{unit:?} grew to {length}");
            assert!(start.elapsed() < slack(Duration::from_secs(10)), "{unit:?} took {:?}", start.elapsed());
        }
    }
}
