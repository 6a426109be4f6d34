//! When requests are offered: as soon as a connection is free, or at a steady rate whether one is free or not.

use std::rc::Rc;
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant};

use fairlane_benches::clock;
use tokio::sync::{Mutex, mpsc};

use crate::Plan;

/// Where connections take their next request from.
#[derive(Clone, Debug)]
pub(crate) struct Offers {
    begin: Instant,
    end: Instant,
    queue: Option<Rc<Mutex<mpsc::UnboundedReceiver<Instant>>>>,
}

/// The offers of a plan, from now on.
pub(crate) fn offers(plan: &Plan) -> Offers {
    let begin = clock::moment();
    let end = begin + plan.duration;
    if plan.rate_per_sec <= 0.0 {
        return Offers { begin, end, queue: None };
    }
    let (offer, queue) = mpsc::unbounded_channel();
    let period = Duration::from_secs_f64(1.0 / plan.rate_per_sec);
    // The runtime's timers have a grain of a millisecond; a sleeping thread is exact to tens of microseconds.
    std::thread::spawn(move || {
        let (_never, sleeper) = blocking::channel::<()>();
        let mut due = begin;
        while due < end {
            let early = due.saturating_duration_since(clock::moment());
            if !early.is_zero() {
                let _ = sleeper.recv_timeout(early);
            }
            // Lateness of this thread is not the gateway's: a request counts from the moment that it is offered.
            if offer.send(clock::moment()).is_err() {
                return;
            }
            due += period;
        }
    });
    Offers { begin, end, queue: Some(Rc::new(Mutex::new(queue))) }
}

impl Offers {
    /// The moment that the next request counts from; `None` when it is over.
    pub(crate) async fn next(&self) -> Option<Instant> {
        match &self.queue {
            Some(queue) => queue.lock().await.recv().await,
            None => Some(clock::moment()).filter(|moment| *moment < self.end),
        }
    }

    /// How long it has gone on.
    pub(crate) fn elapsed(&self) -> Duration {
        clock::moment() - self.begin
    }
}
