//! HTTP/1.1 messages as far as the bench's programs speak it: heads, lengths, ends.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// What the head of a message says of what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the head.
    pub bytes: usize,
    /// Status of an answer, 0 of a request.
    pub status: u16,
    /// Method of a request, empty in an answer.
    pub method: String,
    /// Path of a request, empty in an answer.
    pub path: String,
    /// How the body ends.
    pub body: BodyEnd,
    /// The connection ends with this message.
    pub closes: bool,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// After so many bytes.
    Length(usize),
    /// With an empty chunk.
    Chunks,
    /// With the connection.
    Connection,
}

/// Reads until a request's head is there; `None` at the end of the connection.
///
/// # Errors
/// The connection fails, or what came is no HTTP.
pub async fn request_head(socket: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<Head>> {
    loop {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        if let httparse::Status::Complete(bytes) = request.parse(buffer).map_err(io::Error::other)? {
            let method = request.method.unwrap_or_default().to_owned();
            let path = request.path.unwrap_or_default().to_owned();
            let mut head = head(bytes, request.headers, BodyEnd::Length(0));
            (head.method, head.path) = (method, path);
            return Ok(Some(head));
        }
        if socket.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// Reads until an answer's head is there.
///
/// # Errors
/// The connection fails or ends, or what came is no HTTP.
pub async fn answer_head(socket: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Head> {
    loop {
        more(socket, buffer).await?;
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut answer = httparse::Response::new(&mut fields);
        if let httparse::Status::Complete(bytes) = answer.parse(buffer).map_err(io::Error::other)? {
            let status = answer.code.unwrap_or_default();
            return Ok(Head { status, ..head(bytes, answer.headers, BodyEnd::Connection) });
        }
    }
}

/// Reads on; the end of the connection is an error here.
///
/// # Errors
/// The connection fails or ends.
pub async fn more(socket: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<usize> {
    match socket.read_buf(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        bytes => Ok(bytes),
    }
}

/// Writes a whole answer with a JSON body.
///
/// # Errors
/// The connection fails.
pub async fn answer_json(socket: &mut (impl AsyncWrite + Unpin), body: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await
}

fn head(bytes: usize, fields: &[httparse::Header<'_>], otherwise: BodyEnd) -> Head {
    let (mut body, mut closes) = (otherwise, false);
    for field in fields {
        let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
        if field.name.eq_ignore_ascii_case("content-length") {
            body = value.parse().map_or(body, BodyEnd::Length);
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            body = BodyEnd::Chunks;
        } else if field.name.eq_ignore_ascii_case("connection") {
            closes = value.eq_ignore_ascii_case("close");
        }
    }
    Head { bytes, status: 0, method: String::new(), path: String::new(), body, closes }
}

const FIELDS_MAX: usize = 64;
