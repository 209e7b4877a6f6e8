//! Who may use whom: between crates by their manifests, within `crates/proto` by what its folders import.

use std::fs;
use std::path::Path;

use crate::{Offences, Source};

/// Folders of crates.
const FOLDERS_OF_CRATES: [&str; 2] = ["crates", "dataplanes"];

/// Each crate with those that it may use.
const CRATES: [(&str, &[&str]); 13] = [
    ("numeric", &[]),
    ("proto", &["numeric"]),
    ("control", &["numeric", "proto"]),
    ("operators", &["proto"]),
    ("pspin", &["proto", "operators"]),
    ("net", &["numeric", "proto", "control", "operators"]),
    ("sim", &["numeric", "proto", "control", "operators"]),
    ("papers", &["numeric", "proto", "control", "sim"]),
    ("explore", &["numeric", "proto", "control"]),
    ("local", &["numeric"]),
    ("testbed", &[]),
    ("cli", &["numeric", "proto", "control", "net", "sim", "papers", "pspin", "explore", "testbed", "operators"]),
    ("python", &["numeric", "proto", "control", "local", "net", "sim", "cli", "operators"]),
];

/// What tests may use besides: crate, and whose tests; `*` for all.
const IN_TESTS: [(&str, &str); 3] = [("testbed", "*"), ("numeric", "pspin"), ("sim", "pspin")];

/// The folders of `crates/proto/src` that are no protocols, each with those that it may use.
const FOLDERS: [(&str, &[&str]); 5] = [
    ("contract", &[]),
    ("tensors", &["contract"]),
    ("congestion", &["contract"]),
    ("reliability", &["heap", "contract", "congestion"]),
    ("aggregation", &["heap", "contract", "tensors", "congestion", "reliability"]),
];
/// What a protocol may use besides its own folder.
const OF_PROTOCOLS: &[&str] = &["heap", "contract", "tensors", "congestion", "reliability", "aggregation"];
const PROTO: &str = "crates/proto/src/";

/// Notes dependencies that no crate may have, and crates that no rule is known for.
pub fn check_crates(root: &Path, offences: &mut Offences) {
    let folders = FOLDERS_OF_CRATES.iter().filter_map(|folder| fs::read_dir(root.join(folder)).ok());
    for entry in folders.flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // A folder without a manifest, as of a hardware design, is not a crate.
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        check_manifest(&name, &manifest, offences);
    }
}

fn check_manifest(name: &str, manifest: &str, offences: &mut Offences) {
    let known = CRATES.iter().find(|(known, _)| *known == name);
    let allowed = known.map_or(&[][..], |(_, allowed)| allowed);
    for (section, other) in dependencies(manifest) {
        let allows = |(used, user): &(&str, &str)| *used == other && (*user == name || *user == "*");
        let in_tests = section == "dev-dependencies" && IN_TESTS.iter().any(allows);
        if !allowed.contains(&other) && !in_tests {
            offences.insert(format!("crate {name} -> {other}"), 1);
        }
    }
    if known.is_none() {
        offences.insert(format!("crate {name} is not in tests/tidy/src/arrows.rs"), 1);
    }
}

/// The crates of this workspace that a manifest depends on, each with the section that says so: a line
/// `tributary-name...` in a table of dependencies, or a table of its own.
fn dependencies(manifest: &str) -> Vec<(&str, &str)> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if let Some(heading) = line.strip_prefix('[') {
            section = heading.trim_end_matches(']');
            found.extend(section.split_once(".tributary-"));
        } else if let Some(rest) = line.strip_prefix("tributary-").filter(|_| section.ends_with("dependencies")) {
            found.push((section, rest.split(['.', ' ', '=']).next().unwrap_or(rest)));
        }
    }
    found
}

/// Notes what the folders of `crates/proto/src` import against the arrows.
pub fn check_folders(source: &Source, offences: &mut Offences) {
    let Some((folder, _)) = source.path.strip_prefix(PROTO).and_then(|path| path.split_once('/')) else { return };
    let allowed = FOLDERS.iter().find(|(known, _)| *known == folder).map_or(OF_PROTOCOLS, |(_, allowed)| allowed);
    for (at, _) in source.code.match_indices("crate::") {
        let behind = &source.code[at + "crate::".len()..];
        let other: String = behind.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
        let is_path = !source.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if is_path && !other.is_empty() && other != folder && !allowed.contains(&other.as_str()) {
            *offences.entry(format!("folder proto/{folder} -> {other}")).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_against_the_arrows_is_noted() {
        let mut offences = Offences::new();
        let manifest = "[package]\nname = \"tributary-net\"\n[dependencies]\ntributary-sim = { path = \"../sim\" }\n\
                        tributary-proto.workspace = true\n[dependencies.tributary-cli]\npath = \"../cli\"\n\
                        [dev-dependencies]\ntributary-testbed.workspace = true\n";
        check_manifest("net", manifest, &mut offences);
        assert_eq!(
            offences,
            Offences::from(["crate net -> cli", "crate net -> sim"].map(|arrow| (arrow.to_string(), 1)))
        );
    }

    #[test]
    fn a_folder_that_knows_a_protocol_is_noted_and_a_protocol_that_uses_shared_folders_is_not() {
        let mut offences = Offences::new();
        let text = "use crate::reliability::rtt;\nuse crate::ring::wire;\nlet a = crate::ring::B;";
        check_folders(&Source::new("crates/proto/src/contract/a.rs", text.into()), &mut offences);
        assert_eq!(offences.get("folder proto/contract -> ring"), Some(&2));
        assert_eq!(offences.get("folder proto/contract -> reliability"), Some(&1));
        offences.clear();
        check_folders(&Source::new("crates/proto/src/ring/a.rs", text.into()), &mut offences);
        assert!(offences.is_empty());
    }
}
