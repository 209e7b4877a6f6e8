//! Hashes the sources that decide a simulation's result, so that `reproduce` never takes the kept results of another
//! version of the program for its own when it resumes.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The folders whose sources decide a result, relative to this one.
const FOLDERS: [&str; 6] = ["src", "../sim/src", "../sim/data", "../numeric/src", "../proto/src", "../control/src"];
/// Prose, and experiment files: a run's parameters are part of the key under which its result is kept.
const IGNORED: [&str; 2] = ["md", "toml"];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for folder in FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
        add(&root.join(folder), &mut hash);
    }
    println!("cargo::rustc-env=TRIBUTARY_SOURCES={hash:016x}");
}

/// Adds a file, or all files of a folder in the order of their names (FNV-1a, 64 bits).
fn add(path: &Path, hash: &mut u64) {
    if path.is_dir() {
        let mut inside: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        inside.sort();
        return inside.iter().for_each(|path| add(path, hash));
    }
    if IGNORED.iter().any(|ignored| path.extension().is_some_and(|extension| extension == *ignored)) {
        return;
    }
    let name = path.file_name().map(|name| name.as_encoded_bytes().to_vec()).unwrap_or_default();
    for byte in name.into_iter().chain(fs::read(path).unwrap_or_default()) {
        *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}
