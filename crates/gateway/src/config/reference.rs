//! The reference part of `docs/configuration.md`, generated from the schema, and the check that it is committed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value};

/// Checks that the file, below the root of the repository, is what `wanted` makes of it. With `FAIRLANE_UPDATE=1` writes it instead.
pub(super) fn committed(name: &str, wanted: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let wanted = wanted(&found);
    if std::env::var_os("FAIRLANE_UPDATE").is_some() && found != wanted {
        std::fs::write(&path, wanted).unwrap();
        return;
    }
    let hint = "run `FAIRLANE_UPDATE=1 cargo test -p fairlane --lib config` and commit what it writes";
    assert!(found == wanted, "{name} is not what the options say: {hint}");
}

/// The tables of all options.
fn reference(schema: &Value) -> String {
    let mut blocks = Blocks { schema, places: BTreeMap::new(), order: Vec::new() };
    blocks.visit(ROOT, schema, "");
    let mut text = String::new();
    for name in &blocks.order {
        blocks.write(name, &mut text);
    }
    text
}

struct Blocks<'a> {
    schema: &'a Value,
    /// Where each block is written.
    places: BTreeMap<&'a str, Vec<String>>,
    order: Vec<&'a str>,
}

impl<'a> Blocks<'a> {
    fn visit(&mut self, name: &'a str, block: &'a Value, place: &str) {
        let places = self.places.entry(name).or_default();
        let is_known = !places.is_empty();
        places.push(if place.is_empty() { "the top of the file".to_owned() } else { format!("`{place}`") });
        if is_known {
            return;
        }
        self.order.push(name);
        for (key, property) in properties(block) {
            let dot = if place.is_empty() { "" } else { "." };
            self.follow(property, &format!("{place}{dot}{key}"));
        }
    }

    fn follow(&mut self, value: &'a Value, place: &str) {
        if let Some(name) = reference_name(value) {
            let Some(found) = self.schema["$defs"].get(name) else { return };
            if found.get("properties").is_some() {
                self.visit(name, found, place);
            } else {
                self.follow(found, place);
            }
        }
        for choice in value["anyOf"].as_array().into_iter().flatten() {
            self.follow(choice, place);
        }
        if let Some(items) = value.get("items") {
            self.follow(items, &format!("{place}[]"));
        }
        // Names of a map are checked by a pattern, not listed.
        for values in value["patternProperties"].as_object().into_iter().flat_map(Map::values) {
            self.follow(values, &format!("{place}.NAME"));
        }
    }

    fn write(&self, name: &str, text: &mut String) {
        let block = if name == ROOT { self.schema } else { &self.schema["$defs"][name] };
        let title = if name == ROOT { "The file" } else { name };
        let all = &self.places[name];
        let more = if all.len() > PLACES_SHOWN_MAX { ", …" } else { "" };
        let places =
            format!("{}{more}", all.iter().take(PLACES_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", "));
        let about = block["description"].as_str().unwrap_or_default();
        writeln!(
            text,
            "### {title}\n\n{about}\nWritten at {places}.\n\n| option | value | what it is |\n|---|---|---|"
        )
        .unwrap();
        for (key, property) in properties(block) {
            let description = property["description"].as_str().unwrap_or_default();
            assert!(
                description.contains("Default: ") || description.contains("Required"),
                "{name}.{key} says neither its default nor that it is required"
            );
            let kind = self.kind(property);
            writeln!(text, "| `{key}` | {kind} | {} |", description.replace('\n', " ").replace('|', "\\|"))
                .unwrap();
        }
        text.push('\n');
    }

    /// The kind of a value, in a few words.
    fn kind(&self, value: &Value) -> String {
        if let Some(name) = reference_name(value) {
            let found = &self.schema["$defs"][name];
            let has_words = found.get("oneOf").is_some() || (found.get("anyOf").is_some() && name != "Rate");
            return if has_words { self.kind(found) } else { name.to_owned() };
        }
        if let Some(constant) = value["const"].as_str() {
            return format!("`{constant}`");
        }
        if let Some(choices) = value["anyOf"].as_array().or_else(|| value["oneOf"].as_array()) {
            let named: Vec<_> = choices
                .iter()
                .filter(|choice| choice["type"] != "null")
                .map(|choice| self.kind(choice))
                .collect();
            return named.join(" or ");
        }
        if let Some(items) = value.get("items") {
            let items = self.kind(items);
            return if items.contains(' ') {
                format!("list of ({items})")
            } else {
                format!("list of {items}")
            };
        }
        if value.get("patternProperties").is_some() {
            return "map of names".to_owned();
        }
        match &value["type"] {
            Value::String(kind) => plain(kind).to_owned(),
            Value::Array(kinds) => kinds
                .iter()
                .filter_map(Value::as_str)
                .filter(|kind| *kind != "null")
                .map(plain)
                .collect::<Vec<_>>()
                .join(" or "),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
        }
    }
}

fn properties(block: &Value) -> impl Iterator<Item = (&String, &Value)> {
    block["properties"].as_object().into_iter().flat_map(Map::iter)
}

fn reference_name(value: &Value) -> Option<&str> {
    value["$ref"].as_str()?.strip_prefix("#/$defs/")
}

fn plain(kind: &str) -> &str {
    match kind {
        "boolean" => "`true` or `false`",
        "string" => "text",
        "array" => "list",
        "object" => "map",
        other => other,
    }
}

#[test]
fn every_option_is_in_the_reference_with_its_default() {
    committed("docs/configuration.md", |found| {
        let (before, rest) =
            found.split_once(BEGIN).expect("docs/configuration.md has the line that begins the reference");
        let (_, after) =
            rest.split_once(END).expect("docs/configuration.md has the line that ends the reference");
        format!("{before}{BEGIN}\n\n{}{END}{after}", reference(&super::schema()))
    });
}

const PLACES_SHOWN_MAX: usize = 8;
const ROOT: &str = "Document";
const BEGIN: &str = "<!-- generated from the schema: begin -->";
const END: &str = "<!-- generated from the schema: end -->";
