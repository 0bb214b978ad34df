//! Hostile bytes for parsers of external input: the tests of each parser call [`feed`] with examples, and every input
//! derived from them must be accepted or refused quickly.
//!
//! This is not an instrumented fuzzer, which would need a nightly compiler. The inputs derive from real examples, so
//! that they get deep into the parsers. `SEKISHO_FUZZ_SECONDS=600 cargo test --lib hostile_bytes` continues for that
//! time in each, with another seed each time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::slack::slack;

/// Inputs of one parser. After [`WITHIN`] fewer are enough, so that slow parsers do not hold up the others' tests.
const INPUTS: usize = 1_500;
const MIN_INPUTS: usize = 200;
const WITHIN: Duration = Duration::from_secs(2);

/// An input that takes longer counts as a hang.
const SOON: Duration = Duration::from_secs(20);

/// Maximum bytes of an input.
const LARGEST: usize = 64 << 10;

/// Fragments that have caused errors in parsers.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b":",
    b",",
    b"\n",
    b"\r\n\r\n",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"\\ud800",
    b"\\u0000",
    b"\xe2\x80\xae",
    b"\xf3\xa0\x81\x81",
    b"null",
    b"true",
    b"-0",
    b"1e999",
    b"-1",
    b"0.1e-400",
    b"18446744073709551616",
    b"9007199254740993",
    b"{\"\":{}}",
    b"[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b"{\"$ref\":\"#\"}",
    b"{\"$ref\":\"#/$defs/a\"}",
    b"../../../etc/passwd",
    b"${HOME}",
    b"${",
    b"&a [*a, *a]",
    b"*a",
    b"<<: *a",
    b"!!binary ",
    b"? ",
    b"- - - - - ",
    b"| \n",
    b"data: ",
    b"event: endpoint\n",
    b"id: \0\n",
    b"__proto__",
    b"{{}}",
    b"%00",
    b"%",
    b"@",
    b"&",
    b"`",
    b"..",
    b"*",
    b"|",
    b"(((((((((((((((((",
];

/// Feeds the seeds unchanged, then inputs derived from them.
pub fn feed(seeds: &[&[u8]], mut read: impl FnMut(&[u8])) {
    let longer = std::env::var("SEKISHO_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let (start, most, within) = match longer {
        Some(seconds) => (rand::random(), usize::MAX, Duration::from_secs(seconds)),
        None => (0x5e_15_00, INPUTS, slack(WITHIN)),
    };
    let mut random = StdRng::seed_from_u64(start);
    let began = Instant::now();
    for seed in seeds {
        read_one(seed, &mut read);
    }
    for count in 0..most {
        if count >= MIN_INPUTS && began.elapsed() > within {
            break;
        }
        read_one(&made_of(seeds, &mut random), &mut read);
    }
}

fn read_one(input: &[u8], read: &mut impl FnMut(&[u8])) {
    let began = Instant::now();
    let survived = catch_unwind(AssertUnwindSafe(|| read(input))).is_ok();
    assert!(survived, "this input makes the parser panic: b\"{}\"", input.escape_ascii());
    assert!(began.elapsed() < slack(SOON), "this input took {:?}: b\"{}\"", began.elapsed(), input.escape_ascii());
}

/// A seed, changed in a few places.
fn made_of(seeds: &[&[u8]], random: &mut StdRng) -> Vec<u8> {
    let mut input = seeds[random.random_range(0..seeds.len())].to_vec();
    for _ in 0..random.random_range(1..6) {
        let (from, to) = range(&input, random);
        match random.random_range(0..7) {
            0 if from < input.len() => input[from] ^= 1 << random.random_range(0..8),
            1 => _ = input.drain(from..to),
            2 => {
                let piece = PIECES[random.random_range(0..PIECES.len())];
                let times = if random.random_ratio(1, 20) { 200 } else { 1 };
                input.splice(from..from, piece.repeat(times));
            }
            3 => {
                let piece = input[from..to].to_vec();
                let at = random.random_range(0..=input.len());
                input.splice(at..at, piece.repeat(random.random_range(1..4)));
            }
            4 => {
                let other = seeds[random.random_range(0..seeds.len())];
                let (start, end) = range(other, random);
                input.splice(from..to, other[start..end].iter().copied());
            }
            5 => input.truncate(from),
            _ => {
                let piece = PIECES[random.random_range(0..PIECES.len())];
                input.splice(from..to, piece.iter().copied());
            }
        }
        input.truncate(LARGEST);
    }
    input
}

/// A part of the input, mostly a short one.
fn range(input: &[u8], random: &mut StdRng) -> (usize, usize) {
    let from = random.random_range(0..=input.len());
    let most = if random.random_ratio(1, 4) { input.len() } else { 16 };
    (from, (from + random.random_range(0..=most)).min(input.len()))
}
