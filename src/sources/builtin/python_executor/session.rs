//! What the tool says of sessions: in its schemas, and in the answers of calls that name one.

use serde_json::{Map, Value, json};

use crate::core::call::InterpreterSession;

/// Where interpreters are kept between calls.
pub(super) const DESCRIPTION: &str = " But calls with the same `session` share one interpreter: variables, imports, functions \
                                      and files of earlier calls are there.";

/// Names are parts of paths in the API.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$";

/// The schema of the argument.
pub(super) fn parameter() -> Value {
    json!({
        "type": "string",
        "pattern": NAME,
        "description": "A name of your choice: calls with the same one share an interpreter, one at a time. It ends when it is \
                        not used, and with a program that exceeds a limit; `session` of the output says when it began anew."
    })
}

/// The schema of the output's part.
pub(super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "description": "The session of the call, if it named one.",
        "properties": {
            "name": {"type": "string"},
            "generation": {"type": "integer", "description": "Grows when the session begins anew."},
            "is_new": {"type": "boolean", "description": "Whether this call began with a fresh interpreter."},
            "note": {"type": "string", "description": "Why an interpreter of the session has ended."}
        },
        "required": ["name", "generation", "is_new"]
    })
}

/// The output's part.
pub(super) fn output(session: &InterpreterSession) -> Value {
    let mut output = Map::from_iter([
        ("name".to_owned(), Value::from(&*session.name)),
        ("generation".to_owned(), session.generation.into()),
        ("is_new".to_owned(), session.is_new.into()),
    ]);
    output.extend(notice(session).map(|note| ("note".to_owned(), note.into())));
    output.into()
}

/// For the caller: what it may expect and is gone.
pub(super) fn notice(session: &InterpreterSession) -> Option<String> {
    let name = &session.name;
    match (session.end, session.previous_end) {
        (Some(end), _) => Some(format!(
            "the session `{name}` has ended, because {}: its variables and files are gone, and the next call begins anew",
            end.reason()
        )),
        (None, Some(previous)) => Some(format!(
            "the session `{name}` began anew with this call, since the one before has ended, because {}: variables and files of \
             earlier calls are gone",
            previous.reason()
        )),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::call::SessionEnd;

    #[test]
    fn a_session_that_ended_or_began_anew_says_why() {
        let session = InterpreterSession {
            name: "monday".into(),
            generation: 2,
            is_new: true,
            previous_end: Some(SessionEnd::Idle),
            end: None,
        };
        let told = output(&session);
        assert!(jsonschema::is_valid(&output_schema(), &told));
        assert!(told["note"].as_str().unwrap().contains("began anew with this call"), "{told}");
        let ended = InterpreterSession { end: Some(SessionEnd::Timeout), ..session.clone() };
        assert!(notice(&ended).unwrap().contains("has ended, because a program in it ran too long"));
        let goes_on = InterpreterSession { is_new: false, previous_end: None, ..session };
        assert_eq!(output(&goes_on), json!({"name": "monday", "generation": 2, "is_new": false}));
    }
}
