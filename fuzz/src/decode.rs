//! Compressed bodies: within the limit whatever they ask for, and what another decoder makes of them.

use std::borrow::Cow;
use std::io::Read as _;

use fairlane_wire::decode::{DecodeError, decode};

use super::input::Input;

/// Reads `input` as encoding, limit and body.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let encoding = ENCODINGS[input.pick(ENCODINGS.len())];
    let limit_bytes = usize::try_from(input.number()).unwrap_or(usize::MAX).min(LIMIT_BYTES_MAX);
    let body = input.rest();
    let decoded = decode(Some(encoding), body, limit_bytes);
    match &decoded {
        Ok(Cow::Owned(bytes)) => {
            assert!(bytes.len() <= limit_bytes && bytes.capacity() <= limit_bytes, "over {limit_bytes}");
        }
        Ok(Cow::Borrowed(bytes)) => assert_eq!(*bytes, body),
        Err(DecodeError::TooLarge { limit_bytes: told }) => assert_eq!(*told, limit_bytes),
        Err(DecodeError::Malformed { .. }) => {}
        Err(DecodeError::UnknownEncoding) => assert_eq!(encoding, "br"),
    }
    if encoding == "zstd" {
        beside_another(body, limit_bytes, decoded);
        back_again(body);
    }
}

/// What both decoders take is the same, and what is said to be over the limit is.
fn beside_another(body: &[u8], limit_bytes: usize, ours: Result<Cow<'_, [u8]>, DecodeError>) {
    let theirs = another(body, limit_bytes);
    match (ours, theirs) {
        (Ok(ours), Other::Decoded(theirs)) => {
            assert!(*ours == theirs, "{} and {} bytes", ours.len(), theirs.len())
        }
        (Ok(ours), Other::Larger) => {
            panic!("the other made more than {limit_bytes} bytes, we {}", ours.len())
        }
        (Err(DecodeError::TooLarge { .. }), Other::Decoded(theirs)) => {
            assert!(theirs.len() > limit_bytes, "{} bytes are within {limit_bytes}", theirs.len());
        }
        // The other one is lenient: it passes over reserved bits, and over bits that nobody read.
        (_, Other::Unlike) | (Err(_), Other::Larger) | (Err(DecodeError::Malformed { .. }), _) => {}
        (Err(DecodeError::UnknownEncoding), _) => panic!("zstd is known"),
    }
}

enum Other {
    Decoded(Vec<u8>),
    Larger,
    /// It refuses the body, or does what we do not: it knows dictionaries, and stops at the end of a frame.
    Unlike,
}

fn another(body: &[u8], limit_bytes: usize) -> Other {
    let mut rest = body;
    let mut decoded = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = skippable(rest) {
            rest = after;
            continue;
        }
        let Ok(mut decoder) = ruzstd::decoding::StreamingDecoder::new(&mut rest) else {
            return Other::Unlike;
        };
        let room = (limit_bytes - decoded.len()) as u64;
        let Ok(_) = decoder.by_ref().take(room + 1).read_to_end(&mut decoded) else { return Other::Unlike };
        if decoded.len() > limit_bytes {
            return Other::Larger;
        }
    }
    if body.is_empty() { Other::Unlike } else { Other::Decoded(decoded) }
}

/// What follows a skippable frame that is whole.
fn skippable(body: &[u8]) -> Option<&[u8]> {
    let (magic, rest) = body.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let is_skippable = u32::from_le_bytes(*magic) & 0xFFFF_FFF0 == 0x184D_2A50;
    is_skippable.then(|| rest.get(u32::from_le_bytes(*length) as usize..)).flatten()
}

/// What another encoder makes of the body comes back.
fn back_again(body: &[u8]) {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let plain = &body[..body.len().min(PLAIN_BYTES_MAX)];
    let frame = compress_to_vec(plain, CompressionLevel::Fastest);
    assert_eq!(decode(Some("zstd"), &frame, plain.len()).as_deref(), Ok(plain));
}

const ENCODINGS: [&str; 6] = ["zstd", "gzip", "deflate", "identity", "br", "zstd"];
const LIMIT_BYTES_MAX: usize = 4 << 20;
const PLAIN_BYTES_MAX: usize = 4096;
