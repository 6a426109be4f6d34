//! `cargo xtask tidy`: checks of the repository's structure that the compiler cannot make.
//!
//! Each check tells every fault it finds; tidy fails when there is one. Sizes are shown and never fail.

mod arrows;
mod dependencies;
mod licences;
mod longest;
mod sources;
mod tracked;

use crate::{metadata, repository};

/// Packages that may be built for the binary on Linux, itself included.
const PACKAGE_BUDGET: usize = 250;

/// Runs every check and shows the longest files and functions.
///
/// # Errors
/// Lists the faults, one a line.
pub(crate) fn run() -> Result<(), String> {
    let files = repository::text_files()?;
    let metadata = metadata::every_platform()?;
    let members = metadata.members();
    let built = metadata::counted_platform()?.built_for("fairlane");

    longest::show(&files);
    println!("{} packages are built for the binary on Linux (budget {PACKAGE_BUDGET})", built.len());

    let mut faults = arrows::faults(&members);
    faults.extend(sources::faults(&files));
    faults.extend(tracked::faults(&files));
    faults.extend(licences::faults(&metadata.foreign_packages()));
    faults.extend(dependencies::faults(&members, &repository::read(dependencies::FILE)?));
    if built.len() > PACKAGE_BUDGET {
        faults.push(format!(
            "the binary is built from {} packages: drop some, or make a feature opt-in",
            built.len()
        ));
    }
    if faults.is_empty() {
        return Ok(());
    }
    faults.sort();
    Err(format!("{} faults of structure:\n  {}", faults.len(), faults.join("\n  ")))
}
