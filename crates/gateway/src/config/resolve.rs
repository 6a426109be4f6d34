//! From what was read to what is meant: references looked up, defaults filled in, everything checked against everything.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use fairlane_core::policy::{ALPHA_PERMILLE, Order, Policy};

use super::edge::Edge;
use super::path::Path;
use super::places::Places;
use super::problem::{ConfigError, PROBLEMS_MAX, Problem, Warning, suggestion};
use super::raw::{self, Part};
use super::scalars::{Name, quoted};
use super::source::Source;

mod classes;
mod gateway;
mod keys;
mod limits;
mod pools;
mod target;
mod tenants;
mod time;
mod unapplied;

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Config {
    /// For the core: who may have how much.
    pub policy: Policy,
    /// For the gateway: the rest.
    pub edge: Edge,
    /// What works but may not be meant.
    pub warnings: Vec<Warning>,
}

/// What a configuration is resolved in.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The value of an environment variable.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// What the backends of pools with `models: "*"` list, by the pool's name; a pool that is absent has not been asked yet.
    pub discovered: &'a BTreeMap<String, Vec<String>>,
    /// Seconds since 1970, by which expired keys are warned of.
    pub unix_secs: u64,
}

impl Config {
    /// The configuration of `serve --backend URL`, see [`Source::open`].
    ///
    /// # Errors
    /// An address is not one of a backend.
    pub fn open(urls: &[String], around: &Surroundings<'_>) -> Result<Self, ConfigError> {
        Source::open(urls).resolve(around)
    }
}

impl Source {
    /// Checks everything and fills in what is not written. It may be called again when backends list other models; tenants, keys,
    /// pools and classes keep their order, and so their ids.
    ///
    /// # Errors
    /// Everything that is wrong, at most [`PROBLEMS_MAX`] at once.
    pub fn resolve(&self, around: &Surroundings<'_>) -> Result<Config, ConfigError> {
        let mut resolver = Resolver {
            source: self,
            around,
            problems: Vec::new(),
            warnings: Vec::new(),
            unapplied: Vec::new(),
        };
        let (policy, edge) = resolver.all();
        resolver.list_unapplied();
        resolver.finish(policy, edge)
    }
}

/// A place in one of the files.
#[derive(Clone, Debug)]
struct Spot {
    file: usize,
    path: Path,
}

impl Spot {
    fn of(key: &str) -> Self {
        Self { file: 0, path: Path::of(key) }
    }

    fn key(&self, key: &str) -> Self {
        Self { file: self.file, path: self.path.key(key) }
    }

    fn index(&self, index: usize) -> Self {
        Self { file: self.file, path: self.path.index(index) }
    }
}

struct Resolver<'a> {
    source: &'a Source,
    around: &'a Surroundings<'a>,
    problems: Vec<(Spot, String)>,
    warnings: Vec<(Spot, String)>,
    /// Options that nothing acts on: a kind, the first place, and how often.
    unapplied: Vec<(&'static str, Spot, usize)>,
}

impl<'a> Resolver<'a> {
    fn all(&mut self) -> (Policy, Edge) {
        let classes = self.classes();
        let pools = self.pools();
        let teams = self.teams(&pools.models);
        let mut policy = Policy {
            service: self.service(),
            pools: pools.policy,
            models: pools.models.list,
            classes: classes.list,
            teams: teams.list,
            tenants: Vec::new(),
            order: self.order(),
            alpha_permille: ALPHA_PERMILLE,
            end_users_max: self.end_users_max(),
        };
        let known = tenants::Known {
            classes: &classes.ids,
            teams: &teams.ids,
            models: &pools.models.ids,
            more_models: pools.models.may_grow,
        };
        let tenants = self.tenants(&known);
        policy.tenants = tenants.list;
        self.gateway_unapplied();
        let edge = self.edge(pools.edge, tenants.keys);
        (policy, edge)
    }

    fn order(&self) -> Order {
        match self.source.document.order {
            Some(raw::Order::Fifo) => Order::Fifo,
            Some(raw::Order::Lanes) => Order::Lanes,
            Some(raw::Order::Fair) => Order::Fair,
            Some(raw::Order::LanesFair) | None => Order::LanesFair,
        }
    }

