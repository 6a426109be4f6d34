//! Backends behind TLS: certificates are verified, and HTTP/2 is spoken where the backend offers it.

#![cfg(test)]

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ServerConnection;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{KEY, Reply, chat_answer, chat_body, gateway};

/// A backend with a certificate of its own.
struct Secured {
    address: SocketAddr,
    ca_file: PathBuf,
    versions: Arc<Mutex<Vec<http::Version>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Secured {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.ca_file);
    }
}

impl Secured {
    async fn start(name: &str, protocols: &[&str]) -> Self {
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let ca_file = std::env::temp_dir().join(format!("fairlane-test-{}-{name}.pem", std::process::id()));
        std::fs::write(&ca_file, certified.cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let versions = Arc::new(Mutex::new(Vec::new()));
        let (config, seen) = (Arc::new(config), Arc::clone(&versions));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
                let (near, far) = tokio::io::duplex(64 * 1024);
                connections.spawn(async move {
                    // A client that does not trust the certificate breaks off: that is its right.
                    let _ = unwrap_tls(stream, tls, near).await;
                });
                connections.spawn(serve(far, Arc::clone(&seen)));
            }
        });
        Self { address, ca_file, versions, task }
    }

    fn yaml(&self, ca_file: Option<&PathBuf>) -> String {
        let ca = ca_file.map(|path| format!(", ca_file: \"{}\"", path.display())).unwrap_or_default();
        let port = self.address.port();
        format!(
            "pools:
  - name: main
    models: [m]
    engine: vllm
    backends: [{{url: \"https://localhost:{port}\"{ca}}}]
    tokenizer: {{vocabulary: words, mode: exact}}
    health: off
tenants: [{{name: t, keys: [\"{KEY}\"]}}]
"
        )
    }

    /// The HTTP versions of the chat requests that it got.
    fn versions(&self) -> Vec<http::Version> {
        self.versions.lock().unwrap().clone()
    }
}

/// Carries a TLS connection's bytes to and from its plain side.
async fn unwrap_tls(
    mut wire: TcpStream,
    mut tls: ServerConnection,
    mut plain: DuplexStream,
) -> io::Result<()> {
    let (mut cipher, mut text) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        tokio::select! {
            count = wire.read(&mut cipher) => {
                let count = count?;
                if count == 0 {
                    return Ok(());
                }
                let mut fresh = &cipher[..count];
                while !fresh.is_empty() {
                    tls.read_tls(&mut fresh)?;
                    let processed = tls.process_new_packets().map_err(io::Error::other);
                    send_pending(&mut wire, &mut tls).await?;
                    let ready = processed?.plaintext_bytes_to_read();
                    let mut bytes = vec![0; ready];
                    tls.reader().read_exact(&mut bytes)?;
                    plain.write_all(&bytes).await?;
                }
            }
            count = plain.read(&mut text) => {
                let count = count?;
                if count == 0 {
                    tls.send_close_notify();
                    return send_pending(&mut wire, &mut tls).await;
                }
                tls.writer().write_all(&text[..count])?;
            }
        }
        send_pending(&mut wire, &mut tls).await?;
    }
}

async fn send_pending(wire: &mut TcpStream, tls: &mut ServerConnection) -> io::Result<()> {
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes)?;
    }
    wire.write_all(&bytes).await
}

async fn serve(plain: DuplexStream, versions: Arc<Mutex<Vec<http::Version>>>) {
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let versions = Arc::clone(&versions);
        async move {
            let is_chat = request.uri().path() == "/v1/chat/completions";
            let version = request.version();
            // The whole body first: what answers before it has read would have it reset.
            let _ = http_body_util::BodyExt::collect(request.into_body()).await;
            let mut response = http::Response::new(Full::new(bytes::Bytes::new()));
            if is_chat {
                versions.lock().unwrap().push(version);
                let answer = chat_answer(10, 10);
                let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
                *response.body_mut() = Full::new(bytes::Bytes::copy_from_slice(&answer[body..]));
                response.headers_mut().insert("content-type", "application/json".parse().unwrap());
            } else {
                *response.status_mut() = http::StatusCode::NOT_FOUND;
            }
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(plain), service).await;
}

async fn chat_through(yaml: &str) -> Reply {
    let gateway = gateway(yaml).await;
    let reply = gateway.chat(&chat_body(10, 10)).await;
    gateway.idle().await;
    reply
}

#[tokio::test]
async fn a_certificate_that_nobody_known_has_signed_is_refused() {
    let backend = Secured::start("unknown", &["http/1.1"]).await;
    assert_eq!(chat_through(&backend.yaml(None)).await.status, 502);
    let other = Secured::start("other", &["http/1.1"]).await;
    assert_eq!(chat_through(&backend.yaml(Some(&other.ca_file))).await.status, 502);
    assert_eq!(backend.versions(), []);
}

#[tokio::test]
async fn a_certificate_that_the_configured_authority_has_signed_is_accepted() {
    let backend = Secured::start("configured", &["http/1.1"]).await;
    let reply = chat_through(&backend.yaml(Some(&backend.ca_file))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["usage"]["completion_tokens"], 10);
    assert_eq!(backend.versions(), [http::Version::HTTP_11]);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let backend = Secured::start("name", &["http/1.1"]).await;
    let yaml = backend.yaml(Some(&backend.ca_file)).replace("localhost", "127.0.0.1");
    assert_eq!(chat_through(&yaml).await.status, 502);
    assert_eq!(backend.versions(), []);
}

#[tokio::test]
async fn http_2_is_spoken_where_the_backend_offers_it() {
    let backend = Secured::start("http2", &["h2", "http/1.1"]).await;
    let gateway = gateway(&backend.yaml(Some(&backend.ca_file))).await;
    let body = chat_body(10, 10);
    for reply in futures_util::future::join_all((0..5).map(|_| gateway.chat(&body))).await {
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    gateway.idle().await;
    assert_eq!(backend.versions(), [http::Version::HTTP_2; 5]);
}

#[tokio::test]
async fn a_ca_file_that_holds_no_certificate_is_told_at_the_start() {
    let backend = Secured::start("empty", &["http/1.1"]).await;
    let start = async |content: Option<&str>| {
        match content {
            Some(content) => std::fs::write(&backend.ca_file, content).unwrap(),
            None => std::fs::remove_file(&backend.ca_file).unwrap(),
        }
        let text =
            format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{}", backend.yaml(Some(&backend.ca_file)));
        let source = fairlane::config::Source::from_text("test.yaml", &text).unwrap();
        let origin = fairlane::serve::Origin::Fixed(Box::new(source));
        fairlane::serve::start(origin, fairlane::serve::Overrides::default()).await.unwrap_err()
    };
    assert!(start(Some("no certificate\n")).await.contains("holds no certificate"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(start(Some(broken)).await.contains("cannot be used"));
    assert!(start(None).await.contains("cannot read the ca_file"));
}
