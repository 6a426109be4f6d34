//! What a request will do, decided before any work: its prompts, its replies with their lengths, and how it is told.

use fairlane_core::units::Tokens;
use fairlane_lab::Job;
use http::StatusCode;
use serde_json::Value;

use super::fault::Fault;
use super::headers::HeaderFacts;
use super::problem::{Dialect, Problem};
use super::reply::{Reply, Tool, ToolCall};
use super::request::Fields;
use super::server::Engine;
use super::words::{fingerprint, mix};

/// The endpoints that run sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Chat,
    Completions,
    Responses,
    Messages,
    Embeddings,
}

/// Why a choice ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// It said all it had to say.
    Stop,
    /// It reached its output bound.
    Length,
    /// It called a tool.
    Tool,
}

/// Tokens to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt: u64,
    /// None unless the prefix cache is on.
    pub(super) cached: Option<u64>,
    pub(super) output: u64,
}

/// A prompt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) tokens: u64,
    pub(super) cached: u64,
    pub(super) fingerprint: u64,
}

/// One sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) job: Job,
    pub(super) reply: Reply,
    pub(super) finish: Finish,
}

/// What a dialect reads from a body.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) endpoint: Endpoint,
    pub(super) prompts: Vec<Prompt>,
    /// The output bound, if the body has one.
    pub(super) bound: Option<u64>,
    /// Choices shown for each prompt.
    pub(super) shown: u64,
    /// Choices made for each prompt, at least those shown.
    pub(super) made: u64,
    pub(super) tool: Option<Tool<'a>>,
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
}

/// A request that can run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) endpoint: Endpoint,
    /// Hexadecimal digits; each dialect puts its prefix before it.
    pub(super) id: String,
    pub(super) model: String,
    pub(super) prompt: u64,
    pub(super) cached: u64,
    /// All sequences, those shown first.
    pub(super) choices: Vec<Choice>,
    /// How many of the choices are shown.
    pub(super) shown: usize,
    pub(super) bound: Option<u64>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
    pub(super) fault: Fault,
    /// Whether cached tokens are reported.
    pub(super) reports_cached: bool,
}

impl Endpoint {
    pub(super) const fn dialect(self) -> Dialect {
        match self {
            Self::Messages => Dialect::Anthropic,
            Self::Chat | Self::Completions | Self::Responses | Self::Embeddings => Dialect::OpenAi,
        }
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::Embeddings => "/v1/embeddings",
        }
    }
}

impl Plan {
    /// The plan of a body, or what is wrong with it.
    pub(super) fn of(
        draft: Draft<'_>,
        fields: Fields<'_>,
        headers: &HeaderFacts,
        engine: &Engine,
    ) -> Result<Self, Problem> {
        let model = model_of(fields, engine)?;
        let overrides = Overrides::of(fields, headers)?;
        let priority = match headers.priority {
            Some(priority) => priority,
            None => fields.integer("priority")?.unwrap_or(0),
        };
        let prompts: Vec<Prompt> = draft.prompts.iter().map(|prompt| overrides.apply(*prompt)).collect();
        let count = draft.made.saturating_mul(prompts.len() as u64);
        if draft.shown == 0 || draft.made < draft.shown || count > SEQUENCES_MAX {
            let message = format!("choices: from 1 to {SEQUENCES_MAX} in all, and best_of at least n");
            return Err(Problem::bad_request(message));
        }
        for prompt in &prompts {
            check_length(prompt, draft.bound, engine.options.max_model_len)?;
        }
        let make = |place: u64| {
            let prompt = prompts[(place / draft.made) as usize];
            choice(&draft, prompt, place % draft.made, overrides.output, engine, priority)
        };
        // Those shown come first: prompt by prompt, as their indices count.
        let (shown, hidden): (Vec<u64>, Vec<u64>) =
            (0..count).partition(|place| place % draft.made < draft.shown);
        Ok(Self {
            id: format!("{:016x}", prompts.first().map_or(0, |prompt| mix(prompt.fingerprint, count))),
            endpoint: draft.endpoint,
            model,
            prompt: prompts.iter().map(|prompt| prompt.tokens).sum(),
            cached: prompts.iter().map(|prompt| prompt.cached).sum(),
            choices: shown.iter().chain(&hidden).map(|place| make(*place)).collect(),
            shown: shown.len(),
            bound: draft.bound,
            stream: draft.endpoint != Endpoint::Embeddings && fields.flag("stream")?,
            include_usage: draft.include_usage,
            continuous_usage: draft.continuous_usage,
            fault: headers.fault.unwrap_or_else(|| engine.fault()),
            reports_cached: engine.options.prefix_cache,
        })
    }

    pub(super) fn jobs(&self) -> Vec<Job> {
        self.choices.iter().map(|choice| choice.job).collect()
    }

    /// Output tokens of all choices, those not shown included.
    pub(super) fn output(&self) -> u64 {
        self.choices.iter().map(|choice| choice.job.output.0).sum()
    }

