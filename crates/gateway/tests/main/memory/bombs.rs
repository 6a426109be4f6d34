//! Bodies that are larger than they may be, or become so.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::scene::Scene;
use crate::support::{KEY, in_time};

/// Four times the largest body: as it came, as it grew, as it was unpacked, and what the allocator keeps of that.
const BODY_KIB_MAX: u64 = 4 * 2 * 1024;
const FREE: &str = "    limits: {max_output_tokens: 4096}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_unpacks_to_200_mb_is_stopped_at_the_limit() {
    let zstd = include_bytes!("../../../../wire/tests/data/zstd/bomb_200mb.zst");
    for (encoding, bomb) in [("gzip", gzip_bomb(200 << 20)), ("zstd", zstd.to_vec())] {
        let scene = Scene::open("bombs", FREE, "bounds: {max_body: 2MiB}\n").await;
        let count = scene.scale.pick(8, 200);
        let what = format!("{count} {encoding} bombs of 200 MB, one after the other");
        let attack = async {
            for _ in 0..count {
                assert_eq!(scene.post(Some(encoding), bomb.clone().into()).await.0, 413);
            }
        };
        scene.beside(&what, attack).await;
        scene.assert_below(&what, BODY_KIB_MAX + super::GROWTH_KIB_MAX);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_100_mb_is_not_kept() {
    let scene = Scene::open("body", FREE, "bounds: {max_body: 2MiB}\n").await;
    let length = scene.scale.pick(20 << 20, 100 << 20);
    for framing in [
        format!("content-length: {length}\r\n\r\n"),
        format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n"),
    ] {
        let what = format!("a body of {} MB, {}", length >> 20, framing.lines().next().unwrap());
        let attack = async {
            let mut client = TcpStream::connect(scene.process.address).await.unwrap();
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n{framing}"
            );
            client.write_all(head.as_bytes()).await.unwrap();
            let piece = vec![b' '; 64 * 1024];
            let mut sent = 0;
            while sent < length && client.write_all(&piece).await.is_ok() {
                sent += piece.len();
            }
            let mut answer = vec![0; 64];
            let read = in_time("an answer", client.read(&mut answer)).await.unwrap_or(0);
            String::from_utf8_lossy(&answer[..read]).into_owned()
        };
        let answer = scene.beside(&what, attack).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
        scene.assert_below(&what, BODY_KIB_MAX + super::GROWTH_KIB_MAX);
    }
}

/// Zeros as one deflate block of fixed codes, without the trailer: nobody may come that far.
fn gzip_bomb(bytes: usize) -> Vec<u8> {
    let mut bits = Bits { bytes: vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255], used: 8 };
    // The last block, with fixed codes; one zero; then copies of 258 bytes from one byte back.
    bits.write(0b1, 1);
    bits.write(0b01, 2);
    bits.write(0b0000_1100, 8);
    for _ in 0..bytes / 258 {
        bits.write(0b1010_0011, 8);
        bits.write(0, 5);
    }
    bits.bytes
}

/// Bits, the lowest of each byte first.
struct Bits {
    bytes: Vec<u8>,
    used: u32,
}

impl Bits {
    fn write(&mut self, value: u32, count: u32) {
        for place in 0..count {
            if self.used == 8 {
                self.bytes.push(0);
                self.used = 0;
            }
            let bit = (value >> place & 1) as u8;
            *self.bytes.last_mut().unwrap() |= bit << self.used;
            self.used += 1;
        }
    }
}