    /// Every entry of a list in the main file and in its parts, with its place.
    fn listed<T>(
        &self,
        key: &str,
        own: &'a [T],
        in_part: impl Fn(&'a Part) -> &'a [T],
    ) -> Vec<(Spot, &'a T)> {
        let entries = |file: usize, list: &'a [T]| {
            let spot = Spot { file, path: Path::of(key) };
            list.iter().enumerate().map(move |(index, entry)| (spot.index(index), entry))
        };
        entries(0, own)
            .chain(self.source.parts.iter().flat_map(|(file, part)| entries(*file, in_part(part))))
            .collect()
    }

    fn problem(&mut self, spot: &Spot, message: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push((spot.clone(), message.into()));
        }
    }

    fn warn(&mut self, spot: &Spot, message: impl Into<String>) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push((spot.clone(), format!("{}: {}", spot.path, message.into())));
        }
    }

    /// Reports names that are given twice, and numbers the others by their order.
    fn numbered<'b>(
        &mut self,
        kind: &str,
        names: impl Iterator<Item = (Spot, &'b Name)>,
    ) -> HashMap<String, u32> {
        let mut ids = HashMap::new();
        let mut firsts: HashMap<String, Spot> = HashMap::new();
        for (index, (spot, name)) in names.enumerate() {
            if let Some(first) = firsts.get(&name.0) {
                let (path, name) = (first.path.to_string(), quoted(&name.0));
                self.problem(
                    &spot,
                    format!("the {kind} {name} is defined already as {path}: rename or remove one"),
                );
                continue;
            }
            firsts.insert(name.0.clone(), spot);
            ids.insert(name.0.clone(), index as u32);
        }
        ids
    }

    /// The number behind a name that another place defines.
    fn reference(
        &mut self,
        spot: &Spot,
        kind: &str,
        name: &Name,
        known: &HashMap<String, u32>,
    ) -> Option<u32> {
        let found = known.get(&name.0).copied();
        if found.is_none() {
            self.problem(spot, unknown(kind, &name.0, known.keys().map(String::as_str)));
        }
        found
    }

    /// The value within its bound, or its default.
    fn bounded<T: PartialOrd + Copy>(
        &mut self,
        spot: &Spot,
        value: Option<T>,
        default: T,
        bound: (RangeInclusive<T>, &str),
    ) -> T {
        let (range, shown) = bound;
        let value = value.unwrap_or(default);
        if !range.contains(&value) {
            self.problem(spot, format!("the value is outside its bound, {shown}"));
            return default;
        }
        value
    }

    fn finish(self, policy: Policy, edge: Edge) -> Result<Config, ConfigError> {
        let mut places = PlacesByFile { source: self.source, read: HashMap::new() };
        let problems: Vec<Problem> = self
            .problems
            .into_iter()
            .map(|(spot, message)| {
                let spot = Spot { path: spot.path.below(&self.source.root), ..spot };
                let message = format!("{}: {message}", spot.path);
                places.problem(&spot, message)
            })
            .collect();
        let warnings = self
            .warnings
            .into_iter()
            .map(|(spot, message)| places.problem(&spot, message))
            .map(|found| Warning { file: found.file, place: found.place, message: found.message })
            .collect();
        if problems.is_empty() {
            Ok(Config { policy, edge, warnings })
        } else {
            Err(ConfigError { problems })
        }
    }
}

/// The places of the files that there is something to tell about, read once each.
struct PlacesByFile<'a> {
    source: &'a Source,
    read: HashMap<usize, Places>,
}

impl PlacesByFile<'_> {
    fn problem(&mut self, spot: &Spot, message: String) -> Problem {
        let Some(file) = self.source.files.get(spot.file) else {
            return Problem { file: None, place: None, message, snippet: None };
        };
        let places = self.read.entry(spot.file).or_insert_with(|| Places::of(&file.text));
        file.value_problem(places, &spot.path, message)
    }
}

/// What to say about a name that nothing defines.
fn unknown<'b>(kind: &str, name: &str, known: impl Iterator<Item = &'b str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let name = quoted(name);
    if let Some(close) = suggestion(name.trim_matches('"'), known.iter().copied()) {
        return format!("there is no {kind} {name}; did you mean \"{close}\"?");
    }
    if known.is_empty() {
        return format!("there is no {kind} {name}, none is defined");
    }
    let more = if known.len() > NAMES_SHOWN_MAX { ", …" } else { "" };
    known.truncate(NAMES_SHOWN_MAX);
    format!("there is no {kind} {name}; known are {}{more}", known.join(", "))
}

const WARNINGS_MAX: usize = 100;
const NAMES_SHOWN_MAX: usize = 8;
