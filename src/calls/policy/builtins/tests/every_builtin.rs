//! Every builtin, and why it is bounded.

use std::collections::BTreeMap;

use super::*;

/// Why no result of a builtin can be much larger than its arguments, and no work either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// A boolean, a number of the size of its argument, or a name: of constant size.
    OneSize,
    /// Some or all of its arguments, in time in proportion to them.
    Part,
    /// A text in another notation, by a factor of 6 at most.
    Notation,
    /// All its arguments, put together.
    Sum,
    /// Replaced by one of [`BOUNDED`].
    Bounded,
}

use Why::{Bounded, Notation, OneSize, Part, Sum};

const BUILTIN_BOUNDS: [(&str, Why); 105] = [
    ("__builtin_sets.intersection", Part),
    ("__builtin_sets.union", Sum),
    ("abs", OneSize),
    ("array.concat", Sum),
    ("array.reverse", Part),
    ("array.slice", Part),
    ("base64.decode", Notation),
    ("base64.encode", Notation),
    ("base64.is_valid", OneSize),
    ("bits.and", OneSize),
    ("bits.lsh", Bounded),
    ("bits.negate", OneSize),
    ("bits.or", OneSize),
    ("bits.rsh", OneSize),
    ("bits.xor", OneSize),
    ("ceil", OneSize),
    ("concat", Bounded),
    ("contains", OneSize),
    ("count", OneSize),
    ("endswith", OneSize),
    ("floor", OneSize),
    // Binary digits of an integer, at most eight times its bytes; a float has 1 024.
    ("format_int", Notation),
    ("glob.match", Bounded),
    ("glob.quote_meta", Bounded),
    ("graph.reachable", Part),
    ("graph.reachable_paths", Bounded),
    ("indexof", Bounded),
    ("indexof_n", Bounded),
    ("intersection", Part),
    ("is_array", OneSize),
    ("is_boolean", OneSize),
    ("is_null", OneSize),
    ("is_number", OneSize),
    ("is_object", OneSize),
    ("is_set", OneSize),
    ("is_string", OneSize),
    ("json.filter", Bounded),
    ("json.is_valid", Bounded),
    ("json.marshal", Notation),
    ("json.marshal_with_options", Bounded),
    ("json.remove", Bounded),
    ("json.unmarshal", Bounded),
    ("lower", Notation),
    ("max", Part),
    ("min", Part),
    ("net.cidr_contains", OneSize),
    ("net.cidr_expand", Bounded),
    ("net.cidr_is_valid", OneSize),
    ("numbers.range", Bounded),
    ("numbers.range_step", Bounded),
    ("object.filter", Part),
    ("object.get", Part),
    ("object.keys", Part),
    ("object.remove", Part),
    ("object.subset", Bounded),
    ("object.union", Sum),
    ("object.union_n", Bounded),
    ("product", Bounded),
    ("rand.intn", OneSize),
    ("regex.find_all_string_submatch_n", Bounded),
    ("regex.find_n", Bounded),
    ("regex.is_valid", Bounded),
    ("regex.match", Bounded),
    ("regex.replace", Bounded),
    ("regex.split", Bounded),
    ("regex.template_match", Bounded),
    ("replace", Bounded),
    ("round", OneSize),
    ("semver.compare", OneSize),
    ("semver.is_valid", OneSize),
    ("sort", Part),
    ("split", Bounded),
    ("sprintf", Bounded),
    ("startswith", OneSize),
    ("strings.any_prefix_match", Bounded),
    ("strings.any_suffix_match", Bounded),
    ("strings.count", Bounded),
    ("strings.replace_n", Bounded),
    ("strings.reverse", Part),
    ("substring", Part),
    // A sum of integers, so it grows by a bit each time it doubles.
    ("sum", OneSize),
    ("time.add_date", OneSize),
    ("time.clock", OneSize),
    ("time.date", OneSize),
    ("time.diff", OneSize),
    ("time.format", Notation),
    ("time.now_ns", OneSize),
    ("time.parse_duration_ns", OneSize),
    ("time.parse_ns", OneSize),
    ("time.parse_rfc3339_ns", OneSize),
    ("time.weekday", OneSize),
    ("to_number", Bounded),
    ("trace", Part),
    ("trim", Bounded),
    ("trim_left", Bounded),
    ("trim_prefix", Part),
    ("trim_right", Bounded),
    ("trim_space", Part),
    ("trim_suffix", Part),
    ("type_name", OneSize),
    ("union", Bounded),
    ("units.parse", Bounded),
    ("units.parse_bytes", Bounded),
    ("upper", Notation),
    ("walk", Bounded),
];

#[test]
fn every_builtin_is_known_and_bounded() {
    let known: BTreeMap<_, _> = BUILTIN_BOUNDS.into_iter().collect();
    let there: Vec<_> = BUILTINS.keys().copied().collect();
    let overlooked: Vec<_> = there.iter().filter(|name| !known.contains_key(*name)).collect();
    assert!(overlooked.is_empty(), "can these outgrow what they are given? {overlooked:?}");
    assert_eq!(known.len(), there.len(), "some of the table no longer exist: {there:?}");
    let replaced: BTreeMap<_, _> = BOUNDED.into_iter().map(|(name, arguments, _)| (name, arguments)).collect();
    for (name, why) in known {
        let own = BUILTINS.get(name).map(|(_, arguments)| *arguments);
        assert_eq!(replaced.get(name).copied(), own.filter(|_| why == Bounded), "{name}");
    }
}
