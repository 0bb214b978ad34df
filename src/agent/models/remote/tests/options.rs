//! The options of a request, and the marks for the cache, in each protocol's terms.

use super::*;

/// Other servers know only the older name of the token limit, OpenAI's later models only the newer one.
#[test]
fn the_token_limit_has_openais_name_for_openai_alone() {
    let request = provider::request(question());
    let own = openai::body("gpt", &request, Vendor::Openai);
    assert_eq!((&own["max_completion_tokens"], &own["max_tokens"]), (&json!(100), &Value::Null));
    let others = openai::body("gpt", &request, Vendor::Other);
    assert_eq!((&others["max_completion_tokens"], &others["max_tokens"]), (&Value::Null, &json!(100)));
}

/// Some servers with OpenAI's API refuse the field that asks for the usage.
#[tokio::test]
async fn a_server_that_refuses_stream_options_is_asked_without_them() {
    let body = two_calls(Protocol::Openai);
    let refusal = |field: &str| {
        let body = json!({"error": {"message": format!("Unrecognized request argument supplied: {field}")}});
        Answer::whole(Protocol::Openai, body.to_string().as_bytes(), 4_096).status(400)
    };
    let answers = vec![refusal("stream_options"), Answer::whole(Protocol::Openai, &body, 4_096)];
    let provider = Provider::serving_in_turn(answers).await;
    let model = provider.model(Protocol::Openai);
    for _ in 0..2 {
        let pieces: Vec<_> = model.stream(Arc::new(provider::request(question()))).collect().await;
        assert!(matches!(pieces.last(), Some(Ok(ModelChunk::End { .. }))), "{pieces:?}");
    }
    let sent = |request: &Value| (request["stream"] == true, request.get("stream_options").is_some());
    let sent: Vec<_> = provider.requests.lock().iter().map(sent).collect();
    assert_eq!(sent, [(true, true), (true, false), (true, false)], "it is remembered");

    let provider = Provider::serving(refusal("stream_options")).await;
    let pieces = provider.ask(Protocol::Openai, question()).await;
    assert!(matches!(&pieces[..], [Err(ModelError::Refused(_))]), "{pieces:?}");
    assert_eq!(provider.requests.lock().len(), 2, "once more, and not again");
    let provider = Provider::serving(refusal("tools")).await;
    provider.ask(Protocol::Openai, question()).await;
    assert_eq!(provider.requests.lock().len(), 1);
}

