//! Images of users and of tools.

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
            Protocol::Bedrock => json!([
                {"text": "what is this?"},
                {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
            ]),
        };
        assert_eq!(unmarked(request["messages"][0]["content"].clone()), expected, "{protocol:?}: {request:#}");
    }
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
            Protocol::Bedrock => json!([
                {"toolResult": {"toolUseId": "a", "content": [
                    {"text": "a"}, {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}]}},
                {"toolResult": {"toolUseId": "b", "content": [{"text": "b"}]}},
            ]),
        };
        assert_eq!(unmarked(last["content"].clone()), expected, "{protocol:?}: {request:#}");
    }
}
