//! Many streams open at the same time: opened, told, and read to their ends when the backend lets them go.

use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use fairlane_benches::message;
use memchr::memmem;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::Plan;
use crate::exchange::Exchanges;

/// Opens `count` streams, prints `{"open": count}` when each has brought its first event, and waits for their ends.
///
/// # Errors
/// A stream cannot be opened, or is refused.
pub(crate) async fn run(plan: &Plan, count: usize) -> Result<Value, String> {
    let exchanges = Rc::new(Exchanges::new(plan));
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        open.push(begin(&exchanges).await?);
    }
    println!("{}", json!({ "open": count }));
    let mut finished = 0;
    for (mut socket, mut buffer) in open {
        let to_the_end = async {
            while memmem::find(&buffer, b"[DONE]").is_none() {
                message::more(&mut socket, &mut buffer).await.ok()?;
            }
            Some(())
        };
        if let Ok(Some(())) = tokio::time::timeout(END_MAX, to_the_end).await {
            finished += 1;
        }
    }
    Ok(json!({"ok": finished, "unfinished": count - finished}))
}

async fn begin(exchanges: &Exchanges) -> Result<(TcpStream, BytesMut), String> {
    let mut socket = exchanges.connected(None).await.ok_or("cannot connect")?;
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    let opening = async {
        socket.write_all(exchanges.request()).await?;
        let head = message::answer_head(&mut socket, &mut buffer).await?;
        while memmem::find(&buffer, b"data: ").is_none() && head.status == 200 {
            message::more(&mut socket, &mut buffer).await?;
        }
        Ok::<u16, std::io::Error>(head.status)
    };
    match tokio::time::timeout(END_MAX, opening).await {
        Ok(Ok(200)) => Ok((socket, buffer)),
        Ok(Ok(status)) => {
            Err(format!("a stream was answered with {status}: {}", String::from_utf8_lossy(&buffer)))
        }
        Ok(Err(error)) => Err(format!("a stream broke: {error}")),
        Err(_) => Err("a stream did not open in time".to_owned()),
    }
}

const END_MAX: Duration = Duration::from_secs(60);
