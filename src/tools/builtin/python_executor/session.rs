//! The texts of the tool about sessions: in its schemas, and in the answers of calls that name one.

use serde_json::{Map, Value, json};

use sekisho_core::call::{InterpreterSession, NotStored};

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
        "description": "A name of your choice: calls with the same one share an interpreter, one at a time. It ends \
                        after an hour. A program that exceeds a limit changes nothing in it, or ends it where it is \
                        large; `session` of the output says so."
    })
}

/// The schema of the argument that asks for checkpoints.
pub(super) fn checkpoint_parameter() -> Value {
    json!({
        "type": "string",
        "enum": ["every_call"],
        "description": "With `session`: it is stored after this call and each later one, before the answer, and \
                        survives crashes; however large it is, a program that runs too long changes nothing in it."
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
            "is_resumed": {"type": "boolean", "description": "Whether it went on from what was stored."},
            "is_checkpointed": {"type": "boolean", "description": "With checkpoints: whether this call is stored."},
            "note": {
                "type": "string",
                "description": "Why an interpreter of the session has ended, or this call is not stored."
            }
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
    output.extend(session.is_resumed.then(|| ("is_resumed".to_owned(), true.into())));
    output.extend(session.is_checkpointed.map(|stored| ("is_checkpointed".to_owned(), stored.into())));
    output.extend(notice(session).map(|note| ("note".to_owned(), note.into())));
    output.into()
}

/// For the caller: the variables and files that it may expect and that are gone.
pub(super) fn notice(session: &InterpreterSession) -> Option<String> {
    let name = &session.name;
    match (session.end, session.previous_end, session.not_stored) {
        (Some(end), ..) => {
            let advice =
                if end.leaves_checkpoint() { "; with `checkpoint` it goes on from the call before" } else { "" };
            Some(format!(
                "the session `{name}` has ended, because {}: its variables and files are gone, and the next call begins anew{advice}",
                end.reason()
            ))
        }
        (None, Some(previous), not_stored) => Some(format!(
            "the session `{name}` began anew with this call, since the one before has ended, because {}{}: variables \
             and files of earlier calls are gone",
            previous.reason(),
            not_stored.map(|why| format!(" and could not be stored, because {}", why.reason())).unwrap_or_default(),
        )),
        (None, None, Some(why)) => Some(not_checkpointed(name, why)),
        (None, None, None) => None,
    }
}

fn not_checkpointed(name: &str, why: NotStored) -> String {
    if why == NotStored::Stopped {
        return format!(
            "the program was stopped, and what it changed in the session `{name}` is undone: the next call goes on from the last one that \
             was kept"
        );
    }
    format!(
        "the session `{name}` was not stored after this call, because {}: after a crash it goes on from an earlier \
         call, or begins anew",
        why.reason()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::call::SessionEnd;

    #[test]
    fn a_session_that_ended_or_began_anew_says_why() {
        let session = InterpreterSession {
            name: "monday".into(),
            generation: 2,
            is_new: true,
            is_resumed: false,
            previous_end: Some(SessionEnd::Idle),
            end: None,
            is_checkpointed: None,
            not_stored: None,
        };
        let told = output(&session);
        assert!(jsonschema::is_valid(&output_schema(), &told));
        assert!(told["note"].as_str().unwrap().contains("began anew with this call"), "{told}");
        let ended = InterpreterSession { end: Some(SessionEnd::Timeout), ..session.clone() };
        assert!(notice(&ended).unwrap().contains("has ended, because a program in it ran too long"));
        let stopped = InterpreterSession {
            previous_end: None,
            is_checkpointed: Some(false),
            not_stored: Some(NotStored::Stopped),
            ..session.clone()
        };
        assert!(notice(&stopped).unwrap().contains("goes on from the last one that was kept"));
        let large = InterpreterSession { not_stored: Some(NotStored::TooLarge), ..session.clone() };
        assert!(notice(&large).unwrap().contains("could not be stored, because its image would be larger"));
        let goes_on = InterpreterSession { is_new: false, previous_end: None, ..session };
        assert_eq!(output(&goes_on), json!({"name": "monday", "generation": 2, "is_new": false}));
    }

    #[test]
    fn a_session_says_whether_it_was_resumed_and_is_stored() {
        let session = InterpreterSession {
            name: "monday".into(),
            generation: 2,
            is_new: false,
            is_resumed: true,
            previous_end: None,
            end: None,
            is_checkpointed: Some(true),
            not_stored: None,
        };
        let expected = json!({
            "name": "monday", "generation": 2, "is_new": false, "is_resumed": true, "is_checkpointed": true
        });
        assert_eq!(output(&session), expected);
        assert!(jsonschema::is_valid(&output_schema(), &expected));
        let (is_checkpointed, not_stored) = (Some(false), Some(NotStored::Unavailable));
        let not = InterpreterSession { is_checkpointed, not_stored, ..session };
        assert!(notice(&not).unwrap().contains("was not stored after this call, because the storage"));
    }
}
