//! The list of models: what the backends say of them, as they say it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;

/// What backends list under `/v1/models`, by the model's name.
#[derive(Debug, Default)]
pub struct Cards {
    cards: Mutex<BTreeMap<String, Box<RawValue>>>,
}

#[derive(Deserialize)]
struct Listing<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Card {
    id: String,
}

impl Cards {
    /// Takes a backend's list, at most `models_max` of it; the names it holds.
    ///
    /// # Errors
    /// The document is no list of models.
    pub fn take(&self, document: &[u8], models_max: usize) -> Result<Vec<String>, String> {
        let listing: Listing<'_> =
            serde_json::from_slice(document).map_err(|error| format!("no list of models: {error}"))?;
        let mut names = Vec::new();
        let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        for raw in listing.data.into_iter().take(models_max) {
            let Ok(Card { id }) = serde_json::from_str::<Card>(raw.get()) else { continue };
            if id.is_empty() || id.len() > NAME_BYTES_MAX || id.chars().any(char::is_control) {
                continue;
            }
            if cards.len() < CARDS_MAX || cards.contains_key(&id) {
                cards.insert(id.clone(), raw.to_owned());
            }
            names.push(id);
        }
        Ok(names)
    }

    /// The list of these models, or one model alone, as a client gets it.
    #[must_use]
    pub fn listing(&self, names: &[&str]) -> String {
        let cards: Vec<String> = names.iter().map(|name| self.card(name)).collect();
        format!("{{\"object\":\"list\",\"data\":[{}]}}", cards.join(","))
    }

    /// One model.
    #[must_use]
    pub fn card(&self, name: &str) -> String {
        let cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        match cards.get(name) {
            Some(card) => card.get().to_owned(),
            None => serde_json::json!({"id": name, "object": "model", "created": 0, "owned_by": "fairlane"})
                .to_string(),
        }
    }
}

const NAME_BYTES_MAX: usize = 256;
const CARDS_MAX: usize = 10_000;
