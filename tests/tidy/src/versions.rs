//! The oldest Rust is in one place, `Cargo.toml`; pages and messages that name it say the same.

use std::fs;
use std::path::Path;

use crate::Offences;

/// Files that name the oldest Rust for people.
const NAMING: [&str; 4] = ["README.md", "CONTRIBUTING.md", "docs/start/train.md", "Makefile"];

/// Notes files that name another version of Rust than the workspace's `rust-version`, or none.
pub fn check(root: &Path, offences: &mut Offences) {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let oldest = manifest.split("rust-version = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    for path in NAMING {
        let text = fs::read_to_string(root.join(path)).unwrap_or_default();
        let named = text.split("Rust ").skip(1).filter_map(|rest| rest.split(" or newer").next());
        let named: Vec<&str> =
            named.filter(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.')).collect();
        if named.is_empty() || named.iter().any(|&version| version != oldest) {
            offences.insert(format!("rust {path}"), named.len().max(1));
        }
    }
}
