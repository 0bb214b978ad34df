use futures_util::FutureExt;
use proptest::prelude::*;
use serde_json::json;

use std::sync::Arc;

use super::*;
use crate::budget::Budgets;
use crate::tool::Metadata;
use crate::tool::tests::tool_with;
use crate::transform::TransformRules;
use sekisho_config::{BudgetConfig, TransformConfig, TransformRule};
use sekisho_core::call::{CallContext, CallOrigin, Caller, McpResult, ResultHandles, Via};
use sekisho_guards::Rules;

/// The output as it is changed and checked where no guard looks at it.
fn check(
    call: &CallContext,
    tool: &Tool,
    output: ToolOutput,
    max_text_tokens: u64,
    findings: &mut Vec<TransformFinding>,
) -> Result<Checked, CallError> {
    let output = change(call, tool, output, findings)?;
    super::check(call, tool, output, max_text_tokens, findings)
}

fn bounded(text: String, tokens: Option<u64>, max: u64) -> (String, u64) {
    bound_text(text, tokens, max, || "`output` has all".into())
}

fn tool(metadata: Metadata, output_schema: Option<Value>) -> Tool {
    tool_with(metadata, json!({}), output_schema)
}

/// The answer, the tokens of its text, and the violations of the output schema.
fn checked(
    call: &CallContext,
    tool: &Tool,
    output: ToolOutput,
    max_text_tokens: u64,
) -> Result<(Answer, u64, Vec<Detail>), CallError> {
    let checked = check(call, tool, output, max_text_tokens, &mut Vec::new())?;
    let Checked { mut answer, tokens, violations, .. } = checked;
    let (text, tokens) = bound_text(answer.text, tokens, max_text_tokens, || rest(call.via, tool));
    answer.text = text;
    Ok((answer, tokens, violations))
}

