//! Hashes the sources that decide a simulation's result, and finds the commit that they are of.

mod sources;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What decides a result, relative to this package.
const SOURCES: [&str; 8] = [
    "src",
    "data",
    "../control/src",
    "../numeric/src",
    "../operators/src",
    "../proto/src",
    "../../experiments/operator-cycles.csv",
    "../../experiments/pspin-cycles.csv",
];

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo::rustc-env=TRIBUTARY_SOURCES={}", sources::hash(&package, &SOURCES));
    println!("cargo::rustc-env=TRIBUTARY_SOURCE_PATHS={}", SOURCES.join(" "));
    println!("cargo::rustc-env=TRIBUTARY_COMMIT={}", commit(&package).unwrap_or_default());
}

/// The commit that is checked out, with a plus if the sources differ from it. `None` outside of the repository.
fn commit(package: &Path) -> Option<String> {
    // A source archive may lie inside another project's repository.
    git(package, &["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(package, &["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(package, &[&["status", "--porcelain", "--"], &SOURCES[..]].concat())?;
    Some(if changed.is_empty() { commit } else { format!("{commit}+") })
}

fn git(package: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).current_dir(package).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
