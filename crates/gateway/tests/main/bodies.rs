//! Request bodies: every row of the wire crate's table through the whole gateway, and what of a body reaches the backend.

#![cfg(test)]

use std::path::PathBuf;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::http::Wire;
use crate::support::{
    Backend, KEY, LAST_CHUNK, Reply, STREAM_HEAD, Step, TestGateway, chat_answer, chunk, delta, gateway, send,
};

/// Tokens of the bucket, which refills by one token in 86 seconds: levels are exact.
const CAPACITY: u64 = 300_000;

/// A line of the table.
struct Row {
    id: String,
    path: String,
    headers: Map<String, Value>,
    body: Vec<u8>,
    expect: Map<String, Value>,
}

fn data(file: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/data").join(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rows() -> Vec<Row> {
    let table = String::from_utf8(data("requests.jsonl")).unwrap();
    let rows: Vec<Row> = table.lines().map(|line| row(&serde_json::from_str(line).unwrap())).collect();
    assert_eq!(rows.len(), 37);
    rows
}

fn row(row: &Value) -> Row {
    let plain = row["body"].as_str().unwrap_or_default().as_bytes().to_vec();
    let made = &row["body_gen"];
    let count = |member: &str| made[member].as_u64().unwrap() as usize;
    let text = |member: &str| made[member].as_str().unwrap();
    let body = match made["kind"].as_str() {
        None => plain,
        Some("gzip_of_body") => stored_gzip(&plain),
        Some("zstd") => data("zstd/bomb_200mb.zst"),
        Some("nest") => text("open").repeat(count("depth")).into_bytes(),
        Some("chat_image") => {
            let url = format!("data:image/png;base64,{}", "A".repeat(count("base64_bytes")));
            let content = json!([
                {"type": "text", "text": text("text")},
                {"type": "image_url", "image_url": {"url": url}},
            ]);
            json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string().into_bytes()
        }
        Some("chat_words") => {
            let messages = json!([{"role": "user", "content": text("word").repeat(count("repeat"))}]);
            let body = json!({"model": "m", "messages": messages, "max_tokens": made["max_tokens"]});
            body.to_string().into_bytes()
        }
        Some(other) => panic!("no maker for {other}"),
    };
    Row {
        id: row["id"].as_str().unwrap().to_owned(),
        path: row["path"].as_str().unwrap().to_owned(),
        headers: row["headers"].as_object().unwrap().clone(),
        body,
        expect: row["expect"].as_object().unwrap().clone(),
    }
}

/// Gzip without compression (RFC 1952, with stored blocks of RFC 1951).
fn stored_gzip(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    let checksum = !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    });
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    let block = [&length.to_le_bytes()[..], &(!length).to_le_bytes(), bytes].concat();
    [&head[..], &block, &checksum.to_le_bytes(), &u32::from(length).to_le_bytes()].concat()
}

async fn backend() -> Backend {
    Backend::start(|got| {
        if got.json()["stream"] == true {
            let events = [&delta("w")[..], &chunk(b"data: [DONE]\n\n"), LAST_CHUNK].concat();
            return vec![Step::Write([STREAM_HEAD, &events].concat())];
        }
        vec![Step::Write(chat_answer(3, 1))]
    })
    .await
}

