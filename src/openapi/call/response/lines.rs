//! JSON values one after the other, each on its line (<https://jsonlines.org>, RFC 7464).

use serde_json::Value;

use sekisho_core::json;

/// Maximum memory of all values: each single line is within the limits of a document.
const MAX_MEMORY: usize = 64 << 20;

/// RFC 7464: before each value of a sequence.
const RECORD_SEPARATOR: u8 = 0x1e;

/// The values as a list, and the paths of integers in it that became strings; `None` where a line is not JSON. The last
/// line of a body that was cut off is left out, unless the line ended.
pub(super) fn values(body: &[u8], cut: bool) -> Option<(Value, Vec<String>)> {
    let end = if cut { body.iter().rposition(|byte| *byte == b'\n')? } else { body.len() };
    let lines = body.get(..end)?.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_prefix(&[RECORD_SEPARATOR]).unwrap_or(line).trim_ascii());
    let (mut values, mut large, mut memory) = (Vec::new(), Vec::new(), 0);
    for (index, line) in lines.filter(|line| !line.is_empty()).enumerate() {
        let (value, paths) = json::parse_answer(line).ok()?;
        memory += json::footprint(&value);
        if memory > MAX_MEMORY {
            return None;
        }
        values.push(value);
        large.extend(paths.into_iter().map(|path| format!("/{index}{path}")));
    }
    Some((Value::Array(values), large))
}
