//! Runs the scripts that drive the client libraries, one process for many scenarios.

#![cfg(test)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    OpenaiPython,
    OpenaiNode,
    AnthropicPython,
}

/// What a run of a script printed.
#[derive(Debug)]
pub(crate) struct Results {
    results: Value,
}

impl Library {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OpenaiPython => "openai for Python",
            Self::OpenaiNode => "openai for Node",
            Self::AnthropicPython => "anthropic for Python",
        }
    }

    /// Whether the library is there. If it is not, the test fails where the tools are promised and is skipped aloud elsewhere.
    pub(crate) fn is_installed(self) -> bool {
        let missing = self.parts().into_iter().find(|part| !part.exists());
        let Some(missing) = missing else { return true };
        let how = format!(
            "{} is not installed ({} is missing): run `cargo xtask test`, or `cargo xtask tools` to install it alone",
            self.name(),
            missing.display()
        );
        assert!(std::env::var_os("FAIRLANE_TEST_TOOLS").is_none(), "{how}");
        // Not `eprintln!`, which the test runner keeps to itself when a test passes.
        writeln!(std::io::stderr(), "SKIPPED: {how}").unwrap();
        false
    }

    /// Runs scenarios in one process against the server at `url`, with further options of the script.
    pub(crate) async fn run(self, url: &str, options: &[&str], scenarios: &[&str]) -> Results {
        let mut command = self.command();
        command.args(["--base-url", url, "--timeout-seconds", "30"]).args(options).args(scenarios);
        // A proxy of the machine must not come between.
        command.env("NO_PROXY", "*").env("no_proxy", "*").stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        let output = output.unwrap_or_else(|error| panic!("{} does not start: {error}", self.name()));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {told}", self.name());
        let printed: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}: {told}", self.name()));
        Results { results: printed["results"].clone() }
    }

    fn command(self) -> Command {
        let [program, script, ..] = self.parts();
        match self {
            Self::OpenaiNode => {
                let mut command = Command::new("node");
                command.arg(script);
                command
            }
            Self::OpenaiPython | Self::AnthropicPython => {
                let mut command = Command::new(program);
                command.arg("-B").arg(script);
                command
            }
        }
    }

    /// What must exist: what is installed, then the script.
    fn parts(self) -> [PathBuf; 2] {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let repository = crate_folder.ancestors().nth(2).unwrap();
        let clients = crate_folder.join("tests/clients");
        let python = repository.join("target/test-tools/py/bin/python");
        match self {
            Self::OpenaiPython => [python, clients.join("python/openai_client.py")],
            Self::AnthropicPython => [python, clients.join("python/anthropic_client.py")],
            Self::OpenaiNode => {
                [clients.join("node/node_modules/openai"), clients.join("node/openai_client.mjs")]
            }
        }
    }
}

impl Results {
    /// One scenario's result.
    pub(crate) fn of(&self, scenario: &str) -> &Value {
        let result = &self.results[scenario];
        assert!(result.is_object(), "no result of {scenario} in {}", self.results);
        result
    }

    /// What the API answered; a refusal fails the test.
    pub(crate) fn answer(&self, scenario: &str) -> &Value {
        let result = self.of(scenario);
        assert!(result["error"].is_null(), "{scenario}: {}", result["error"]);
        assert!(result["answer"].is_object(), "{scenario}: {result}");
        &result["answer"]
    }

    /// The exception that the library raised.
    pub(crate) fn error(&self, scenario: &str) -> Refusal<'_> {
        let result = self.of(scenario);
        assert!(result["error"].is_object(), "{scenario} was not refused: {result}");
        Refusal { error: &result["error"], attempts: result["attempts"].as_array().unwrap() }
    }

    /// A header of the answer.
    pub(crate) fn header(&self, scenario: &str, name: &str) -> &str {
        let headers = &self.of(scenario)["headers"];
        headers[name].as_str().unwrap_or_else(|| panic!("{scenario}: no {name} in {headers}"))
    }
}

/// An exception of a library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) error: &'a Value,
    /// The HTTP requests that led to it.
    pub(crate) attempts: &'a [Value],
}

impl Refusal<'_> {
    /// Checks the exception's class, or one that it derives from, and its status.
    pub(crate) fn is(&self, class: &str, status: u16) {
        let classes = self.error["classes"].as_array().unwrap();
        assert!(classes.iter().any(|name| name == class), "{class}: {}", self.error);
        assert_eq!(self.error["status"], status, "{}", self.error);
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.error["headers"][name].as_str().unwrap_or_default()
    }

    /// The `type` inside the body's error object, where libraries differ in what they keep of the body.
    pub(crate) fn kind(&self) -> &str {
        let body = &self.error["body"];
        let error = if body["error"].is_object() { &body["error"] } else { body };
        error["type"].as_str().unwrap_or_default()
    }
}
