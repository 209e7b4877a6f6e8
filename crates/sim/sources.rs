//! The hash of source files, for build scripts: results are kept with it, and another program's are not taken for ours.

use std::fs;
use std::path::{Path, PathBuf};

/// Hashes these files and folders, relative to the package (FNV-1a, 64 bits), and has cargo repeat that when one of them
/// changes. Prose and experiment files decide no result.
pub fn hash(package: &Path, paths: &[&str]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for path in paths {
        println!("cargo::rerun-if-changed={path}");
        add(&package.join(path), &mut hash);
    }
    format!("{hash:016x}")
}

/// Adds a file, or all files of a folder in the order of their names.
fn add(path: &Path, hash: &mut u64) {
    if path.is_dir() {
        let mut inside: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        inside.sort();
        return inside.iter().for_each(|path| add(path, hash));
    }
    if path.extension().is_some_and(|extension| extension == "md" || extension == "toml") {
        return;
    }
    let name = path.file_name().map(|name| name.as_encoded_bytes().to_vec()).unwrap_or_default();
    for byte in name.into_iter().chain(fs::read(path).unwrap_or_default()) {
        *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}
