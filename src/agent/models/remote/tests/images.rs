//! Images and documents of users, and images of tools.

use super::*;

#[tokio::test]
async fn images_of_the_user_are_shown_to_the_model() {
    let image = Image { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
    let parts = vec![UserPart::Text("what is this?".into()), UserPart::Image(image)];
    for protocol in ALL {
        let messages = vec![Message::User(UserMessage { parts: parts.clone() })];
        let (_, request) = exchange(protocol, &two_calls(protocol), 4_096, messages).await;
        let expected = match protocol {
            Protocol::Openai => json!([
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ]),
            Protocol::Anthropic => json!([
                {"type": "text", "text": "what is this?"},
                {"type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
            ]),
            Protocol::Responses | Protocol::Gemini => unreachable!("they have tests of their own"),
            Protocol::Bedrock => json!([
                {"text": "what is this?"},
                {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
            ]),
        };
        assert_eq!(unmarked(request["messages"][0]["content"].clone()), expected, "{protocol:?}: {request:#}");
    }
}

#[tokio::test]
async fn documents_of_the_user_are_read_by_the_model() {
    let file = || UserFile::new("Q3 report_v2.pdf", Some("application/pdf".into()), b"%PDF-1.7 q3".to_vec());
    let (data, digest) = ("JVBERi0xLjcgcTM=", file().digest()[..8].to_owned());
    let about = file().description();
    for protocol in ALL {
        let messages = vec![Message::User(UserMessage { parts: vec![UserPart::File(file())] })];
        let (_, request) = exchange(protocol, &two_calls(protocol), 4_096, messages).await;
        let expected = match protocol {
            Protocol::Openai => {
                let data = format!("data:application/pdf;base64,{data}");
                json!([{"type": "file", "file": {"filename": "Q3 report_v2.pdf", "file_data": data}},
                    {"type": "text", "text": about}])
            }
            Protocol::Anthropic => json!([
                {"type": "document", "title": "Q3 report_v2.pdf",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": data}},
                {"type": "text", "text": about},
            ]),
            Protocol::Responses | Protocol::Gemini => unreachable!("they have tests of their own"),
            Protocol::Bedrock => json!([
                {"document": {"format": "pdf", "name": format!("Q3-report-v2-{digest}"), "source": {"bytes": data}}},
                {"text": about},
            ]),
        };
        assert_eq!(unmarked(request["messages"][0]["content"].clone()), expected, "{protocol:?}: {request:#}");
    }
    let mut message = Message::User(UserMessage { parts: vec![UserPart::File(file())] });
    message.forget_documents();
    let (_, request) = exchange(Protocol::Openai, &two_calls(Protocol::Openai), 4_096, vec![message]).await;
    assert_eq!(request["messages"][0]["content"], json!([{"type": "text", "text": about}]), "{request:#}");
}

/// Anthropic's models read it from the field, too.
#[tokio::test]
async fn a_failed_call_is_marked_as_an_error() {
    let failed = ToolMessage { is_error: true, text: "Error: no".into(), ..result_of("a") };
    let turn = AssistantTurn::new("", [call("a", "{}"), call("b", "{}")]);
    let messages = [vec![Message::Assistant(turn)], [failed, result_of("b")].map(Message::Tool).to_vec()].concat();
    let (_, request) =
        exchange(Protocol::Anthropic, &two_calls(Protocol::Anthropic), 4_096, [question(), messages].concat()).await;
    let results = &request["messages"][2]["content"];
    assert_eq!((&results[0]["is_error"], results[1].get("is_error")), (&json!(true), None), "{request:#}");
}

fn result_of(id: &str) -> ToolMessage {
    ToolMessage { call_id: id.into(), tool: "add".into(), text: "3".into(), ..ToolMessage::default() }
}

#[tokio::test]
async fn images_of_tools_are_shown_to_the_model() {
    let image = Image { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
    for protocol in ALL {
        let turn = AssistantTurn::new("", [call("a", "{}"), call("b", "{}")]);
        let answers = vec![Message::Assistant(turn), answer("a", vec![image.clone()]), answer("b", Vec::new())];
        let (_, request) = exchange(protocol, &two_calls(protocol), 4_096, [question(), answers].concat()).await;
        let last = request["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["role"], "user", "{request}");
        let expected = match protocol {
            Protocol::Openai => json!([
                {"type": "text", "text": "Images returned by `plot` (call a):"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ]),
            Protocol::Anthropic => json!([
                {"type": "tool_result", "tool_use_id": "a", "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                ]},
                {"type": "tool_result", "tool_use_id": "b", "content": "b"},
            ]),
            Protocol::Responses | Protocol::Gemini => unreachable!("they have tests of their own"),
            Protocol::Bedrock => json!([
                {"toolResult": {"toolUseId": "a", "content": [
                    {"text": "a"}, {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}]}},
                {"toolResult": {"toolUseId": "b", "content": [{"text": "b"}]}},
            ]),
        };
        assert_eq!(unmarked(last["content"].clone()), expected, "{protocol:?}: {request:#}");
    }
}
