//! Gemini's `generateContent` (<https://ai.google.dev/api/generate-content>), at Google's API for developers and at Vertex AI.

mod answer;

use serde_json::{Map, Value, json};

use super::ModelRequest;
use super::remote::MessageMerger;
use crate::message::{AssistantTurn, Image, Message, RequestedCall, Thought, ToolMessage, TurnPart, UserPart};
use crate::options::ToolChoice;
use crate::output_format::OutputFormat;
use crate::toolbox::ToolDescription;
use crate::user_file::{PDF, UserFile};
use sekisho_config::{Effort, Thinking};

pub(super) use self::answer::read;

/// The member with the data that the provider requires back with a part
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
const SIGNATURE: &str = "thoughtSignature";

/// The model is a part of the URL.
pub(super) fn body(model: &str, request: &ModelRequest) -> Value {
    let mut body = json!({
        "contents": contents(&request.messages, is_third_generation(model)),
        "generationConfig": generation_config(model, request),
    });
    // A form of the answer beside functions is refused: the prompt has it then, and the run checks it.
    let form = request.options.output.as_ref().filter(|_| !request.tools.is_empty()).map(OutputFormat::instruction);
    let prompts = request.messages.iter().filter_map(Message::as_system).map(str::to_owned);
    let system: Vec<_> = prompts.chain(form).collect();
    if !system.is_empty() {
        body["systemInstruction"] = json!({"parts": [{"text": system.join("\n\n")}]});
    }
    if !request.tools.is_empty() {
        let tools: Vec<_> = request.tools.iter().map(tool).collect();
        body["tools"] = json!([{"functionDeclarations": tools}]);
        if let Some(config) = calling_config(&request.options.tool_choice) {
            body["toolConfig"] = json!({"functionCallingConfig": config});
        }
    }
    body
}

fn generation_config(model: &str, request: &ModelRequest) -> Value {
    let options = &request.options;
    let mut config = json!({"maxOutputTokens": request.max_tokens});
    let output = options.output.as_ref().filter(|_| request.tools.is_empty());
    let asked = [
        ("temperature", options.temperature.map(Value::from)),
        ("topP", options.top_p.map(Value::from)),
        ("presencePenalty", options.presence_penalty.map(Value::from)),
        ("frequencyPenalty", options.frequency_penalty.map(Value::from)),
        ("seed", options.seed.map(Value::from)),
        ("stopSequences", (!options.stop.is_empty()).then(|| json!(options.stop))),
        ("responseMimeType", output.map(|_| "application/json".into())),
        ("responseJsonSchema", output.and_then(OutputFormat::schema).map(|schema| schema.checked.whole())),
        ("thinkingConfig", options.thinking.map(|thinking| thinking_config(model, thinking))),
    ];
    for (name, value) in asked {
        if let Some(value) = value {
            config[name] = value;
        }
    }
    config
}

/// Models from Gemini 3 on take a level, those before a number of tokens. The Pro models always think: they refuse 0 and the
/// least level (<https://ai.google.dev/gemini-api/docs/thinking>).
fn thinking_config(model: &str, thinking: Thinking) -> Value {
    let is_pro = model.contains("-pro");
    if !is_third_generation(model) {
        let (least, most) = if is_pro { (128, 32_768) } else { (0, 24_576) };
        let budget = thinking.tokens().clamp(least, most);
        return json!({"includeThoughts": thinking.tokens() > 0, "thinkingBudget": budget});
    }
    let level = match thinking.effort() {
        Effort::None | Effort::Minimal if is_pro => "LOW",
        Effort::None | Effort::Minimal => "MINIMAL",
        Effort::Low => "LOW",
        Effort::Medium => "MEDIUM",
        Effort::High | Effort::Xhigh | Effort::Max => "HIGH",
    };
    json!({"includeThoughts": true, "thinkingLevel": level})
}

/// By the name; models of other names are of a later generation.
fn is_third_generation(model: &str) -> bool {
    !["gemini-1", "gemini-2"].iter().any(|old| model.starts_with(old))
}

fn contents(conversation: &[Message], with_images_in_results: bool) -> Value {
    let mut contents = MessageMerger::for_gemini();
    for message in conversation {
        match message {
            Message::System(_) => {}
            Message::User(message) => contents.user(message.parts.iter().flat_map(user_parts)),
            Message::Assistant(turn) => contents.assistant(model_parts(turn)),
            Message::Tool(answer) => contents.user(answered(answer, with_images_in_results)),
        }
    }
    contents.into_messages()
}

fn model_parts(turn: &AssistantTurn) -> impl Iterator<Item = Value> {
    turn.parts.iter().filter_map(|part| match part {
        TurnPart::Text(text) => (!text.is_empty()).then(|| json!({"text": text})),
        // Its text was a summary, which is not taken back.
        TurnPart::Thought(Thought::Signed { signature, .. }) => Some(json!({"text": "", SIGNATURE: signature})),
        TurnPart::Thought(Thought::Redacted(_) | Thought::Unsigned { .. } | Thought::Details(_)) => None,
        TurnPart::Call(call) => Some(function_call(call)),
    })
}

fn function_call(call: &RequestedCall) -> Value {
    let mut part = json!({"functionCall": {"name": call.tool, "args": call.parsed_arguments()}});
    if let Some(signature) = call.extras.get(SIGNATURE) {
        part[SIGNATURE] = signature.clone();
    }
    part
}

/// The result of a call. Before Gemini 3 its images are parts of their own, after it.
fn answered(answer: &ToolMessage, with_images: bool) -> Vec<Value> {
    let name = if answer.is_error { "error" } else { "result" };
    let mut response = json!({"name": answer.tool, "response": {name: answer.text}});
    let images: Vec<_> = answer.images.iter().map(image_part).collect();
    if !with_images || images.is_empty() {
        return [json!({"functionResponse": response})].into_iter().chain(images).collect();
    }
    response["parts"] = images.into();
    vec![json!({"functionResponse": response})]
}

fn user_parts(part: &UserPart) -> Vec<Value> {
    match part {
        UserPart::Text(text) => vec![json!({"text": text})],
        UserPart::Image(image) => vec![image_part(image)],
        UserPart::File(file) => document_parts(file),
    }
}

fn document_parts(file: &UserFile) -> Vec<Value> {
    let document = file.document().map(|data| json!({"inlineData": {"mimeType": PDF, "data": data}}));
    document.into_iter().chain([json!({"text": file.description()})]).collect()
}

fn image_part(image: &Image) -> Value {
    json!({"inlineData": {"mimeType": image.media_type, "data": image.base64}})
}

fn calling_config(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!({"mode": "NONE"})),
        ToolChoice::Required => Some(json!({"mode": "ANY"})),
        ToolChoice::Tool(name) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
    }
}

fn tool(tool: &ToolDescription) -> Value {
    let mut declaration = Map::new();
    declaration.insert("name".to_owned(), tool.name.as_str().into());
    declaration.insert("description".to_owned(), tool.description.as_str().into());
    declaration.insert("parametersJsonSchema".to_owned(), Value::clone(&tool.parameters));
    Value::Object(declaration)
}
