//! What `deny.toml` says of dependencies: their licences, versions and sources. cargo-deny reads the same file; this needs
//! neither it nor a network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::Offences;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Notes licences that are not allowed, crates in several versions, exceptions that are no longer needed, and other sources.
pub fn check(root: &Path, offences: &mut Offences) {
    let deny = fs::read_to_string(root.join("deny.toml")).unwrap_or_default();
    let lock = fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default();
    check_versions(&lock, &quoted_after(&deny, "crate = "), offences);
    let allowed = deny.split_once("allow = [").and_then(|(_, rest)| rest.split_once("\n]"));
    let allowed: BTreeSet<String> = quoted_after(allowed.map_or("", |(list, _)| list), "");
    for (name, licence) in licences(root) {
        if !permits(&licence, &allowed) {
            offences.insert(format!("licence {name} {licence}"), 1);
        }
    }
}

fn check_versions(lock: &str, skipped: &BTreeSet<String>, offences: &mut Offences) {
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let name = value(package, "name = ").unwrap_or_default();
        *versions.entry(name).or_default() += 1;
        if value(package, "source = ").is_some_and(|source| source != REGISTRY) {
            offences.insert(format!("source {name}"), 1);
        }
    }
    for (name, count) in versions {
        match (count > 1, skipped.contains(name)) {
            (true, false) => offences.insert(format!("versions {name}"), count),
            (false, true) => offences.insert(format!("exception {name}"), 1),
            _ => None,
        };
    }
}

/// What stands in quotes after a key on a line of its own.
fn value<'a>(package: &'a str, key: &str) -> Option<&'a str> {
    package.lines().find_map(|line| line.strip_prefix(key)?.split('"').nth(1))
}

/// Everything in quotes right after a word; with no word, everything in quotes.
fn quoted_after(text: &str, word: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    code.flat_map(|line| {
        let mut parts = line.split('"');
        let mut found = Vec::new();
        while let (Some(before), Some(quoted)) = (parts.next(), parts.next()) {
            if before.ends_with(word) {
                found.push(quoted.to_string());
            }
        }
        found
    })
    .collect()
}

/// Name and licence of every package that is compiled here, as cargo knows them.
fn licences(root: &Path) -> Vec<(String, String)> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let arguments = ["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform"];
    let output = Command::new(cargo).args(arguments).arg("x86_64-unknown-linux-gnu").current_dir(root).output();
    let output = output.expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    // A package's object begins with its name and version; no crate for JSON is worth that.
    let packages = text.split("{\"name\":\"").skip(1).filter(|package| package.contains("\"license\":"));
    let licence = |package: &str| {
        let (name, rest) = package.split_once('"')?;
        let (_, rest) = rest.split_once("\"license\":")?;
        let licence = rest.strip_prefix('"').map_or("", |rest| rest.split('"').next().unwrap_or_default());
        Some((name.to_string(), licence.to_string()))
    };
    packages.filter(|package| package.contains("\"id\":")).filter_map(licence).collect()
}

/// Whether an expression of SPDX can be met by the licences that are allowed.
fn permits(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "~");
    let words: Vec<String> = spaced.split_whitespace().map(|word| word.replace('~', " WITH ")).collect();
    let mut rest = words.as_slice();
    any(&mut rest, allowed) && rest.is_empty()
}

fn any(words: &mut &[String], allowed: &BTreeSet<String>) -> bool {
    let mut met = all(words, allowed);
    while take(words, "OR") {
        met |= all(words, allowed);
    }
    met
}

fn all(words: &mut &[String], allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while take(words, "AND") {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut &[String], allowed: &BTreeSet<String>) -> bool {
    if take(words, "(") {
        return any(words, allowed) & take(words, ")");
    }
    let Some((licence, rest)) = words.split_first() else { return false };
    *words = rest;
    allowed.contains(licence)
}

fn take(words: &mut &[String], word: &str) -> bool {
    let taken = words.first().is_some_and(|first| first == word);
    if taken {
        *words = &words[1..];
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_met_by_one_alternative_and_by_all_of_its_parts() {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(str::to_string).into();
        for met in
            ["MIT", "GPL-3.0 OR MIT", "Unlicense/MIT", "(MIT OR X) AND Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(permits(met, &allowed), "{met}");
        }
        for unmet in ["", "GPL-3.0", "MIT AND X", "Apache-2.0", "(MIT", "MIT Unicode-3.0"] {
            assert!(!permits(unmet, &allowed), "{unmet}");
        }
    }

    #[test]
    fn versions_exceptions_and_sources_are_noted() {
        let package = |name: &str, source: &str| format!("[[package]]\nname = \"{name}\"\nsource = \"{source}\"\n");
        let lock =
            [package("a", REGISTRY), package("a", REGISTRY), package("b", "git+x"), package("c", REGISTRY)].concat();
        let mut offences = Offences::new();
        check_versions(&lock, &quoted_after("skip = [{ crate = \"c\", reason = \"d\" }]", "crate = "), &mut offences);
        let expected = [("versions a", 2), ("source b", 1), ("exception c", 1)];
        assert_eq!(offences, expected.map(|(offence, count)| (offence.to_string(), count)).into());
    }
}
