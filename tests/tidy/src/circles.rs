//! No circles among the files and folders at the top of a crate: what two of them share is in a third that knows neither.
//!
//! What counts are `use crate::...` lines outside of tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Offences, Source};

/// For each crate, who uses whom.
type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Notes every file or folder that can reach itself.
pub fn check(sources: &[Source], offences: &mut Offences) {
    let mut uses = Uses::new();
    sources.iter().for_each(|source| note_uses(source, &mut uses));
    for (name, users) in &uses {
        for user in users.keys() {
            if reachable(users, user).contains(user) {
                offences.insert(format!("circle {name} {user}"), 1);
            }
        }
    }
}

fn note_uses(source: &Source, uses: &mut Uses) {
    let Some((name, path)) = source.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
        return;
    };
    let user = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
    if matches!(user, "lib" | "main") || path.ends_with("/tests.rs") {
        return;
    }
    let code = source.code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let users = uses.entry(name.to_owned()).or_default();
    for line in code.lines().filter_map(|line| line.trim_start().trim_start_matches("pub ").strip_prefix("use crate::"))
    {
        let used: String = line.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
        if !used.is_empty() && used != user {
            users.entry(user.to_owned()).or_default().insert(used);
        }
    }
}

fn reachable(users: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(user) = open.pop() {
        let used = users.get(user).into_iter().flatten();
        open.extend(used.filter(|used| reached.insert(used.to_string())).map(String::as_str));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reaches_itself_by_others_is_noted_and_tests_are_not_looked_at() {
        let source = |path: &str, text: &str| Source::new(path, text.into());
        let sources = [
            source("crates/net/src/a.rs", "use crate::b::B;"),
            source("crates/net/src/b/mod.rs", "use crate::b::c;\nuse crate::d::{D, E};"),
            source("crates/net/src/d.rs", "    use crate::a;"),
            source("crates/net/src/e.rs", "use crate::a;\n#[cfg(test)]\nmod tests {\n    use crate::f;\n}"),
            source("crates/net/src/f.rs", "use crate::e;"),
            source("crates/sim/src/d.rs", "use crate::e;"),
        ];
        let mut offences = Offences::new();
        check(&sources, &mut offences);
        assert_eq!(offences, Offences::from(["a", "b", "d"].map(|user| (format!("circle net {user}"), 1))));
    }
}
