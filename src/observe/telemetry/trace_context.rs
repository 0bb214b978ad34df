//! W3C trace context, level 1 (<https://www.w3.org/TR/trace-context-1/>): reading and writing its headers, strictly,
//! since they come from outside and go out again. The OpenTelemetry SDK's propagator is not strict: it accepts the
//! values in the test `the_sdk_takes_over_what_is_refused_here`. Once that test fails, it can replace this reader.

use http::HeaderName;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

use sekisho_core::call::TraceParent;

/// The one flag that level 1 knows; unknown ones must not be passed on.
const SAMPLED: u8 = 1;

/// Longest `tracestate` passed on (§3.3.1.5 asks for at least this), and most of its members (§3.3.1.1).
const MAX_STATE: usize = 512;
const MAX_MEMBERS: usize = 32;

/// The header with a request's place in its trace.
pub const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// The header with the tracing systems' own data beside it.
pub const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");

/// Parses the headers of a request. `None` for a `traceparent` that is not well-formed: the call then starts
/// a trace of its own. A `tracestate` that is not is left out, as the standard says.
pub fn incoming(traceparent: &str, tracestate: Option<&str>) -> Option<TraceParent> {
    let (known, rest) = traceparent.split_at_checked(55)?;
    let mut fields = known.split('-');
    let [version] = hex(fields.next()?)?;
    let trace_id: [u8; 16] = hex(fields.next()?)?;
    let span_id: [u8; 8] = hex(fields.next()?)?;
    let [flags] = hex(fields.next()?)?;
    // A later version may say more, behind another dash.
    let fits = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    let is_valid = fits && fields.next().is_none() && trace_id != [0; 16] && span_id != [0; 8];
    let state = tracestate.map(str::trim).filter(|state| is_state(state)).map(Into::into);
    is_valid.then_some(TraceParent { trace_id, span_id, flags: flags & SAMPLED, state })
}

/// The parent of a span that belongs to another process.
pub(super) fn span_context(parent: &TraceParent) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(parent.trace_id),
        SpanId::from_bytes(parent.span_id),
        TraceFlags::new(parent.flags),
        true,
        parent.state.as_deref().and_then(|state| state.parse().ok()).unwrap_or(TraceState::NONE),
    )
}

/// The header about a span for other processes.
pub(super) fn trace_parent(context: &SpanContext) -> TraceParent {
    TraceParent {
        trace_id: context.trace_id().to_bytes(),
        span_id: context.span_id().to_bytes(),
        flags: context.trace_flags().to_u8() & SAMPLED,
        state: Some(context.trace_state().header()).filter(|state| !state.is_empty()),
    }
}

/// Exactly `N` bytes in lowercase hex.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    (!text.bytes().any(|digit| digit.is_ascii_uppercase())).then_some(bytes)
}

fn is_state(state: &str) -> bool {
    let members =
        || state.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty());
    state.len() <= MAX_STATE
        && (1..=MAX_MEMBERS).contains(&members().count())
        && members().all(|member| member.split_once('=').is_some_and(|(key, value)| is_key(key) && is_value(value)))
}

/// `vendor` or `tenant@vendor`.
fn is_key(key: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
    let starts_with_letter = |part: &str| part.starts_with(|first: char| first.is_ascii_lowercase());
    let is_part = |part: &str, longest: usize| (1..=longest).contains(&part.len()) && part.bytes().all(allowed);
    match key.split_once('@') {
        None => is_part(key, 256) && starts_with_letter(key),
        Some((tenant, vendor)) => is_part(tenant, 241) && is_part(vendor, 14) && starts_with_letter(vendor),
    }
}

