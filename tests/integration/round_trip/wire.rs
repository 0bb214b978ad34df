//! Parses the values of a request: styles of parameters, forms and multipart bodies, all leaves as text.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// A parameter's form, as the document gives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form<'a> {
    pub(super) style: &'a str,
    pub(super) explode: bool,
}

/// `%41` as `A`; UTF-8.
pub(super) fn decoded(text: &str) -> Result<String, String> {
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| format!("{text:?} is not UTF-8"))
}

/// As in a form, where a space may be a `+`.
fn decoded_form(text: &str) -> Result<String, String> {
    decoded(&text.replace('+', " "))
}

/// The pairs of a query or of a form: names decoded, values unchanged.
pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let written = text.split('&').filter(|pair| !pair.is_empty());
    written
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if pair.contains([' ', '#', '"', '<', '>']) || !pair.is_ascii() {
                return Err(format!("{pair:?} is not encoded"));
            }
            Ok((decoded_form(name)?, value.to_owned()))
        })
        .collect()
}

/// A value of `simple` style, or of another that differs in its separator only.
pub(super) fn simple(
    text: &str,
    separator: &str,
    explode: bool,
    kind: &str,
    decode: fn(&str) -> Result<String, String>,
) -> Result<Value, String> {
    let parts = || text.split(separator).filter(|part| !part.is_empty());
    Ok(match kind {
        "array" => Value::Array(parts().map(|part| decode(part).map(Value::String)).collect::<Result<_, _>>()?),
        "object" if explode => {
            let mut members = Map::new();
            for part in parts() {
                let (name, value) = part.split_once('=').ok_or(format!("{part:?} is no member"))?;
                members.insert(decode(name)?, decode(value)?.into());
            }
            members.into()
        }
        "object" => {
            let parts: Vec<_> = parts().collect();
            let mut members = Map::new();
            for pair in parts.chunks(2) {
                let [name, value] = pair else { return Err(format!("{text:?} has a name without a value")) };
                members.insert(decode(name)?, decode(value)?.into());
            }
            members.into()
        }
        _ => decode(text)?.into(),
    })
}

/// A part of the path in `simple`, `label` or `matrix` style.
pub(super) fn path(name: &str, text: &str, form: Form<'_>, kind: &str) -> Result<Value, String> {
    match form.style {
        "label" => {
            let rest = text.strip_prefix('.').ok_or(format!("{text:?} has no `.` before it"))?;
            simple(rest, if form.explode { "." } else { "," }, form.explode, kind, decoded)
        }
        "matrix" => {
            let rest = text.strip_prefix(';').ok_or(format!("{text:?} has no `;` before it"))?;
            let own = format!("{name}=");
            match (form.explode, kind) {
                (true, "object") => simple(rest, ";", true, kind, decoded),
                (true, "array") => {
                    let items = rest.split(';').map(|part| part.strip_prefix(&own).ok_or(format!("{part:?}")));
                    simple(&items.collect::<Result<Vec<_>, _>>()?.join(","), ",", false, kind, decoded)
                }
                _ => simple(rest.strip_prefix(&own).ok_or(format!("{rest:?}"))?, ",", false, kind, decoded),
            }
        }
        _ => simple(text, ",", form.explode, kind, decoded),
    }
}

/// Takes a parameter's value out of the pairs; `None` when nothing is there. `members`: the names that an
/// exploded object may have, or all where it may have any.
pub(super) fn take(
    name: &str,
    form: Form<'_>,
    kind: &str,
    members: Option<&[String]>,
    pairs: &mut Vec<(String, String)>,
) -> Result<Option<Value>, String> {
    let bracketed = form.style == "deepObject" && pairs.iter().any(|(key, _)| key.starts_with(&format!("{name}[")));
    if bracketed {
        let taken: Vec<_> = pairs.extract_if(.., |(key, _)| key.starts_with(&format!("{name}["))).collect();
        let mut nested = Value::Object(Map::new());
        for (key, value) in taken {
            let keys: Vec<_> = key[name.len()..].trim_start_matches('[').trim_end_matches(']').split("][").collect();
            put(&mut nested, &keys, decoded_form(&value)?.into())?;
        }
        return Ok(Some(lists(nested)));
    }
    if form.explode && kind == "object" && form.style != "deepObject" {
        let own = |key: &str| members.is_none_or(|members| members.iter().any(|member| member == key));
        let mut found = Map::new();
        for (key, value) in pairs.extract_if(.., |(key, _)| own(key)) {
            found.insert(key, decoded_form(&value)?.into());
        }
        return Ok((!found.is_empty()).then_some(found.into()));
    }
    let values: Vec<_> = pairs.extract_if(.., |(key, _)| key == name).map(|(_, value)| value).collect();
    let Some(first) = values.first() else { return Ok(None) };
    // What has no brackets is neither an object nor a list: a schema may allow a number or a text beside them.
    if let ("deepObject", [text]) = (form.style, values.as_slice()) {
        return decoded_form(text).map(|text| Some(text.into()));
    }
    if form.explode && kind == "array" {
        let items: Result<Vec<_>, _> = values.iter().map(|value| decoded_form(value).map(Value::String)).collect();
        return Ok(Some(items?.into()));
    }
    if values.len() > 1 {
        return Err(format!("`{name}` stands there {} times", values.len()));
    }
    let separator = match form.style {
        "spaceDelimited" => "%20",
        "pipeDelimited" => "%7C",
        "tabDelimited" => "%09",
        _ => ",",
    };
    simple(first, separator, false, kind, decoded_form).map(Some)
}

/// Writes a value under nested keys.
fn put(into: &mut Value, keys: &[&str], value: Value) -> Result<(), String> {
    let Value::Object(members) = into else { return Err("a name stands for a text and for members".into()) };
    match keys {
        [] => Err("a name without a member".into()),
        [last] => match members.insert((*last).to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(format!("duplicate `{last}`")),
        },
        [first, rest @ ..] => put(members.entry(*first).or_insert_with(|| Value::Object(Map::new())), rest, value),
    }
}

/// Members called 0, 1, 2 … are a list.
fn lists(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let listed = members.keys().enumerate().all(|(at, key)| *key == at.to_string());
            let members = members.into_iter().map(|(key, value)| (key, lists(value)));
            if listed {
                Value::Array(members.map(|(_, value)| value).collect())
            } else {
                Value::Object(members.collect())
            }
        }
        other => other,
    }
}

/// One part of a multipart body.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) is_file: bool,
    pub(super) is_json: bool,
    pub(super) text: String,
}

/// RFC 7578.
pub(super) fn parts(content_type: &str, body: &[u8]) -> Result<Vec<Part>, String> {
    let boundary = content_type.split("boundary=").nth(1).ok_or("no boundary")?.trim_matches('"');
    let text = String::from_utf8_lossy(body).into_owned();
    let (opening, closing) = (format!("--{boundary}\r\n"), format!("--{boundary}--\r\n"));
    let inner = text.strip_suffix(&closing).ok_or("the body does not end with its boundary")?;
    let sections = inner.split(&opening).skip(1);
    sections
        .map(|section| {
            let (head, content) = section.split_once("\r\n\r\n").ok_or("a part without a head")?;
            let content = content.strip_suffix("\r\n").ok_or("a part that does not end")?;
            let name = head.split("name=\"").nth(1).and_then(|rest| rest.split('"').next()).ok_or("no name")?;
            Ok(Part {
                name: name.replace("%22", "\""),
                is_file: head.contains("filename=\""),
                is_json: head.contains("Content-Type: application/json"),
                text: content.to_owned(),
            })
        })
        .collect()
}
