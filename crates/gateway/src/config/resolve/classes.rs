//! Classes of service.

use std::collections::HashMap;

use fairlane_core::occupancy::Headroom;
use fairlane_core::policy::Class;
use fairlane_core::units::{Micros, Tokens};

use super::{Resolver, Spot};
use crate::config::raw;
use crate::config::scalars::{Count, SHARE_WHOLE_MILLIS, Share, TimeSpan, Toggle};

/// The classes with their numbers by name.
pub(super) struct Classes {
    pub(super) list: Vec<Class>,
    pub(super) ids: HashMap<String, u32>,
}

impl Resolver<'_> {
    pub(super) fn classes(&mut self) -> Classes {
        let entries = self.listed("classes", &self.source.document.classes, |part| &part.classes);
        if entries.is_empty() {
            let list: Vec<Class> = DEFAULTS.iter().map(class).collect();
            let ids =
                list.iter().enumerate().map(|(index, class)| (class.name.clone(), index as u32)).collect();
            return Classes { list, ids };
        }
        let ids = self.numbered("class", entries.iter().map(|(spot, class)| (spot.key("name"), &class.name)));
        let list = entries.iter().map(|(spot, class)| self.class(spot, class)).collect();
        self.shares(&entries);
        Classes { list, ids }
    }

    fn class(&mut self, spot: &Spot, written: &raw::Class) -> Class {
        let queue = written.queue.clone().unwrap_or_default();
        let wait = self.bounded(
            &spot.key("max_wait"),
            written.max_wait,
            TimeSpan(WAIT_DEFAULT),
            (TimeSpan(Micros::ZERO)..=TimeSpan(WAIT_MAX), "0 to 24h"),
        );
        let requests = self.bounded(
            &spot.key("queue").key("requests"),
            queue.requests,
            Count(QUEUE_REQUESTS_DEFAULT),
            (Count(0)..=Count(1_000_000), "0 to 1,000,000"),
        );
        let percent = |share: Option<Share>| share.map_or(0, |share| share.percent_millis);
        Class {
            name: written.name.0.clone(),
            wait_max: wait.0,
            queue_requests_max: requests.0,
            queue_tokens_max: Tokens(queue.tokens.map_or(QUEUE_TOKENS_DEFAULT, |tokens| u64::from(tokens.0))),
            min_share_ppm: percent(written.min_share) * PPM_PER_PERCENT_MILLI,
            headroom: Headroom::ppm(percent(written.headroom) * PPM_PER_PERCENT_MILLI),
            ageing: match written.ageing {
                None | Some(Toggle::Off) => None,
                Some(Toggle::Every(offset)) => Some(offset.0),
            },
            is_evictable: written.evictable.unwrap_or(false),
            max_output: written.max_output_tokens.map(|tokens| Tokens(u64::from(tokens.0))),
        }
    }

    fn shares(&mut self, entries: &[(Spot, &raw::Class)]) {
        let mut sum = 0;
        for (spot, class) in entries {
            let share = class.min_share.map_or(0, |share| share.percent_millis);
            sum += share;
            if share > 0 && sum > SHARE_WHOLE_MILLIS && sum - share <= SHARE_WHOLE_MILLIS {
                self.problem(
                    &spot.key("min_share"),
                    "the minimum shares of all classes are more than 100 % together: lower one",
                );
            }
            if class.headroom.is_some_and(|share| share.percent_millis >= SHARE_WHOLE_MILLIS) {
                self.problem(
                    &spot.key("headroom"),
                    "a headroom of 100 % leaves the class nothing: it is below 100 %",
                );
            }
        }
    }
}

fn class(&(name, wait_max, share_percent, headroom_percent): &(&str, Micros, u32, u32)) -> Class {
    Class {
        name: name.to_owned(),
        wait_max,
        min_share_ppm: share_percent * PPM_PER_PERCENT,
        headroom: Headroom::ppm(headroom_percent * PPM_PER_PERCENT),
        ageing: None,
        is_evictable: false,
        queue_requests_max: QUEUE_REQUESTS_DEFAULT,
        queue_tokens_max: Tokens(QUEUE_TOKENS_DEFAULT),
        max_output: None,
    }
}

/// Name, longest wait, minimum share and headroom in per cent.
const DEFAULTS: [(&str, Micros, u32, u32); 3] = [
    ("interactive", Micros::from_secs(10), 0, 0),
    ("batch", Micros::from_secs(600), 5, 5),
    ("background", Micros::from_secs(3_600), 2, 10),
];
const PPM_PER_PERCENT: u32 = 10_000;
const PPM_PER_PERCENT_MILLI: u32 = 10;
const WAIT_DEFAULT: Micros = Micros::from_secs(60);
const WAIT_MAX: Micros = Micros::from_secs(86_400);
const QUEUE_REQUESTS_DEFAULT: u32 = 2_000;
const QUEUE_TOKENS_DEFAULT: u64 = 8_000_000;
