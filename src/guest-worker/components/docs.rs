//! Descriptions of functions: from the WIT beside a component, or from its custom section `package-docs`.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use wit_parser::{Function, Resolve, WorldItem};

use sekisho_guest_protocol::Export;

/// The custom section in which tools for WIT keep descriptions: a byte for its version, and JSON.
const SECTION: &[u8] = b"package-docs";

/// The magic number, and the version with the kind of the file.
const HEADER_BYTES: usize = 8;
const CUSTOM: u8 = 0;

/// Texts by the name of an interface without its package, or none for the world, and the name of a function.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Docs(BTreeMap<(Option<String>, String), String>);

impl Docs {
    /// The descriptions of a WIT document.
    pub(super) fn of_wit(text: &str) -> Result<Self, String> {
        let mut resolve = Resolve::default();
        resolve.push_source("wit", text).map_err(|error| format!("{error:#}"))?;
        let mut docs = Self::default();
        for (_, interface) in &resolve.interfaces {
            interface.functions.values().for_each(|function| docs.add(interface.name.as_deref(), function));
        }
        for (_, world) in &resolve.worlds {
            for item in world.exports.values() {
                if let WorldItem::Function(function) = item {
                    docs.add(None, function);
                }
            }
        }
        Ok(docs)
    }

    fn add(&mut self, interface: Option<&str>, function: &Function) {
        if let Some(text) = &function.docs.contents {
            self.0.insert((interface.map(str::to_owned), function.name.clone()), text.trim().to_owned());
        }
    }

    /// From the content of the custom section. Unknown parts are left out: only descriptions depend on it.
    fn of_section(content: &[u8]) -> Self {
        let json = content.split_first().map_or(Ok(Value::Null), |(_, json)| serde_json::from_slice(json));
        let json: Value = json.unwrap_or_default();
        let mut docs = Self::default();
        for (name, interface) in members(&json["interfaces"]) {
            docs.add_json(Some(name), &interface["funcs"]);
        }
        for (_, world) in members(&json["worlds"]) {
            docs.add_json(None, &world["funcs"]);
            docs.add_json(None, &world["func_exports"]);
        }
        docs
    }

    fn add_json(&mut self, interface: Option<&str>, functions: &Value) {
        for (name, function) in members(functions) {
            if let Some(text) = function.as_str().or_else(|| function["docs"].as_str()) {
                self.0.insert((interface.map(str::to_owned), name.clone()), text.trim().to_owned());
            }
        }
    }

    /// The text for an exported function; empty where there is none.
    pub(super) fn text(&self, export: &Export) -> &str {
        let interface = export.interface.as_deref().map(|name| short_name(name).to_owned());
        self.0.get(&(interface, export.function.clone())).map_or("", String::as_str)
    }
}

/// Of `docs:adder/add@0.1.0`, `add`.
fn short_name(interface: &str) -> &str {
    let name = interface.rsplit_once('/').map_or(interface, |(_, name)| name);
    name.split_once('@').map_or(name, |(name, _)| name)
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A component without the section, and its descriptions: the reader of a component's types expects none in it, or the
/// descriptions of another package.
pub(super) fn split(wasm: &[u8]) -> (Vec<u8>, Docs) {
    let (mut rest, mut docs) = (Vec::with_capacity(wasm.len()), Docs::default());
    rest.extend_from_slice(&wasm[..HEADER_BYTES.min(wasm.len())]);
    let mut at = HEADER_BYTES;
    while let Some((kind, content, next)) = section_at(wasm, at) {
        match custom_section(wasm, kind, content) {
            Some(text) => docs = Docs::of_section(text),
            None => rest.extend_from_slice(&wasm[at..next]),
        }
        at = next;
    }
    // The next readers report a part that is no section.
    rest.extend_from_slice(wasm.get(at..).unwrap_or_default());
    (rest, docs)
}

/// The kind of a section, the place of its content, and where the next one begins.
fn section_at(wasm: &[u8], at: usize) -> Option<(u8, Range<usize>, usize)> {
    let kind = *wasm.get(at)?;
    let (length, begin) = number_at(wasm, at + 1)?;
    let end = begin.checked_add(length).filter(|end| *end <= wasm.len())?;
    Some((kind, begin..end, end))
}

fn custom_section(wasm: &[u8], kind: u8, content: Range<usize>) -> Option<&[u8]> {
    if kind != CUSTOM {
        return None;
    }
    let (length, begin) = number_at(wasm, content.start)?;
    let name = wasm.get(begin..begin.checked_add(length)?)?;
    (name == SECTION).then(|| wasm.get(begin + length..content.end).unwrap_or_default())
}

/// A number in LEB128, and where it ends.
fn number_at(wasm: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut number = 0_u64;
    for shift in (0..35).step_by(7) {
        let byte = *wasm.get(at)?;
        at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((usize::try_from(number).ok()?, at));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(interface: Option<&str>, function: &str) -> Export {
        Export { interface: interface.map(str::to_owned), function: function.to_owned() }
    }

    #[test]
    fn descriptions_are_those_of_the_wit_beside() {
        let wit = "package my:tools@0.1.0;\ninterface maths {\n  /// Adds two numbers.\n  add: func(a: u32, b: u32) -> u32;\n}\n\
            world tools {\n  export maths;\n  /// The time.\n  export now: func() -> string;\n  import other: func();\n}\n";
        let docs = Docs::of_wit(wit).unwrap();
        assert_eq!(docs.text(&export(Some("my:tools/maths@0.1.0"), "add")), "Adds two numbers.");
        assert_eq!(docs.text(&export(None, "now")), "The time.");
        assert_eq!(docs.text(&export(None, "add")), "");
        assert!(Docs::of_wit("interface {").unwrap_err().contains("expected"));
    }

    #[test]
    fn descriptions_in_a_component_are_found_and_taken_out() {
        let text = r#"(component
            (@custom "package-docs"
                "\01{\"interfaces\": {\"maths\": {\"funcs\": {\"add\": {\"docs\": \" Adds. \"}}}}, \"worlds\": {\"tools\": {"
                "\"func_exports\": {\"now\": {\"docs\": \"The time.\"}}, \"funcs\": {\"old\": \"Of old.\"}}}}")
            (core module)
            (@custom "other" "kept"))"#;
        let wasm = wat::parse_str(text).unwrap();
        let (rest, docs) = split(&wasm);
        assert_eq!(docs.text(&export(Some("a:b/maths"), "add")), "Adds.");
        assert_eq!((docs.text(&export(None, "now")), docs.text(&export(None, "old"))), ("The time.", "Of old."));
        assert_eq!(rest, wat::parse_str("(component (core module) (@custom \"other\" \"kept\"))").unwrap());
    }

    #[test]
    fn hostile_bytes_are_left_as_they_are() {
        for bytes in
            [&b""[..], b"\0asm", b"\0asm\x0d\0\x01\0\0\xff\xff\xff\xff\xff\x01", b"\0asm\x0d\0\x01\0\0\x02\x05a"]
        {
            assert_eq!(split(bytes).0, bytes);
        }
        let wasm = wat::parse_str("(component (@custom \"package-docs\" \"\\01{}\"))").unwrap();
        sekisho_core::fuzz::feed(&[&wasm], |bytes| drop(split(bytes)));
        assert_eq!(Docs::of_section(b""), Docs::default());
        assert_eq!(Docs::of_section(b"\x01{\"interfaces\": 7}"), Docs::default());
    }
}
