//! The JSON schema of a configuration file, for editors and for `docs/configuration.md`.

use serde_json::Value;

use super::raw::Document;

/// The schema of the main file. It is committed as `config.schema.json`.
#[must_use]
pub fn schema() -> Value {
    schemars::schema_for!(Document).to_value()
}

#[cfg(test)]
mod tests {
    use super::super::reference::committed;

    #[test]
    fn the_committed_schema_is_the_generated_one() {
        let text = format!("{:#}\n", super::schema());
        committed("crates/gateway/config.schema.json", |_| text.clone());
    }
}
