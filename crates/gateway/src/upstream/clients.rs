//! The clients that reach backends: one for all whose certificates the public authorities sign, one for each `ca_file`.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::config::{Edge, EdgeBackend};

/// A client with kept-alive connections.
pub(super) type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Clients by the authorities that they trust.
pub struct Clients {
    public: Client,
    private: HashMap<PathBuf, Private>,
    connect: Duration,
}

struct Private {
    pem: Vec<u8>,
    client: Client,
}

impl Clients {
    /// Clients for the backends of a configuration; those of `before` that trust the same stay.
    ///
    /// # Errors
    /// A `ca_file` cannot be read or holds no certificate: the message names it.
    pub(super) fn new(edge: &Edge, before: Option<&Self>) -> Result<Self, String> {
        let connect = edge.timeouts.connect;
        let before = before.filter(|before| before.connect == connect);
        let mut private = HashMap::new();
        for path in edge.pools.iter().flat_map(|pool| &pool.backends).filter_map(|one| one.ca_file.as_ref()) {
            if !private.contains_key(path) {
                let known = before.and_then(|before| before.private.get(path));
                private.insert(path.clone(), Private::new(path, known, connect)?);
            }
        }
        let public = match before {
            Some(before) => before.public.clone(),
            None => client(config()?.with_webpki_roots().with_no_client_auth(), connect),
        };
        Ok(Self { public, private, connect })
    }

    /// The client for a backend.
    ///
    /// # Errors
    /// A reload has taken its `ca_file` out.
    pub(super) fn of(&self, backend: &EdgeBackend) -> Result<Client, String> {
        match &backend.ca_file {
            None => Ok(self.public.clone()),
            Some(path) => self
                .private
                .get(path)
                .map(|private| private.client.clone())
                .ok_or_else(|| "the backend was taken out of the configuration".to_owned()),
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("ca_files", &self.private.keys()).finish_non_exhaustive()
    }
}

impl Private {
    fn new(path: &Path, known: Option<&Self>, connect: Duration) -> Result<Self, String> {
        let shown = path.display();
        let mut pem = Vec::new();
        File::open(path)
            .and_then(|file| file.take(PEM_BYTES_MAX + 1).read_to_end(&mut pem))
            .map_err(|error| format!("cannot read the ca_file {shown}: {error}"))?;
        if pem.len() as u64 > PEM_BYTES_MAX {
            return Err(format!(
                "the ca_file {shown} is larger than 1 MiB: keep the authorities that are needed"
            ));
        }
        if let Some(known) = known.filter(|known| known.pem == pem) {
            return Ok(Self { pem, client: known.client.clone() });
        }
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let added = certificate
                .map_err(|error| error.to_string())
                .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
            added.map_err(|error| {
                format!("the ca_file {shown} has a certificate that cannot be used: {error}")
            })?;
        }
        if roots.is_empty() {
            return Err(format!("the ca_file {shown} holds no certificate: write them in PEM form"));
        }
        let client = client(config()?.with_root_certificates(roots).with_no_client_auth(), connect);
        Ok(Self { pem, client })
    }
}

fn config() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, String> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))
}

fn client(tls: ClientConfig, connect: Duration) -> Client {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    http.set_connect_timeout(Some(connect));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(http);
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION)
        .build(https)
}

const IDLE_CONNECTION: Duration = Duration::from_secs(60);
const PEM_BYTES_MAX: u64 = 1 << 20;
