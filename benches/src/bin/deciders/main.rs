//! Deciders in process, beside each other: nanoseconds of a decision, and the memory of many tenants. Told as JSON.
#![expect(clippy::print_stdout, reason = "its result goes to whoever started it")]

mod fairlane;
mod others;
mod timing;

use fairlane_benches::arguments::Arguments;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), String> {
    let mut arguments = Arguments::given();
    let scale = if arguments.flag("--quick") { QUICK_SCALE } else { 1.0 };
    arguments.end()?;
    let measured = [fairlane::memory(), fairlane::rows(scale), others::rows(scale)].concat();
    println!("{}", Value::Array(measured.iter().map(Measured::told).collect()));
    Ok(())
}

/// A figure with its bar.
#[derive(Clone, Debug)]
struct Measured {
    name: String,
    value: f64,
    unit: &'static str,
    /// What must be and what is wished for; at most.
    bar: Option<(f64, Option<f64>)>,
}

impl Measured {
    fn told(&self) -> Value {
        let value = (self.value * 10.0).round() / 10.0;
        let (must, goal) = self.bar.unzip();
        json!({"name": self.name, "value": value, "unit": self.unit, "must": must, "goal": goal})
    }
}

const QUICK_SCALE: f64 = 0.3;
