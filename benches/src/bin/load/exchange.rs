//! One connection: a request, its answer to the end, the next request.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use fairlane_benches::message::{self, BodyEnd};
use fairlane_benches::{clock, requests};
use memchr::memmem;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::Plan;
use crate::pace::Offers;
use crate::tally::Tally;

/// The requests in rotation, and where they go.
#[derive(Debug)]
pub(crate) struct Exchanges {
    port: u16,
    rotation: Vec<Vec<u8>>,
    streams: bool,
    next: Cell<usize>,
}

/// An answer that came whole.
struct Answer {
    status: u16,
    first: Instant,
    closes: bool,
    is_finished: bool,
    events: u64,
    joined: u64,
}

impl Exchanges {
    pub(crate) fn new(plan: &Plan) -> Self {
        let rotation = requests::rotation(&plan.wanted);
        Self { port: plan.port, rotation, streams: plan.wanted.streams, next: Cell::new(0) }
    }

    /// Sends and receives on one connection, opened again where it closes, until there is no offer.
    pub(crate) async fn keep_going(self: Rc<Self>, offers: Offers) -> Tally {
        let mut tally = Tally::default();
        let mut buffer = BytesMut::with_capacity(64 * 1024);
        let mut connection = None;
        while let Some(offered) = offers.next().await {
            let Some(mut socket) = self.connected(connection.take()).await else {
                tally.broken += 1;
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let exchange = self.exchange(&mut socket, &mut buffer);
            match tokio::time::timeout(ANSWER_MAX, exchange).await {
                Ok(Ok(answer)) => {
                    self.count(&mut tally, &answer, offered, &buffer);
                    connection = (!answer.closes).then_some(socket);
                }
                Ok(Err(_)) | Err(_) => tally.broken += 1,
            }
        }
        tally
    }

    /// An open connection.
    pub(crate) async fn connected(&self, kept: Option<TcpStream>) -> Option<TcpStream> {
        if kept.is_some() {
            return kept;
        }
        let socket = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        socket.set_nodelay(true).ok()?;
        Some(socket)
    }

    /// The next request of the rotation.
    pub(crate) fn request(&self) -> &[u8] {
        let number = self.next.get();
        self.next.set((number + 1) % self.rotation.len());
        &self.rotation[number]
    }

    async fn exchange(&self, socket: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Answer> {
        buffer.clear();
        socket.write_all(self.request()).await?;
        let head = message::answer_head(socket, buffer).await?;
        buffer.advance(head.bytes);
        let mut answer = Answer {
            status: head.status,
            first: clock::moment(),
            closes: head.closes || head.body == BodyEnd::Connection,
            is_finished: !self.streams,
            events: 0,
            joined: 0,
        };
        let mut seen = 0;
        let mut is_first = true;
        loop {
            if is_first && !buffer.is_empty() {
                answer.first = clock::moment();
                is_first = false;
            }
            if self.streams && buffer.len() > seen {
                let events = memmem::find_iter(&buffer[seen..], b"data: ").count() as u64;
                answer.events += events;
                answer.joined += events.saturating_sub(1);
                seen = buffer.len();
            }
            if has_ended(head.body, buffer) {
                break;
            }
            match (message::more(socket, buffer).await, head.body) {
                (Ok(_), _) => {}
                (Err(_), BodyEnd::Connection) => break,
                (Err(error), BodyEnd::Length(_) | BodyEnd::Chunks) => return Err(error),
            }
        }
        if self.streams {
            answer.is_finished = memmem::rfind(buffer, b"[DONE]").is_some();
        }
        Ok(answer)
    }

    fn count(&self, tally: &mut Tally, answer: &Answer, offered: Instant, body: &[u8]) {
        tally.answered(answer.status, offered.elapsed(), answer.first - offered);
        tally.events += answer.events;
        tally.joined += answer.joined;
        if answer.status != 200 {
            let begin = &body[..body.len().min(SAMPLE_BYTES)];
            let told = || format!("{}: {}", answer.status, String::from_utf8_lossy(begin));
            tally.sample.get_or_insert_with(told);
        } else if !answer.is_finished {
            tally.unfinished += 1;
        }
    }
}

/// Whether the whole body is there. No event of the mock ends as a chunked body does.
fn has_ended(end: BodyEnd, body: &[u8]) -> bool {
    match end {
        BodyEnd::Length(length) => body.len() >= length,
        BodyEnd::Chunks => body.ends_with(b"0\r\n\r\n"),
        BodyEnd::Connection => false,
    }
}

const PAUSE: Duration = Duration::from_millis(5);
const ANSWER_MAX: Duration = Duration::from_secs(20);
const SAMPLE_BYTES: usize = 400;
