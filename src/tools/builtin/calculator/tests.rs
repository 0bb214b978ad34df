use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::builtin::tests::{run, run_error};
use sekisho_core::slack::slack;

fn compute(expression: &str) -> Result<ToolOutput, CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(run(&definition(), json!({"expression": expression})))
}

#[tokio::test]
async fn results_are_numbers_where_json_holds_them_and_text_where_not() {
    for (expression, value, text) in [
        ("(2+3)*7", json!(35), "35"),
        ("0.1+0.2", json!(0.3), "0.3"),
        ("1/8", json!(0.125), "0.125"),
        ("2^53", json!(9_007_199_254_740_992_i64), "9007199254740992"),
        ("2^53+1", json!("9007199254740993"), "9007199254740993"),
        ("2**10", json!(1024), "1024"),
        ("-2^2", json!(-4), "-4"),
        ("1/3*3", json!(1), "1"),
        ("1/3", json!("approx. 0.3333333333"), "approx. 0.3333333333"),
        ("sqrt(2)", json!("approx. 1.4142135624"), "approx. 1.4142135624"),
        ("sqrt(16) + abs(-(2+1))", json!(7), "7"),
        ("2(3+4)", json!(14), "14"),
        ("5!", json!(120), "120"),
        ("17 mod 5", json!(2), "2"),
        ("10% of 50", json!(5), "5"),
        ("100 cm to m", json!("1 m"), "1 m"),
        ("(3 km) -> m", json!("3000 m"), "3000 m"),
        ("2 meters + 3 feet", json!("2.9144 meters"), "2.9144 meters"),
        ("0xff to decimal", json!(255), "255"),
        ("1,000+1", json!(1001), "1001"),
        ("sin(pi/2)", json!(1), "1"),
        ("3 × 4 ÷ 2", json!(6), "6"),
    ] {
        let output = run(&definition(), json!({"expression": expression})).await.unwrap();
        assert_eq!((output.value, output.text.as_deref()), (value, Some(text)), "{expression}");
    }
}

#[tokio::test]
async fn what_cannot_be_computed_is_explained() {
    for (expression, explanation) in [
        ("1/0", "division by zero"),
        ("5 foobar", "unknown identifier 'foobar'"),
        ("(1+2", "1 parentheses are not closed"),
        ("1+2)", "closing parenthesis without"),
        ("3*()", "nothing between them"),
        ("5 USD to EUR", "exchange rates are not available"),
        ("5 km to kg", "cannot convert from km to kg"),
        ("roll d6", "random numbers are not available"),
        ("today", "unable to get the current date"),
        ("x = 5; x + 1", "'=' does not belong to a calculation"),
        ("(\\x. x x)(\\x. x x)", "does not belong to a calculation"),
        ("(λx. x x)(λx. x x)", "does not belong to a calculation"),
        ("f: f f", "does not belong to a calculation"),
        ("1<<99999999999", "does not belong to a calculation"),
        ("\"a\" + 'b'", "does not belong to a calculation"),
        ("@2020-01-01", "does not belong to a calculation"),
        ("@debug 1", "does not belong to a calculation"),
        ("ans", "unknown identifier 'ans'"),
        ("_", "unknown identifier '_'"),
        ("group_0", "unknown identifier 'group_0'"),
    ] {
        let error = run_error(&definition(), json!({"expression": expression})).await;
        assert_eq!(error.code(), ErrorCode::ToolError, "{expression}");
        assert!(error.message().contains(explanation), "{expression}: {}", error.message());
    }
}

#[tokio::test]
async fn nothing_is_left_for_the_next_call() {
    run(&definition(), json!({"expression": "sqrt(4)"})).await.unwrap();
    let error = run_error(&definition(), json!({"expression": "ans + group_0"})).await;
    assert!(error.message().contains("unknown identifier"), "{}", error.message());
}

