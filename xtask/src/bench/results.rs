//! Results as files: with machine and commit, and in an order that does not change from run to run.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::bars::Row;

/// Writes rows, and what they were made from.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(
    path: &Path,
    machine: &Value,
    rows: &[Row],
    (name, made_from): (&str, Vec<Value>),
) -> Result<(), String> {
    let rows: Vec<Value> = rows.iter().map(Row::told).collect();
    save(path, &json!({"machine": machine, "rows": rows, name: made_from}))
}

/// Writes a result, one member of its lists a line, so that two of them can be compared.
///
/// # Errors
/// The file cannot be written.
pub(super) fn save(path: &Path, result: &Value) -> Result<(), String> {
    let mut text = String::from("{\n");
    let members: Vec<String> =
        result.as_object().into_iter().flatten().map(|(name, value)| member(name, value)).collect();
    text.push_str(&members.join(",\n"));
    text.push_str("\n}\n");
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("\nwritten: {}", path.display());
    Ok(())
}

fn member(name: &str, value: &Value) -> String {
    let lines: Vec<String> = match value {
        Value::Array(items) => items.iter().map(|item| format!("    {item}")).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| format!("    {}: {value}", json!(name))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return format!("  {}: {value}", json!(name));
        }
    };
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    format!("  {}: {open}\n{}\n  {close}", json!(name), lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_result_is_json() {
        let result = json!({"a": [1, {"b": 2}], "c": {"d": "e"}, "f": null});
        let members: Vec<String> =
            result.as_object().unwrap().iter().map(|(name, value)| member(name, value)).collect();
        let text = format!("{{{}}}", members.join(","));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), result);
    }
}
