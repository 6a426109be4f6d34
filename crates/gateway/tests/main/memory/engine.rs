//! A backend that sends more than anybody wants, as long as it is let.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{STREAM_HEAD, chat_answer, chunk, json_answer, next_request};

/// Answers by the header `x-script` of the request: see [`Script`].
pub(super) struct Engine {
    pub(super) address: SocketAddr,
    counts: Arc<Counts>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counts {
    sent_bytes: AtomicU64,
    left: AtomicU64,
}

/// What an answer is made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Script {
    /// A stream of this many bytes of content in events of 32 KiB.
    Events(usize),
    /// One `data:` line of this many bytes, that never ends.
    Line(usize),
    /// One JSON string of this many bytes inside an event that never ends.
    Text(usize),
    /// A reply of this many bytes, told before.
    Reply(usize),
}

impl Script {
    pub(super) fn header(self) -> String {
        match self {
            Self::Events(bytes) => format!("events {bytes}"),
            Self::Line(bytes) => format!("line {bytes}"),
            Self::Text(bytes) => format!("text {bytes}"),
            Self::Reply(bytes) => format!("reply {bytes}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, bytes) = text.split_once(' ')?;
        let bytes = bytes.parse().ok()?;
        Some(match name {
            "events" => Self::Events(bytes),
            "line" => Self::Line(bytes),
            "text" => Self::Text(bytes),
            "reply" => Self::Reply(bytes),
            other => panic!("{other}"),
        })
    }

    /// What comes first, and what comes again and again.
    fn parts(self) -> (Vec<u8>, Vec<u8>, usize) {
        let filler = vec![b'a'; PIECE_BYTES];
        match self {
            Self::Events(bytes) => {
                let text = "w ".repeat(PIECE_BYTES / 2);
                let event = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
                (STREAM_HEAD.to_vec(), chunk(format!("data: {event}\n\n").as_bytes()), bytes / PIECE_BYTES)
            }
            Self::Line(bytes) => {
                ([STREAM_HEAD, &chunk(b"data: ")].concat(), chunk(&filler), bytes / PIECE_BYTES)
            }
            Self::Text(bytes) => {
                let start = chunk(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"");
                ([STREAM_HEAD, &start].concat(), chunk(&filler), bytes / PIECE_BYTES)
            }
            Self::Reply(bytes) => {
                let count = bytes / PIECE_BYTES;
                let start = "{\"choices\":[{\"message\":{\"content\":\"";
                let length = start.len() + count * PIECE_BYTES;
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{start}"
                );
                (head.into_bytes(), filler, count)
            }
        }
    }
}

impl Engine {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                connections.spawn(converse(stream, Arc::clone(&shared)));
            }
        });
        Self { address, counts, task }
    }

    /// Bytes of scripted answers that the gateway has taken.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.counts.sent_bytes.load(Ordering::Relaxed)
    }

    /// Scripted answers that are over, sent or not.
    pub(super) fn left(&self) -> u64 {
        self.counts.left.load(Ordering::Relaxed)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn converse(mut stream: TcpStream, counts: Arc<Counts>) {
    let mut read = Vec::new();
    while let Some(got) = next_request(&mut stream, &mut read).await {
        let Some(script) = got.header("x-script").as_deref().and_then(Script::parse) else {
            let usual = if got.head.starts_with("POST /v1/embeddings") {
                json_answer(200, &json!({"data": [], "usage": {"prompt_tokens": 1, "total_tokens": 1}}))
            } else {
                chat_answer(3, 1)
            };
            if stream.write_all(&usual).await.is_err() {
                return;
            }
            continue;
        };
        let (start, piece, count) = script.parts();
        let mut is_taken = stream.write_all(&start).await.is_ok();
        for _ in 0..count {
            if !is_taken {
                break;
            }
            is_taken = stream.write_all(&piece).await.is_ok();
            counts.sent_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        // A line or a text never ends: the connection does, and cuts it.
        let _ = stream.shutdown().await;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
        counts.left.fetch_add(1, Ordering::Relaxed);
        return;
    }
}

const PIECE_BYTES: usize = 32 * 1024;
