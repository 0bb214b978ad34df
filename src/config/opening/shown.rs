//! Settings as texts, without secrets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rust_decimal::Decimal;
use serde::Serialize;
use url::Url;

use crate::settings;
use crate::{
    AnonymousAccess, ApprovalRule, ChangesMode, FlowMode, HistoryScope, Identity, McpPrefix, McpShare, OutputCheck,
    Provider, ReloadMode, ResourceStatus, RuleSubject, SearchProvider,
};

/// Longest text of a value, in characters.
const MAX_CHARACTERS: usize = 200;

/// A value of a setting that may be shown to operators.
pub(super) trait Shown {
    fn shown(&self) -> String;
}

/// The begin of a long text.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

macro_rules! shown_as_written {
    ($($type:ty),*) => {
        $(impl Shown for $type {
            fn shown(&self) -> String {
                self.to_string()
            }
        })*
    };
}

/// By their names in the file.
macro_rules! shown_by_name {
    ($($type:ty),*) => {
        $(impl Shown for $type {
            fn shown(&self) -> String {
                name(self)
            }
        })*
    };
}

/// The same of those that are not written: with `Serialize` the schema of the file would have their defaults.
macro_rules! shown_by_variant {
    ($($type:ty),*) => {
        $(impl Shown for $type {
            fn shown(&self) -> String {
                <&'static str>::from(self).to_owned()
            }
        })*
    };
}

shown_by_variant!(ApprovalRule, OutputCheck, SearchProvider);

shown_as_written!(bool, u8, u16, u32, u64, usize, f64, Decimal);

shown_by_name!(
    AnonymousAccess,
    ChangesMode,
    FlowMode,
    HistoryScope,
    Identity,
    McpPrefix,
    McpShare,
    ReloadMode,
    ResourceStatus,
    RuleSubject
);

fn name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => "another value".to_owned(),
    }
}

impl Shown for Provider {
    fn shown(&self) -> String {
        self.as_str().to_owned()
    }
}

impl Shown for String {
    fn shown(&self) -> String {
        settings::shown(self)
    }
}

impl Shown for Url {
    fn shown(&self) -> String {
        settings::shown(self.as_str())
    }
}

impl Shown for PathBuf {
    fn shown(&self) -> String {
        self.display().to_string()
    }
}

impl<T: Shown> Shown for Option<T> {
    fn shown(&self) -> String {
        self.as_ref().map_or_else(|| "not set".to_owned(), Shown::shown)
    }
}

impl<T: Shown> Shown for Vec<T> {
    fn shown(&self) -> String {
        let entries: Vec<_> = self.iter().map(Shown::shown).collect();
        format!("[{}]", entries.join(", "))
    }
}

impl<T: Shown> Shown for BTreeMap<String, T> {
    fn shown(&self) -> String {
        let entries: Vec<_> = self.iter().map(|(name, value)| format!("{name}: {}", value.shown())).collect();
        format!("{{{}}}", entries.join(", "))
    }
}
