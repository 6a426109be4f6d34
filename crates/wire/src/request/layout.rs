//! Where in a body the fields stand that the gateway may have to set: offsets, no borrow.

use std::ops::Range;

use crate::dialect::Endpoint;

/// The places that `splice` needs. It belongs to the one body it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(crate) endpoint: Endpoint,
    pub(crate) body_bytes: usize,
    /// Just after the brace that opens the body.
    pub(crate) open: usize,
    pub(crate) bounds: [Option<Bound>; BOUNDS],
    pub(crate) is_streaming: bool,
    pub(crate) stream_options: StreamOptions,
    pub(crate) controls: Vec<Control>,
}

/// A field that bounds the output, in the order of preference for replacing a null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundField {
    MaxCompletionTokens = 0,
    MaxTokens = 1,
    MaxOutputTokens = 2,
    /// llama.cpp's own: it wins over `max_tokens` there.
    NPredict = 3,
}

pub(crate) const BOUNDS: usize = 4;

/// Where the value of a bound stands, and how much it is; `None` for null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) value: Range<usize>,
    pub(crate) tokens: Option<u64>,
}

/// What stands under `stream_options`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamOptions {
    Absent,
    Null {
        value: Range<usize>,
    },
    Object {
        /// Just after its opening brace.
        open: usize,
        is_empty: bool,
        include_usage: Option<IncludeUsage>,
    },
}

/// Where the value of `include_usage` stands, and whether it is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IncludeUsage {
    pub(crate) value: Range<usize>,
    pub(crate) asked: bool,
}

/// A member that steers an engine: what to cut so that the rest stays valid JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) removal: Range<usize>,
    pub(crate) value: Range<usize>,
    pub(crate) is_priority: bool,
    /// No other kind of member stands before it, so it is cut together with the comma after it
    /// instead of the one before it.
    pub(crate) leads: bool,
}

impl Layout {
    pub(crate) const fn new(endpoint: Endpoint, body_bytes: usize) -> Self {
        Self {
            endpoint,
            body_bytes,
            open: 0,
            bounds: [const { None }; BOUNDS],
            is_streaming: false,
            stream_options: StreamOptions::Absent,
            controls: Vec::new(),
        }
    }

    /// Whether a field is there and not null.
    pub(crate) fn has_bound(&self, field: BoundField) -> bool {
        let bound = self.bounds[field as usize].as_ref();
        bound.is_some_and(|bound| bound.tokens.is_some())
    }

    /// The largest bound in the body.
    pub(crate) fn largest_bound(&self) -> Option<u64> {
        let bounds = self.bounds.iter().flatten();
        bounds.filter_map(|bound| bound.tokens).max()
    }
}

impl StreamOptions {
    pub(crate) fn asks_usage(&self) -> bool {
        match self {
            Self::Object { include_usage: Some(include_usage), .. } => include_usage.asked,
            Self::Object { .. } | Self::Absent | Self::Null { .. } => false,
        }
    }
}

impl BoundField {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "max_completion_tokens" => Some(Self::MaxCompletionTokens),
            "max_tokens" => Some(Self::MaxTokens),
            "max_output_tokens" => Some(Self::MaxOutputTokens),
            "n_predict" => Some(Self::NPredict),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxTokens => "max_tokens",
            Self::MaxOutputTokens => "max_output_tokens",
            Self::NPredict => "n_predict",
        }
    }

    /// The fields that every backend of this endpoint obeys.
    pub(crate) const fn obeyed(endpoint: Endpoint) -> &'static [Self] {
        match endpoint {
            Endpoint::ChatCompletions => &[Self::MaxCompletionTokens, Self::MaxTokens],
            Endpoint::Completions | Endpoint::Messages => &[Self::MaxTokens],
            Endpoint::Responses => &[Self::MaxOutputTokens],
            Endpoint::Embeddings | Endpoint::CountTokens | Endpoint::Models => &[],
        }
    }
}

/// Top-level members that steer an engine's scheduling, routing or memory, and that no tenant may
/// send: `priority` (vLLM, SGLang), the data-parallel rank, the peers of disaggregated serving,
/// and llama.cpp's slot.
pub(crate) fn is_control(name: &str) -> bool {
    matches!(
        name,
        "priority"
            | "data_parallel_rank"
            | "routed_dp_rank"
            | "disagg_prefill_dp_rank"
            | "bootstrap_host"
            | "bootstrap_port"
            | "bootstrap_room"
            | "bootstrap_pair_key"
            | "kv_transfer_params"
            | "ec_transfer_params"
            | "id_slot"
            | "slot_id"
    )
}
