//! Everything beyond plain arithmetic, by fend, with limits that fend itself does not have.
//!
//! Its parser takes twice as long for each nested group after a sign, and its language has lambdas, which
//! may never end, and shifts, which cannot be interrupted. So only the characters of a calculation are allowed,
//! and groups are computed one by one, from the innermost out: fend never gets a nested group.

use fend_core::{Context, Interrupt};

use crate::builtin::side_thread::Stop;
use sekisho_core::error::CallError;

/// Deepest nesting of groups.
const MAX_NESTING: usize = 64;

/// An expression that is a calculation and nothing else.
#[derive(Debug)]
pub(super) struct Expression(String);

impl Expression {
    /// Errors: `tool_error` for characters that belong to fend's language rather than to a calculation, and for
    /// parentheses that are nested too deep or do not match.
    pub(super) fn check(text: &str) -> Result<Self, CallError> {
        let text = text.replace("->", " to ");
        if let Some(character) = text.chars().find(|character| !belongs_to_a_calculation(*character)) {
            return Err(CallError::tool(format!(
                "{character:?} does not belong to a calculation; use numbers, units, functions, parentheses \
                 and + - * / ^ ! %, without variables or text"
            )));
        }
        check_parentheses(&text)?;
        Ok(Self(text))
    }

    /// Errors: `tool_error` with fend's explanation, or that it takes too long.
    pub(super) fn evaluate(self, stop: &Stop) -> Result<String, CallError> {
        let mut context = Context::new();
        context.set_echo_result(false);
        let mut text = self.0;
        let mut groups = 0;
        while let Some((open, close)) = innermost_group(&text) {
            let group = text.get(open + 1..close).unwrap_or_default();
            if group.trim().is_empty() {
                return Err(CallError::tool("there are parentheses with nothing between them"));
            }
            let name = format!("group_{groups}");
            evaluate_flat(&format!("{name} = {group}"), &mut context, stop)?;
            // Square brackets mark a computed group. An expression cannot contain any itself.
            text.replace_range(open..=close, &format!("[{name}]"));
            groups += 1;
        }
        context.set_echo_result(true);
        evaluate_flat(&text, &mut context, stop)
    }
}

impl Interrupt for Stop {
    fn should_interrupt(&self) -> bool {
        self.requested()
    }
}

fn belongs_to_a_calculation(character: char) -> bool {
    // `λ` is how fend spells a lambda.
    character != 'λ' && (character.is_alphanumeric() || " \t\r\n+-*/^!%()|&.,_°×÷−·$€£¥".contains(character))
}

fn check_parentheses(text: &str) -> Result<(), CallError> {
    let mut open = 0_usize;
    for character in text.chars() {
        match character {
            '(' => open += 1,
            ')' if open == 0 => return Err(CallError::tool("there is a closing parenthesis without an opening one")),
            ')' => open -= 1,
            _ => {}
        }
        if open > MAX_NESTING {
            return Err(CallError::tool(format!("parentheses are nested deeper than {MAX_NESTING}")));
        }
    }
    if open > 0 {
        return Err(CallError::tool(format!("{open} parentheses are not closed")));
    }
    Ok(())
}

fn innermost_group(text: &str) -> Option<(usize, usize)> {
    let close = text.find(')')?;
    let open = text.get(..close)?.rfind('(')?;
    Some((open, close))
}

fn evaluate_flat(text: &str, context: &mut Context, stop: &Stop) -> Result<String, CallError> {
    let text = text.replace('[', "(").replace(']', ")");
    match fend_core::evaluate_with_interrupt(&text, context, stop) {
        Ok(result) => Ok(result.get_main_result().to_owned()),
        Err(_) if stop.requested() => {
            Err(CallError::tool("this takes too long to compute (the limit is 50 ms); use smaller numbers"))
        }
        Err(message) => Err(CallError::tool(shortened(&message))),
    }
}

/// fend quotes whole numbers in its messages, however long.
fn shortened(message: &str) -> String {
    const MAX_CHARACTERS: usize = 200;
    let mut short: String = message.chars().take(MAX_CHARACTERS).collect();
    if short.len() < message.len() {
        short.push('…');
    }
    short
}
