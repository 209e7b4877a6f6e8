//! Hashes the sources of this package: with the simulator's, they decide a result of `reproduce`.

#[path = "../sim/sources.rs"]
mod sources;

use std::env;
use std::path::PathBuf;

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo::rustc-env=TRIBUTARY_SOURCES={}", sources::hash(&package, &["src"]));
}
