//! The hot paths, one operation at a time, for callgrind: `hot list` names them, `hot run NAME COUNT` repeats one.
//!
//! Only `measured_part` is to be collected (`--toggle-collect=*measured_part*`): what prepares an operation costs nothing.
#![expect(clippy::print_stdout, reason = "its names go to whoever started it")]

mod deciding;
mod reading;
mod telling;

/// One operation, ready to be repeated.
type Operation = Box<dyn FnMut()>;
/// A name, and what prepares its operation.
type Case = (&'static str, fn() -> Operation);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["list"] => {
            CASES.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        ["run", name, count] => {
            let (_, prepare) = CASES
                .iter()
                .find(|(known, _)| known == name)
                .ok_or_else(|| format!("no case is called {name}"))?;
            let count = count.parse().map_err(|_| format!("`{count}` is no count"))?;
            let mut operation = prepare();
            for _ in 0..WARM_OPERATIONS {
                operation();
            }
            measured_part(&mut operation, count);
            Ok(())
        }
        _ => Err("usage: hot list | hot run NAME COUNT".to_owned()),
    }
}

#[inline(never)]
fn measured_part(operation: &mut Operation, count: u64) {
    for _ in 0..count {
        operation();
    }
}

const CASES: [Case; 12] = [
    ("ledger-reserve-settle-five-limits", deciding::ledger),
    ("gate-whole-life-five-limits", deciding::gate),
    ("gate-backlog-end-and-arrival", deciding::backlog),
    ("request-facts-1kB", reading::facts_small),
    ("request-facts-100kB", reading::facts_large),
    ("estimate-1kB", reading::estimate_small),
    ("estimate-100kB", reading::estimate_large),
    ("splice-1kB", reading::splicing),
    ("answer-whole", reading::whole_answer),
    ("stream-20-events", reading::stream),
    ("budget-headers", telling::budget_headers),
    ("refusal", telling::refusal),
];
const WARM_OPERATIONS: u32 = 100;
