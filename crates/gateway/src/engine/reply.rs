//! What a sequence writes: words, or the arguments of a tool call, one piece a token.

use serde_json::{Map, Value};

use super::words::{mix, word};

/// The content of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Words that follow from the fingerprint.
    Text {
        /// Of the request, the seed and the choice.
        fingerprint: u64,
    },
    /// A call of one tool.
    Tool(ToolCall),
}

/// A call of a tool that the request offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolCall {
    /// Hexadecimal digits; each dialect puts its prefix before it.
    pub(super) id: String,
    pub(super) name: String,
    /// The arguments' JSON text, cut into tokens.
    pub(super) pieces: Vec<String>,
}

/// A tool that a request offers: its name and the JSON schema of its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tool<'a> {
    pub(super) name: &'a str,
    pub(super) schema: Option<&'a Value>,
}

impl Reply {
    /// The text of the token at `place`.
    pub(super) fn piece(&self, place: u64) -> String {
        match self {
            Self::Text { fingerprint } => word(*fingerprint, place),
            Self::Tool(call) => call.pieces.get(place as usize).cloned().unwrap_or_default(),
        }
    }

    /// The text of the first `tokens` tokens.
    pub(super) fn text(&self, tokens: u64) -> String {
        (0..tokens).map(|place| self.piece(place)).collect()
    }

    pub(super) const fn tool(&self) -> Option<&ToolCall> {
        match self {
            Self::Text { .. } => None,
            Self::Tool(call) => Some(call),
        }
    }
}

impl ToolCall {
    /// A call with a value for every argument of the tool's schema.
    pub(super) fn of(tool: Tool<'_>, fingerprint: u64) -> Self {
        let arguments = Value::Object(arguments(tool.schema, fingerprint)).to_string();
        let characters: Vec<char> = arguments.chars().collect();
        Self {
            id: format!("{:016x}", mix(fingerprint, u64::MAX)),
            name: String::from(tool.name),
            pieces: characters.chunks(CHARACTERS_PER_TOKEN).map(|piece| piece.iter().collect()).collect(),
        }
    }
}

fn arguments(schema: Option<&Value>, fingerprint: u64) -> Map<String, Value> {
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    let properties = properties.into_iter().flatten().take(ARGUMENTS_MAX).enumerate();
    properties
        .map(|(place, (name, property))| (name.clone(), argument(property, mix(fingerprint, place as u64))))
        .collect()
}

fn argument(property: &Value, fingerprint: u64) -> Value {
    if let Some(choice) = property.get("enum").and_then(|choices| choices.get(0)) {
        return choice.clone();
    }
    match property.get("type").and_then(Value::as_str) {
        Some("integer" | "number") => Value::from(fingerprint % 100),
        Some("boolean") => Value::Bool(fingerprint.is_multiple_of(2)),
        Some("array") => Value::Array(Vec::new()),
        Some("object") => Value::Object(Map::new()),
        _ => Value::String(word(fingerprint, 0)),
    }
}

const CHARACTERS_PER_TOKEN: usize = 4;
/// Of a tool's arguments; a longer schema gets the first ones.
const ARGUMENTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Reply, Tool, ToolCall};

    #[test]
    fn the_pieces_of_a_tool_call_join_to_arguments_that_the_schema_wants() {
        let schema = json!({"type": "object", "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
        }});
        let call = ToolCall::of(Tool { name: "weather", schema: Some(&schema) }, 1);
        let tokens = call.pieces.len() as u64;
        let arguments: Value = serde_json::from_str(&Reply::Tool(call).text(tokens)).unwrap();
        assert!(arguments["city"].is_string() && arguments["days"].is_u64());
        assert_eq!(arguments["unit"], "celsius");
    }
}