fn configuration(backend: &Backend, vocabulary: &str, limits: &str) -> String {
    format!(
        "pools:
  - name: main
    models: [m, e]
    engine: vllm
    backends: [{{url: \"http://{}\"}}]
    tokenizer: {{vocabulary: {vocabulary}, mode: exact}}
    health: off
tenants:
  - {{name: t, keys: [\"{KEY}\"], limits: {{{limits}}}}}
bounds: {{max_recent_requests: 100000}}
",
        backend.address
    )
}

const TOKENS: &str = "tokens: {rate: 1000/day, burst: 300d}, max_output_tokens: 4096";

async fn post(gateway: &TestGateway, row: &Row) -> Reply {
    let bearer = format!("Bearer {KEY}");
    let mut headers = vec![("authorization", bearer.as_str())];
    headers.extend(row.headers.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())));
    headers.retain(|(name, _)| !matches!(*name, "transfer-encoding" | "expect"));
    send(gateway.address(), "POST", &row.path, &headers, Bytes::from(row.body.clone())).await
}

/// The status that a row asks for; 0 is one that is admitted.
fn status(row: &Row) -> u16 {
    let status = &row.expect["status"];
    match (status.as_u64(), status.as_str()) {
        (Some(status), _) => u16::try_from(status).unwrap(),
        (None, Some("404 or 400")) => 404,
        (None, Some(_)) => 0,
        (None, None) => panic!("{}: {status}", row.id),
    }
}

/// Sends every row and compares; `input_of` says what the input of an admitted row has to be.
async fn send_all(vocabulary: &str, assert_input: impl Fn(&Row, u64)) {
    let backend = backend().await;
    let gateway = gateway(&configuration(&backend, vocabulary, TOKENS)).await;
    let mut spent = 0;
    let mut admitted = 0;
    for row in rows() {
        let reply = post(&gateway, &row).await;
        let wanted = status(&row);
        if wanted != 0 {
            assert_eq!(reply.status, wanted, "{}: {}", row.id, reply.text());
            assert_eq!(backend.got().len(), admitted, "{} reached the backend", row.id);
        } else {
            assert_eq!(reply.status, 200, "{}: {}", row.id, reply.text());
            admitted += 1;
            let record = gateway.ended(admitted).await.remove(0);
            // The row does not say what is reserved where nothing is asked; the default bound is.
            let output = match row.expect.get("reserve_output") {
                Some(Value::Number(output)) => output.as_u64().unwrap(),
                _ if row.id.starts_with("q09") => 4_096,
                _ if row.id.starts_with("q54") => 5,
                _ => 1_024,
            };
            assert!(record.reserved > output, "{}: {record:?}", row.id);
            assert_input(&row, record.reserved - output);
            spent += record.charged;
        }
        gateway.idle().await;
        let left = CAPACITY as i64 - spent as i64;
        assert_eq!(gateway.level("t", "tenant/t/tokens").await, left, "{}", row.id);
    }
    assert_eq!(gateway.records().len(), admitted);
}

#[tokio::test]
async fn every_row_of_the_table_gets_its_status_and_its_reservation_by_words() {
    send_all("words", |row, input| {
        let expected = match row.id.split('_').next().unwrap() {
            "q17" | "q18" => 5,
            "q20" | "q21" => 3,
            "q39" => 3 + 1_105,
            "q41" => 100_000,
            "q43" | "q23" | "q25" => 1,
            "q44" => return assert!(input >= 100, "{}: {input}", row.id),
            "q47" => return assert!(input >= 200, "{}: {input}", row.id),
            _ => 3,
        };
        assert_eq!(input, expected, "{}", row.id);
    })
    .await;
}

#[tokio::test]
async fn every_row_of_the_table_gets_its_status_and_its_reservation_by_o200k() {
    send_all("o200k", |row, input| match row.id.split('_').next().unwrap() {
        // Ids are counted as they are, whatever the vocabulary.
        "q18" => assert_eq!(input, 5),
        "q21" => assert_eq!(input, 3),
        "q20" => assert_eq!(input, 3),
        "q17" => assert_eq!(input, 5),
        "q39" => assert!((1_105..10_000).contains(&input), "{input}"),
        "q41" => assert!((98_000..=102_000).contains(&input), "{input}"),
        "q43" => assert!(input >= 17, "{input}"),
        "q44" => assert!(input >= 100, "{input}"),
        "q47" => assert!(input >= 200, "{input}"),
        _ => assert!((3..=12).contains(&input), "{}: {input}", row.id),
    })
    .await;
}

fn find(id: &str) -> Row {
    rows().into_iter().find(|row| row.id.starts_with(id)).unwrap()
}

/// The body that the backend got for a row, as text.
async fn forwarded(backend: &Backend, gateway: &TestGateway, row: &Row) -> String {
    let before = backend.got().len();
    assert_eq!(post(gateway, row).await.status, 200, "{}", row.id);
    let got = backend.got().remove(before);
    assert_eq!(got.header("content-length"), Some(got.body.len().to_string()), "{}", row.id);
    assert_eq!(got.header("content-encoding"), None, "{}", row.id);
    assert!(!got.head.contains(KEY), "a client's credential reached the backend");
    String::from_utf8(got.body).unwrap()
}

#[tokio::test]
async fn the_backend_gets_each_body_as_it_came_but_for_what_the_gateway_sets() {
    let backend = backend().await;
    let gateway = gateway(&configuration(&backend, "words", TOKENS)).await;
    let plain = |id: &str| String::from_utf8(find(id).body).unwrap();
    let written = plain("q01").replacen('{', "{\"max_tokens\":1024,", 1);
    assert_eq!(forwarded(&backend, &gateway, &find("q01")).await, written);
    assert_eq!(forwarded(&backend, &gateway, &find("q28")).await, written);
    let nulled = plain("q08").replace("null", "1024");
    assert_eq!(forwarded(&backend, &gateway, &find("q08")).await, nulled);
    let clamped = plain("q09").replace("1000000000000", "4096");
    assert_eq!(forwarded(&backend, &gateway, &find("q09")).await, clamped);
    let asked: Value = serde_json::from_str(&forwarded(&backend, &gateway, &find("q26")).await).unwrap();
    assert_eq!(asked["stream_options"], json!({"include_usage": true}));
    assert_eq!(asked["max_tokens"], 1_024);
    let asked = forwarded(&backend, &gateway, &find("q27")).await;
    assert_eq!(asked, plain("q27").replace("false", "true").replacen('{', "{\"max_tokens\":1024,", 1));
    for id in ["q12", "q13", "q14", "q17", "q18", "q20", "q21", "q43", "q44", "q47"] {
        assert_eq!(forwarded(&backend, &gateway, &find(id)).await, plain(id), "{id}");
    }
    // Decoded on the way.
    let table = String::from_utf8(data("requests.jsonl")).unwrap();
    let line: Value =
        serde_json::from_str(table.lines().find(|line| line.contains("q36_")).unwrap()).unwrap();
    assert_eq!(forwarded(&backend, &gateway, &find("q36")).await, line["body"].as_str().unwrap());
    let image = find("q39");
    let sent = forwarded(&backend, &gateway, &image).await;
    assert!(sent.replacen("\"max_tokens\":1024,", "", 1).into_bytes() == image.body, "{:.200}", sent);
}

#[tokio::test]
async fn a_clamped_bound_is_told_to_the_client() {
    let backend = backend().await;
    let gateway = gateway(&configuration(&backend, "words", TOKENS)).await;
    let reply = post(&gateway, &find("q09")).await;
    assert_eq!((reply.status, reply.header("x-fairlane-clamped")), (200, "max_tokens=4096"));
    assert_eq!(post(&gateway, &find("q14")).await.header("x-fairlane-clamped"), "");
}

#[tokio::test]
async fn q02_a_tenant_without_a_token_limit_needs_no_bound_and_none_is_written() {
    let backend = backend().await;
    let gateway = gateway(&configuration(&backend, "words", "requests: 1000/day burst 1d")).await;
    let row = find("q02");
    assert_eq!(forwarded(&backend, &gateway, &row).await.into_bytes(), row.body);
    gateway.idle().await;
    assert_eq!(gateway.level("t", "tenant/t/requests").await, 999);
}

#[tokio::test]
async fn members_that_nobody_knows_pass_byte_for_byte_and_priority_does_not() {
    let backend = backend().await;
    let gateway = gateway(&configuration(&backend, "words", TOKENS)).await;
    let row = |body: &str| Row {
        id: body.to_owned(),
        path: "/v1/chat/completions".to_owned(),
        headers: Map::new(),
        body: body.as_bytes().to_vec(),
        expect: Map::new(),
    };
    let odd = "{ \"model\" :\"m\",\t\"\\u0078\": 1.50e+02 , \"chat_template_kwargs\":{\"a\":[1, 2,{}],\"a\":null},\n\"messages\":[{\"role\":\"user\",\"content\":\"caf\\u00e9 \u{1f600} \\ud83d\\ude00\",\"x\":-0.0}], \"max_tokens\": 7 , \"seed\":123456789012345678901234567890 }\r\n";
    assert_eq!(forwarded(&backend, &gateway, &row(odd)).await, odd);
    for priority in ["-5", "9", "\"high\"", "{\"a\":[1]}", "null"] {
        let body = format!(
            r#"{{"priority":{priority},"model":"m","messages":[{{"role":"user","content":"a","priority":3}}],"max_tokens":7}}"#
        );
        let without =
            r#"{"model":"m","messages":[{"role":"user","content":"a","priority":3}],"max_tokens":7}"#;
        assert_eq!(forwarded(&backend, &gateway, &row(&body)).await, without, "{priority}");
    }
    let last = r#"{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":7,"priority":-1}"#;
    assert!(!forwarded(&backend, &gateway, &row(last)).await.contains("priority"));
}

#[tokio::test]
async fn q48_a_body_of_one_byte_chunks_without_a_length_is_read() {
    let backend = backend().await;
    let gateway = gateway(&configuration(&backend, "words", TOKENS)).await;
    let row = find("q48");
    let mut wire = Wire::connect(gateway.address()).await;
    wire.write(format!(
        "POST {} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\ntransfer-encoding: chunked\r\n\r\n",
        row.path
    ))
    .await;
    for byte in &row.body {
        wire.write(chunk(&[*byte])).await;
    }
    wire.write(LAST_CHUNK).await;
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let got = backend.got().remove(0);
    assert_eq!(got.body, row.body);
    assert_eq!(got.header("content-length"), Some(row.body.len().to_string()));
    assert_eq!(gateway.ended(1).await[0].reserved, 3 + 5);
}

#[tokio::test]
async fn q49_a_client_that_waits_for_100_continue_gets_it_before_its_body() {
    let backend = backend().await;
    let gateway = gateway(&configuration(&backend, "words", TOKENS)).await;
    let row = find("q49");
    let head = |key: &str| {
        format!(
            "POST {} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            row.path,
            row.body.len()
        )
    };
    let mut wire = Wire::connect(gateway.address()).await;
    wire.write(head(KEY)).await;
    assert_eq!(wire.answer().await.unwrap().status, 100);
    wire.write(&row.body).await;
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(backend.got()[0].header("expect"), None);
    assert_eq!(gateway.ended(1).await[0].reserved, 3 + 5);
    // Who is refused for its key need not send the body at all.
    let mut stranger = Wire::connect(gateway.address()).await;
    stranger.write(head("stranger")).await;
    assert_eq!(stranger.answer().await.unwrap().status, 401);
}

#[tokio::test]
async fn q51_tenant_and_user_are_never_run_together_into_one_bucket() {
    let backend = backend().await;
    let text = configuration(&backend, "words", "").replace(
        &format!("  - {{name: t, keys: [\"{KEY}\"], limits: {{}}}}\n"),
        "  - {name: \"a:b\", keys: [key-of-a-b-000001], end_users: {requests: 1/day burst 1d}}
  - {name: a, keys: [key-of-a-00000001], end_users: {requests: 1/day burst 1d}}
",
    );
    let gateway = gateway(&text).await;
    let ask = async |key: &str, user: &str| {
        let mut body: Value = serde_json::from_slice(&find("q51").body).unwrap();
        body["user"] = json!(user);
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str())];
        let body = Bytes::from(body.to_string());
        send(gateway.address(), "POST", "/v1/chat/completions", &headers, body).await.status
    };
    assert_eq!(ask("key-of-a-b-000001", "c").await, 200);
    assert_eq!(ask("key-of-a-b-000001", "c").await, 429);
    assert_eq!(ask("key-of-a-00000001", "b:c").await, 200);
    assert_eq!(ask("key-of-a-00000001", "b:c").await, 429);
    assert_eq!(ask("key-of-a-00000001", "c").await, 200);
}

#[tokio::test]
async fn q54_a_tenant_header_changes_neither_the_tenant_nor_its_bucket() {
    let backend = backend().await;
    let gateway = gateway(&configuration(&backend, "words", "requests: 10/day burst 1d")).await;
    let row = find("q54");
    let mut statuses = Vec::new();
    for number in 0..15 {
        let bearer = format!("Bearer {KEY}");
        let tenant = format!("tenant-{number}");
        let headers = [("authorization", bearer.as_str()), ("x-tenant-id", tenant.as_str())];
        let body = Bytes::from(row.body.clone());
        statuses.push(send(gateway.address(), "POST", &row.path, &headers, body).await.status);
    }
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 5]].concat());
    assert!(gateway.records().iter().all(|record| &*record.tenant == "t"));
}

