//! Request bodies that come compressed: decoded up to a hard limit, never beyond it.

mod zstd;

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// Why a body could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The decoded body is larger than the limit. Decoding stopped there.
    TooLarge {
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// The encoding is not one of identity, gzip, deflate and zstd, or there are several.
    UnknownEncoding,
    /// The body is not what its encoding says, or was cut.
    Malformed {
        /// The encoding it claims.
        encoding: &'static str,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit_bytes } => {
                write!(f, "the body is larger than {limit_bytes} bytes when decoded: send a smaller one")
            }
            Self::UnknownEncoding => f.write_str(
                "the Content-Encoding is not supported: send one of identity, gzip, deflate, zstd",
            ),
            Self::Malformed { encoding } => write!(
                f,
                "the body is not valid {encoding}, as its Content-Encoding says: send it whole or uncompressed"
            ),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes a body by the value of its `Content-Encoding` header; `None` if it has none.
///
/// Memory stays within the limit and the decoder's own state (tens of kilobytes).
///
/// # Errors
///
/// See [`DecodeError`]. A body that is not encoded is held to the limit as well.
///
/// ```
/// use fairlane_wire::decode::{DecodeError, decode};
///
/// assert_eq!(&*decode(None, b"{}", 10)?, b"{}");
/// assert_eq!(decode(Some("br"), b"", 10), Err(DecodeError::UnknownEncoding));
/// # Ok::<(), DecodeError>(())
/// ```
pub fn decode<'a>(
    content_encoding: Option<&str>,
    body: &'a [u8],
    limit_bytes: usize,
) -> Result<Cow<'a, [u8]>, DecodeError> {
    let encoding = content_encoding.unwrap_or_default().trim();
    let decoded = match encoding.to_ascii_lowercase().as_str() {
        "" | "identity" => return within(body, limit_bytes),
        "gzip" | "x-gzip" => inflate("gzip", MultiGzDecoder::new(body), limit_bytes),
        "deflate" if has_zlib_header(body) => {
            let mut decoder = ZlibDecoder::new(body);
            inflate("deflate", &mut decoder, limit_bytes)
                .and_then(|decoded| whole("deflate", decoder.get_ref(), decoded))
        }
        // Some clients send what RFC 9110 calls wrong: deflate data without its zlib frame.
        "deflate" => {
            let mut decoder = DeflateDecoder::new(body);
            inflate("deflate", &mut decoder, limit_bytes)
                .and_then(|decoded| whole("deflate", decoder.get_ref(), decoded))
        }
        "zstd" => zstd::decode(body, limit_bytes),
        _ => Err(DecodeError::UnknownEncoding),
    };
    decoded.map(Cow::Owned)
}

fn within(body: &[u8], limit_bytes: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
    if body.len() > limit_bytes {
        return Err(DecodeError::TooLarge { limit_bytes });
    }
    Ok(Cow::Borrowed(body))
}

fn inflate(
    encoding: &'static str,
    mut decoder: impl Read,
    limit_bytes: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut decoded = Vec::new();
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        let Ok(bytes) = decoder.read(&mut chunk) else {
            return Err(DecodeError::Malformed { encoding });
        };
        if bytes == 0 {
            return Ok(decoded);
        }
        grow(&mut decoded, bytes, limit_bytes)?;
        decoded.extend_from_slice(&chunk[..bytes]);
    }
}

/// Makes room for `more` bytes, doubling, but never beyond the limit.
fn grow(decoded: &mut Vec<u8>, more: usize, limit_bytes: usize) -> Result<(), DecodeError> {
    let needed = decoded.len().saturating_add(more);
    if needed > limit_bytes {
        return Err(DecodeError::TooLarge { limit_bytes });
    }
    if needed > decoded.capacity() {
        let wanted = needed.max(decoded.capacity().saturating_mul(2)).min(limit_bytes);
        decoded.reserve_exact(wanted - decoded.len());
    }
    Ok(())
}

/// Bytes after the end would be read by one side and not by the other.
fn whole(encoding: &'static str, rest: &[u8], decoded: Vec<u8>) -> Result<Vec<u8>, DecodeError> {
    if rest.is_empty() { Ok(decoded) } else { Err(DecodeError::Malformed { encoding }) }
}

/// The two bytes of RFC 1950: method 8, and together a multiple of 31.
fn has_zlib_header(body: &[u8]) -> bool {
    match body {
        [method, flags, ..] => method & 0x0F == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31),
        _ => false,
    }
}

const CHUNK_BYTES: usize = 8 * 1024;

#[cfg(test)]
mod tests;
