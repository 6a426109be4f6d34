//! One run of the load generator.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Connections, each with one request at a time.
    pub(super) connections: u32,
    /// How long, in seconds.
    pub(super) seconds: f64,
    /// Requests a second; 0 for as many as answers come.
    pub(super) rate: u32,
    /// The mock's model of a stream; none for whole answers.
    pub(super) stream: Option<&'static str>,
    /// Tenants in rotation.
    pub(super) tenants: usize,
    /// Bytes of a body.
    pub(super) body_bytes: usize,
}

impl Load {
    /// Sends it to a port and gives what the generator tells.
    ///
    /// # Errors
    /// The generator fails.
    pub(super) fn run(&self, generator: &Path, port: u16) -> Result<Value, String> {
        let mut command = Command::new(generator);
        command.args(["--port", &port.to_string(), "--connections", &self.connections.to_string()]);
        command.args(["--seconds", &self.seconds.to_string(), "--rate", &self.rate.to_string()]);
        command.args(["--tenants", &self.tenants.to_string(), "--body-bytes", &self.body_bytes.to_string()]);
        if let Some(model) = self.stream {
            command.args(["--stream", "--model", model]);
        }
        let output = command.output().map_err(|error| format!("cannot start the load generator: {error}"))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the load generator failed: {}", told.trim()));
        }
        parse(&String::from_utf8_lossy(&output.stdout))
    }
}

/// Opens streams and keeps them open while `meanwhile` looks; then `release` lets the backend end them. Gives how many ended well.
///
/// # Errors
/// A stream could not be opened.
pub(super) fn hold<T>(
    generator: &Path,
    (port, streams, tenants): (u16, usize, usize),
    meanwhile: impl FnOnce() -> T,
    release: impl FnOnce() -> Result<(), String>,
) -> Result<(T, u64), String> {
    let mut command = Command::new(generator);
    command.args([
        "--port",
        &port.to_string(),
        "--hold",
        &streams.to_string(),
        "--stream",
        "--model",
        "held",
    ]);
    command.args(["--tenants", &tenants.to_string()]);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the load generator: {error}"))?;
    let output = child.stdout.take().ok_or("the load generator has no output")?;
    let mut lines = BufReader::new(output).lines();
    let mut next =
        || lines.next().and_then(Result::ok).ok_or("streams could not be opened").map(|line| parse(&line));
    let opened = next();
    let outcome = opened.map(|_| meanwhile());
    release()?;
    let ended = outcome.is_ok().then(next);
    child.wait().map_err(|error| format!("lost the load generator: {error}"))?;
    let told = ended.transpose()?.transpose()?.unwrap_or_default();
    Ok((outcome?, told["ok"].as_u64().unwrap_or_default()))
}

/// The digests of the keys that the generator sends.
///
/// # Errors
/// The generator fails.
pub(super) fn digests(generator: &Path, tenants: usize) -> Result<Vec<String>, String> {
    let output = Command::new(generator).args(["keys", &tenants.to_string()]).output();
    let output = output.map_err(|error| format!("cannot start the load generator: {error}"))?;
    let digests: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    if digests.len() == tenants {
        Ok(digests)
    } else {
        Err(format!("the load generator told {} digests of {tenants}", digests.len()))
    }
}

fn parse(line: &str) -> Result<Value, String> {
    serde_json::from_str(line).map_err(|error| format!("the load generator told what is not JSON: {error}"))
}