    /// The usage while a stream runs, which tells the output of the choice at hand, as vLLM does; none if the fault hides it.
    pub(super) fn running_usage(&self, output: u64) -> Option<Usage> {
        let cached = self.reports_cached.then_some(self.cached);
        (self.fault != Fault::NoUsage).then_some(Usage { prompt: self.prompt, cached, output })
    }

    /// The usage at the end; the fault may hide or raise it.
    pub(super) fn final_usage(&self) -> Option<Usage> {
        let over = if let Fault::UsageOver(tokens) = self.fault { u64::from(tokens) } else { 0 };
        self.running_usage(self.output() + over)
    }

    pub(super) fn shown_choices(&self) -> &[Choice] {
        &self.choices[..self.shown]
    }
}

impl Prompt {
    /// The prompt made of these texts; its leading blocks may be in the prefix cache.
    pub(super) fn of_texts(texts: &[&str], engine: &Engine) -> Self {
        Self {
            tokens: texts.iter().map(|text| super::words::count(text)).sum(),
            cached: engine.read_prefix(texts),
            fingerprint: fingerprint(texts.iter().copied(), engine.options.seed),
        }
    }

    /// A prompt given as token ids.
    pub(super) fn of_tokens(ids: &[Value], engine: &Engine) -> Self {
        let hash = |hash, id: &Value| mix(hash, id.as_u64().unwrap_or_default());
        Self { tokens: ids.len() as u64, cached: 0, fingerprint: ids.iter().fold(engine.options.seed, hash) }
    }
}

/// Sizes that a test asks for.
struct Overrides {
    prompt: Option<u64>,
    output: Option<u64>,
}

impl Overrides {
    /// Headers win over the body's `sim` object.
    fn of(fields: Fields<'_>, headers: &HeaderFacts) -> Result<Self, Problem> {
        let sim = fields.object("sim")?;
        let read = |name| sim.map_or(Ok(None), |sim| sim.count(name));
        Ok(Self {
            prompt: headers.prompt_tokens.or(read("prompt_tokens")?),
            output: headers.output_tokens.or(read("output_tokens")?),
        })
    }

    fn apply(&self, prompt: Prompt) -> Prompt {
        match self.prompt {
            Some(tokens) => Prompt { tokens, cached: 0, ..prompt },
            None => prompt,
        }
    }
}

/// The model named, or the first one served.
pub(super) fn model_of(fields: Fields<'_>, engine: &Engine) -> Result<String, Problem> {
    let models = &engine.options.models;
    let Some(name) = fields.text("model")? else {
        return Ok(models.first().cloned().unwrap_or_default());
    };
    if models.iter().any(|model| model == name) {
        return Ok(String::from(name));
    }
    let name: String = name.chars().take(128).collect();
    Err(Problem::of(StatusCode::NOT_FOUND, format!("The model `{name}` does not exist.")))
}

fn check_length(prompt: &Prompt, bound: Option<u64>, max_model_len: u64) -> Result<(), Problem> {
    let asked = prompt.tokens.saturating_add(bound.unwrap_or(0));
    if asked <= max_model_len {
        return Ok(());
    }
    Err(Problem::bad_request(format!(
        "This model's maximum context length is {max_model_len} tokens. However, you requested {asked} tokens ({} in the \
         messages, {} in the completion). Please reduce the length of the messages or completion.",
        prompt.tokens,
        bound.unwrap_or(0)
    )))
}

fn choice(
    draft: &Draft<'_>,
    prompt: Prompt,
    place: u64,
    natural: Option<u64>,
    engine: &Engine,
    priority: i64,
) -> Choice {
    let fingerprint = mix(prompt.fingerprint, place);
    let (reply, natural, natural_finish) = match draft.tool {
        Some(tool) => {
            let call = ToolCall::of(tool, fingerprint);
            let pieces = call.pieces.len() as u64;
            (Reply::Tool(call), pieces, Finish::Tool)
        }
        None => {
            let natural = natural.unwrap_or(NATURAL_MIN + fingerprint % NATURAL_SPREAD);
            (Reply::Text { fingerprint }, natural, Finish::Stop)
        }
    };
    let natural = if draft.endpoint == Endpoint::Embeddings { 0 } else { natural };
    let room = engine.options.max_model_len - prompt.tokens;
    let bound = draft.bound.map_or(room, |bound| bound.min(room));
    let reached =
        natural >= bound && draft.endpoint != Endpoint::Embeddings && natural_finish != Finish::Tool;
    // A tool call ends by itself at its last piece, even if that is its bound.
    let finish = if reached || natural > bound { Finish::Length } else { natural_finish };
    // Choices of one prompt share its cache.
    let cached = if place == 0 { prompt.cached } else { prompt.tokens };
    let job = Job {
        prompt: Tokens(prompt.tokens),
        cached: Tokens(cached),
        output: Tokens(natural.min(bound)),
        priority,
    };
    Choice { job, reply, finish }
}

/// Sequences of one request.
const SEQUENCES_MAX: u64 = 2_048;
/// Natural output lengths lie from here ...
const NATURAL_MIN: u64 = 16;
/// ... up to so many more.
const NATURAL_SPREAD: u64 = 241;
