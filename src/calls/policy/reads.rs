//! Finds the parts of the input that the rules read, from their tokens. An unrecognized form counts as
//! reading everything.

use regorus::Source;
use regorus::unstable::{Lexer, Token, TokenKind};

use super::load::PolicyError;
use sekisho_core::call::CallKind;

/// The variable parts of the input that some rule may read. Other parts are not converted. If no part is
/// read that changes between calls, a decision is cached for later calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reads {
    /// Always null for tools.
    pub(super) target: bool,
    pub(super) arguments: bool,
    /// The form in which the call is sent.
    pub(super) sent: bool,
    pub(super) session: bool,
    /// `argument_labels` or `flow`.
    pub(super) flow: bool,
    pub(super) call: bool,
    /// A builtin whose result changes: the clock, random numbers, the network.
    pub(super) changing_builtin: bool,
}

/// Packages of builtins whose results change, and one such function.
const CHANGING_BUILTINS: [&str; 6] = ["time", "rand", "uuid", "http", "opa", "lookup_ip_addr"];

impl Reads {
    pub(super) const ALL: Self = Self {
        target: true,
        arguments: true,
        sent: true,
        session: true,
        flow: true,
        call: true,
        changing_builtin: true,
    };

    pub(super) fn of(tokens: &[Token]) -> Self {
        let mut reads = Self::default();
        for (at, token) in tokens.iter().enumerate() {
            match word(token) {
                Some("input") => reads.add_field(path_after(tokens, at).first().map(String::as_str)),
                Some(name) if CHANGING_BUILTINS.contains(&name) => reads.changing_builtin = true,
                _ => {}
            }
        }
        reads
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self {
            target: self.target || other.target,
            arguments: self.arguments || other.arguments,
            sent: self.sent || other.sent,
            session: self.session || other.session,
            flow: self.flow || other.flow,
            call: self.call || other.call,
            changing_builtin: self.changing_builtin || other.changing_builtin,
        }
    }

    /// Whether no rule reads anything that can differ between two calls of one tool by one caller.
    pub(super) fn only_tool_and_user(self) -> bool {
        self == Self::default()
    }

    /// Whether no rule reads anything that can differ between two calls of this kind by one caller.
    pub(super) fn same_for_all_calls_of(self, kind: CallKind) -> bool {
        let target = self.target && kind != CallKind::Tool;
        Self { target, ..self }.only_tool_and_user()
    }

    fn add_field(&mut self, field: Option<&str>) {
        match field {
            Some("tool" | "kind" | "metadata" | "user") => {}
            Some("target") => self.target = true,
            Some("arguments") => self.arguments = true,
            Some("sent") => self.sent = true,
            Some("session") => self.session = true,
            Some("argument_labels" | "flow") => self.flow = true,
            Some("call") => self.call = true,
            // `input` as a whole, `input[name]`, or an unknown field.
            _ => *self = self.or(Self { changing_builtin: false, ..Self::ALL }),
        }
    }
}

/// A reference of a rule to the input or the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    /// `["tools", "deny"]` for `data.tools.deny`; as far as it is spelled out.
    pub(super) path: Vec<String>,
    pub(super) line: u32,
}

/// Every `data.…` or `input.…` in a file, without that first word.
pub(super) fn references(tokens: &[Token], root: &str) -> Vec<Reference> {
    tokens
        .iter()
        .enumerate()
        .filter(|(at, token)| word(token) == Some(root) && !is_field(tokens, *at))
        .map(|(at, token)| Reference { path: path_after(tokens, at), line: token.1.line })
        .collect()
}

/// Each reference to a field of `root`: its first token, the field's path, and the tokens after it.
pub(super) fn places_of<'t>(
    tokens: &'t [Token],
    root: &str,
) -> impl Iterator<Item = (usize, Vec<String>, &'t [Token])> {
    tokens.iter().enumerate().filter(move |(at, token)| word(token) == Some(root) && !is_field(tokens, *at)).map(
        |(at, _)| {
            let (path, after) = split_path(tokens.get(at + 1..).unwrap_or_default());
            (at, path, after)
        },
    )
}

/// Every `name(` and `package.name(` in a file: the first token, and the names.
pub(super) fn calls(tokens: &[Token]) -> impl Iterator<Item = (&Token, Vec<String>)> {
    tokens.iter().enumerate().filter_map(|(at, token)| {
        let first = word(token).filter(|first| !is_field(tokens, at) && !KEYWORDS.contains(first))?;
        let (path, rest) = split_path(tokens.get(at + 1..)?);
        let is_call = rest.first().is_some_and(|next| next.1.text() == "(");
        is_call.then(|| (token, [vec![first.to_owned()], path].concat()))
    })
}

/// Words that are followed by a parenthesis without being a call. (`contains` is also a function.)
const KEYWORDS: [&str; 9] = ["as", "default", "else", "every", "if", "in", "not", "some", "with"];

