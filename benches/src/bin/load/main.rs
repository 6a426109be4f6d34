//! A load generator that costs little itself: one thread, raw HTTP/1.1, requests written ready-made.
//!
//! `load --port P --connections C --seconds S` sends as fast as answers come; with `--rate R` that many a second, each counted from
//! the moment it was due to be offered. `load --port P --hold N` opens N streams, says so, and waits for their ends. `load keys N`
//! prints the digests of the keys that it sends. What came is told as one line of JSON.
#![expect(clippy::print_stdout, reason = "its result goes to whoever started it")]

mod exchange;
mod hold;
mod pace;
mod tally;

use std::rc::Rc;
use std::time::Duration;

use fairlane_benches::arguments::Arguments;
use fairlane_benches::requests::{self, Wanted};

use crate::exchange::Exchanges;
use crate::tally::Tally;

/// What to do.
#[derive(Debug)]
struct Plan {
    port: u16,
    connections: usize,
    duration: Duration,
    rate_per_sec: f64,
    hold: usize,
    wanted: Wanted,
}

fn main() -> Result<(), String> {
    let mut arguments = Arguments::given();
    if let Some(word) = arguments.word() {
        return match (word.as_str(), arguments.word().and_then(|count| count.parse().ok())) {
            ("keys", Some(count)) => {
                (0..count).for_each(|tenant| println!("{}", requests::digest(tenant)));
                Ok(())
            }
            _ => Err("usage: load keys N".to_owned()),
        };
    }
    let plan = read(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    let told = tokio::task::LocalSet::new().block_on(&runtime, async {
        match plan.hold {
            0 => Ok(run(&plan).await),
            count => hold::run(&plan, count).await,
        }
    })?;
    println!("{told}");
    Ok(())
}

fn read(mut arguments: Arguments) -> Result<Plan, String> {
    let port = arguments.value("--port", 0)?;
    let plan = Plan {
        port,
        connections: arguments.value("--connections", 1)?,
        duration: Duration::from_secs_f64(arguments.value("--seconds", 1.0)?),
        rate_per_sec: arguments.value("--rate", 0.0)?,
        hold: arguments.value("--hold", 0)?,
        wanted: Wanted {
            model: arguments.value("--model", "quick".to_owned())?,
            streams: arguments.flag("--stream"),
            tenants: arguments.value("--tenants", 1)?,
            body_bytes: arguments.value("--body-bytes", 1_000)?,
            host: format!("127.0.0.1:{port}"),
        },
    };
    arguments.end()?;
    Ok(plan)
}

async fn run(plan: &Plan) -> serde_json::Value {
    let exchanges = Rc::new(Exchanges::new(plan));
    let offers = pace::offers(plan);
    let connections: Vec<_> = (0..plan.connections)
        .map(|_| tokio::task::spawn_local(Rc::clone(&exchanges).keep_going(offers.clone())))
        .collect();
    let mut tally = Tally::default();
    for connection in connections {
        if let Ok(part) = connection.await {
            tally.add(&part);
        }
    }
    tally.told(offers.elapsed())
}
