//! What refused clients do, and what it brings: the table of coming back in the lab's model.

use std::sync::Arc;

use fairlane_core::policy::Limits;
use fairlane_core::units::Micros;
use fairlane_lab::reference::{self, BATCH, Switches};
use fairlane_lab::world::{self, Comeback, Figures};

#[test]
fn told_waits_bring_everyone_in_without_a_storm() {
    let told = Comeback::AsTold { jitter_percent: 0, tries_max: 5 };
    let runs = runs(5, told);
    assert!(mean(&runs, refused) <= 0.002, "finally refused {}", mean(&runs, refused));
    assert!(mean(&runs, amplification) <= 1.2, "amplification {}", mean(&runs, amplification));
    let started = mean(&runs, started);
    assert!((started - 0.834).abs() < 0.02, "started in 2 s {started}");
    let roomy = self::runs(10, told);
    assert!(mean(&roomy, refused) <= 0.002 && mean(&roomy, amplification) <= 1.12);
}

#[test]
fn clients_that_retry_at_once_bring_a_storm_and_half_of_the_refused_nothing() {
    let at_once = Comeback::After { wait: Micros::from_millis(250), tries_max: 5 };
    let runs = runs(5, at_once);
    let (refused, amplification) = (mean(&runs, refused), mean(&runs, amplification));
    assert!((refused - 0.071).abs() < 0.02, "finally refused {refused}");
    assert!((amplification - 1.52).abs() < 0.1, "amplification {amplification}");
}

#[test]
fn clients_that_give_up_leave_9_percent_refused() {
    let runs = runs(5, Comeback::GivesUp);
    let refused = mean(&runs, refused);
    assert!((refused - 0.087).abs() < 0.02, "finally refused {refused}");
    assert_eq!(mean(&runs, amplification), 1.0);
}

fn runs(burst_secs: u64, comeback: Comeback) -> Vec<Figures> {
    (1_001..1_001 + SEEDS).map(|seed| run(seed, burst_secs, comeback)).collect()
}

fn run(seed: u64, burst_secs: u64, comeback: Comeback) -> Figures {
    let limits = |tenant: usize| {
        let chat = reference::tokens_per_minute(200_000, Micros::from_secs(burst_secs)).unwrap();
        if tenant < BATCH { chat } else { Limits::default() }
    };
    let burst = Switches { burst: true, ..Switches::default() };
    let mut setup = reference::setup(burst, seed, Arc::new(reference::policy(limits)));
    for sender in &mut setup.senders[..BATCH] {
        sender.comeback = comeback;
    }
    world::run(setup).unwrap().figures
}

fn refused(figures: &Figures) -> f64 {
    figures.classes[0].refused
}

fn started(figures: &Figures) -> f64 {
    figures.interactive_started_2s
}

fn amplification(figures: &Figures) -> f64 {
    figures.amplification
}

fn mean(runs: &[Figures], pick: impl Fn(&Figures) -> f64) -> f64 {
    runs.iter().map(pick).sum::<f64>() / runs.len() as f64
}

const SEEDS: u64 = 10;