/// Errors: the error of regorus for a text that is not Rego.
pub(super) fn tokens(source: &Source) -> Result<Vec<Token>, PolicyError> {
    let mut lexer = Lexer::new(source);
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next_token().map_err(|error| PolicyError::from_regorus(source.get_path(), &error))?;
        if token.0 == TokenKind::Eof {
            return Ok(tokens);
        }
        tokens.push(token);
    }
}

/// Whether a word occurs outside of strings and comments.
pub(super) fn has_word(tokens: &[Token], wanted: &str) -> bool {
    tokens.iter().any(|token| word(token) == Some(wanted))
}

fn word(token: &Token) -> Option<&str> {
    (token.0 == TokenKind::Ident).then(|| token.1.text())
}

fn is_field(tokens: &[Token], at: usize) -> bool {
    at.checked_sub(1).and_then(|before| tokens.get(before)).is_some_and(is_dot)
}

fn is_dot(token: &Token) -> bool {
    token.1.text() == "."
}

/// The names that follow the token at `at`, as in `.a["b"].c`.
fn path_after(tokens: &[Token], at: usize) -> Vec<String> {
    split_path(tokens.get(at + 1..).unwrap_or_default()).0
}

/// The names that `tokens` begin with, as in `.a["b"].c`, and the tokens after them.
fn split_path(mut tokens: &[Token]) -> (Vec<String>, &[Token]) {
    let mut path = Vec::new();
    loop {
        match tokens {
            [dot, name, after @ ..] if is_dot(dot) && name.0 == TokenKind::Ident => {
                path.push(name.1.text().to_owned());
                tokens = after;
            }
            [open, name, close, after @ ..]
                if open.1.text() == "[" && name.0 == TokenKind::String && close.1.text() == "]" =>
            {
                path.push(name.1.text().to_owned());
                tokens = after;
            }
            _ => return (path, tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(rego: &str) -> Reads {
        let source = Source::from_contents("case.rego".into(), rego.into()).unwrap();
        Reads::of(&tokens(&source).unwrap())
    }

    #[test]
    fn rules_about_tool_metadata_and_user_alone_can_be_cached() {
        for rego in [
            "input.tool == \"x\"",
            "input.kind == \"resource\"",
            "input.metadata.labels[_] == \"pii\"; not is_admin(input.user)",
            "import input.user as caller",
            "input[\"tool\"] == \"x\"",
            "# input.arguments in a comment\ninput.tool",
            "msg := \"input.arguments in a string\"",
            "msg := `time.now_ns() in a raw string`",
            "input.user.roles[_] == data.tools.wanted",
        ] {
            assert!(reads(rego).only_tool_and_user(), "{rego}");
        }
    }

    #[test]
    fn input_that_changes_between_calls_disables_the_cache() {
        for rego in [
            "input.target",
            "input[\"target\"]",
            "input.arguments.path",
            "input . arguments",
            "input[\"arguments\"]",
            "input.sent.arguments.account_id == 1",
            "startswith(input.sent.address, \"https://a.example\")",
            "input[\"sent\"]",
            "input.session.cost_usd > 1",
            "input.flow.untrusted",
            "input.argument_labels[_].state == \"unknown\"",
            "input.call.depth > 0",
            "import input.call",
            "walk(input, [path, value])",
            "x := input",
            "some field; input[field] == 1",
            "input[\"argu\\u006dents\"]",
            "import input as everything",
            "f(input)",
            "allow with input as {}",
            "count(input) > 3",
            "input[`arguments`]",
            "input.unheard_of",
            "time.now_ns() > 5",
            "time[\"now_ns\"]()",
            "rand.intn(\"x\", 2) == 0",
            "uuid.rfc4122(\"x\")",
            "opa.runtime().env",
            "http.send({})",
            "net.lookup_ip_addr(\"example.com\")",
        ] {
            assert!(!reads(rego).only_tool_and_user(), "{rego}");
        }
    }

    #[test]
    fn a_target_is_the_same_for_all_calls_of_a_tool_alone() {
        let target = reads("input.kind == \"resource\"; startswith(input.target, \"m+\")");
        assert_eq!(target, Reads { target: true, ..Reads::default() });
        for (kind, expected) in [
            (CallKind::Tool, true),
            (CallKind::Resource, false),
            (CallKind::Prompt, false),
            (CallKind::Completion, false),
        ] {
            assert_eq!(target.same_for_all_calls_of(kind), expected, "{kind:?}");
            assert!(reads("input.kind").same_for_all_calls_of(kind), "{kind:?}");
            assert!(!reads("input.target == input.arguments.uri").same_for_all_calls_of(kind), "{kind:?}");
        }
    }

    #[test]
    fn only_the_parts_that_are_read_are_converted() {
        let session = reads("input.session.calls > 3; input.tool");
        assert_eq!(session, Reads { session: true, ..Reads::default() });
        let sent = reads("input.sent.method == \"DELETE\"");
        assert_eq!(sent, Reads { sent: true, ..Reads::default() });
        let everything = reads("walk(input)");
        assert_eq!(everything, Reads { changing_builtin: false, ..Reads::ALL });
    }
}
