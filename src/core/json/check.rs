//! Checks a text and counts its values without building any of them: a refused text costs no memory.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use arrayvec::ArrayVec;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::reader::{Place, duplicate};

/// Keys up to this number are compared with each other, and take no memory but the stack's.
const FEW_KEYS: usize = 8;

/// With its `raw_value` feature, `serde_json` reads this key of a `Value` as "more JSON inside".
const RESERVED_KEY: &str = "$serde_json::private::RawValue";

/// The contents of a text, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) values: usize,
    /// The values that are objects.
    pub(super) objects: usize,
}

/// The text is one JSON value with at most `max` values in it, and without duplicate keys.
/// Errors: the error, and whether it is the number of values.
pub(super) fn count_values(text: &[u8], max: usize) -> Result<Counts, (serde_json::Error, bool)> {
    let counts = Cell::default();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let checker = Checker { counts: &counts, max, place: Place::Root };
    let checked = checker.deserialize(&mut reader).and_then(|()| reader.end());
    match checked {
        Ok(()) => Ok(counts.get()),
        Err(error) => Err((error, counts.get().values > max)),
    }
}

/// Checks one value at its place.
#[derive(Clone, Copy)]
struct Checker<'a> {
    counts: &'a Cell<Counts>,
    max: usize,
    place: Place<'a>,
}

impl<'a> Checker<'a> {
    fn at<'b>(&'b self, place: Place<'b>) -> Checker<'b> {
        Checker { place, ..*self }
    }

    fn count<E: de::Error>(&self) -> Result<(), E> {
        self.count_one(false)
    }

    fn count_one<E: de::Error>(&self, is_object: bool) -> Result<(), E> {
        let Counts { values, objects } = self.counts.get();
        let counts = Counts { values: values + 1, objects: objects + usize::from(is_object) };
        self.counts.set(counts);
        match counts.values > self.max {
            true => Err(E::custom(format_args!("more than {} JSON values; send fewer in one body", self.max))),
            false => Ok(()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Checker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checker<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.count()
    }

    fn visit_bool<E: de::Error>(self, _value: bool) -> Result<(), E> {
        self.count()
    }

    fn visit_i64<E: de::Error>(self, _value: i64) -> Result<(), E> {
        self.count()
    }

    fn visit_u64<E: de::Error>(self, _value: u64) -> Result<(), E> {
        self.count()
    }

    fn visit_f64<E: de::Error>(self, _value: f64) -> Result<(), E> {
        self.count()
    }

    fn visit_str<E: de::Error>(self, _value: &str) -> Result<(), E> {
        self.count()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        self.count()?;
        let mut index = 0;
        while access.next_element_seed(self.at(Place::Index(&self.place, index)))?.is_some() {
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        self.count_one(true)?;
        let mut keys = Keys::default();
        while let Some(Key(key)) = access.next_key()? {
            if keys.contains(&key) {
                return Err(de::Error::custom(duplicate(&key, &self.place)));
            }
            if key == RESERVED_KEY {
                return Err(de::Error::custom("the key \"$serde_json::private::RawValue\" is reserved"));
            }
            access.next_value_seed(self.at(Place::Key(&self.place, &key)))?;
            keys.add(key);
        }
        Ok(())
    }
}

/// The keys of one object so far.
#[derive(Default)]
struct Keys<'de> {
    few: ArrayVec<Cow<'de, str>, FEW_KEYS>,
    more: HashSet<Cow<'de, str>>,
}

impl<'de> Keys<'de> {
    fn contains(&self, key: &str) -> bool {
        self.few.iter().any(|known| known == key) || self.more.contains(key)
    }

    fn add(&mut self, key: Cow<'de, str>) {
        if let Err(full) = self.few.try_push(key) {
            self.more.insert(full.element());
        }
    }
}

/// A key of an object, part of the text unless it has escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a key")
            }

            fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E: de::Error>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }

        deserializer.deserialize_str(KeyVisitor)
    }
}
