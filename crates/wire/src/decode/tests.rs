//! Tests: Decoding request bodies.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::*;

const MEBIBYTE: usize = 1 << 20;

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// The words that the fixtures hold.
fn words(seed: u64, count: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "token",
        "bucket",
        "lane",
        "{\"role\":\"user\"}",
        "reserve",
        "settle",
        "\n",
        "a",
        "of",
        "the",
        "queue",
        "0123456789",
    ];
    let words = steps(seed).map(|state| WORDS[(state >> 33) as usize % WORDS.len()]);
    words.take(count).collect::<Vec<_>>().join(" ").into_bytes()
}

fn noise(seed: u64, count: usize) -> Vec<u8> {
    steps(seed).map(|state| ((state >> 40) % 64 + 32) as u8).take(count).collect()
}

/// Knuth's linear congruential generator.
fn steps(seed: u64) -> impl Iterator<Item = u64> {
    let step = |state: &u64| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    std::iter::successors(Some(seed), step).skip(1)
}

/// Every frame made by the reference implementation, with what is in it.
fn frames() -> Vec<(&'static [u8], Vec<u8>)> {
    let mixed = [words(3, 3_000), noise(5, 5_000), words(3, 3_000)].concat();
    vec![
        (include_bytes!("../../tests/data/zstd/small_1.zst"), words(7, 40)),
        (include_bytes!("../../tests/data/zstd/small_19.zst"), words(7, 40)),
        (include_bytes!("../../tests/data/zstd/large_1.zst"), words(11, 25_000)),
        (include_bytes!("../../tests/data/zstd/large_19.zst"), words(11, 25_000)),
        (include_bytes!("../../tests/data/zstd/large_stream.zst"), words(11, 25_000)),
        (include_bytes!("../../tests/data/zstd/noise_3.zst"), noise(13, 5_000)),
        (include_bytes!("../../tests/data/zstd/mixed_3.zst"), mixed.clone()),
        (include_bytes!("../../tests/data/zstd/mixed_22.zst"), mixed),
    ]
}

const BOMB: &[u8] = include_bytes!("../../tests/data/zstd/bomb_200mb.zst");

#[test]
fn every_known_encoding_gives_the_body_back() {
    let body = words(1, 2_000);
    for (name, encoded) in [
        ("gzip", gzip(&body)),
        ("X-GZIP", gzip(&body)),
        ("deflate", zlib(&body)),
        ("deflate", deflate(&body)),
        (" Identity ", body.clone()),
        ("", body.clone()),
    ] {
        let decoded = decode(Some(name), &encoded, body.len()).unwrap();
        assert_eq!(decoded, body, "{name}");
    }
}

#[test]
fn zstd_frames_of_the_reference_implementation_are_decoded() {
    for (frame, body) in frames() {
        let decoded = decode(Some("zstd"), frame, body.len()).unwrap();
        assert!(decoded == body, "{} bytes", frame.len());
    }
}

#[test]
fn our_zstd_decoder_agrees_with_another_one() {
    for (frame, _) in frames() {
        let mut theirs = Vec::new();
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(frame).unwrap();
        decoder.read_to_end(&mut theirs).unwrap();
        assert!(decode(Some("zstd"), frame, MEBIBYTE).unwrap() == theirs);
    }
}

#[test]
fn q37_a_zstd_bomb_stops_at_the_limit() {
    let limit_bytes = MEBIBYTE;
    assert_eq!(decode(Some("zstd"), BOMB, limit_bytes), Err(DecodeError::TooLarge { limit_bytes }));
}

#[test]
fn the_limit_is_exact_for_every_encoding() {
    let body = words(2, 20_000);
    let (frame, text) = frames().swap_remove(4);
    let cases = [
        ("gzip", gzip(&body), body.len()),
        ("deflate", zlib(&body), body.len()),
        ("deflate", deflate(&body), body.len()),
        ("identity", body.clone(), body.len()),
        ("zstd", frame.to_vec(), text.len()),
    ];
    for (name, encoded, size) in cases {
        assert!(decode(Some(name), &encoded, size).is_ok(), "{name}");
        let limit_bytes = size - 1;
        assert_eq!(
            decode(Some(name), &encoded, limit_bytes),
            Err(DecodeError::TooLarge { limit_bytes }),
            "{name}"
        );
    }
}

#[test]
fn memory_for_the_output_never_passes_the_limit() {
    let body = words(2, 20_000);
    for encoding in ["gzip", "zstd"] {
        let (frame, text) = frames().swap_remove(3);
        let (encoded, limit) =
            if encoding == "gzip" { (gzip(&body), body.len() + 7) } else { (frame.to_vec(), text.len() + 7) };
        let Cow::Owned(decoded) = decode(Some(encoding), &encoded, limit).unwrap() else {
            panic!("{encoding} was not decoded");
        };
        assert!(decoded.capacity() <= limit, "{encoding}");
    }
}

#[test]
fn chained_and_unknown_encodings_are_refused() {
    for name in ["br", "gzip, gzip", "gzip,zstd", "compress", "*", "identity;q=1"] {
        assert_eq!(decode(Some(name), b"{}", 9), Err(DecodeError::UnknownEncoding), "{name}");
    }
}

#[test]
fn a_body_cut_anywhere_or_followed_by_more_is_malformed() {
    let body = words(3, 60);
    let (frame, _) = frames().swap_remove(1);
    for (name, encoded) in [
        ("gzip", gzip(&body)),
        ("deflate", zlib(&body)),
        ("deflate", deflate(&body)),
        ("zstd", frame.to_vec()),
    ] {
        // An empty gzip or deflate body has no member at all.
        for cut in 1..encoded.len() {
            let cut_body = &encoded[..cut];
            assert!(
                matches!(decode(Some(name), cut_body, MEBIBYTE), Err(DecodeError::Malformed { .. })),
                "{name} cut at {cut}"
            );
        }
        let longer = [&encoded[..], b"more"].concat();
        assert!(
            matches!(decode(Some(name), &longer, MEBIBYTE), Err(DecodeError::Malformed { .. })),
            "{name} with more"
        );
    }
}

#[test]
fn gzip_members_follow_each_other() {
    let two = [gzip(b"{\"a\":"), gzip(b"1}")].concat();
    assert_eq!(&*decode(Some("gzip"), &two, 99).unwrap(), b"{\"a\":1}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        name in prop::sample::select(vec!["gzip", "deflate", "zstd", "identity"]),
    ) {
        if let Ok(decoded) = decode(Some(name), &bytes, 10_000) {
            prop_assert!(decoded.len() <= 10_000);
        }
    }

    #[test]
    fn damaged_zstd_frames_never_panic_and_never_pass_the_limit(
        which in 0_usize..8,
        damages in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut frame = frames().swap_remove(which).0.to_vec();
        for (at, byte) in damages {
            let at = at.index(frame.len().min(400));
            frame[at] = byte;
        }
        if let Ok(decoded) = decode(Some("zstd"), &frame, 300_000) {
            prop_assert!(decoded.len() <= 300_000);
        }
    }

    #[test]
    fn zstd_frames_made_by_another_encoder_come_back(
        body in proptest::collection::vec(prop::sample::select(b"abc{}\": ,".to_vec()), 0..5_000),
    ) {
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};
        for level in [CompressionLevel::Uncompressed, CompressionLevel::Fastest] {
            let frame = compress_to_vec(body.as_slice(), level);
            prop_assert_eq!(&*decode(Some("zstd"), &frame, 5_000).unwrap(), &*body);
        }
    }
}
