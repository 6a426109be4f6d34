//! One GET at a time, for admin API and mock: no more HTTP than that.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// The body of a GET that was answered with 200.
///
/// # Errors
/// There is no answer in time, or it is no 200.
pub(super) fn get(port: u16, path: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("GET {path} on port {port}: {error}");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).map_err(failed)?;
    let (mut answer, mut part) = (Vec::new(), [0; 16 * 1024]);
    loop {
        if let Some(body) = whole(&answer) {
            return body.map_err(|status| format!("GET {path} on port {port} was answered with {status}"));
        }
        match socket.read(&mut part).map_err(failed)? {
            0 => return Err(format!("GET {path} on port {port} ended early")),
            bytes => answer.extend_from_slice(&part[..bytes]),
        }
    }
}

/// The same as JSON.
///
/// # Errors
/// As [`get`], or the body is no JSON.
pub(super) fn get_json(port: u16, path: &str) -> Result<Value, String> {
    serde_json::from_str(&get(port, path)?).map_err(|error| format!("GET {path} on port {port}: {error}"))
}

/// A port that was free a moment ago.
pub(super) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}

/// The body of an answer with a length, once it is there; its status line if that is no 200.
fn whole(answer: &[u8]) -> Option<Result<String, String>> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.lines().next().unwrap_or_default();
    if !status.contains(" 200") {
        return Some(Err(status.to_owned()));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    (body.len() >= length).then(|| Ok(body.to_owned()))
}

const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_length_is_there() {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab";
        assert_eq!(whole(answer.as_bytes()), None);
        assert_eq!(whole(format!("{answer}cd").as_bytes()), Some(Ok("abcd".to_owned())));
        assert!(whole(b"HTTP/1.1 503 No\r\n\r\n").is_some_and(|told| told.is_err()));
    }
}
