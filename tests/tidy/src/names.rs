//! Protocols are named in their own rooms. Everywhere else a protocol is a value, or its name is data. A protocol whose
//! name has that of its family, such as `pa_atp`, may name the family.
//!
//! Identifiers and literals count, comments do not: they explain with examples.

use std::fs;
use std::path::Path;

use crate::{Offences, Source};

/// Where each protocol may be named, `*` for its name: its folder, tests, benches and fuzz targets.
const ROOMS: [&str; 17] = [
    "crates/proto/src/*/",
    "crates/proto/tests/*",
    "crates/proto/tests/fuzz/*.rs",
    "crates/proto/benches/*",
    "crates/proto/examples/*",
    "crates/proto/benches/switches/*.rs",
    "crates/net/tests/*",
    "crates/sim/tests/*",
    "dataplanes/*/",
    "dataplanes/pspin/tests/*/",
    "fuzz/fuzz_targets/*",
    "fuzz/src/machines/*.rs",
    "python/tributary/*.py",
    "tests/test_*.py",
    "tests/test_*_operators.py",
    "tests/test_rtl.py",
    "tests/programs/rank_*.py",
];
/// Where all may be named: published figures have protocols' names, and so has this rule.
const COMMON_ROOMS: [&str; 3] = ["crates/papers/", "experiments/", "tests/tidy/"];
/// The list from which the protocols' names are taken.
const PROTOCOLS: &str = "crates/proto/src/protocols.rs";
/// Names up to this length count only as a whole identifier: `_mm512_add_ps` is about single precision.
const SHORT: usize = 3;
/// Files that hold lines for each protocol, and how many: `mod NAME;`, and a line of a list.
const LISTS: [(&str, usize); 8] = [
    ("crates/proto/src/lib.rs", 1),
    ("crates/proto/src/protocols.rs", 1),
    ("crates/net/tests/main.rs", 1),
    ("crates/sim/tests/main.rs", 2),
    ("crates/proto/tests/fuzz/main.rs", 1),
    ("crates/proto/benches/switches/main.rs", 2),
    ("fuzz/src/machines/mod.rs", 1),
    ("python/tributary/__init__.py", 2),
];
/// Words that mean something else: where, and which. Packets or processors in a ring; a picosecond; the
/// command that offers a server.
const OTHER_MEANINGS: [(&str, &str); 11] = [
    ("crates/sim/src/config/foreign.rs", "ring"),
    ("crates/sim/src/net/", "ring"),
    ("crates/sim/src/net/", "ps"),
    ("dataplanes/panama/tests/bench.py", "ps"),
    ("crates/control/src/quantity.rs", "ps"),
    ("crates/sim/src/check/links.rs", "ps"),
    ("crates/net/src/fabric/egress.rs", "ps"),
    ("crates/proto/src/contract/time.rs", "ps"),
    ("crates/cli/src/commands/", "ps"),
    ("crates/cli/src/cluster/", "ps"),
    ("tests/test_servers.py", "ps"),
];

/// The names of all protocols, as the list's lines `&crate::NAME::PROTOCOL,` give them.
pub fn protocols(root: &Path) -> Vec<String> {
    let list = fs::read_to_string(root.join(PROTOCOLS)).unwrap_or_else(|error| panic!("{PROTOCOLS}: {error}"));
    let named = |line: &str| Some(line.trim().strip_prefix("&crate::")?.strip_suffix("::PROTOCOL,")?.to_string());
    list.lines().filter_map(named).collect()
}

/// Notes the lines that name a protocol outside its rooms.
pub fn check(source: &Source, protocols: &[String], offences: &mut Offences) {
    let path = &source.path;
    if COMMON_ROOMS.iter().any(|room| path.starts_with(room)) {
        return;
    }
    for name in protocols {
        let mut of_family = protocols.iter().filter(|other| *other == name || words_of(other).contains(name));
        let at_home = of_family.any(|home| ROOMS.iter().any(|room| path.starts_with(&room.replace('*', home))));
        let means_else = OTHER_MEANINGS.iter().any(|&(place, word)| path.starts_with(place) && word == name);
        if at_home || means_else {
            continue;
        }
        let named = source.uncommented.lines().filter(|line| names(line, name)).count();
        let allowed = LISTS.iter().find(|(list, _)| list == path).map_or(0, |&(_, lines)| lines);
        if named > allowed {
            offences.insert(format!("name {name} {path}"), named);
        }
    }
}

/// True if words that follow each other in one identifier, or one word of a literal, make the protocol's name: `SwitchMl`
/// and `switchml` both name switchml. A short name must be the whole identifier.
fn names(line: &str, name: &str) -> bool {
    let joined = name.replace('_', "");
    let mut identifiers = line.split(|c: char| !c.is_alphanumeric() && c != '_').map(words_of);
    identifiers.any(|words| match joined.len() <= SHORT {
        true => words.concat() == joined,
        false => (0..words.len()).any(|first| begins_with_words(&words[first..], &joined)),
    })
}

/// True if the first words, put together, are `joined`.
fn begins_with_words(words: &[String], joined: &str) -> bool {
    let mut rest = joined;
    for word in words {
        match rest.strip_prefix(word.as_str()) {
            Some("") => return true,
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    false
}

/// The words of an identifier: `SwitchMlHost`, `switch_ml_host` and `SWITCH_ML_HOST` have the same three.
fn words_of(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_is_lower = false;
    for c in identifier.chars() {
        if c == '_' || c.is_uppercase() && before_is_lower {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("there is always one").extend(c.to_lowercase());
        }
        before_is_lower = c.is_lowercase() || c.is_numeric();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let mut offences = Offences::new();
        let protocols = protocols(&crate::repository());
        check(&Source::new(path, text.into()), &protocols, &mut offences);
        offences.into_keys().collect()
    }

    #[test]
    fn names_count_in_identifiers_and_literals_and_not_in_comments_or_other_words() {
        for text in
            ["SwitchMlHost", "switchml::wire", "Protocol::SwitchMl", "SWITCH_ML", "\"switchml\"", "a_switchml_job"]
        {
            assert_eq!(found("crates/net/src/a.rs", text), ["name switchml crates/net/src/a.rs"], "{text}");
        }
        for text in ["// SwitchML's way", "string", "during", "gps", "add_ps", "switch_for_ml", "let switch = ml"] {
            assert!(found("crates/net/src/a.rs", text).is_empty(), "{text}");
        }
        assert_eq!(found("crates/cli/src/a.rs", "\"the ring\""), ["name ring crates/cli/src/a.rs"]);
    }

    #[test]
    fn a_protocol_is_at_home_in_its_own_rooms_and_not_in_another_protocols() {
        assert!(found("crates/proto/src/canary/wire.rs", "CanarySwitch").is_empty());
        assert_eq!(found("crates/proto/src/canary/wire.rs", "SwitchMl").len(), 1);
        assert!(found("crates/proto/tests/ring/main.rs", "RingHost").is_empty());
        assert!(found("crates/sim/tests/canary.rs", "Canary").is_empty());
        assert_eq!(found("crates/sim/tests/jobs.rs", "ps::Server").len(), 1);
        assert!(found("crates/proto/src/pa_atp/host.rs", "AtpHost").is_empty());
        assert_eq!(found("crates/proto/src/atp/host.rs", "PaAtpHost").len(), 1);
    }

    #[test]
    fn the_list_has_one_line_for_each() {
        assert!(found("crates/proto/src/protocols.rs", "&ring::RING,\n&canary::CANARY,").is_empty());
        assert_eq!(found("crates/proto/src/protocols.rs", "ring::RING\nRing").len(), 1);
    }
}
