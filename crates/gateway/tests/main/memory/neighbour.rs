//! Another tenant, who sends one request after the other and wants its answers as before.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use fairlane::clock::monotonic;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::support::{chat_body, in_time};

/// A kept connection of the neighbour.
pub(super) struct Neighbour {
    sender: SendRequest<Full<Bytes>>,
}

impl Neighbour {
    /// Connects to the gateway, or to the backend itself.
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = in_time("a connection", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    /// One request; how long its answer took.
    pub(super) async fn ask(&mut self) -> Duration {
        let request = http::Request::post("/v1/chat/completions")
            .header("host", "gateway")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {KEY}"))
            .body(Full::new(Bytes::from(chat_body(3, 5).to_string())))
            .unwrap();
        let begun = monotonic();
        let answered = in_time("the neighbour's answer", async {
            self.sender.ready().await.unwrap();
            let response = self.sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.unwrap().to_bytes()
        })
        .await;
        assert!(!answered.is_empty());
        monotonic() - begun
    }

    /// One request after a pause; how long its answer took.
    pub(super) async fn ask_after(&mut self, pause: Duration) -> Duration {
        tokio::time::sleep(pause).await;
        self.ask().await
    }

    /// The median of so many requests.
    pub(super) async fn median(&mut self, count: usize) -> Duration {
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            took.push(self.ask().await);
        }
        median(took)
    }
}

/// The middle one; zero of none.
pub(super) fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took.get(took.len() / 2).copied().unwrap_or_default()
}

pub(super) const KEY: &str = "key-of-the-neighbour-0001";
