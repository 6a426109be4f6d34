//! Pools, their models and their backends.

use std::collections::HashMap;
use std::path::PathBuf;

use fairlane_core::policy::{Backend, Model, Pacing, Placing, Pool, PoolId, Work};
use fairlane_core::units::{Micros, Tokens};
use fairlane_wire::images::ImageRule;

use super::limits::{Models, tokens};
use super::{Resolver, Spot, target};
use crate::config::edge::{
    CredentialHeader, EdgeBackend, EdgePool, Health, Images, Passthrough, Scheme, Target, Tokenizer,
    TokenizerMode, Vocabulary,
};
use crate::config::raw::{self, Engine, ImageRuleName};
use crate::config::scalars::{Count, Decimal, Name, TimeSpan, quoted};
use crate::config::secret::Credential;
use crate::provider::is_hosted;

/// The pools on both sides, and their models.
pub(super) struct Pools {
    pub(super) policy: Vec<Pool>,
    pub(super) edge: Vec<EdgePool>,
    pub(super) models: Models,
}

impl<'a> Resolver<'a> {
    pub(super) fn pools(&mut self) -> Pools {
        let entries = self.listed("pools", &self.source.document.pools, |part| &part.pools);
        if entries.is_empty() {
            self.warn(&Spot::of("pools"), "there is none, so that every model is unknown");
        }
        self.numbered("pool", entries.iter().map(|(spot, pool)| (spot.key("name"), &pool.name)));
        let models = self.models(&entries);
        let (policy, edge) = entries.iter().map(|(spot, pool)| self.pool(spot, pool)).unzip();
        self.passthrough_once(&entries);
        Pools { policy, edge, models }
    }

