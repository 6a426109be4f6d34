//! `fairlane keys new`: a fresh key, shown once, and the digest to keep.

use std::io::{self, Write};

use crate::config::KeyDigest;
use crate::random;

/// Prints a fresh key and the line of its digest for the configuration.
///
/// # Errors
/// `out` cannot be written.
pub fn new_key(out: &mut impl Write) -> io::Result<()> {
    let key = format!("{PREFIX}{}", letters(&random::bytes::<RANDOM_BYTES>()));
    let digest = KeyDigest::of(key.as_bytes());
    writeln!(out, "key     {key}")?;
    writeln!(out, "digest  {digest}")?;
    writeln!(out)?;
    writeln!(out, "The key is shown this once: give it to the client. For the configuration:")?;
    writeln!(out, "    keys: [\"{digest}\"]")
}

/// Letters and digits that survive a double click, five bits each.
fn letters(bytes: &[u8]) -> String {
    let mut text = String::new();
    let (mut held, mut held_bits) = (0_u32, 0);
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        held_bits += 8;
        while held_bits >= 5 {
            held_bits -= 5;
            text.push(char::from(ALPHABET[(held >> held_bits) as usize & 31]));
            held &= (1 << held_bits) - 1;
        }
    }
    text
}

const PREFIX: &str = "fl-";
/// 200 bits, which is 40 letters and nothing left over.
const RANDOM_BYTES: usize = 25;
/// Without the letters that are mistaken for others.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_fresh_and_its_digest_is_its_own() {
        let print = || {
            let mut out = Vec::new();
            new_key(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = print();
        let word =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        assert_eq!(word("key ").len(), 43);
        assert_eq!(KeyDigest::of(word("key ").as_bytes()).to_string(), word("digest "));
        assert_ne!(print(), text);
    }

    #[test]
    fn letters_spend_every_bit() {
        assert_eq!(letters(&[0; 5]), "aaaaaaaa");
        assert_eq!(letters(&[255; 5]), "99999999");
        assert_eq!(letters(&[0, 0, 0, 0, 1]), "aaaaaaab");
    }
}
