//! The committed programs are those of the committed sources: `SHA256SUMS` names both, and was written when they were built.

use std::collections::BTreeSet;
use std::fs;

use crate::bench::dataplane;
use crate::sha256::sha256;

const SUMS: &str = "SHA256SUMS";

#[test]
fn sources_and_programs_have_the_hashes_that_were_noted_when_they_were_built() {
    let noted = fs::read_to_string(dataplane().join(SUMS)).unwrap();
    let mut named = BTreeSet::new();
    for line in noted.lines() {
        let (hash, name) = line.split_once("  ").expect("a hash and a name");
        let file = fs::read(dataplane().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(sha256(&file), hash, "{name} has changed since `make -C dataplanes/pspin`");
        named.insert(name.to_owned());
    }
    for folder in ["", "bin/", "operators/", "operators/include/", "operators/bin/"] {
        for entry in fs::read_dir(dataplane().join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            let is_known = named.contains(&name) || name == SUMS || entry.path().is_dir();
            assert!(is_known, "{name} is not in {SUMS}: run `make -C dataplanes/pspin`");
        }
    }
}
