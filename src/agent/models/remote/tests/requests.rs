//! Each kind of request to each provider, against the schema of the provider's own client.

use super::*;

type WriteBody = fn(&str, &ModelRequest) -> Value;

/// The schema of each provider's requests, and models of different generations and vendors.
const PROVIDERS: [(&str, &[&str], WriteBody); 5] = [
    (
        include_str!("../../../../../tests/fixtures/model_apis/anthropic.json"),
        &["claude-sonnet-4-5", "claude-opus-4-7"],
        anthropic::body,
    ),
    (
        include_str!("../../../../../tests/fixtures/model_apis/openai.json"),
        &["gpt-4o", "gpt-5-mini"],
        |model, request| openai::body(model, request, Vendor::Openai),
    ),
    (
        include_str!("../../../../../tests/fixtures/model_apis/openai_responses.json"),
        &["gpt-4.1", "gpt-5.6-sol"],
        |model, request| responses::body(model, request, false),
    ),
    (
        include_str!("../../../../../tests/fixtures/model_apis/gemini.json"),
        &["gemini-2.5-pro", "gemini-3.8-flash"],
        gemini::body,
    ),
    (
        include_str!("../../../../../tests/fixtures/model_apis/bedrock.json"),
        &[
            "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "anthropic.claude-opus-4-7-v1:0",
            "us.amazon.nova-pro-v1:0",
            "meta.llama3-1-70b-instruct-v1:0",
        ],
        bedrock::body,
    ),
];

#[test]
fn each_kind_of_request_is_valid_against_the_providers_schema() {
    for (schema, models, body) in PROVIDERS {
        let schema: Value = serde_json::from_str(schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for (kind, request) in kinds() {
            for model in models {
                let body = body(model, &request);
                let violations: Vec<_> =
                    validator.iter_errors(&body).map(|error| format!("{}: {error}", error.instance_path())).collect();
                assert!(violations.is_empty(), "{model}, {kind}: {violations:?}\n{body:#}");
            }
        }
        let null = json!({"messages": null, "tools": null, "toolConfig": null, "contents": null});
        assert!(!validator.is_valid(&null), "the schema refuses a request");
    }
}

/// The requests that the product makes, by their purpose, messages, tools and options.
fn kinds() -> Vec<(&'static str, ModelRequest)> {
    let with_tools = provider::request;
    let without_tools = |messages| ModelRequest { tools: Vec::new(), ..provider::request(messages) };
    let own = |purpose| ModelRequest { purpose, ..without_tools(question()) };
    // With room for thoughts.
    let asked = |options, request: ModelRequest| ModelRequest { options, max_tokens: 40_000, ..request };
    vec![
        ("a turn with tools", with_tools(question())),
        ("a turn without tools, as of a planner or a sub-agent", without_tools(question())),
        ("a turn without a system prompt", without_tools(vec![Message::User("1 + 2?".into())])),
        ("calls, their results and thoughts", with_tools(exchanges())),
        ("images and documents", with_tools(attachments())),
        ("the title of a conversation", own(Purpose::Title)),
        ("the summary of a thread", own(Purpose::ConversationSummary)),
        ("the summary of older messages", own(Purpose::ContextSummary)),
        ("the summary of tool calls", own(Purpose::CallSummary)),
        ("the selection of tools", ModelRequest { purpose: Purpose::Selection, ..with_tools(question()) }),
    ]
    .into_iter()
    .chain(with_options().map(|(kind, options)| (kind, asked(options, with_tools(question())))))
    .chain(with_options().map(|(kind, options)| (kind, asked(options, without_tools(question())))))
    .collect()
}

fn with_options() -> impl Iterator<Item = (&'static str, ModelOptions)> {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let format = OutputFormat::of_schema("numbers".into(), schema, true).unwrap();
    let sampling = ModelOptions {
        temperature: Some(0.5),
        top_p: Some(0.9),
        presence_penalty: Some(1.0),
        frequency_penalty: Some(-1.0),
        seed: Some(7),
        stop: vec!["END".into()],
        ..ModelOptions::default()
    };
    let choice = |tool_choice| ModelOptions { tool_choice, ..ModelOptions::default() };
    let output = |format| ModelOptions { output: Some(format), ..ModelOptions::default() };
    let thinking = |thinking| ModelOptions { thinking: Some(thinking), ..ModelOptions::default() };
    [
        ("sampling", sampling),
        ("one call at a time", ModelOptions { parallel_tool_calls: Some(false), ..ModelOptions::default() }),
        ("no call", choice(ToolChoice::None)),
        ("any call", choice(ToolChoice::Required)),
        ("one tool", choice(ToolChoice::Tool("add".into()))),
        ("an answer in JSON", output(OutputFormat::object())),
        ("an answer by a schema", output(format)),
        ("thinking by tokens", thinking(Thinking::BudgetTokens(2_000))),
        ("thinking by effort", thinking(Thinking::Effort(Effort::High))),
        ("the most thinking", thinking(Thinking::Effort(Effort::Xhigh))),
    ]
    .into_iter()
}

fn exchanges() -> Vec<Message> {
    let mut turn = AssistantTurn::new("Adding.", [call("a", "{\"x\":1}"), call("b", "not JSON")]);
    let signed = Thought::Signed { text: "1 + 2".into(), signature: "c2ln".into() };
    turn.parts.insert(0, TurnPart::Thought(Thought::Redacted("cmVk".into())));
    turn.parts.insert(0, TurnPart::Thought(signed));
    let image = Image { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
    let failed = ToolMessage {
        call_id: "b".into(),
        tool: "add".into(),
        text: String::new(),
        is_error: true,
        ..ToolMessage::default()
    };
    let results = [answer("a", vec![image]), Message::Tool(failed)];
    [question(), vec![Message::Assistant(turn)], results.to_vec(), vec![Message::User("Sure?".into())]].concat()
}

fn attachments() -> Vec<Message> {
    let image = Image { media_type: "image/jpeg".into(), base64: "/9j/4AA=".into() };
    let pdf = UserFile::new("Q3 report.pdf", Some("application/pdf".into()), b"%PDF-1.7 q3".to_vec());
    let parts = vec![UserPart::Text("What is this?".into()), UserPart::Image(image), UserPart::File(pdf)];
    vec![Message::User(UserMessage { parts })]
}
