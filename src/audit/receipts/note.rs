//! Signed notes (c2sp.org/signed-note) with one signature by Ed25519, and their keys.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::InvalidReceipt;

/// The type of a key and of its signatures.
const ED25519_TYPE: u8 = 1;

/// The beginning of a key that signs, as other programs for notes write it.
const PRIVATE: &str = "PRIVATE+KEY+";

/// The public half of a key, with the name of who signs: `NAME+ID+KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    key: [u8; 32],
}

/// A key that signs notes.
pub(super) struct SigningKey {
    pair: Ed25519KeyPair,
    public: VerifierKey,
}

impl VerifierKey {
    /// Who signs with it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> [u8; 4] {
        let named = Sha256::new_with_prefix(&self.name).chain_update([b'\n', ED25519_TYPE]).chain_update(self.key);
        let [a, b, c, d, ..]: [u8; 32] = named.finalize().into();
        [a, b, c, d]
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = STANDARD.encode([&[ED25519_TYPE][..], &self.key].concat());
        write!(formatter, "{}+{}+{key}", self.name, hex::encode(self.id()))
    }
}

impl FromStr for VerifierKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "it is no verifier key (NAME+ID+KEY), as `sekisho receipt keys` prints it";
        let (name, key) = text.split_once('+').ok_or(FORM)?;
        let key = Self { name: name.to_owned(), key: typed(key.split_once('+').ok_or(FORM)?.1).ok_or(FORM)? };
        // The id too is as it was printed.
        if key.to_string() == text && is_name(name) { Ok(key) } else { Err(FORM) }
    }
}

/// The key after its type.
fn typed(text: &str) -> Option<[u8; 32]> {
    let bytes = STANDARD.decode(text).ok()?;
    bytes.strip_prefix(&[ED25519_TYPE])?.try_into().ok()
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|letter: char| letter.is_whitespace() || letter.is_control() || letter == '+')
}

impl SigningKey {
    /// `None` where the seed is none.
    pub(super) fn new(name: &str, seed: [u8; 32]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        let key = pair.public_key().as_ref().try_into().ok()?;
        is_name(name).then(|| Self { pair, public: VerifierKey { name: name.to_owned(), key } })
    }

    /// Reads what [`text_of`](Self::text_of) has written.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (name, rest) = text.trim_end().strip_prefix(PRIVATE)?.split_once('+')?;
        let (id, seed) = rest.split_once('+')?;
        Self::new(name, typed(seed)?).filter(|key| hex::encode(key.public.id()) == id)
    }

    /// The text of the key, which signs for whoever has it.
    pub(super) fn text_of(&self, seed: &[u8; 32]) -> String {
        let Self { public, .. } = self;
        let seed = STANDARD.encode([&[ED25519_TYPE][..], seed].concat());
        format!("{PRIVATE}{}+{}+{seed}\n", public.name, hex::encode(public.id()))
    }

    pub(super) fn public(&self) -> &VerifierKey {
        &self.public
    }

    /// The note of a text, which ends with a newline.
    pub(super) fn sign(&self, text: &str) -> String {
        let signature = self.pair.sign(text.as_bytes());
        let signature = STANDARD.encode([&self.public.id()[..], signature.as_ref()].concat());
        format!("{text}\n— {} {signature}\n", self.public.name)
    }
}

sekisho_core::debug_fields!(SigningKey { public });

/// The text of a note.
pub(super) fn text_in(note: &str) -> Result<&str, InvalidReceipt> {
    let form = InvalidReceipt::Form("the checkpoint is no text with a signature below");
    note.rfind("\n\n").map(|end| &note[..=end]).ok_or(form)
}

/// The text of a note that one of the keys has signed, and that key. Signatures of others are passed over.
pub(super) fn open<'a, 'k>(
    note: &'a str,
    keys: &'k [VerifierKey],
) -> Result<(&'a str, &'k VerifierKey), InvalidReceipt> {
    let text = text_in(note)?;
    let form = || InvalidReceipt::Form("a signature below the checkpoint is no line `— NAME SIGNATURE`");
    let lines = note[text.len() + 1..].strip_suffix('\n').ok_or_else(form)?;
    let mut signed_by = None;
    let mut names = Vec::new();
    for line in lines.split('\n') {
        let signed = line.strip_prefix("— ").and_then(|line| line.split_once(' '));
        // The message has names, and a terminal shows it.
        let (name, signature) = signed.filter(|(name, _)| is_name(name)).ok_or_else(form)?;
        let signature = STANDARD.decode(signature).map_err(|_| form())?;
        let (id, signature) = signature.split_at_checked(4).ok_or_else(form)?;
        match keys.iter().find(|key| key.name == name && key.id() == id) {
            Some(key) => {
                let public = UnparsedPublicKey::new(&ED25519, key.key);
                public.verify(text.as_bytes(), signature).map_err(|_| InvalidReceipt::Signature)?;
                signed_by = Some(key);
            }
            None => names.push(name.to_owned()),
        }
    }
    signed_by.map(|key| (text, key)).ok_or_else(|| InvalidReceipt::Signer(names.join(", ")))
}