/// Printable ASCII without comma and equals sign.
fn is_value(value: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use opentelemetry::propagation::TextMapPropagator;
    use opentelemetry::trace::TraceContextExt;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_came_in_goes_out() {
        let parent = incoming(GOOD, Some("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7")).unwrap();
        assert_eq!(parent.header(), GOOD);
        assert_eq!(parent.state.as_deref(), Some("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"));
        assert_eq!(trace_parent(&span_context(&parent)), parent);
    }

    #[test]
    fn only_well_formed_parents_are_taken_over() {
        let cases = [
            ("a later version", "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true),
            ("a later version that says more", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what", true),
            ("a later version, run on", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01what", false),
            ("version 0 that says more", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what", false),
            ("version ff", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
            ("no trace", "00-00000000000000000000000000000000-b7ad6b7169203331-01", false),
            ("no span", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false),
            ("upper case", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false),
            ("no hex", "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01", false),
            ("a sign", "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
            ("too short", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", false),
            ("dashes misplaced", "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01", false),
            ("one dash more", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-1-01", false),
            ("a blank before", " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
            ("a letter of two bytes", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0é", false),
            ("nothing", "", false),
        ];
        for (what, header, taken) in cases {
            assert_eq!(incoming(header, None).is_some(), taken, "{what}");
        }
    }

    #[test]
    fn flags_this_version_does_not_know_are_not_passed_on() {
        assert_eq!(incoming(&GOOD.replace("-01", "-ff"), None).unwrap().flags, 1);
        assert_eq!(incoming(&GOOD.replace("-01", "-fe"), None).unwrap().flags, 0);
    }

    #[test]
    fn a_state_that_is_not_well_formed_is_left_out() {
        let long = format!("a={}", "x".repeat(256));
        let too_long = format!("{long},b={}", "x".repeat(256));
        let members = |count| vec!["a=1"; count].join(",");
        let cases = [
            ("vendor=value", true),
            ("tenant@vendor=value , other=2", true),
            ("a=1,,b=2", true),
            (&long, true),
            (&too_long, false),
            (&members(32), true),
            (&members(33), false),
            ("", false),
            ("no equals sign", false),
            ("Upper=1", false),
            ("1abc=1", false),
            ("a=b=c", false),
            ("a=", false),
            ("a=new\nline", false),
            ("a=é", false),
        ];
        for (state, kept) in cases {
            assert_eq!(incoming(GOOD, Some(state)).unwrap().state.is_some(), kept, "{state:?}");
        }
    }

    /// The result of the OpenTelemetry SDK's reader.
    fn read_by_the_sdk(header: &str, state: Option<&str>) -> Option<TraceParent> {
        let mut headers = HashMap::from([(TRACE_PARENT.to_string(), header.to_owned())]);
        headers.extend(state.map(|state| (TRACE_STATE.to_string(), state.to_owned())));
        let context = TraceContextPropagator::new().extract(&headers);
        let context = context.span().span_context().clone();
        context.is_valid().then(|| trace_parent(&context))
    }

    #[test]
    fn the_sdk_takes_over_what_is_refused_here() {
        for header in [
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(incoming(header, None), None, "{header}");
            assert!(read_by_the_sdk(header, None).is_some(), "{header}");
        }
        let many = vec!["a=1"; 33].join(",");
        let long = format!("a={0},b={0}", "x".repeat(256));
        for state in ["1abc=1", "a=", "a=new\nline", "a=é", &many, &long] {
            assert_eq!(incoming(GOOD, Some(state)).unwrap().state, None, "{state:?}");
            assert!(read_by_the_sdk(GOOD, Some(state)).unwrap().state.is_some(), "{state:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_over_is_what_the_sdk_reads(
            header in "(00|01|cc|ff)-[0-9a-f]{32}-(0{16}|[0-9a-f]{16})-[0-9a-f]{2}(-x)?",
            state in proptest::option::of("[a-z]{1,3}(@[a-z]{1,3})?=[!-+]{1,4}(,[a-z]=[0-9]{1,3}){0,3}"),
        ) {
            if let Some(parent) = incoming(&header, state.as_deref()) {
                prop_assert_eq!(Some(parent), read_by_the_sdk(&header, state.as_deref()));
            }
        }

        #[test]
        fn nothing_makes_it_panic(header in ".{0,80}", state in proptest::option::of(".*")) {
            let _ = incoming(&header, state.as_deref());
        }

        #[test]
        fn what_is_taken_over_is_valid(header in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", state in ".{0,40}") {
            if let Some(parent) = incoming(&header, Some(&state)) {
                prop_assert!(span_context(&parent).is_valid());
                prop_assert_eq!(&parent.header()[3..53], &header[3..53]);
            }
        }
    }
}
