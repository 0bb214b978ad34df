//! Clients that disconnect half-way.

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::client::{Client, Outcome};

/// How the metrics count a call whose client disconnected.
const CANCELLED: &str = "cancelled";

/// Leaves a call when its upstream has it, which never answers.
pub(super) async fn leave(client: &mut Client) -> Outcome {
    let id = client.number.to_string();
    let arrival = client.gateway.upstream.arrival(&id);
    let request = client.execute(&client.key(), "shop__hold", &json!({"arguments": {"id": id}}));
    tokio::select! {
        answered = request.send() => return Err(format!("it was answered: {answered:?}")),
        arrived = arrival => arrived.map_err(|_| "nothing arrived".to_owned())?,
    }
    client.settle(CANCELLED);
    Ok(())
}

/// Sends a part of a body, and closes the connection.
pub(super) async fn half_a_request(client: &mut Client) -> Outcome {
    let address = client.gateway.url().trim_start_matches("http://").to_owned();
    let head = format!(
        "POST /tools/calculator/execute HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"arguments\"",
        client.key(),
    );
    let sent = async {
        let mut connection = TcpStream::connect(&address).await?;
        connection.write_all(head.as_bytes()).await
    };
    sent.await.map_err(|error: std::io::Error| format!("not sent: {error}"))
}
