//! No circles among the files and folders at the top of a crate, and few inside its folders: what two modules share is in a
//! third that knows neither.
//!
//! What counts are `use crate::…` and `use super::…` outside of tests, between modules beside each other. A module and the
//! one in which it lies may use each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Offences, Source};

/// Which module uses which, beside it in one folder.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// For each folder, as `crate` or `crate/folder`, its modules.
type Folders = BTreeMap<String, Uses>;

/// A file's crate, and the path of its module in it.
type Module<'a> = (&'a str, Vec<&'a str>);

/// Notes every module that can reach itself: by name at the top of a crate, and how many there are inside of folders.
pub fn check(sources: &[Source], offences: &mut Offences) {
    let mut folders = Folders::new();
    let known: BTreeSet<String> =
        sources.iter().filter_map(module).flat_map(|(name, path)| prefixes(name, &path)).collect();
    sources.iter().for_each(|source| note_uses(source, &known, &mut folders));
    for (folder, uses) in &folders {
        for user in uses.keys().filter(|user| reachable(uses, user).contains(*user)) {
            if folder.contains('/') {
                *offences.entry("circles inside crates".to_string()).or_default() += 1;
            } else {
                offences.insert(format!("circle {folder} {user}"), 1);
            }
        }
    }
}

/// The modules that are in circles inside of crates, as `crate/folder: a, b`.
pub fn inside(sources: &[Source]) -> Vec<String> {
    let mut folders = Folders::new();
    let known: BTreeSet<String> =
        sources.iter().filter_map(module).flat_map(|(name, path)| prefixes(name, &path)).collect();
    sources.iter().for_each(|source| note_uses(source, &known, &mut folders));
    let circles = folders.iter().filter(|(folder, _)| folder.contains('/')).map(|(folder, uses)| {
        let members: Vec<&str> =
            uses.keys().filter(|user| reachable(uses, user).contains(*user)).map(String::as_str).collect();
        (folder, members.join(", "))
    });
    circles.filter(|(_, members)| !members.is_empty()).map(|(folder, members)| format!("{folder}: {members}")).collect()
}

fn module(source: &Source) -> Option<Module<'_>> {
    let below = ["crates/", "dataplanes/"].iter().find_map(|folder| source.path.strip_prefix(folder))?;
    let (name, path) = below.split_once("/src/")?;
    let path: Vec<&str> = path.strip_suffix(".rs")?.split('/').collect();
    let own = matches!(path.last(), Some(&("mod" | "lib" | "main")));
    (!matches!(path.last(), Some(&"tests"))).then(|| (name, path[..path.len() - usize::from(own)].to_vec()))
}

fn prefixes(name: &str, path: &[&str]) -> Vec<String> {
    (1..=path.len()).map(|parts| format!("{name}/{}", path[..parts].join("/"))).collect()
}

fn note_uses(source: &Source, known: &BTreeSet<String>, folders: &mut Folders) {
    let Some((name, user)) = module(source) else { return };
    let code = source.code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    for used in used_paths(code, &user) {
        let common = user.iter().zip(&used).take_while(|(user, used)| *user == *used).count();
        let (Some(user_here), Some(used_here)) = (user.get(common), used.get(common)) else { continue };
        let folder = [&[name], &user[..common]].concat().join("/");
        if known.contains(&format!("{folder}/{used_here}")) {
            folders.entry(folder).or_default().entry(user_here.to_string()).or_default().insert(used_here.clone());
        }
    }
}

/// Every path that a file's `use` lines name, from the crate's root.
fn used_paths(code: &str, user: &[&str]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut begins =
        code.match_indices("use ").filter(|&(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    for (at, _) in &mut begins {
        let tree: String = code[at + 4..].chars().take_while(|&c| c != ';').filter(|c| !c.is_whitespace()).collect();
        for path in expand(&tree) {
            let mut parts = path.split("::").map(str::to_string);
            let mut from: Vec<String> = user.iter().map(|&part| part.to_string()).collect();
            let mut rest: Vec<String> = match parts.next().as_deref() {
                Some("crate") => {
                    from.clear();
                    parts.collect()
                }
                Some("super") => {
                    from.pop();
                    parts.collect()
                }
                _ => continue,
            };
            while rest.first().is_some_and(|part| part == "super") {
                from.pop();
                rest.remove(0);
            }
            paths.push([from, rest].concat());
        }
    }
    paths
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expand(tree: &str) -> Vec<String> {
    let Some(open) = tree.find('{') else { return vec![tree.to_string()] };
    let (before, group) = (&tree[..open], tree[open + 1..].strip_suffix('}').unwrap_or(&tree[open + 1..]));
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(expand(&group[from..at]).into_iter().map(|path| format!("{before}{path}")));
                from = at + 1;
            }
            _ => {}
        }
    }
    found
}

fn reachable(uses: &Uses, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(user) = open.pop() {
        let used = uses.get(user).into_iter().flatten();
        open.extend(used.filter(|used| reached.insert(used.to_string())).map(String::as_str));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path, text.into())
    }

    #[test]
    fn who_reaches_itself_by_others_is_noted_and_tests_are_not_looked_at() {
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

    #[test]
    fn circles_inside_of_a_folder_count_and_its_parent_does_not() {
        let sources = [
            source("crates/net/src/a/mod.rs", "pub use b::B;\nuse crate::a::c;"),
            source("crates/net/src/a/b.rs", "use super::{Parent, c::{C, D}};"),
            source("crates/net/src/a/c.rs", "use crate::a::b::B;\nuse super::Parent;"),
            source("crates/net/src/a/d.rs", "use super::b;"),
        ];
        let mut offences = Offences::new();
        check(&sources, &mut offences);
        assert_eq!(offences, Offences::from([("circles inside crates".to_string(), 2)]));
        assert_eq!(inside(&sources), ["net/a: b, c"]);
    }
}
