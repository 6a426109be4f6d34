//! `cargo xtask swarm`: chaos without end, on real sockets and in the lab's virtual time. What fails is told with the line that
//! repeats it.

mod hostile;
mod lab;
mod sockets;

use std::time::{Duration, Instant, SystemTime};

/// What to run, and for how long.
#[derive(Clone, Copy, Debug)]
struct Wish {
    /// This seed alone, once; without it one seed after the other.
    seed: Option<u64>,
    /// Requests of a run over sockets.
    requests: u64,
    /// No further run begins after it.
    time: Option<Duration>,
}

/// Runs what the words after `swarm` ask for.
///
/// # Errors
/// A word is not known, or a seed failed: the line that runs it again.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    if words == ["hostile"] {
        return hostile::run();
    }
    let wish = Wish::parse(words)?;
    let binary = sockets::build()?;
    let began = clock();
    let mut seed = wish.seed.unwrap_or_else(fresh_seed);
    let worlds = if wish.seed.is_some() { 1 } else { WORLDS };
    let mut runs = 0;
    loop {
        println!("\n== swarm --seed {seed} --requests {}", wish.requests);
        lab::run(seed, worlds)?;
        sockets::run(&binary, seed, wish.requests)?;
        runs += 1;
        let is_over = wish.time.is_some_and(|time| began.elapsed() >= time);
        if wish.seed.is_some() || is_over {
            println!("\nswarm: {runs} runs in {:.0} s, all accounts right", began.elapsed().as_secs_f64());
            return Ok(());
        }
        seed = seed.wrapping_add(WORLDS);
    }
}

impl Wish {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut wish = Self { seed: None, requests: REQUESTS, time: None };
        for pair in words.chunks(2) {
            let number = || pair.get(1).and_then(|number| number.parse::<u64>().ok());
            match (pair[0], number()) {
                ("--seed", Some(seed)) => wish.seed = Some(seed),
                ("--requests", Some(requests)) => wish.requests = requests,
                ("--minutes", Some(minutes)) => wish.time = Some(Duration::from_secs(60 * minutes)),
                (word, _) => {
                    return Err(format!("swarm does not know {word}, or its number is missing: {USAGE}"));
                }
            }
        }
        Ok(wish)
    }
}

/// A seed that was hardly used before.
#[expect(clippy::disallowed_methods, reason = "the task runner may begin where it likes; it says where")]
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs() * SEEDS_PER_SECOND)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the task runner bounds its own time; no product code reads this"
)]
fn clock() -> Instant {
    Instant::now()
}

const REQUESTS: u64 = 10_000;
/// Worlds of the lab beside each run over sockets; the next run begins behind their seeds.
const WORLDS: u64 = 200;
const SEEDS_PER_SECOND: u64 = 1_000;
const USAGE: &str =
    "cargo xtask swarm [--seed N] [--requests 10000] [--minutes M], or cargo xtask swarm hostile";

#[cfg(test)]
mod tests {
    use super::Wish;

    #[test]
    fn a_wish_is_read_from_its_words_and_an_unknown_word_is_refused() {
        let wish = Wish::parse(&["--seed", "7", "--minutes", "2"]).unwrap();
        assert_eq!((wish.seed, wish.requests, wish.time.unwrap().as_secs()), (Some(7), 10_000, 120));
        assert!(Wish::parse(&["--seeds", "7"]).is_err());
        assert!(Wish::parse(&["--seed"]).is_err());
    }
}
