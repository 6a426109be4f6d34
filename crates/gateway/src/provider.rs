//! What hosted providers say of their own limits on their way past, for the gate.

use http::HeaderMap;

use crate::clock;
use crate::config::Engine;
use crate::driver::Ticket;
use crate::upstream::{LastAnswer, Sent};
use fairlane_wire::provider;

/// Whether a backend is somebody else's service, which has limits of its own and no metrics.
#[must_use]
pub const fn is_hosted(engine: Engine) -> bool {
    match engine {
        Engine::Openai | Engine::Anthropic => true,
        Engine::Vllm | Engine::Sglang | Engine::Llamacpp => false,
    }
}

/// Tells the gate what the head of an answer says is left of the provider's limits.
pub fn tell(ticket: &Ticket, sent: &Sent) {
    let Some(headers) = headers(sent) else { return };
    let lookup = |name: &str| headers.get(name)?.to_str().ok();
    let told = provider::read(lookup, clock::unix_millis());
    if !told.is_empty() {
        ticket.provider_told(told);
    }
}

fn headers(sent: &Sent) -> Option<&HeaderMap> {
    match sent {
        Sent::Answer(answered) => Some(&answered.head.headers),
        Sent::Busy(LastAnswer::Own(_, headers, _), _) | Sent::Failed(LastAnswer::Own(_, headers, _), _) => {
            Some(headers)
        }
        Sent::Busy(LastAnswer::Problem(_), _) | Sent::Failed(LastAnswer::Problem(_), _) => None,
    }
}
