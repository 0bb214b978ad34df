//! The forms of a record's fields in JSON.

/// A duration as nanoseconds.
pub(super) mod nanoseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(super::nanos(*duration))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}

/// Stages with their durations, as pairs of a name and nanoseconds.
pub(super) mod stage_times {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::call::{Stage, StageTimes};

    pub(in super::super) fn serialize<S: Serializer>(stages: &StageTimes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(stages.iter().map(|(stage, took)| (stage, super::nanos(*took))))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StageTimes, D::Error> {
        let pairs = Vec::<(Stage, u64)>::deserialize(deserializer)?;
        // A record of another program may have more than there are.
        let known = pairs.into_iter().take(Stage::ALL.len());
        Ok(known.map(|(stage, nanos)| (stage, Duration::from_nanos(nanos))).collect())
    }
}

/// Bytes as a hexadecimal text.
pub(super) mod hexadecimal {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(in super::super) fn serialize<S: Serializer>(bytes: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = [0; 64];
        match hex::encode_to_slice(bytes, &mut text) {
            Ok(()) => serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default()),
            Err(problem) => Err(serde::ser::Error::custom(problem)),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.as_bytes(), &mut bytes).map_err(de::Error::custom)?;
        Ok(bytes)
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