#[test]
fn an_output_becomes_text_within_its_tokens() {
    let tool = tool(Metadata::default(), None);
    let cases = [
        (ToolOutput::from(json!("35")), "35", 1),
        (ToolOutput::from(json!({"b": 1, "a": [true]})), r#"{"b":1,"a":[true]}"#, 5),
        (ToolOutput::from(Value::Null), "", 0),
        (ToolOutput { text: Some("short".into()), ..ToolOutput::from(json!([1, 2])) }, "short", 2),
        (ToolOutput { tokens: Some(7), ..ToolOutput::from(json!("35")) }, "35", 7),
    ];
    for (output, text, tokens) in cases {
        let (answer, counted, _) = checked(&call(), &tool, output.clone(), 100).unwrap();
        assert_eq!((answer.text.as_str(), counted), (text, tokens));
        assert_eq!(answer.output, output.value, "the value is not truncated");
    }
}

#[test]
fn a_cut_text_says_how_to_read_on() {
    let parameters = json!({"properties": {"path": {}, "offset": {}, "limit": {}}});
    let tool = tool_with(Metadata::default(), parameters, None);
    let text =
        |via| checked(&CallContext { via, ..call() }, &tool, json!("x".repeat(1_000)).into(), 100).unwrap().0.text;
    assert!(text(Via::Rest).ends_with("of 1000 bytes shown; `output` has all]"));
    let told = text(Via::Agent);
    assert!(
        told.ends_with("of 1000 bytes shown; call it again with another `offset` or `limit` to read the rest]"),
        "{told}"
    );
    assert!(told.len() <= 400);
}

#[test]
fn an_output_over_the_bound_is_refused_before_it_is_rendered() {
    let tool = tool(Metadata { max_output_bytes: 100, ..Metadata::default() }, None);
    assert!(checked(&call(), &tool, json!("x".repeat(90)).into(), 1_000).is_ok());
    let long = ToolOutput { text: Some("x".repeat(101)), ..ToolOutput::default() };
    for output in [json!("x".repeat(101)).into(), json!(vec![1; 60]).into(), long] {
        let error = checked(&call(), &tool, output, 1_000).unwrap_err();
        assert_eq!(error.code(), ErrorCode::OutputTooLarge);
        assert!(error.message().contains("100 are allowed"), "{}", error.message());
    }
}

#[test]
fn an_output_that_no_caller_gets_whole_may_be_larger() {
    let agent = CallContext { via: Via::Agent, ..with_handles() };
    let (stored, program) = (with_handles(), CallContext { via: Via::Sandbox, ..call() });
    let mib = |count: usize| ToolOutput::from(json!("x".repeat(count << 20)));
    let short_text = || ToolOutput { text: Some("a figure".into()), ..mib(2) };
    let lowered = Metadata { max_output_bytes: 1 << 19, ..Metadata::default() };
    let default = Metadata::default;
    for (call, metadata, output, is_accepted) in [
        (&call(), default(), mib(2), false),
        (&stored, default(), mib(2), true),
        (&program, default(), mib(15), true),
        (&stored, default(), mib(17), false),
        (&stored, lowered.clone(), mib(1), false),
        (&program, lowered, mib(1), false),
        (&agent, default(), mib(2), true),
        (&agent, default(), short_text(), false),
        (&program, Metadata { memory_limit_mb: 1, ..default() }, mib(2), false),
    ] {
        let checked = check(call, &tool(metadata, None), output, 1_000, &mut Vec::new());
        let refused = checked.err().map(|error| error.code());
        assert_eq!(refused, (!is_accepted).then_some(ErrorCode::OutputTooLarge));
    }
}

#[test]
fn the_images_beside_a_preview_are_bounded_as_an_output() {
    let image = |bytes: usize| json!({"type": "image", "mimeType": "image/png", "data": "x".repeat(bytes)});
    let output = |bytes: usize| {
        let mcp = McpResult { content: vec![image(bytes)], ..McpResult::default() };
        ToolOutput { mcp: Some(Box::new(mcp)), ..ToolOutput::from(json!("x".repeat(2 << 20))) }
    };
    let shown =
        |bytes: usize| check(&with_handles(), &tool(Metadata::default(), None), output(bytes), 1_000, &mut Vec::new());
    assert!(shown(1 << 10).unwrap().large.is_some());
    assert_eq!(shown(2 << 20).unwrap_err().code(), ErrorCode::OutputTooLarge);
}

#[test]
fn members_that_the_protocol_does_not_have_count_with_their_names() {
    let result = |name: usize, member: usize| {
        let other = Map::from_iter([("x".repeat(name), json!("x".repeat(member)))]);
        let mcp = McpResult { content: vec![json!({"type": "text", "text": "a"})], other, ..McpResult::default() };
        ToolOutput { mcp: Some(Box::new(mcp)), ..ToolOutput::from(json!("a")) }
    };
    for (name, member, is_accepted) in [(9, 9, true), (2 << 20, 9, false), (9, 2 << 20, false)] {
        let refused = checked(&call(), &tool(Metadata::default(), None), result(name, member), 1_000).err();
        let expected = (!is_accepted).then_some(ErrorCode::OutputTooLarge);
        assert_eq!(refused.map(|error| error.code()), expected, "{name} {member}");
    }
}

/// `memory_limit_mb` is enforced.
#[test]
fn the_memory_limit_bounds_the_output_too() {
    let metadata = Metadata { memory_limit_mb: 1, max_output_bytes: 8 << 20, ..Metadata::default() };
    let error = checked(&call(), &tool(metadata, None), json!("x".repeat(2 << 20)).into(), 1_000);
    let error = error.unwrap_err();
    assert_eq!(error.code(), ErrorCode::OutputTooLarge);
}

#[test]
fn an_output_is_checked_against_its_schema_as_the_tool_is_configured() {
    let with = |output_check| tool(Metadata { output_check, ..Metadata::default() }, Some(json!({"type": "integer"})));
    let check = |how, output: Value| checked(&call(), &with(how), output.into(), 100);
    let error = check(OutputCheck::Enforce, json!("3")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidOutput);
    assert_eq!(error.details()[0].message, "the output must be an integer, got \"3\"");
    assert_eq!(check(OutputCheck::Report, json!("3")).unwrap().2.len(), 1);
    assert!(check(OutputCheck::Off, json!("3")).unwrap().2.is_empty());
    assert!(check(OutputCheck::Enforce, json!(3)).unwrap().2.is_empty());
}

/// Paging and `grep` of a stored result, and programs, have the rows; others get the output as it came.
#[test]
fn a_result_that_fastmcp_wraps_is_its_value_for_programs_and_where_it_is_stored() {
    let of_type = |kind| {
        let schema = json!({"type": "object", "properties": {"result": {"type": kind}}, "x-fastmcp-wrap-result": true});
        tool(Metadata::default(), Some(schema))
    };
    let tool = of_type("array");
    let rows: Value = (0..50).map(|id| json!({"id": id})).collect();
    let wrapped = json!({"result": rows});
    let checked = |call: &CallContext| check(call, &tool, wrapped.clone().into(), 1_000, &mut Vec::new()).unwrap();
    let program = checked(&CallContext { via: Via::Sandbox, ..call() });
    let large = checked(&with_handles());
    assert_eq!((program.answer.output, large.answer.output), (rows.clone(), wrapped.clone()));
    assert_eq!(large.large.unwrap().value, rows);
    let text = json!({"result": r#"[{"id":1},{"id":2}]"#.to_owned() + &" ".repeat(100)});
    let tool = of_type("string");
    let large = check(&with_handles(), &tool, text.into(), 1_000, &mut Vec::new()).unwrap().large.unwrap();
    assert_eq!(large.value, json!([{"id": 1}, {"id": 2}]), "JSON in a text");
}

/// A call whose large results are stored.
fn with_handles() -> CallContext {
    let handles = Some(ResultHandles { max_inline_bytes: 100, session: None });
    CallContext { origin: CallOrigin { handles, ..CallOrigin::default() }, ..call() }
}

fn call() -> CallContext {
    CallContext::new("tool", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
}

/// The tool ran, so the call is charged even if the output is refused.
#[test]
fn accepted_and_refused_outputs_are_charged_once() {
    let metadata = Metadata { cost_per_use: Decimal::new(1, 1), max_output_bytes: 100, ..Metadata::default() };
    let cases = [
        (json!(3), Ok(1)),
        (json!("not an integer"), Err(ErrorCode::InvalidOutput)),
        (json!("x".repeat(101)), Err(ErrorCode::OutputTooLarge)),
    ];
    for (output, expected) in cases {
        let tool = tool(metadata.clone(), Some(json!({"type": "integer"})));
        let budgets = Budgets::new(&BudgetConfig::default());
        let hold = budgets.reserve(&call(), &tool).now_or_never().unwrap().unwrap();
        let checked = check(&call(), &tool, output.into(), hold.max_text_tokens(), &mut Vec::new());
        let accepted = accept(Via::Rest, &tool, checked, hold);
        let cost = accepted.as_ref().map_or_else(CallError::cost_usd, |accepted| accepted.charge.cost_usd);
        assert_eq!(cost, Decimal::new(1, 1));
        assert_eq!(accepted.map(|accepted| accepted.charge.tokens).map_err(|error| error.code()), expected);
        assert_eq!((budgets.held().cost_usd, budgets.held().tokens), (Decimal::ZERO, 0));
    }
}

#[test]
fn a_text_is_truncated_to_the_reserved_tokens_and_charged_as_truncated() {
    let tool = tool(Metadata { max_text_tokens: 2_000, ..Metadata::default() }, None);
    let budgets = Budgets::new(&BudgetConfig { max_tokens_per_request: 50, ..BudgetConfig::default() });
    let hold = budgets.reserve(&call(), &tool).now_or_never().unwrap().unwrap();
    let checked = check(&call(), &tool, json!("x".repeat(1_000)).into(), hold.max_text_tokens(), &mut Vec::new());
    let accepted = accept(Via::Rest, &tool, checked, hold).unwrap();
    assert!(
        accepted.answer.text.ends_with("of 1000 bytes shown; `output` has all]") && accepted.answer.text.len() <= 200,
        "{}",
        accepted.answer.text
    );
    assert!(accepted.charge.tokens <= 50);
    assert_eq!(accepted.answer.output, json!("x".repeat(1_000)), "the value is not truncated");
}

#[test]
fn a_text_over_its_tokens_is_truncated_with_a_note() {
    let (text, tokens) = bounded("x".repeat(120_000), None, 2_000);
    assert_eq!(text.len(), 7_998);
    assert!(text.ends_with("x\n[cut: 7946 of 120000 bytes shown; `output` has all]"), "{}", &text[7_950..]);
    assert_eq!(tokens, 2_000);
    assert_eq!(bounded("x".repeat(8_000), None, 2_000), ("x".repeat(8_000), 2_000));
    assert_eq!(bounded("abcde".into(), None, 1), ("abcd".into(), 1));
    assert_eq!(bounded("関所の門".into(), None, 1), ("関".into(), 1));
    assert_eq!(bounded("関所の門".into(), None, 0), (String::new(), 0));
    let (text, tokens) = bounded("x".repeat(1_000), Some(500), 100);
    assert_eq!((text.len(), tokens), (199, 99), "two bytes per token, as the tool reported");
    assert_eq!(bounded("x".into(), Some(u64::MAX), 10), (String::new(), 0));
    assert_eq!(bounded(String::new(), Some(5), 1), (String::new(), 0));
}

/// The details are about the output that the caller would have got.
#[test]
fn an_output_that_does_not_fit_after_the_rules_is_refused_without_what_they_found() {
    let rule = TransformRule {
        name: "numbers".into(),
        tools: Vec::new(),
        paths: vec!["$.n".into()],
        detect: Vec::new(),
        replace: None,
    };
    let config = TransformConfig { arguments: Vec::new(), results: vec![rule] };
    let metadata = Metadata { name: "t".into(), ..Metadata::default() };
    let tool = tool(metadata, Some(json!({"type": "object", "properties": {"n": {"type": "integer"}}})));
    let tool = tool.with_transforms(TransformRules::compile(&config, &Rules::shipped()).unwrap().for_tool("t"));
    let mut findings = Vec::new();
    let error = check(&call(), &tool, json!({"n": 4711}).into(), 100, &mut findings).unwrap_err();
    assert_eq!((error.code(), findings.len()), (ErrorCode::InvalidOutput, 1));
    assert!(error.message().contains("after the rules `numbers` of tools.transform.results"), "{error}");
    assert_eq!(error.details().len(), 1);
    assert!(!error.details()[0].message.contains("4711"), "{error:?}");
}

proptest! {
    #[test]
    fn a_bounded_text_never_exceeds_its_tokens(text in ".{0,200}", tokens in prop::option::of(0_u64..500), max in 0_u64..100) {
        let given = text.clone();
        let (bounded, count) = bounded(text, tokens, max);
        prop_assert!(count <= max);
        prop_assert!(tokens.is_some() || bounded.len() as u64 <= max * BYTES_PER_TOKEN);
        prop_assert!(tokens.is_some() || count == (bounded.len() as u64).div_ceil(BYTES_PER_TOKEN));
        prop_assert!(bounded == given || bounded.len() < given.len() || bounded.contains("[cut: "));
    }
}
