//! The only file that makes randomness.

/// `N` random bytes from the operating system.
///
/// # Panics
/// The operating system has no randomness to give; a key that can be guessed is worse than no key.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_draws_differ() {
        assert_ne!(super::bytes::<16>(), super::bytes::<16>());
    }
}
