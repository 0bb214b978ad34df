//! The selected value as JSON, counted while it is built: shared nodes are written as often as they occur.

use jmespath::{Rcvar, Variable};
use serde_json::Value;

use sekisho_core::error::{CallError, ErrorCode};

/// Deeper than any accepted input, and shallow enough for recursive code that reads the result.
const MAX_DEPTH: usize = 128;

/// Errors: `output_too_large` beyond `max_bytes` of JSON text; `tool_error` for a result nested too deep.
pub(super) fn render(value: &Rcvar, max_bytes: usize) -> Result<Value, CallError> {
    Rendering { bytes_left: max_bytes, max_bytes }.value(value, 0)
}

struct Rendering {
    bytes_left: usize,
    max_bytes: usize,
}

impl Rendering {
    fn value(&mut self, value: &Rcvar, depth: usize) -> Result<Value, CallError> {
        if depth > MAX_DEPTH {
            return Err(CallError::tool(format!("the result is nested deeper than {MAX_DEPTH}")));
        }
        self.spend(2)?;
        Ok(match &**value {
            Variable::Null => Value::Null,
            Variable::Bool(truth) => Value::Bool(*truth),
            Variable::Number(number) => Value::Number(number.clone()),
            Variable::String(text) => {
                self.spend(text.len())?;
                Value::String(text.clone())
            }
            Variable::Array(elements) => {
                let elements = elements.iter().map(|element| self.value(element, depth + 1));
                Value::Array(elements.collect::<Result<_, _>>()?)
            }
            Variable::Object(fields) => {
                let fields = fields.iter().map(|(key, field)| {
                    self.spend(key.len() + 4)?;
                    Ok((key.clone(), self.value(field, depth + 1)?))
                });
                Value::Object(fields.collect::<Result<_, CallError>>()?)
            }
            Variable::Expref(_) => return Err(CallError::tool("an expression (&…) is not a result")),
        })
    }

    fn spend(&mut self, bytes: usize) -> Result<(), CallError> {
        let max_bytes = self.max_bytes;
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(|| {
            CallError::new(
                ErrorCode::OutputTooLarge,
                format!("the result has more than {max_bytes} bytes; select less, or a slice such as [:100]"),
            )
        })?;
        Ok(())
    }
}
