//! The configurations that Fairlane is measured with: every kind of limit on, all of them too large to refuse anything.

use std::fmt::Write as _;

/// What differs between the gateways of one bench.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    /// Its name in results.
    pub(super) name: &'static str,
    /// Tenants in its configuration, and in rotation.
    pub(super) tenants: usize,
    /// How it counts input: `auto`, `exact` or `estimate`.
    pub(super) tokenizer: &'static str,
    /// Which limits its tenants have.
    pub(super) limits: Limits,
}

/// Which limits tenants have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limits {
    /// Every dimension and every scope.
    EveryKind,
    /// Three for each tenant, and nothing else.
    Three,
}

/// Where a gateway listens and what it stands before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// For clients.
    pub(super) client: u16,
    /// For the admin API.
    pub(super) admin: u16,
    /// Of the mock.
    pub(super) backend: u16,
}

/// A file of a configuration: name and text. The first one is the one to start with.
pub(super) type File = (String, String);

/// The configuration of a variant; `digests` are those of the keys that the load sends, one for each tenant.
pub(super) fn configuration(variant: &Variant, ports: Ports, digests: &[String]) -> Vec<File> {
    let every_kind = variant.limits == Limits::EveryKind;
    let mut parts = Vec::new();
    for (number, digests) in (0_usize..).zip(digests.chunks(TENANTS_PER_FILE)) {
        let mut text = String::from("tenants:\n");
        for (place, digest) in (number * TENANTS_PER_FILE..).zip(digests) {
            let _ = if every_kind {
                write_tenant(&mut text, place, digest)
            } else {
                write_short(&mut text, place, digest)
            };
        }
        parts.push((format!("{}-tenants-{number}.yaml", variant.name), text));
    }
    let included: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    let head = head(variant, ports, &included.join(", "));
    let mut files = vec![(format!("{}.yaml", variant.name), head)];
    files.append(&mut parts);
    files
}

fn write_tenant(text: &mut String, place: usize, digest: &str) -> std::fmt::Result {
    writeln!(
        text,
        "- {{name: tenant-{place:06}, team: all, tier: app, models: {{quick: {{limits: {{tokens: {WIDE}}}}}}}, \
         keys: [{{name: web, digest: \"{digest}\", limits: {{requests: {WIDE}, concurrent_requests: 100000, on_concurrency_excess: reject}}}}]}}"
    )
}

fn write_short(text: &mut String, place: usize, digest: &str) -> std::fmt::Result {
    writeln!(text, "- {{name: tenant-{place:06}, tier: short, keys: [\"{digest}\"]}}")
}

fn head(variant: &Variant, ports: Ports, included: &str) -> String {
    let Ports { client, admin, backend } = ports;
    let tokenizer = variant.tokenizer;
    let shared = match variant.limits {
        Limits::EveryKind => format!("{{tokens: {WIDE}}}"),
        Limits::Three => "{}".to_owned(),
    };
    format!(
        "\
listen: 127.0.0.1:{client}
admin: 127.0.0.1:{admin}
order: lanes+fair
service: {shared}
bounds: {{max_end_users: 1000000}}
pools:
- name: main
  models: [quick, paced, held]
  engine: vllm
  backends: [{{name: mock, url: \"http://127.0.0.1:{backend}\", limits: {shared}}}]
  slots: 4096
  kv_tokens: 2000000000
  work: {{input: 1, cached_input: 0.1, output: 4}}
  tokenizer: {{vocabulary: o200k, mode: {tokenizer}}}
  limits: {shared}
classes:
- {{name: interactive, max_wait: 10s, queue: {{requests: 100000, tokens: 4000000000}}, max_output_tokens: 4096}}
- {{name: batch, max_wait: 10m, min_share: 5%, headroom: 5%}}
- {{name: background, max_wait: 1h, min_share: 2%, headroom: 10%}}
tiers:
  short:
    limits: {{requests: {WIDE}, tokens: {WIDE}, concurrent_requests: 100000}}
  app:
    limits: {{requests: {WIDE}, tokens: {WIDE}, input_tokens: {WIDE}, output_tokens: {WIDE}, work: {WIDE}, concurrent_requests: 100000, max_input_tokens: 1000000, max_output_tokens: 2048}}
    charging: reserve
    runs: {{token_budget: 4000000000, max_steps: 4000000000, concurrent_requests: 100000, idle_expiry: 30m, max_live: 1000000, new_per_minute: 1000000, without_id: shared}}
    end_users: {{tokens: {WIDE}, requests: {WIDE}}}
teams:
- {{name: all, limits: {shared}}}
include: [{included}]
"
    )
}

/// A rate that no load on one machine reaches, in a bucket that a policy may still have.
const WIDE: &str = "600000000/s burst 5s";
/// A configuration's file has a bound in bytes.
const TENANTS_PER_FILE: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenant_is_in_one_of_the_files() {
        let variant = Variant { name: "x", tenants: 20_001, tokenizer: "auto", limits: Limits::Three };
        let digests = vec!["sha256:0".to_owned(); variant.tenants];
        let files = configuration(&variant, Ports { client: 1, admin: 2, backend: 3 }, &digests);
        assert_eq!(files.len(), 3);
        let tenants: usize =
            files[1..].iter().map(|(_, text)| text.matches("- {name: tenant-").count()).sum();
        assert_eq!(tenants, variant.tenants);
        assert!(files[0].1.contains("include: [x-tenants-0.yaml, x-tenants-1.yaml]"));
    }
}