    fn models(&mut self, entries: &[(Spot, &'a raw::Pool)]) -> Models {
        let mut list: Vec<Model> = Vec::new();
        let mut firsts: HashMap<String, u32> = HashMap::new();
        let mut may_grow = false;
        for (index, (spot, pool)) in entries.iter().enumerate() {
            let spot = spot.key("models");
            let found = match &pool.models {
                raw::Models::Listed(models) => models
                    .iter()
                    .enumerate()
                    .map(|(place, model)| {
                        (spot.index(place), model.0.name.0.clone(), model.0.max_output_tokens)
                    })
                    .collect(),
                raw::Models::Discovered => {
                    may_grow = true;
                    self.discovered(&spot, pool)
                }
            };
            let is_listed = matches!(pool.models, raw::Models::Listed(_));
            if is_listed && found.is_empty() {
                self.problem(
                    &spot,
                    "the pool serves no model: list one, or \"*\" for whatever its backends list",
                );
            }
            for (spot, name, max_output) in found {
                let first =
                    firsts.get(&name).and_then(|first| list.get(*first as usize)).map(|first| first.pool);
                let Some(first) = first else {
                    firsts.insert(name.clone(), list.len() as u32);
                    list.push(Model { name, pool: PoolId(index as u32), max_output: max_output.map(tokens) });
                    continue;
                };
                let owner =
                    entries.get(first.0 as usize).map(|(_, pool)| quoted(&pool.name.0)).unwrap_or_default();
                let message = format!("the model {} is served by the pool {owner} already", quoted(&name));
                if is_listed {
                    self.problem(&spot, message);
                } else if first.0 as usize != index {
                    self.warn(&spot, format!("{message}, which keeps it"));
                }
            }
        }
        Models { list, ids: firsts, may_grow }
    }

    /// What the backends of a pool list, within bounds.
    fn discovered(&mut self, spot: &Spot, pool: &raw::Pool) -> Vec<(Spot, String, Option<Count>)> {
        let models_max = self
            .source
            .document
            .bounds
            .as_ref()
            .and_then(|bounds| bounds.max_models)
            .map_or(super::gateway::MODELS_DEFAULT, |count| count.0) as usize;
        let names = self.around.discovered.get(&pool.name.0).map(Vec::as_slice).unwrap_or_default();
        let usable: Vec<_> = names
            .iter()
            .filter(|name| !name.is_empty() && name.len() <= 256 && !name.chars().any(char::is_control))
            .collect();
        if usable.len() < names.len() {
            self.warn(
                spot,
                format!(
                    "{} models that the backends list have names that cannot be used",
                    names.len() - usable.len()
                ),
            );
        }
        if usable.len() > models_max {
            self.warn(
                spot,
                format!(
                    "the backends list {} models, the first {models_max} are used (bounds.max_models)",
                    usable.len()
                ),
            );
        }
        usable.into_iter().take(models_max).map(|name| (spot.clone(), name.clone(), None)).collect()
    }

    fn pool(&mut self, spot: &Spot, written: &'a raw::Pool) -> (Pool, EdgePool) {
        let engine = written.engine.unwrap_or(Engine::Openai);
        let slots = self.slots(spot, written.slots, SLOTS_DEFAULT);
        let limits = written
            .limits
            .as_ref()
            .map(|limits| self.shared_limits(&spot.key("limits"), limits))
            .unwrap_or_default();
        if written.backends.is_empty() {
            self.problem(&spot.key("backends"), "the pool has no backend: name one by url or dns");
        }
        if written.backends.len() > BACKENDS_MAX {
            self.problem(
                &spot.key("backends"),
                format!("the pool has more than {BACKENDS_MAX} backends: use a dns name, or several pools"),
            );
        }
        let (mut backends, edge_backends): (Vec<Backend>, Vec<EdgeBackend>) = written
            .backends
            .iter()
            .take(BACKENDS_MAX)
            .enumerate()
            .map(|(index, backend)| {
                self.backend(&spot.key("backends").index(index), &backend.0, engine, slots)
            })
            .unzip();
        let names: Vec<(Spot, Name)> = backends
            .iter()
            .enumerate()
            .map(|(index, backend)| (spot.key("backends").index(index), Name(backend.name.clone())))
            .collect();
        self.numbered("backend", names.iter().map(|(spot, name)| (spot.clone(), name)));
        let bound = (Count(1)..=Count(4_000_000_000), "1 to 4,000,000,000");
        let kv_tokens = written.kv_tokens;
        let kv_tokens = kv_tokens.map(|count| self.bounded(&spot.key("kv_tokens"), kv_tokens, count, bound));
        for backend in &mut backends {
            backend.kv_tokens = kv_tokens.map(tokens);
            backend.pacing = if is_hosted(engine) { Pacing::Adaptive } else { Pacing::Fixed };
        }
        let pool = Pool {
            name: written.name.0.clone(),
            limits,
            backends,
            work: self.work(&spot.key("work"), written.work.as_ref()),
            placing: Placing { slow_start: SLOW_START, ..Placing::default() },
            stickiness: written.stickiness.map_or(Tokens::ZERO, tokens),
        };
        let edge = EdgePool {
            name: written.name.0.clone(),
            engine,
            discovers_models: matches!(written.models, raw::Models::Discovered),
            backends: edge_backends,
            passthrough: self.passthrough(&spot.key("passthrough"), &written.passthrough),
            tokenizer: self.tokenizer(spot, written.tokenizer.as_ref()),
            images: self.images(&spot.key("images"), written.images.as_ref()),
            health: self.health(&spot.key("health"), written.health.as_ref(), engine),
            priority: written.priority.unwrap_or_default(),
        };
        (pool, edge)
    }

    fn slots(&mut self, spot: &Spot, written: Option<Count>, default: u32) -> u32 {
        self.bounded(&spot.key("slots"), written, Count(default), (Count(1)..=Count(65_536), "1 to 65,536")).0
    }

    fn backend(
        &mut self,
        spot: &Spot,
        written: &'a raw::Backend,
        engine: Engine,
        slots: u32,
    ) -> (Backend, EdgeBackend) {
        let target = match (&written.url, &written.dns) {
            (Some(text), None) => target::url(text).map_err(|error| (spot.key("url"), error)),
            (None, Some(text)) => target::dns(text).map_err(|error| (spot.key("dns"), error)),
            (Some(_), Some(_)) => {
                Err((spot.key("dns"), "a backend has either url or dns: remove one".to_owned()))
            }
            (None, None) => Err((spot.clone(), "the backend has neither url nor dns: name one".to_owned())),
        };
        let target = target.unwrap_or_else(|(spot, error)| {
            self.problem(&spot, error);
            Target {
                scheme: Scheme::Http,
                host: String::new(),
                port: 0,
                base_path: String::new(),
                lookup: crate::config::edge::Lookup::OnConnect,
            }
        });
        let credential = written.api_key.as_ref().and_then(|key| self.secret(&spot.key("api_key"), key));
        if credential.is_some() && target.scheme == Scheme::Http && !target.is_loopback() {
            self.warn(
                &spot.key("api_key"),
                "the credential goes over the network in the clear: use https://",
            );
        }
        let name = written.name.as_ref().map_or_else(
            || format!("{}:{}{}", target.host, target.port, target.base_path),
            |name| name.0.clone(),
        );
        let limits = written.limits.as_ref().map(|limits| self.shared_limits(&spot.key("limits"), limits));
        let backend = Backend {
            name: name.clone(),
            slots: self.slots(spot, written.slots, slots),
            kv_tokens: None,
            pacing: Pacing::Fixed,
            is_awaited: false,
            limits: limits.unwrap_or_default(),
        };
        let credential_header = match engine {
            Engine::Anthropic => CredentialHeader::XApiKey,
            Engine::Vllm | Engine::Sglang | Engine::Llamacpp | Engine::Openai => CredentialHeader::Bearer,
        };
        let ca_file = self.ca_file(spot, written, &target);
        (backend, EdgeBackend { name, target, credential, credential_header, ca_file })
    }

    fn ca_file(&mut self, spot: &Spot, written: &raw::Backend, target: &Target) -> Option<PathBuf> {
        let path = written.ca_file.as_deref()?;
        if target.scheme == Scheme::Http {
            self.problem(
                &spot.key("ca_file"),
                "the backend is spoken to without TLS: write https:// or remove ca_file",
            );
        }
        Some(self.beside(spot, path))
    }

    /// A path as the file that names it means it.
    fn beside(&self, spot: &Spot, path: &str) -> PathBuf {
        let folder = self.source.files.get(spot.file).and_then(|file| file.name.parent());
        folder.map_or_else(|| self.source.folder.clone(), PathBuf::from).join(path)
    }

    fn work(&mut self, spot: &Spot, written: Option<&raw::Work>) -> Work {
        let Some(written) = written else { return Work::default() };
        let mut weight = |key: &str, value: Option<Decimal>| {
            let bound = (Decimal { millis: 0 }..=Decimal { millis: 1_000_000 }, "0 to 1,000");
            self.bounded(&spot.key(key), value, Decimal { millis: 1_000 }, bound).millis
        };
        Work {
            input_millis: weight("input", written.input),
            cached_input_millis: weight("cached_input", written.cached_input),
            output_millis: weight("output", written.output),
        }
    }

    fn tokenizer(&mut self, spot: &Spot, written: Option<&raw::Tokenizer>) -> Tokenizer {
        let vocabulary = match written.and_then(|tokenizer| tokenizer.vocabulary.as_deref()) {
            None | Some("o200k" | "o200k_base") => Vocabulary::O200k,
            Some("cl100k" | "cl100k_base") => Vocabulary::Cl100k,
            Some("words") => Vocabulary::Words,
            Some(path) => {
                let path = self.beside(spot, path);
                if !path.is_file() {
                    let shown = path.display();
                    self.problem(&spot.key("tokenizer").key("vocabulary"), format!("there is no file {shown}: the vocabulary is o200k, cl100k, words or the path of a tokenizer file"));
                }
                Vocabulary::File(path)
            }
        };
        let mode = written.and_then(|tokenizer| tokenizer.mode).unwrap_or(TokenizerMode::Auto);
        Tokenizer { vocabulary, mode }
    }

    fn images(&mut self, spot: &Spot, written: Option<&raw::Images>) -> Images {
        let written = written.cloned().unwrap_or_default();
        let mut count = |key: &str, value: Option<Count>, default: u32| {
            let bound = (Count(0)..=Count(1_000_000), "0 to 1,000,000");
            u64::from(self.bounded(&spot.key(key), value, Count(default), bound).0)
        };
        let fixed = ImageRule::Fixed {
            tokens: count("tokens", written.tokens, 1_105),
            low_tokens: count("low_detail_tokens", written.low_detail_tokens, 85),
        };
        let attachment_tokens = Tokens(count("attachment_tokens", written.attachment_tokens, 1_500));
        let rule = match written.rule {
            None | Some(ImageRuleName::Fixed) => fixed,
            Some(ImageRuleName::Gpt4o) => ImageRule::GPT_4O,
            Some(ImageRuleName::Gpt4oMini) => ImageRule::GPT_4O_MINI,
            Some(ImageRuleName::Gpt5) => ImageRule::GPT_5,
            Some(ImageRuleName::O1) => ImageRule::O1,
            Some(ImageRuleName::Gpt41Mini) => ImageRule::GPT_4_1_MINI,
            Some(ImageRuleName::Patches) => ImageRule::PATCHES,
        };
        for (key, value) in [("tokens", written.tokens), ("low_detail_tokens", written.low_detail_tokens)] {
            if value.is_some() && rule != fixed {
                self.problem(
                    &spot.key(key),
                    "the rule has its own figures: remove one of both, or write rule: fixed",
                );
            }
        }
        Images { rule, attachment_tokens }
    }

    fn health(&mut self, spot: &Spot, written: Option<&raw::HealthEntry>, engine: Engine) -> Option<Health> {
        let written = match written {
            Some(raw::HealthEntry::Off) => return None,
            Some(raw::HealthEntry::Checked(health)) => health.clone(),
            None => raw::Health::default(),
        };
        let (path, interval) = match engine {
            Engine::Vllm | Engine::Sglang | Engine::Llamacpp => ("/health", Micros::from_secs(5)),
            Engine::Openai | Engine::Anthropic => ("/v1/models", Micros::from_secs(30)),
        };
        let path = written.path.unwrap_or_else(|| path.to_owned());
        if let Err(error) = check_path(&path) {
            self.problem(&spot.key("path"), error);
        }
        let span = |micros: u64| TimeSpan(Micros(micros));
        let interval = self.bounded(
            &spot.key("interval"),
            written.interval,
            TimeSpan(interval),
            (span(100_000)..=span(3_600_000_000), "100ms to 1h"),
        );
        let timeout = self.bounded(
            &spot.key("timeout"),
            written.timeout,
            span(2_000_000),
            (span(10_000)..=span(60_000_000), "10ms to 1m"),
        );
        let mut times = |key: &str, value: Option<Count>, default: u32| {
            self.bounded(&spot.key(key), value, Count(default), (Count(1)..=Count(100), "1 to 100")).0
        };
        Some(Health {
            path,
            interval: interval.duration(),
            timeout: timeout.duration(),
            unhealthy_after: times("unhealthy_after", written.unhealthy_after, 3),
            healthy_after: times("healthy_after", written.healthy_after, 1),
        })
    }

    fn passthrough(&mut self, spot: &Spot, written: &[raw::Passthrough]) -> Vec<Passthrough> {
        if written.len() > PASSTHROUGH_MAX {
            self.problem(spot, format!("there are more than {PASSTHROUGH_MAX} paths"));
        }
        let mut paths = Vec::new();
        for (index, entry) in written.iter().take(PASSTHROUGH_MAX).enumerate() {
            if let Err(error) = check_path(&entry.path) {
                self.problem(&spot.index(index).key("path"), error);
            }
            paths.push(Passthrough { path: entry.path.clone(), cost: tokens(entry.cost) });
        }
        paths
    }

    /// A path must lead to one pool.
    fn passthrough_once(&mut self, entries: &[(Spot, &'a raw::Pool)]) {
        let mut seen: HashMap<&str, String> = HashMap::new();
        for (spot, pool) in entries {
            for (index, entry) in pool.passthrough.iter().enumerate() {
                let at = spot.key("passthrough").index(index).key("path");
                if METERED_PATHS.contains(&entry.path.as_str()) {
                    self.problem(
                        &at,
                        format!("{} is charged by its tokens and cannot have a fixed cost", entry.path),
                    );
                }
                if let Some(first) = seen.insert(&entry.path, at.path.to_string()) {
                    self.problem(&at, format!("the path is passed on already by {first}"));
                }
            }
        }
    }

    /// A credential that is sent, so that its text must be known.
    fn secret(&mut self, spot: &Spot, written: &Credential) -> Option<crate::config::secret::Secret> {
        match written {
            Credential::Plain(secret) => Some(secret.clone()),
            Credential::Env(name) => self.env(spot, name),
            Credential::Digest(_) => {
                self.problem(spot, "a digest cannot be sent to a backend: write env:NAME or the key itself");
                None
            }
        }
    }
}

fn check_path(path: &str) -> Result<(), String> {
    let legal = path.starts_with('/')
        && path.len() <= 1_024
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#');
    legal
        .then_some(())
        .ok_or_else(|| format!("{} is not a path: it begins with / and has no query", quoted(path)))
}

/// Paths that the gateway meters itself.
const METERED_PATHS: [&str; 7] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/models",
    "/v1/messages",
    "/v1/messages/count_tokens",
];
const SLOTS_DEFAULT: u32 = 64;
/// A backend that comes back is given all its slots after this span.
const SLOW_START: Micros = Micros::from_secs(10);
const BACKENDS_MAX: usize = 1_024;
const PASSTHROUGH_MAX: usize = 256;
