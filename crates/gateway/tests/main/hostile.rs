//! Hostile and broken requests: each gets a clear answer, costs nothing, and leaves the gateway in order.

#![cfg(test)]

use bytes::Bytes;
use serde_json::Value;

use crate::http::{Wire, chat_request};
use crate::support::{Backend, KEY, Reply, TestGateway, chat_answer, fixture, gateway, send};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

/// A gateway whose backend must not be reached before the last request.
struct Fort {
    gateway: TestGateway,
    backend: Backend,
}

impl Fort {
    async fn open(more: &str) -> Self {
        let backend = Backend::always(chat_answer(3, 1)).await;
        let gateway = gateway(&format!("{}{more}", fixture(backend.address, ""))).await;
        Self { gateway, backend }
    }

    async fn wire(&self) -> Wire {
        Wire::connect(self.gateway.address()).await
    }

    async fn send(&self, path: &str, more: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        let bearer = format!("Bearer {KEY}");
        let headers = [&[("authorization", bearer.as_str())], more].concat();
        send(self.gateway.address(), "POST", path, &headers, body.into()).await
    }

    /// Nothing was charged, nothing reached the backend, and an honest request is served.
    async fn assert_unharmed(&self) {
        self.gateway.idle().await;
        assert!(self.backend.got().is_empty(), "{:?}", self.backend.got());
        assert_eq!(self.gateway.level("t", "tenant/t/tokens").await, 2_000);
        let totals = self.gateway.running.gateway.driver.totals();
        assert_eq!((totals.settled, totals.overrun), (0, 0));
        let mut wire = self.wire().await;
        wire.write(chat_request(3, "")).await;
        assert_eq!(wire.answer().await.unwrap().status, 200);
        assert_eq!(self.gateway.ended(1).await[0].charged, 4);
    }
}

/// The shape that the dialect's clients parse, with a message that says something.
fn assert_error(path: &str, reply: &Reply, status: u16, kind: &str) {
    let what = format!("{path}: {reply:?}");
    assert_eq!((reply.status, reply.header("content-type")), (status, "application/json"), "{what}");
    assert_eq!(reply.header("x-fairlane-request-id").len(), 16, "{what}");
    let body = reply.json();
    assert!(body["error"]["message"].as_str().is_some_and(|message| message.len() > 10), "{what}");
    assert_eq!(body["error"]["type"], kind, "{what}");
    if path.starts_with(MESSAGES) {
        assert_eq!(body["type"], "error", "{what}");
        assert_eq!(body["request_id"], reply.header("x-fairlane-request-id"), "{what}");
    } else {
        assert!(body["error"].as_object().unwrap().contains_key("param"), "{what}");
        assert!(body["error"].as_object().unwrap().contains_key("code"), "{what}");
    }
}

