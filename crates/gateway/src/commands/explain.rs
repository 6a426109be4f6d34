//! `fairlane explain F REQUEST.json`: what would happen to this request and why, with full buckets.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use crate::admin;
use crate::gateway::Gateway;
use crate::serve::{Origin, Overrides, read};

/// Explains the request in the file `request` under the configuration in `config`, to `out`.
///
/// # Errors
/// A file cannot be read or is wrong.
pub async fn run(config: &Path, request: &Path, out: &mut impl Write) -> Result<(), String> {
    let mut discovered = BTreeMap::new();
    let origin = Origin::File(config.to_owned());
    let gateway = Gateway::new(read(&origin, &discovered, Overrides::default())?)?;
    crate::addresses::refresh(&gateway, &crate::addresses::Resolver::system()).await;
    // Pools with `models: "*"` have no models before their backends have been asked.
    for (pool, names) in crate::health::discover(&gateway).await {
        discovered.insert(pool, names.unwrap_or_default());
    }
    gateway.reload(read(&origin, &discovered, Overrides::default())?)?;
    let document = std::fs::read(request).map_err(|error| format!("{}: {error}", request.display()))?;
    let explanation = admin::explain(&gateway, &http::HeaderMap::new(), &document)
        .await
        .map_err(|message| format!("{}: {message}", request.display()))?;
    let text = serde_json::to_string_pretty(&explanation).map_err(|error| error.to_string())?;
    writeln!(out, "{text}").map_err(|error| error.to_string())
}