/// The lines of the metrics that are samples.
async fn series(gateway: &TestGateway) -> usize {
    let admin = gateway.running.admin.unwrap();
    let text = send(admin, "GET", "/metrics", &[], Bytes::new()).await.text();
    text.lines().filter(|line| !line.starts_with('#')).count()
}

#[tokio::test]
async fn q55_e02_ten_thousand_unknown_models_and_paths_add_at_most_one_series_each() {
    let backend = backend().await;
    let gateway = gateway(&configuration(&backend, "words", TOKENS)).await;
    assert_eq!(post(&gateway, &find("q14")).await.status, 200);
    gateway.idle().await;
    let before = series(&gateway).await;
    let mut wire = Wire::connect(gateway.address()).await;
    let row = find("q55");
    let body = String::from_utf8(row.body).unwrap();
    for number in 0..10_000 {
        let body = body.replace("000001", &format!("{number:06}"));
        let head = format!("POST {} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n", row.path);
        wire.write(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).await;
        assert_eq!(wire.answer().await.unwrap().status, 404);
    }
    let models = series(&gateway).await;
    assert!(models <= before + 1, "{before} series became {models}");
    for number in 0..10_000 {
        wire.write(format!("GET /scan/{number}.php HTTP/1.1\r\nhost: gateway\r\n\r\n")).await;
        assert_eq!(wire.answer().await.unwrap().status, 404);
    }
    let paths = series(&gateway).await;
    assert!(paths <= models + 1, "{models} series became {paths}");
}
