//! A mock backend that answers at once, and counts what it reported. One socket per gateway, so that each has its own count.
//!
//! `backend --sockets N` prints the N ports on one line, and ends when its standard input does. The model decides how a stream goes:
//! `quick` at once, `paced` with 5 ms between events, `held` after its first event until `GET /release`. `GET /counts` tells the sums.
#![expect(clippy::print_stdout, reason = "its ports go to whoever started it")]

use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use fairlane_benches::arguments::Arguments;
use fairlane_benches::message::{self, BodyEnd};
use fairlane_benches::{answers, message::Head};
use memchr::memmem;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What one socket has reported.
#[derive(Debug, Default)]
struct Counts {
    answers: AtomicU64,
    input: AtomicU64,
    output: AtomicU64,
}

#[derive(Clone, Debug)]
struct Mock {
    counts: Arc<Counts>,
    events: Arc<Vec<Vec<u8>>>,
    /// How often held streams have been released.
    released: watch::Sender<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Whole,
    Quick,
    Paced,
    Held,
}

fn main() -> Result<(), String> {
    let mut arguments = Arguments::given();
    let sockets = arguments.value("--sockets", 1_usize)?;
    arguments.end()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(serve(sockets)).map_err(|error| format!("cannot listen: {error}"))?;
    // Whoever started it holds the other end: if they go, so does the mock.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

async fn serve(sockets: usize) -> io::Result<()> {
    let released = watch::Sender::new(0);
    let events = Arc::new(answers::events());
    let mut ports = Vec::new();
    for _ in 0..sockets {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        ports.push(listener.local_addr()?.port().to_string());
        let counts = Arc::new(Counts::default());
        let mock = Mock { counts, events: Arc::clone(&events), released: released.clone() };
        tokio::spawn(accept(listener, mock));
    }
    println!("{}", ports.join(" "));
    Ok(())
}

async fn accept(listener: TcpListener, mock: Mock) {
    while let Ok((socket, _)) = listener.accept().await {
        let mock = mock.clone();
        // A connection that breaks is the other side's business.
        tokio::spawn(async move { mock.connection(socket).await.ok() });
    }
}

impl Mock {
    async fn connection(&self, mut socket: TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let mut buffer = BytesMut::with_capacity(16 * 1024);
        while let Some(head) = message::request_head(&mut socket, &mut buffer).await? {
            buffer.advance(head.bytes);
            if head.method != "POST" {
                self.show(&mut socket, &head).await?;
            } else if let BodyEnd::Length(length) = head.body {
                let pace = read_body(&mut socket, &mut buffer, length).await?;
                self.answer(&mut socket, pace, answers::input_tokens(length)).await?;
            } else {
                return socket.write_all(b"HTTP/1.1 411 Length Required\r\ncontent-length: 0\r\n\r\n").await;
            }
            if head.closes {
                break;
            }
        }
        Ok(())
    }

    async fn show(&self, socket: &mut TcpStream, head: &Head) -> io::Result<()> {
        match head.path.as_str() {
            "/counts" => {
                let [answers, input, output] =
                    [&self.counts.answers, &self.counts.input, &self.counts.output]
                        .map(|count| count.load(Relaxed));
                let counts = serde_json::json!({"answers": answers, "input": input, "output": output});
                message::answer_json(socket, &counts.to_string()).await
            }
            "/release" => {
                self.released.send_modify(|times| *times += 1);
                message::answer_json(socket, "{}").await
            }
            _ => message::answer_json(socket, answers::MODELS).await,
        }
    }

    async fn answer(&self, socket: &mut TcpStream, pace: Pace, input: u64) -> io::Result<()> {
        if pace == Pace::Whole {
            self.count(input);
            return message::answer_json(socket, &answers::whole(input)).await;
        }
        let mut released = self.released.subscribe();
        for (number, event) in self.events.iter().enumerate() {
            if number == 0 {
                socket.write_all(&[answers::STREAM_HEAD, event].concat()).await?;
            } else {
                pause(pace, number, &mut released).await;
                socket.write_all(event).await?;
            }
        }
        self.count(input);
        socket.write_all(&answers::ending(input)).await
    }

    fn count(&self, input: u64) {
        self.counts.answers.fetch_add(1, Relaxed);
        self.counts.input.fetch_add(input, Relaxed);
        self.counts.output.fetch_add(answers::OUTPUT_TOKENS, Relaxed);
    }
}

async fn pause(pace: Pace, number: usize, released: &mut watch::Receiver<u64>) {
    match pace {
        Pace::Whole => {}
        // Each event is written alone, as an engine would.
        Pace::Quick => tokio::task::yield_now().await,
        Pace::Paced => tokio::time::sleep(PACE).await,
        Pace::Held if number == 1 => {
            let _ = tokio::time::timeout(HELD_MAX, released.changed()).await;
        }
        Pace::Held => {}
    }
}

/// Reads a body, keeps only its begin, and tells from it how to answer.
async fn read_body(socket: &mut TcpStream, buffer: &mut BytesMut, length: usize) -> io::Result<Pace> {
    let told = length.min(TOLD_BYTES);
    while buffer.len() < told {
        message::more(socket, buffer).await?;
    }
    let pace = pace(&buffer[..told]);
    let mut left = length;
    loop {
        let taken = left.min(buffer.len());
        buffer.advance(taken);
        left -= taken;
        if left == 0 {
            return Ok(pace);
        }
        message::more(socket, buffer).await?;
    }
}

fn pace(begin: &[u8]) -> Pace {
    if memmem::find(begin, b"\"stream\":true").is_none() {
        Pace::Whole
    } else if memmem::find(begin, b"\"paced\"").is_some() {
        Pace::Paced
    } else if memmem::find(begin, b"\"held\"").is_some() {
        Pace::Held
    } else {
        Pace::Quick
    }
}

/// The begin of a body in which the model and the wish for a stream stand.
const TOLD_BYTES: usize = 256;
const PACE: Duration = Duration::from_millis(5);
/// A held stream goes on by itself after so long.
const HELD_MAX: Duration = Duration::from_secs(120);
