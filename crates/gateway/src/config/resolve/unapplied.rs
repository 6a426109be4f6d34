//! Options that are understood and that nothing acts on yet: each kind is told once, so that none is ignored in silence.

use fairlane_core::policy::WEIGHT_ONE_MILLIS;

use super::{Resolver, Spot};
use crate::config::scalars::Decimal;

impl Resolver<'_> {
    /// Notes an option that nothing acts on.
    pub(super) fn unapplied(&mut self, kind: &'static str, spot: Spot) {
        match self.unapplied.iter_mut().find(|(known, ..)| *known == kind) {
            Some((.., count)) => *count += 1,
            None => self.unapplied.push((kind, spot, 1)),
        }
    }

    pub(super) fn weight(&mut self, spot: &Spot, weight: Option<Decimal>) -> u32 {
        let millis = weight.map_or(WEIGHT_ONE_MILLIS, |weight| weight.millis);
        if millis == 0 {
            self.problem(&spot.key("weight"), "a weight is above 0: to let nobody through, set a limit to 0");
        }
        millis
    }

    pub(super) fn gateway_unapplied(&mut self) {
        let document = &self.source.document;
        if let Some(store) = document.store.as_deref().filter(|store| *store != "memory") {
            if STORE_SCHEMES.iter().any(|scheme| store.starts_with(scheme)) {
                self.unapplied("store", Spot::of("store"));
            } else {
                self.problem(
                    &Spot::of("store"),
                    format!(
                        "the store is memory, or an address that begins with {}",
                        STORE_SCHEMES.join(", ")
                    ),
                );
            }
        }
    }

    /// Turns the notes into warnings.
    pub(super) fn list_unapplied(&mut self) {
        let text = |kind: &str, count: usize| {
            let instead = match kind {
                "store" => "; limits are counted in the memory of this gateway alone",
                _ => "",
            };
            let others = match count - 1 {
                0 => String::new(),
                others => format!(", here and in {others} more places"),
            };
            format!("is not applied by this version{others}{instead}")
        };
        for (kind, spot, count) in std::mem::take(&mut self.unapplied) {
            let message = format!("{} {}", spot.path, text(kind, count));
            self.warnings.push((spot, message));
        }
    }
}

const STORE_SCHEMES: [&str; 4] = ["redis://", "rediss://", "redis+sentinel://", "redis+cluster://"];
