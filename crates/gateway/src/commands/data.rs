//! `fairlane data export F` and `fairlane data import F`: a data file as lines of JSON, and back.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::config::Config;
use crate::data::{self, DataFile};
use crate::serve::{Origin, Overrides, read};

/// `fairlane data ..`
#[derive(Subcommand, Clone, Debug)]
pub enum DataCommand {
    /// Write balances and the usage log as lines of JSON. No gateway may hold the data file.
    Export(TransferArgs),
    /// Make a data file from an export. It must not exist yet.
    Import(TransferArgs),
}

/// Flags of both.
#[derive(Args, Clone, Debug)]
pub struct TransferArgs {
    /// The file with lines of JSON.
    pub lines: PathBuf,
    /// The gateway's configuration, which names its data file.
    #[arg(long, required_unless_present = "data")]
    pub config: Option<PathBuf>,
    /// The data file, over the configuration's.
    #[arg(long)]
    pub data: Option<PathBuf>,
}

/// Exports or imports, and says how much it was.
///
/// # Errors
/// A file cannot be read or written, or is wrong.
pub fn run(command: &DataCommand, out: &mut impl Write) -> Result<(), String> {
    let (DataCommand::Export(args) | DataCommand::Import(args)) = command;
    let file = file_of(args)?;
    let (did, (balances, records)) = match command {
        DataCommand::Export(args) => {
            let open = DataFile::open_existing(&file).map_err(|error| error.to_string())?;
            ("exported", data::export(&open, &args.lines).map_err(|error| error.to_string())?)
        }
        DataCommand::Import(args) => {
            ("imported", data::import(&args.lines, &file).map_err(|error| error.to_string())?)
        }
    };
    writeln!(out, "{did} {balances} balances and {records} records").map_err(|error| error.to_string())
}

/// The configuration in this file, with this process's environment.
pub(super) fn read_config(path: &Path) -> Result<Config, String> {
    read(&Origin::File(path.to_owned()), &BTreeMap::new(), Overrides::default())
}

fn file_of(args: &TransferArgs) -> Result<PathBuf, String> {
    match (&args.data, &args.config) {
        (Some(file), _) => Ok(file.clone()),
        (None, Some(config)) => {
            let settings = read_config(config)?.edge.data;
            let none =
                || format!("{}: data is off, there is no file; name one with --data", config.display());
            settings.map(|settings| settings.file).ok_or_else(none)
        }
        (None, None) => Err("name the data file with --data or the configuration with --config".to_owned()),
    }
}