/// Fault 12: an evaluator that blocks the event loop.
#[tokio::test]
async fn endless_expressions_are_stopped_and_block_no_other_call() {
    let repeated = |text: &str, times: usize| text.repeat(times);
    let hostile = [
        "9**9**7".to_owned(),
        "10^10^10".to_owned(),
        "1e999999999".to_owned(),
        "99999!".to_owned(),
        "e^100000".to_owned(),
        "fibonacci 100000".to_owned(),
        "100d100".to_owned(),
        "9999999d9999999".to_owned(),
        "1/7 to 99999999999 dp".to_owned(),
        "pi to 99999999999 sf".to_owned(),
        "10^100000 to words".to_owned(),
        repeated("1-(", 60) + "1" + &repeated(")", 60),
        repeated("1+1-1-1-(", 60) + "x" + &repeated(")", 60),
        repeated("2 (1-", 60) + "x" + &repeated(")", 60),
        repeated("-", 1023) + "x",
        repeated("1^", 511) + "x",
        repeated("1^-", 340) + "x",
        repeated("x of ", 200) + "x",
        repeated("light ", 170) + "x",
        repeated("abs ", 255) + "x",
        repeated("not ", 255) + "x",
        repeated("1+", 511) + "x",
        repeated("1 m ", 255) + "x",
        repeated("(1)+", 255) + "x",
        repeated("1 to m ", 140) + "x",
        repeated("1/", 511) + "x",
        repeated("(1)", 300),
        "0".to_owned() + &repeated("!", 1023),
        "9".repeat(1024),
    ];
    for expression in hostile {
        let started = Instant::now();
        let ticking = tokio::spawn(async {
            let mut longest = Duration::ZERO;
            loop {
                let before = Instant::now();
                tokio::time::sleep(Duration::from_millis(1)).await;
                longest = longest.max(before.elapsed());
                if longest > Duration::from_millis(500) {
                    return longest;
                }
            }
        });
        let outcome = run(&definition(), json!({"expression": expression})).await;
        let shown: String = expression.chars().take(24).collect();
        // A result or a refusal will do, as long as no thread is left computing.
        if let Err(error) = outcome {
            assert_eq!(error.code(), ErrorCode::ToolError, "{shown}: {error}");
            assert!(!error.message().contains("did not end"), "{shown} went on");
        }
        assert!(started.elapsed() < slack(Duration::from_secs(2)), "{shown} took {:?}", started.elapsed());
        assert!(!ticking.is_finished(), "{shown} held up the event loop");
        ticking.abort();
    }
}

#[tokio::test]
async fn a_power_tower_reports_that_it_takes_too_long() {
    let error = run_error(&definition(), json!({"expression": "9**9**7"})).await;
    assert_eq!(error.message(), "this takes too long to compute (the limit is 50 ms); use smaller numbers");
}

#[tokio::test]
async fn arguments_that_slipped_past_the_schema_are_refused() {
    for arguments in [json!({}), json!({"expression": 5}), json!({"expression": "1".repeat(1025)})] {
        assert_eq!(run_error(&definition(), arguments).await.code(), ErrorCode::InvalidArguments);
    }
}

#[test]
fn plain_arithmetic_is_quick() {
    let started = Instant::now();
    for _ in 0..10_000 {
        assert!(arithmetic::evaluate(std::hint::black_box("(2+3)*7")).is_some());
    }
    let each = started.elapsed() / 10_000;
    println!("(2+3)*7 takes {each:?} in this build");
    assert!(each < Duration::from_micros(50), "{each:?}");
}

/// Sums and products of small integers, as text and as a number.
fn small_arithmetic() -> impl Strategy<Value = (String, i64)> {
    (-20_i64..=20).prop_map(|number| (format!("({number})"), number)).prop_recursive(4, 24, 2, |inner| {
        (inner.clone(), 0_usize..3, inner).prop_map(|((left, a), operator, (right, b))| match operator {
            0 => (format!("({left} + {right})"), a.wrapping_add(b)),
            1 => (format!("({left} - {right})"), a.wrapping_sub(b)),
            _ => (format!("({left}*{right})"), a.saturating_mul(b)),
        })
    })
}

/// Every form that plain arithmetic supports, without needless parentheses.
fn plain_arithmetic() -> impl Strategy<Value = String> {
    "[0-9]{1,3}|[0-9]{0,2}\\.[0-9]{1,2}".prop_recursive(4, 8, 2, |inner| {
        prop_oneof![
            4 => (inner.clone(), " ?[-+*/] ?", inner.clone()).prop_map(|(left, sign, right)| left + &sign + &right),
            1 => inner.clone().prop_map(|inner| format!("({inner})")),
            1 => inner.prop_map(|inner| format!("-{inner}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_agrees_with_the_machine_on_small_integers((expression, expected) in small_arithmetic()) {
        prop_assume!(expression.len() <= MAX_EXPRESSION_BYTES && expected.abs() < (1 << 53));
        prop_assert_eq!(compute(&expression).unwrap().value, json!(expected));
    }

    #[test]
    fn the_quick_way_and_fend_agree(expression in plain_arithmetic()) {
        let mut context = fend_core::Context::new();
        let slow = fend_core::evaluate(&expression, &mut context).map(|result| result.get_main_result().to_owned());
        match arithmetic::evaluate(&expression) {
            Some(quick) => prop_assert_eq!(Ok(quick.to_string()), slow),
            // Left to fend because there is no exact decimal, not because it is not supported.
            None => prop_assert!(slow.is_err() || expression.contains('/')),
        }
    }

    #[test]
    fn no_text_at_all_makes_it_fall(expression in "\\PC{0,80}|[-0-9+*/^!%().a-z ]{0,120}") {
        let started = Instant::now();
        let outcome = compute(&expression);
        prop_assert!(started.elapsed() < slack(Duration::from_secs(2)), "{:?}", started.elapsed());
        if let Err(error) = outcome {
            prop_assert!(matches!(error.code(), ErrorCode::ToolError), "{error}");
        }
    }
}
