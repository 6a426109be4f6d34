//! Addresses of the gateway itself, and its bounds on bytes, counts and time.

use std::net::SocketAddr;
use std::time::Duration;

use fairlane_core::units::Micros;

use super::{Resolver, Spot};
use crate::config::edge::{Bounds, DataSettings, Edge, EdgePool, Timeouts};
use crate::config::keys::KeyTable;
use crate::config::scalars::{Count, Size, TimeSpan, Toggle, quoted};

impl Resolver<'_> {
    pub(super) fn edge(&mut self, pools: Vec<EdgePool>, keys: KeyTable) -> Edge {
        let document = &self.source.document;
        let listen =
            self.address(&Spot::of("listen"), document.listen.as_deref().unwrap_or("127.0.0.1:8080"));
        let admin_text = document.admin.as_deref().unwrap_or("127.0.0.1:9090");
        let admin = (admin_text != "off").then(|| self.address(&Spot::of("admin"), admin_text));
        let admin_token =
            document.admin_token.as_ref().and_then(|token| self.digest_of(&Spot::of("admin_token"), token));
        if document.admin_token.is_none() && admin.is_some_and(|admin| !admin.ip().is_loopback()) {
            self.problem(
                &Spot::of("admin"),
                "off loopback the admin address needs an admin_token: set one, or listen on 127.0.0.1",
            );
        }
        if admin.is_some_and(|admin| admin == listen && admin.port() != 0) {
            self.problem(
                &Spot::of("admin"),
                "the admin address is that of the clients: give it another port",
            );
        }
        let (bounds, timeouts, data) = (self.bounds(), self.timeouts(), self.data());
        let lab = document.lab.unwrap_or(false);
        let queue_heartbeat = self.queue_heartbeat();
        Edge { listen, admin, admin_token, lab, pools, keys, queue_heartbeat, bounds, timeouts, data }
    }

    fn queue_heartbeat(&mut self) -> Option<Duration> {
        let written = match self.source.document.queue_heartbeat {
            None | Some(Toggle::Off) => return None,
            Some(Toggle::Every(span)) => span,
        };
        let millis = |millis: u64| TimeSpan(Micros::from_millis(millis));
        let bound = (millis(100)..=millis(HOUR.0), HOUR.1);
        Some(self.bounded(&Spot::of("queue_heartbeat"), Some(written), written, bound).duration())
    }

    fn data(&mut self) -> Option<DataSettings> {
        let written = self.source.document.usage.clone().unwrap_or_default();
        let spot = Spot::of("usage");
        let millis = |millis: u64| TimeSpan(Micros::from_millis(millis));
        let keep = (millis(60_000)..=millis(366 * DAY_MS), "1m to 366d");
        let keep = self.bounded(&spot.key("keep"), written.keep, millis(30 * DAY_MS), keep).duration();
        let records = (Count(0)..=Count(100_000_000), "0 to 100,000,000");
        let records = self.bounded(&spot.key("records"), written.records, Count(1_000_000), records);
        match self.source.document.data.as_deref() {
            None | Some("off") => None,
            Some("") => {
                self.problem(&Spot::of("data"), "name a file, such as fairlane.redb, or write off");
                None
            }
            Some(file) => Some(DataSettings {
                file: self.source.folder.join(file),
                keep,
                records_max: u64::from(records.0),
            }),
        }
    }

    fn address(&mut self, spot: &Spot, text: &str) -> SocketAddr {
        let with_ip = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        with_ip.as_deref().unwrap_or(text).parse().unwrap_or_else(|_| {
            self.problem(spot, format!("{} is not an address: write an IP address and a port, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080", quoted(text)));
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }

    fn bounds(&mut self) -> Bounds {
        let written = self.source.document.bounds.clone().unwrap_or_default();
        let spot = Spot::of("bounds");
        let mut size = |key: &str, value: Option<Size>, default: u64, least: u64, most: (u64, &str)| {
            let bound = (Size { bytes: least }..=Size { bytes: most.0 }, most.1);
            self.bounded(&spot.key(key), value, Size { bytes: default }, bound).bytes as usize
        };
        let body_bytes_max = size("max_body", written.max_body, 16 << 20, 1 << 10, (1 << 30, "1KiB to 1GiB"));
        let header_bytes_max =
            size("max_header_bytes", written.max_header_bytes, 64 << 10, 8 << 10, (1 << 20, "8KiB to 1MiB"));
        let drained_answer_bytes_max = size(
            "max_drained_answer",
            written.max_drained_answer,
            16 << 20,
            1 << 10,
            (1 << 30, "1KiB to 1GiB"),
        );
        let mut count = |key: &str, value: Option<Count>, default: u32, least: u32, most: (u32, &str)| {
            self.bounded(&spot.key(key), value, Count(default), (Count(least)..=Count(most.0), most.1)).0
                as usize
        };
        Bounds {
            body_bytes_max,
            drained_answer_bytes_max,
            header_bytes_max,
            headers_max: count("max_headers", written.max_headers, 100, 10, (1_000, "10 to 1,000")),
            connections_max: count(
                "max_connections",
                written.max_connections,
                10_000,
                1,
                (1_000_000, "1 to 1,000,000"),
            ),
            models_max: count("max_models", written.max_models, MODELS_DEFAULT, 1, (100_000, "1 to 100,000")),
            recent_requests_max: count(
                "max_recent_requests",
                written.max_recent_requests,
                1_000,
                0,
                (100_000, "0 to 100,000"),
            ),
        }
    }

    pub(super) fn end_users_max(&mut self) -> u32 {
        let written = self.source.document.bounds.as_ref().and_then(|bounds| bounds.max_end_users);
        let spot = Spot::of("bounds").key("max_end_users");
        self.bounded(&spot, written, Count(100_000), (Count(1)..=Count(10_000_000), "1 to 10,000,000")).0
    }

    fn timeouts(&mut self) -> Timeouts {
        let written = self.source.document.timeouts.clone().unwrap_or_default();
        let spot = Spot::of("timeouts");
        let mut span = |key: &str,
                        value: Option<TimeSpan>,
                        default_ms: u64,
                        least_ms: u64,
                        most: (u64, &str)|
         -> Duration {
            let millis = |millis: u64| TimeSpan(Micros::from_millis(millis));
            self.bounded(
                &spot.key(key),
                value,
                millis(default_ms),
                (millis(least_ms)..=millis(most.0), most.1),
            )
            .duration()
        };
        Timeouts {
            client_header: span("client_header", written.client_header, 60_000, 100, HOUR),
            client_body: span("client_body", written.client_body, 30_000, 100, HOUR),
            client_write: span("client_write", written.client_write, 30_000, 100, HOUR),
            client_gone: span("client_gone", written.client_gone, 300_000, 100, DAY),
            connect: span("connect", written.connect, 5_000, 10, (600_000, "10ms to 10m")),
            first_byte: span("first_byte", written.first_byte, 600_000, 100, DAY),
            stream_idle: span("stream_idle", written.stream_idle, 120_000, 100, DAY),
            total: span("total", written.total, 3_600_000, 1_000, (604_800_000, "1s to 7d")),
            shutdown_notice: span("shutdown_notice", written.shutdown_notice, 0, 0, (600_000, "0 to 10m")),
            shutdown: span("shutdown", written.shutdown, 60_000, 0, (86_400_000, "0 to 24h")),
        }
    }
}

/// Most models taken from the backends of a pool, where nothing else is configured.
pub(super) const MODELS_DEFAULT: u32 = 1_000;
const HOUR: (u64, &str) = (3_600_000, "100ms to 1h");
const DAY_MS: u64 = 86_400_000;
const DAY: (u64, &str) = (86_400_000, "100ms to 24h");