#[test]
fn options_are_sent_in_each_protocols_own_terms() {
    let options = ModelOptions {
        temperature: Some(0.5),
        top_p: Some(0.9),
        stop: vec!["END".into()],
        tool_choice: ToolChoice::Tool("add".into()),
        ..ModelOptions::default()
    };
    let of_openai = ModelOptions {
        presence_penalty: Some(1.0),
        frequency_penalty: Some(-1.0),
        seed: Some(7),
        parallel_tool_calls: Some(false),
        thinking: Some(Thinking::BudgetTokens(2_000)),
        ..options.clone()
    };
    let request = |options: ModelOptions| ModelRequest { options, ..provider::request(question()) };
    let body = openai::body("gpt-4o", &request(of_openai.clone()), Vendor::Openai);
    let expected = json!({"temperature": 0.5, "top_p": 0.9, "presence_penalty": 1.0, "frequency_penalty": -1.0,
        "seed": 7, "stop": ["END"], "parallel_tool_calls": false, "reasoning_effort": "low",
        "tool_choice": {"type": "function", "function": {"name": "add"}}});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(body[name], *value, "{name}");
    }
    let body = openai::body("mistral-large", &request(of_openai.clone()), Vendor::Mistral);
    assert_eq!((&body["random_seed"], body.get("seed")), (&json!(7), None));
    let body =
        anthropic::body("claude", &request(ModelOptions { parallel_tool_calls: Some(false), ..options.clone() }));
    let expected = json!({"temperature": 0.5, "top_p": 0.9, "stop_sequences": ["END"],
        "tool_choice": {"type": "tool", "name": "add", "disable_parallel_tool_use": true}});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(body[name], *value, "{name}");
    }
    let body = bedrock::body("a-model", &request(options));
    assert_eq!(body["inferenceConfig"]["topP"], 0.9);
    assert_eq!(body["inferenceConfig"]["stopSequences"], json!(["END"]));
    assert_eq!(body["toolConfig"]["toolChoice"], json!({"tool": {"name": "add"}}));

    // OpenAI has a mode for the form of an answer; the others find it in their prompts.
    let schema = json!({"type": "object"});
    let output = OutputFormat::of_schema("n".into(), schema.clone(), true).unwrap();
    let formed = request(ModelOptions { output: Some(output), ..ModelOptions::default() });
    let expected = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
    assert_eq!(openai::body("gpt-4o", &formed, Vendor::Openai)["response_format"], expected);
    assert!(anthropic::body("claude", &formed)["system"][0]["text"].as_str().unwrap().contains("JSON Schema"));
    assert!(bedrock::body("a-model", &formed)["system"][1]["text"].as_str().unwrap().contains("JSON Schema"));

    // A turn that thinks has no temperature; one that must call a tool does not think.
    let thinking = ModelOptions { thinking: Some(Thinking::Effort(Effort::Medium)), ..ModelOptions::default() };
    let expected = json!({"type": "enabled", "budget_tokens": 8_192});
    let thinks = ModelOptions { temperature: Some(0.2), ..thinking.clone() };
    let thinks = ModelRequest { max_tokens: 10_000, ..request(thinks) };
    let body = anthropic::body("claude", &thinks);
    assert_eq!((&body["thinking"], body.get("temperature")), (&expected, None));
    let body = bedrock::body("a-model", &thinks);
    assert_eq!(body["additionalModelRequestFields"]["thinking"], expected);
    assert_eq!(body["inferenceConfig"].get("temperature"), None);
    // Newer models take an effort, and no temperature and no `top_p`.
    let adaptive = request(ModelOptions { temperature: Some(0.2), top_p: Some(0.9), ..thinking.clone() });
    let (field, effort) = (json!({"type": "adaptive", "display": "summarized"}), json!({"effort": "medium"}));
    let body = anthropic::body("claude-opus-4-7", &adaptive);
    assert_eq!((&body["thinking"], &body["output_config"]), (&field, &effort));
    assert_eq!((body.get("temperature"), body.get("top_p")), (None, None));
    let body = bedrock::body("anthropic.claude-opus-4-7-v1:0", &adaptive);
    assert_eq!(body["additionalModelRequestFields"], json!({"thinking": field, "output_config": effort}));
    assert_eq!(body["inferenceConfig"], json!({"maxTokens": 100}));
    let body = anthropic::body("claude-opus-4-7", &request(ModelOptions::default()));
    assert_eq!((body.get("thinking"), body.get("output_config")), (None, None));
    let forced = request(ModelOptions { tool_choice: ToolChoice::Required, ..thinking });
    assert_eq!(anthropic::body("claude", &forced).get("thinking"), None);

    for (model, takes_it) in [
        ("gpt-4o", true),
        ("gpt-5-mini", false),
        ("o3", false),
        ("openai/o4-mini", false),
        ("gpt-5-chat", true),
        ("olmo", true),
    ] {
        let body = openai::body(model, &request(of_openai.clone()), Vendor::Other);
        assert_eq!(body.get("temperature").is_some(), takes_it, "{model}");
        assert_eq!(body.get("max_tokens").is_some(), takes_it, "{model}");
    }
}

/// Places with a mark for the cache.
fn marked(body: &Value) -> Vec<String> {
    fn visit(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if fields.contains_key("cache_control") || fields.contains_key("cachePoint") {
                    found.push(path.to_owned());
                }
                fields.iter().for_each(|(name, value)| visit(value, &format!("{path}/{name}"), found));
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| visit(item, &format!("{path}/{index}"), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    visit(body, "", &mut found);
    found.sort();
    found
}

/// The next request begins with the same tools, system prompt and messages. Providers accept at most four marks.
#[test]
fn what_the_next_request_begins_with_is_marked_for_the_cache() {
    let exchange = |id: &str| {
        let answer = ToolMessage { call_id: id.into(), tool: "add".into(), text: "3".into(), ..ToolMessage::default() };
        [Message::Assistant(AssistantTurn::new("", [call(id, "{}")])), Message::Tool(answer)]
    };
    let messages = [question(), exchange("a").into(), exchange("b").into()].concat();
    let request = provider::request(messages);
    let expected = ["/messages/2/content/0", "/messages/4/content/0", "/system/0", "/tools/0"];
    assert_eq!(marked(&anthropic::body("claude", &request)), expected);
    let all = ["/messages/2/content/1", "/messages/4/content/1", "/system/1", "/toolConfig/tools/1"];
    for (model, expected) in [
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", &all[..]),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", &all),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", &all),
        ("us.amazon.nova-pro-v1:0", &all[..3]),
        ("anthropic.claude-3-haiku-20240307-v1:0", &[]),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", &[]),
        ("amazon.nova-canvas-v1:0", &[]),
        ("meta.llama3-1-70b-instruct-v1:0", &[]),
    ] {
        assert_eq!(marked(&bedrock::body(model, &request)), expected, "{model}");
    }
    assert!(marked(&openai::body("gpt-4o", &request, Vendor::Openai)).is_empty(), "OpenAI needs no marks");
    let own = ModelRequest { purpose: Purpose::ContextSummary, ..request };
    assert!(marked(&anthropic::body("claude", &own)).is_empty(), "nothing continues a summary");
}
