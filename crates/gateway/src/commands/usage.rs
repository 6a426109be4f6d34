//! `fairlane usage`: sums over the usage log, from the data file or through the gateway that holds it.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::check::grouped;
use crate::clock;
use crate::config::{Config, TimeSpan};
use crate::data::{By, DataFile, Query, Sum, Usage};

/// Flags of `fairlane usage`.
#[derive(Args, Clone, Debug)]
pub struct UsageArgs {
    /// By what requests are put together.
    #[arg(long, value_enum, default_value = "tenant")]
    pub by: By,
    /// Only requests that ended within this time, such as 24h or 7d.
    #[arg(long)]
    pub last: Option<String>,
    /// As comma separated values.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// The gateway's configuration, which names its data file and its admin address.
    #[arg(long, required_unless_present_any = ["data", "admin"])]
    pub config: Option<PathBuf>,
    /// The data file, over the configuration's.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// The gateway's admin address, over the configuration's.
    #[arg(long)]
    pub admin: Option<SocketAddr>,
    /// The environment variable that holds the admin token.
    #[arg(long, default_value = "FAIRLANE_ADMIN_TOKEN")]
    pub token_env: String,
}

/// Prints the sums to `out`.
///
/// # Errors
/// Neither the file nor the gateway can be asked.
pub async fn run(args: UsageArgs, out: &mut impl Write) -> Result<(), String> {
    let last = match &args.last {
        Some(text) => u64::try_from(TimeSpan::parse(text)?.duration().as_millis()).unwrap_or(u64::MAX),
        None => u64::MAX,
    };
    let query = Query { by: args.by, from_ms: clock::unix_millis().saturating_sub(last) };
    let usage = find(&args, &query).await?;
    let written = if args.json {
        let text = serde_json::to_string_pretty(&usage).map_err(|error| error.to_string())?;
        writeln!(out, "{text}")
    } else if args.csv {
        print_csv(&usage, out)
    } else {
        print_table(&usage, out)
    };
    written.map_err(|error| error.to_string())
}

/// The file while nobody holds it, else the gateway.
async fn find(args: &UsageArgs, query: &Query) -> Result<Usage, String> {
    let config = match &args.config {
        Some(path) => Some(super::data::read_config(path)?),
        None => None,
    };
    let edge = config.as_ref().map(|Config { edge, .. }| edge);
    let own = edge.and_then(|edge| edge.data.as_ref()).map(|data| data.file.clone());
    let admin = args.admin.or_else(|| edge.and_then(|edge| edge.admin));
    // An admin address alone is a wish to ask the gateway.
    let file = args.data.clone().or(own).filter(|_| args.data.is_some() || args.admin.is_none());
    if let Some(file) = file {
        match DataFile::open_existing(&file) {
            Ok(open) => return Usage::of_file(&open, query).map_err(|error| error.to_string()),
            Err(error) if error.is_in_use() && admin.is_some() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    match admin {
        Some(admin) => ask(admin, &args.token_env, query).await,
        None => {
            Err("no data file is configured and no admin address: name one with --data or --admin".to_owned())
        }
    }
}

async fn ask(admin: SocketAddr, token_env: &str, query: &Query) -> Result<Usage, String> {
    let told = |error: &dyn std::fmt::Display| {
        format!(
            "the gateway at {admin} cannot be asked: {error}; name its admin address with --admin, or its file with --data"
        )
    };
    let by = serde_json::to_value(query.by).ok();
    let by = by.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    let uri = format!("http://{admin}/api/v1/usage?by={by}&from_ms={}", query.from_ms);
    let mut request = http::Request::get(uri);
    if let Ok(token) = std::env::var(token_env) {
        request = request.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| told(&error))?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = tokio::time::timeout(ANSWER_WITHIN, client.request(request)).await;
    let answer = answer.map_err(|error| told(&error))?.map_err(|error| told(&error))?;
    let status = answer.status();
    let body =
        Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| told(&error))?;
    let body = body.to_bytes();
    if status == http::StatusCode::UNAUTHORIZED {
        return Err(told(&format!("it wants its admin token, which is read from the variable {token_env}")));
    }
    serde_json::from_slice(&body).map_err(|_| told(&format!("it answered with status {status}")))
}

fn print_csv(usage: &Usage, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{},{}", by_name(usage.by), COLUMNS.join(","))?;
    for row in &usage.rows {
        let numbers = numbers(row).map(|number| number.to_string());
        writeln!(out, "{},{}", csv_field(row.name.as_deref().unwrap_or_default()), numbers.join(","))?;
    }
    Ok(())
}

fn print_table(usage: &Usage, out: &mut impl Write) -> io::Result<()> {
    let mut lines: Vec<Vec<String>> =
        vec![std::iter::once(by_name(usage.by)).chain(COLUMNS).map(str::to_owned).collect()];
    for row in &usage.rows {
        let name = row.name.clone().unwrap_or_else(|| "(none)".to_owned());
        lines.push(std::iter::once(name).chain(numbers(row).map(grouped)).collect());
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=COLUMNS.len()).map(width).collect();
    for line in &lines {
        let name = &line[0];
        write!(out, "{name}{}", " ".repeat(widths[0] - name.chars().count()))?;
        for (text, width) in line.iter().zip(&widths).skip(1) {
            write!(out, "  {text:>width$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

const fn numbers(row: &Sum) -> [u64; COLUMNS.len()] {
    [row.requests, row.refused, row.input, row.cached, row.cache_write, row.output, row.charged]
}

const fn by_name(by: By) -> &'static str {
    match by {
        By::Tenant => "tenant",
        By::Team => "team",
        By::Key => "key",
        By::Run => "run",
        By::Model => "model",
        By::Day => "day",
    }
}

/// Quoted where it must be; what a spreadsheet would take for a formula is quoted with an apostrophe.
fn csv_field(text: &str) -> String {
    let text = match text.chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{text}"),
        _ => text.to_owned(),
    };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

const COLUMNS: [&str; 7] = ["requests", "refused", "input", "cached", "cache_write", "output", "charged"];
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_their_field() {
        assert_eq!(csv_field("shop"), "shop");
        assert_eq!(csv_field("a,b\"c"), "\"a,b\"\"c\"");
        assert_eq!(csv_field("=1+1"), "'=1+1");
    }

    #[test]
    fn the_table_is_aligned_and_the_numbers_are_grouped() {
        let row = |name: Option<&str>, charged| Sum { name: name.map(Into::into), charged, ..Sum::default() };
        let rows = vec![row(Some("shop-chat"), 1_234_567), row(None, 5)];
        let usage = Usage { by: By::Team, from_ms: 0, to_ms: 0, rows };
        let mut out = Vec::new();
        print_table(&usage, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("team       requests"), "{text}");
        assert!(lines[1].starts_with("shop-chat") && lines[1].ends_with("1,234,567"), "{text}");
        assert!(lines[2].starts_with("(none)") && lines[2].ends_with("        5"), "{text}");
    }
}