#[tokio::test]
async fn a_body_that_is_no_request_gets_a_400_in_the_clients_dialect() {
    let fort = Fort::open("").await;
    let user = r#""messages":[{"role":"user","content":"hi"}]"#;
    let bodies: Vec<Vec<u8>> = [
        "",
        " ",
        "null",
        "true",
        "[]",
        "\"model\"",
        "{",
        "{}",
        "{\"model\"}",
        "{\"model\":\"m\",}",
        "{\"model\":\"m\"} {}",
        "{'model':'m'}",
        "{\"model\":\"m\",\"messages\":[",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\u{1}\"}],\"max_tokens\":5}",
    ]
    .into_iter()
    .map(|text| text.as_bytes().to_vec())
    .chain(
        [
            // Duplicates, also behind an escape, also deeper.
            format!(r#"{{"model":"m","model":"m",{user},"max_tokens":5}}"#),
            format!(r#"{{"model":"m","\u006dodel":"other",{user},"max_tokens":5}}"#),
            format!(r#"{{"model":"m",{user},{user},"max_tokens":5}}"#),
            r#"{"model":"m","messages":[{"role":"user","content":"a","content":"b"}],"max_tokens":5}"#
                .to_owned(),
            format!(r#"{{"model":"m",{user},"max_tokens":5,"max_tokens":5}}"#),
            // Types.
            format!(r#"{{"model":7,{user},"max_tokens":5}}"#),
            format!(r#"{{"model":null,{user},"max_tokens":5}}"#),
            format!(r#"{{"model":"",{user},"max_tokens":5}}"#),
            r#"{"model":"m","messages":{},"max_tokens":5}"#.to_owned(),
            r#"{"model":"m","messages":"hi","max_tokens":5}"#.to_owned(),
            format!(r#"{{"model":"m",{user},"max_tokens":"5"}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":true}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":[5]}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":5,"stream":"yes"}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":5,"stream":1}}"#),
            // Numbers.
            format!(r#"{{"model":"m",{user},"max_tokens":-1}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":0.5}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":1e-9}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":05}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":+5}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":NaN}}"#),
            format!(r#"{{"model":"m",{user},"max_tokens":-{}}}"#, "9".repeat(400)),
            // Nesting.
            format!(
                r#"{{"model":"m",{user},"max_tokens":5,"x":{}{}}}"#,
                "[".repeat(5_000),
                "]".repeat(5_000)
            ),
            "[".repeat(1_000_000),
        ]
        .map(String::into_bytes),
    )
    // Texts that are no UTF-8: a lone continuation, an overlong form, a surrogate.
    .chain([&b"\xff\xfe"[..], b"\xc0\xaf", b"\xed\xa0\x80"].map(|odd| {
        [br#"{"model":"m","messages":[{"role":"user","content":""#, odd, br#""}],"max_tokens":5}"#].concat()
    }))
    .collect();
    for body in bodies {
        let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        for path in [CHAT, MESSAGES] {
            let reply = fort.send(path, &[], body.clone()).await;
            assert_eq!(reply.status, 400, "{path} {shown}: {}", reply.text());
            assert_error(path, &reply, 400, "invalid_request_error");
        }
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn the_output_bound_of_openai_is_at_least_one_and_of_anthropic_at_least_zero() {
    let fort = Fort::open("").await;
    let body = |bound: &str| {
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"max_tokens":{bound}}}"#)
    };
    assert_error(CHAT, &fort.send(CHAT, &[], body("0")).await, 400, "invalid_request_error");
    let absent = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    assert_error(MESSAGES, &fort.send(MESSAGES, &[], absent).await, 400, "invalid_request_error");
    assert_error(MESSAGES, &fort.send(MESSAGES, &[], body("null")).await, 400, "invalid_request_error");
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn a_number_beyond_every_type_is_cut_to_the_cap_and_charged_no_more_than_was_used() {
    let fort = Fort::open("").await;
    for bound in ["9".repeat(400), "1000000000000".to_owned(), "18446744073709551616".to_owned()] {
        let body =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"max_tokens":{bound}}}"#);
        // The cap is above the fixture's bucket: it can never fit, whoever asks.
        let reply = fort.send(CHAT, &[], body).await;
        assert_error(CHAT, &reply, 400, "invalid_request_error");
        assert_eq!(reply.json()["error"]["code"], "request_too_large");
        assert_eq!(reply.header("x-should-retry"), "false");
        assert_eq!(reply.header("retry-after"), "");
    }
    let records = fort.gateway.records();
    assert!(records.iter().all(|record| record.charged == 0 && record.outcome == "refused"));
    fort.gateway.idle().await;
    assert_eq!(fort.gateway.level("t", "tenant/t/tokens").await, 2_000);
    assert!(fort.backend.got().is_empty());
}

#[tokio::test]
async fn unknown_paths_methods_and_models_get_a_404() {
    let fort = Fort::open("").await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str())];
    for (method, path) in [
        ("GET", "/"),
        ("POST", "/"),
        ("GET", CHAT),
        ("PUT", CHAT),
        ("DELETE", CHAT),
        ("PATCH", MESSAGES),
        ("OPTIONS", CHAT),
        ("TRACE", CHAT),
        ("BREW", CHAT),
        ("POST", "/v1/chat/completions/"),
        ("POST", "//v1/chat/completions"),
        ("POST", "/v1/../v1/chat/completions"),
        ("POST", "/v1/chat%2fcompletions"),
        ("POST", "/V1/chat/completions"),
        ("POST", "/v1/messages/batches"),
        ("GET", "/metrics"),
        ("GET", "/api/v1/state"),
    ] {
        let reply = send(fort.gateway.address(), method, path, &headers, Bytes::new()).await;
        assert_eq!(reply.status, 404, "{method} {path}");
        let kind = if path.starts_with(MESSAGES) { "not_found_error" } else { "invalid_request_error" };
        assert_error(path, &reply, 404, kind);
    }
    let body = r#"{"model":"nobody","messages":[{"role":"user","content":"hi"}],"max_tokens":5}"#;
    let reply = fort.send(CHAT, &[], body).await;
    assert_error(CHAT, &reply, 404, "invalid_request_error");
    assert_eq!(reply.json()["error"]["code"], "model_not_found");
    assert_error(MESSAGES, &fort.send(MESSAGES, &[], body).await, 404, "not_found_error");
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn a_missing_an_unknown_and_an_expired_key_get_a_401_that_says_which() {
    let backend = Backend::always(chat_answer(3, 1)).await;
    let expired = "sk-expired-key-0001";
    let keys = format!("[\"{KEY}\", {{key: \"{expired}\", expires: 2020-01-01}}]");
    let text = fixture(backend.address, "").replace(&format!("[\"{KEY}\"]"), &keys);
    let fort = Fort { gateway: gateway(&text).await, backend };
    let bearer = |key: &str| format!("Bearer {key}");
    let bad = [
        (None, "no API key"),
        (Some(("authorization", "Bearer ".to_owned())), "no API key"),
        (Some(("authorization", format!("Basic {KEY}"))), "no API key"),
        (Some(("authorization", bearer("sk-nobody"))), "not known"),
        (Some(("x-api-key", "sk-nobody".to_owned())), "not known"),
        (Some(("authorization", bearer(&KEY.to_uppercase()))), "not known"),
        (Some(("authorization", bearer(&KEY[..KEY.len() - 1]))), "not known"),
        (Some(("authorization", bearer(&"k".repeat(20_000)))), "not known"),
        (Some(("authorization", bearer(expired))), "expired"),
        (Some(("x-api-key", expired.to_owned())), "expired"),
    ];
    for (header, word) in bad {
        for path in [CHAT, MESSAGES] {
            let headers: Vec<(&str, &str)> =
                header.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let reply = send(fort.gateway.address(), "POST", path, &headers, Bytes::from_static(b"{}")).await;
            let kind = if path == MESSAGES { "authentication_error" } else { "invalid_request_error" };
            assert_error(path, &reply, 401, kind);
            let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains(word), "{message}");
            assert!(!reply.text().contains("sk-"), "a key must not come back: {}", reply.text());
            if path == CHAT {
                assert_eq!(reply.json()["error"]["code"], "invalid_api_key");
            }
        }
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn a_body_that_is_too_long_gets_a_413_however_it_is_framed() {
    let fort = Fort::open("bounds: {max_body: 64KiB}\n").await;
    let long = vec![b' '; 100 * 1024];
    for (path, code) in [(CHAT, Some("request_too_large")), (MESSAGES, None)] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n");
        // Told by its length alone: the answer comes before a byte of it was sent.
        let mut told = fort.wire().await;
        told.write(format!("{head}content-length: {}\r\n\r\n", 1_u64 << 40)).await;
        let told = told.answer().await.unwrap();
        // Sent whole.
        let sent = fort.send(path, &[], long.clone()).await;
        // Without a length.
        let mut chunked = fort.wire().await;
        chunked.write(format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n", long.len())).await;
        chunked.write(&long).await;
        let chunked = chunked.answer().await.unwrap();
        for reply in [told, sent, chunked] {
            let kind = if path == CHAT { "invalid_request_error" } else { "request_too_large" };
            assert_error(path, &reply, 413, kind);
            assert_eq!(reply.json()["error"]["code"].as_str(), code);
        }
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn a_client_that_sends_all_of_a_body_that_is_too_long_still_reads_its_413() {
    let fort = Fort::open("bounds: {max_body: 1MiB}\n").await;
    let long = vec![b' '; 24 * 1024 * 1024];
    for framing in [
        format!("content-length: {}\r\n\r\n", long.len()),
        "transfer-encoding: chunked\r\n\r\n1800000\r\n".to_owned(),
    ] {
        let mut wire = fort.wire().await;
        let head =
            format!("POST {CHAT} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n{framing}");
        wire.write(head).await;
        wire.write(&long).await;
        let reply = wire.answer().await.expect("the answer is not lost");
        assert_error(CHAT, &reply, 413, "invalid_request_error");
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn a_body_shorter_than_it_says_is_no_request() {
    let fort = Fort::open("").await;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"a b c"}],"max_tokens":5}"#;
    for framing in [
        "content-length: 5000\r\n\r\n".to_owned(),
        format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", 5_000),
    ] {
        let mut wire = fort.wire().await;
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n{framing}{body}"
        );
        wire.write(head).await;
        wire.finish().await;
        // Whoever closes may still read: it is told, or the connection simply ends.
        if let Some(reply) = wire.answer().await {
            assert_error(CHAT, &reply, 400, "invalid_request_error");
        }
        assert!(wire.closed().await.is_empty());
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn a_body_longer_than_it_says_is_cut_there_and_the_rest_is_no_request() {
    let fort = Fort::open("").await;
    let mut wire = fort.wire().await;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"a b c"}],"max_tokens":5}"#;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n");
    wire.write(format!("{head}content-length: 10\r\n\r\n{body}")).await;
    assert_error(CHAT, &wire.answer().await.unwrap(), 400, "invalid_request_error");
    if let Some(reply) = wire.answer().await {
        assert_eq!(reply.status, 400);
    }
    assert!(wire.closed().await.is_empty());
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn requests_that_two_servers_could_frame_differently_are_refused() {
    let fort = Fort::open("").await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n");
    for framing in [
        "content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "content-length: -5\r\n\r\nhello",
        "content-length: 5x\r\n\r\nhello",
        "content-length: 99999999999999999999999\r\n\r\nhello",
        "transfer-encoding: gzip\r\n\r\nhello",
        "transfer-encoding: chunked, identity\r\n\r\nhello",
        "transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "bad header\r\n\r\n",
        ": empty\r\n\r\n",
        "x: a\u{0}b\r\n\r\n",
    ] {
        let mut wire = fort.wire().await;
        wire.write(format!("{head}{framing}")).await;
        let reply = wire.answer().await.unwrap_or_else(|| panic!("no answer to {framing:?}"));
        assert_eq!(reply.status, 400, "{framing:?}");
        assert!(wire.closed().await.is_empty(), "{framing:?}");
    }
    // Both framings: the length is ignored, and nothing after the last chunk is taken for a request.
    let mut wire = fort.wire().await;
    wire.write(format!(
        "{head}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"
    ))
    .await;
    assert_eq!(wire.answer().await.unwrap().status, 400);
    assert!(wire.closed().await.is_empty(), "the connection must not be used again");
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn lines_that_are_no_http_get_a_400_or_the_end_of_the_connection() {
    let fort = Fort::open("timeouts: {client_header: 200ms}\n").await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00\x00\x00\x00\x00\x00\x00\x00\r\n\r\n",
        b"hello there\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\n\r\n",
        b"CONNECT elsewhere:443 HTTP/1.1\r\nhost: elsewhere\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame at all, but long enough to be taken for one",
    ] {
        let mut wire = fort.wire().await;
        wire.write(bytes).await;
        wire.finish().await;
        let answer = String::from_utf8_lossy(&wire.closed().await).into_owned();
        let is_refused =
            answer.is_empty() || answer.starts_with("HTTP/1.1 4") || !answer.starts_with("HTTP/1.1");
        assert!(is_refused, "{bytes:?}: {answer}");
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn a_flood_of_headers_gets_a_431() {
    let fort = Fort::open("bounds: {max_headers: 50, max_header_bytes: 16KiB}\n").await;
    let many: String = (0..5_000).map(|number| format!("x-{number}: y\r\n")).collect();
    let long = format!("x-long: {}\r\n", "y".repeat(1 << 20));
    let long_name = format!("{}: y\r\n", "x".repeat(100_000));
    let just_over: String = (0..60).map(|number| format!("x-{number}: y\r\n")).collect();
    for flood in [many, long, long_name, just_over] {
        let mut wire = fort.wire().await;
        wire.write(format!("GET /v1/models HTTP/1.1\r\nhost: gateway\r\n{flood}\r\n")).await;
        let reply = wire.answer().await;
        // The kernel may throw the answer away with the rest of the flood; a hang would have failed above.
        if let Some(reply) = reply {
            assert!(matches!(reply.status, 400 | 431), "{}", reply.status);
        }
        wire.closed().await;
    }
    let mut wire = fort.wire().await;
    let path = "p".repeat(200_000);
    wire.write(format!("GET /{path} HTTP/1.1\r\nhost: gateway\r\n\r\n")).await;
    if let Some(reply) = wire.answer().await {
        assert!(matches!(reply.status, 404 | 414 | 431), "{}", reply.status);
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn a_client_that_sends_its_header_too_slowly_is_cut_off() {
    let fort = Fort::open("timeouts: {client_header: 200ms}\n").await;
    for start in [
        "",
        "G",
        "PRI",
        "PRI * HTTP/2.0\r\n",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nhost: gateway\r\nx-a: ",
    ] {
        let mut wire = fort.wire().await;
        wire.write(start).await;
        assert!(wire.closed().await.is_empty(), "{start:?}");
    }
    // A byte now and then does not prolong it.
    let mut wire = fort.wire().await;
    wire.write("GET / HTTP/1.1\r\n").await;
    wire.drip_until_closed(b"x").await;
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn a_body_that_stops_coming_gets_a_408() {
    let fort = Fort::open("timeouts: {client_body: 200ms}\n").await;
    for (path, kind) in [(CHAT, "invalid_request_error"), (MESSAGES, "invalid_request_error")] {
        for framing in ["content-length: 500\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n5\r\n{"] {
            let mut wire = fort.wire().await;
            let head = format!("POST {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n");
            wire.write(format!("{head}{framing}")).await;
            let reply = wire.answer().await.unwrap();
            assert_error(path, &reply, 408, kind);
            assert!(wire.closed().await.is_empty());
        }
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn an_unknown_encoding_gets_a_415_and_a_broken_one_a_400() {
    let fort = Fort::open("").await;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"a b c"}],"max_tokens":5}"#;
    for encoding in ["br", "snappy", "gzip, br", "x", "\"gzip\""] {
        for path in [CHAT, MESSAGES] {
            let reply = fort.send(path, &[("content-encoding", encoding)], body).await;
            assert_error(path, &reply, 415, "invalid_request_error");
        }
    }
    for encoding in ["gzip", "deflate", "zstd"] {
        let reply = fort.send(CHAT, &[("content-encoding", encoding)], body).await;
        assert_error(CHAT, &reply, 400, "invalid_request_error");
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn odd_header_values_do_no_harm() {
    let fort = Fort::open("").await;
    let wild = "\u{7f}".to_owned() + &"%s%n../".repeat(50);
    let odd: Vec<String> = [
        "x-fairlane-run: \u{ff}\u{fe}".to_owned(),
        format!("x-fairlane-run: {}", "r".repeat(20_000)),
        format!("x-fairlane-class: {}", wild.replace('\u{7f}', "")),
        "x-stainless-retry-count: 99999999999999999999".to_owned(),
        "x-stainless-retry-count: -1".to_owned(),
        "x-stainless-timeout: nan".to_owned(),
        "x-fairlane-class: interactive, batch".to_owned(),
        "accept-encoding: gzip;q=zz".to_owned(),
        "content-type: text/\"plain".to_owned(),
    ]
    .into();
    let count = odd.len();
    for line in odd {
        let mut wire = fort.wire().await;
        wire.write(chat_request(3, &format!("{line}\r\n"))).await;
        let reply = wire.answer().await.unwrap();
        assert_eq!(reply.status, 200, "{line:.80}: {}", reply.text());
    }
    for record in fort.gateway.ended(count).await {
        assert_eq!((record.charged, record.outcome), (4, "completed"));
    }
    fort.gateway.idle().await;
}

#[tokio::test]
async fn what_a_message_repeats_of_a_request_is_short_and_printable() {
    let fort = Fort::open("").await;
    let model = format!("<script>\\u0000\\u001b[31m{}", "x".repeat(10_000));
    let body =
        format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"a"}}],"max_tokens":5}}"#);
    let reply = fort.send(CHAT, &[], body).await;
    assert_error(CHAT, &reply, 404, "invalid_request_error");
    assert!(reply.body.len() < 1_000, "{}", reply.text());
    let message: Value = reply.json();
    assert!(!message["error"]["message"].as_str().unwrap().chars().any(char::is_control));
    fort.assert_unharmed().await;
}
