//! Scenario files: traffic, backends and faults for the lab, with policies in the very blocks of a gateway's configuration.

mod raw;
mod resolve;

use std::path::Path;

use fairlane_lab::Scenario;

use crate::config::ConfigError;

/// Reads a scenario file.
///
/// # Errors
/// The file cannot be read, is not YAML, or something in it is wrong: each problem with line, column and remedy.
pub fn read(path: &Path) -> Result<Scenario, ConfigError> {
    let (file, document) = crate::config::read_alone::<raw::Document>(path)?;
    resolve::scenario(file, document)
}

#[cfg(test)]
mod tests;
