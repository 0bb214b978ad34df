//! Changes of single bytes in an interpreter's module, for values that cannot be set in another way.

use serde::Deserialize;

/// Bytes of the module, whose hash the manifest has, and those that replace them. The length stays.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The function that is changed, for readers.
    pub function: String,
    /// In the file.
    pub offset: usize,
    /// In hexadecimal, as `to`.
    pub from: String,
    pub to: String,
}

impl Patch {
    /// Changes the module.
    /// Errors: when there are other bytes at the place, or the new ones have another length.
    pub fn apply(&self, module: &mut [u8]) -> Result<(), String> {
        let of_function = |problem: &str| format!("the patch of `{}` {problem}", self.function);
        let bytes = |text: &str| hex::decode(text).map_err(|_| of_function("is not hexadecimal"));
        let (from, to) = (bytes(&self.from)?, bytes(&self.to)?);
        if from.len() != to.len() {
            return Err(of_function("changes the length of the module"));
        }
        let end = self.offset.checked_add(from.len()).ok_or_else(|| of_function("is outside of the module"))?;
        let place = module.get_mut(self.offset..end).filter(|place| **place == *from);
        place.ok_or_else(|| of_function("does not find the bytes it replaces"))?.copy_from_slice(&to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(offset: usize, from: &str, to: &str) -> Result<Vec<u8>, String> {
        let patch = Patch { function: "f".into(), offset, from: from.into(), to: to.into() };
        let mut module = vec![0, 0x41, 7, 9];
        patch.apply(&mut module).map(|()| module)
    }

    #[test]
    fn bytes_are_replaced_where_they_are_those_expected() {
        assert_eq!(applied(1, "4107", "4109").unwrap(), [0, 0x41, 9, 9]);
        for (offset, from, to, words) in [
            (0, "4107", "4109", "does not find"),
            (3, "09aa", "0000", "does not find"),
            (usize::MAX, "09", "00", "outside"),
            (1, "4107", "41", "length"),
            (1, "4x", "41", "hexadecimal"),
        ] {
            let error = applied(offset, from, to).unwrap_err();
            assert!(error.contains("`f`") && error.contains(words), "{error}");
        }
    }
}
