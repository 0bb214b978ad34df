//! The options of a client, and the corrections in a model's calls and answers.

use super::*;

#[tokio::test]
async fn what_the_client_asks_for_bounds_each_turn_and_forces_calls_in_the_first_alone() {
    let call = json!([{"id": "a", "tool": "echo", "arguments": "{}"}]);
    let model = RecordingModel::new("options.yaml", &json!({"turns": [{"calls": call}, {"text": ["done"]}]}));
    let tool = serde_json::from_value(json!({"name": "echo"})).unwrap();
    let toolbox = Arc::new(ScriptedToolbox { tools: vec![tool], ..ScriptedToolbox::default() });
    let profile = AgentProfile {
        temperature: Some(Some(0.4)),
        max_tokens: Some(100),
        thinking: Some(Thinking::BudgetTokens(2_000)),
        ..AgentProfile::default()
    };
    let agent = Agent { model: model.clone(), toolbox, profile: profile.into(), summarizer: None };
    let options = |max_tokens, temperature| ModelOptions {
        max_tokens: Some(max_tokens),
        temperature,
        tool_choice: ToolChoice::Required,
        ..ModelOptions::default()
    };
    for (max_tokens, temperature, expected) in [(500, None, (2_100, Some(0.4))), (7, Some(1.0), (2_007, Some(1.0)))] {
        let options = options(max_tokens, temperature);
        let _: Vec<_> = agent.run(RunInput { messages: question(), options, ..RunInput::default() }).collect().await;
        let requests = std::mem::take(&mut *model.requests.lock());
        let choices: Vec<_> = requests.iter().map(|request| request.options.tool_choice.clone()).collect();
        assert_eq!(choices, [ToolChoice::Required, ToolChoice::Auto]);
        for request in requests {
            assert_eq!((request.max_tokens, request.options.temperature), expected);
            assert_eq!(request.options.thinking, Some(Thinking::BudgetTokens(2_000)));
        }
    }
}

#[tokio::test]
async fn a_client_that_asks_for_top_p_gets_no_temperature_of_the_profile() {
    for (temperature, expected) in [(None, None), (Some(0.5), Some(0.5))] {
        let model = RecordingModel::new("top_p.yaml", &json!({"turns": [{"text": ["done"]}]}));
        let toolbox = Arc::new(ScriptedToolbox::default());
        let agent = Agent { model: model.clone(), toolbox, profile: Arc::default(), summarizer: None };
        let options = ModelOptions { top_p: Some(0.9), temperature, ..ModelOptions::default() };
        let _: Vec<_> = agent.run(RunInput { messages: question(), options, ..RunInput::default() }).collect().await;
        let requests = model.requests.lock();
        let sent: Vec<_> = requests.iter().map(|request| request.options.temperature).collect();
        assert_eq!(sent, [expected]);
    }
}

/// Notes the corrections in each call.
#[derive(Default)]
struct Corrections(Mutex<Vec<Value>>);

impl Toolbox for Corrections {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(vec![description("calculator")]) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        self.0.lock().push(serde_json::to_value(&call.corrections).unwrap());
        Box::pin(async { ToolAnswer { success: true, text: "1".into(), error_info: None, images: Vec::new() } })
    }
}

#[tokio::test]
async fn corrections_of_names_and_arguments_go_with_the_call() {
    let call = |tool: &str, arguments: &str| json!({"id": tool, "tool": tool, "arguments": arguments});
    let calls = [
        call("calculator", "{}"),
        call("functions.Calculator", "{}"),
        call("calculator<|channel|>commentary", "{}"),
        call("calculator", r#""{\"n\": 2}""#),
    ];
    let model = RecordingModel::new("corrections", &json!({"turns": [{"calls": calls}, {"text": ["done"]}]}));
    let toolbox = Arc::new(Corrections::default());
    let profile = AgentProfile { parallel_tool_calls: 1, ..AgentProfile::default() };
    let agent = Agent { model, toolbox: toolbox.clone(), profile: profile.into(), summarizer: None };
    let _: Vec<_> = agent.run(RunInput { messages: question(), ..RunInput::default() }).collect().await;
    let noted = [
        json!([]),
        json!([{"path": "", "rule": "tool_name", "from": "functions.Calculator", "to": "calculator"}]),
        json!([{"path": "", "rule": "tool_name", "from": "calculator<|channel|>commentary", "to": "calculator"}]),
        json!([{"path": "", "rule": "decoded_twice", "from": "string", "to": "object"}]),
    ];
    assert_eq!(*toolbox.0.lock(), noted);
}

/// The contents of a run that is asked for an object with a number, the code of its error, and its requests.
async fn asked_for_a_number(answers: &[&str]) -> (Vec<String>, Option<ErrorCode>, Vec<Arc<ModelRequest>>) {
    let turns: Vec<_> = answers.iter().map(|answer| json!({"text": [answer]})).collect();
    let model = RecordingModel::new("number.yaml", &json!({"turns": turns}));
    let toolbox = Arc::new(ScriptedToolbox::default());
    let agent = Agent { model: model.clone(), toolbox, profile: Arc::default(), summarizer: None };
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let output = OutputFormat::of_schema("number".into(), schema, true).unwrap();
    let options = ModelOptions { output: Some(output), ..ModelOptions::default() };
    let input = RunInput { messages: question(), options, ..RunInput::default() };
    let (mut contents, mut failure) = (Vec::new(), None);
    for event in agent.run(input).collect::<Vec<_>>().await {
        match event {
            Event::Content { text } => contents.push(text),
            Event::Error(error) => failure = Some(error.code),
            _ => {}
        }
    }
    let requests = model.requests.lock().clone();
    (contents, failure, requests)
}

#[tokio::test]
async fn an_answer_in_another_form_is_asked_for_once_more() {
    let (contents, failure, requests) = asked_for_a_number(&["```json\n{\"n\": 1}\n```"]).await;
    assert_eq!((contents, failure, requests.len()), (vec!["{\"n\": 1}".to_owned()], None, 1));

    let (contents, failure, requests) = asked_for_a_number(&["It is 1.", "{\"n\": 1}"]).await;
    assert_eq!((contents, failure, requests.len()), (vec!["{\"n\": 1}".to_owned()], None, 2));
    let [.., Message::Assistant(answer), Message::User(again)] = &requests[1].messages[..] else { panic!() };
    assert_eq!(answer.text(), "It is 1.");
    assert!(again.text().contains("it is not JSON"), "{again:?}");

    let (contents, failure, requests) = asked_for_a_number(&["{}", "{\"n\": \"1\"}", "never asked for"]).await;
    assert_eq!((contents, failure, requests.len()), (Vec::new(), Some(ErrorCode::InvalidOutput), 2));
}
