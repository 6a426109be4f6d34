//! The reference traffic: counts, first values, switches, and rates that change while it runs.

use fairlane_core::units::{Moment, Tokens};
use fairlane_lab::reference::{self, AGENT, BATCH, Batch, Switches};
use fairlane_lab::{Arrival, Source};

fn run(switches: Switches, seed: u64) -> Vec<Arrival> {
    reference::traffic(switches, seed).collect()
}

fn count(arrivals: &[Arrival], tenant: usize) -> usize {
    arrivals.iter().filter(|arrival| arrival.tenant == tenant).count()
}

#[test]
fn seed_1_begins_with_these_arrivals() {
    let first: Vec<_> = run(Switches { agent: true, ..Switches::default() }, 1)
        .into_iter()
        .take(4)
        .map(|arrival| (arrival.at.0, arrival.tenant, arrival.prompt.0, arrival.output.0))
        .collect();
    assert_eq!(first, FIRST);
}

#[test]
fn each_tenant_offers_its_rate_over_the_run() {
    let arrivals = run(Switches { agent: true, ..Switches::default() }, 1);
    assert_eq!(count(&arrivals, AGENT), 240);
    assert_eq!(count(&arrivals, BATCH), 450);
    assert_eq!(arrivals.len() - 240 - 450, 685, "interactive requests of seed 1");
    let heavy = run(Switches { batch: Batch::Heavy, ..Switches::default() }, 1);
    assert_eq!(count(&heavy, BATCH), 1_500);
    assert_eq!(count(&heavy, AGENT), 0);
}

#[test]
fn arrivals_come_in_order_and_every_size_is_in_its_range() {
    let arrivals = run(Switches { agent: true, burst: true, batch: Batch::Heavy }, 5);
    assert!(arrivals.windows(2).all(|pair| (pair[0].at, pair[0].tenant) <= (pair[1].at, pair[1].tenant)));
    for arrival in &arrivals {
        let (prompt, output) = match arrival.tenant {
            BATCH => (3_600..=4_400, 480..=720),
            AGENT => (6_000..=24_000, 980..=1_020),
            _ => (720..=1_080, 150..=350),
        };
        assert!(prompt.contains(&arrival.prompt.0) && output.contains(&arrival.output.0), "{arrival:?}");
        assert_eq!(arrival.max_tokens, Tokens(1_024));
        assert!(arrival.at.0 < reference::LENGTH.0);
    }
}

#[test]
fn batch_requests_arrive_in_blocks_every_4_seconds() {
    let arrivals = run(Switches { batch: Batch::Heavy, ..Switches::default() }, 2);
    let mut blocks: Vec<u64> = arrivals.iter().filter(|a| a.tenant == BATCH).map(|a| a.at.0).collect();
    blocks.dedup();
    assert_eq!(blocks.len(), 30);
    assert!(blocks.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(4_000_000) <= 1));
}

#[test]
fn the_agents_context_grows_with_time_and_with_nothing_else() {
    let arrivals = run(Switches { agent: true, ..Switches::default() }, 3);
    for arrival in arrivals.iter().filter(|arrival| arrival.tenant == AGENT) {
        let expected = 6_000.0 + 18_000.0 * arrival.at.0 as f64 / 120e6;
        assert_eq!(arrival.prompt.0, expected.round() as u64);
    }
}

#[test]
fn a_burst_multiplies_chat_in_its_window_and_leaves_what_came_before_as_it_was() {
    let calm = run(Switches::default(), 1);
    let burst = run(Switches { burst: true, ..Switches::default() }, 1);
    let window = reference::BURST_START..reference::BURST_END;
    let before = |arrivals: &[Arrival]| -> Vec<Arrival> {
        arrivals.iter().filter(|arrival| arrival.at < window.start).copied().collect()
    };
    let chat_inside = |arrivals: &[Arrival]| {
        arrivals.iter().filter(|arrival| arrival.tenant < BATCH && window.contains(&arrival.at)).count()
            as f64
    };
    assert_eq!(before(&calm), before(&burst));
    let factor = chat_inside(&burst) / chat_inside(&calm);
    assert!((2.0..3.0).contains(&factor), "{factor}");
}

#[test]
fn a_rate_changed_while_it_runs_gives_the_arrivals_of_the_same_rate_planned() {
    let planned = reference::tenants(Switches { burst: true, ..Switches::default() }).remove(0);
    let plain = reference::tenants(Switches::default()).remove(0);
    let mut planned = Source::seeded(planned, 0, 9);
    let mut switched = Source::seeded(plain, 0, 9);
    let changes = [(reference::BURST_START, 1.5 * 2.5), (reference::BURST_END, 1.5)];
    for (at, rate) in changes {
        while switched.next_at().is_some_and(|next| next < at) {
            assert_eq!(planned.take(), switched.take());
        }
        switched.change_rate(at, rate);
    }
    for _ in 0..200 {
        assert_eq!(planned.take(), switched.take());
    }
}

#[test]
fn a_rate_of_zero_stops_a_source_until_it_rises_again() {
    let mut source = Source::seeded(reference::tenants(Switches::default()).remove(0), 0, 1);
    source.change_rate(Moment(0), 0.0);
    assert_eq!(source.next_at(), None);
    assert_eq!(source.take(), None);
    source.change_rate(Moment(10_000_000), 1.5);
    assert!(source.take().is_some_and(|arrival| arrival.at >= Moment(10_000_000)));
}

const FIRST: [(u64, usize, u64, u64); 4] = [
    // The first number of stream (1, 0) is 0.699074019008: -ln of it is 0.358, at 1.5 a second 0.238666 s.
    (177_278, AGENT, 6_027, 1_015),
    (238_666, 0, 1_001, 152),
    (510_798, 1, 860, 259),
    (677_278, AGENT, 6_102, 1_019),
];
