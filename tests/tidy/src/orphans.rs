//! No file of Rust that nothing compiles: a test that its program does not name passes forever.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::{Offences, Source};

/// Notes every source file of a crate that no module declares.
pub fn check(root: &Path, sources: &[Source], offences: &mut Offences) {
    let texts: BTreeMap<&str, &str> =
        sources.iter().map(|source| (source.path.as_str(), source.uncommented.as_str())).collect();
    for path in texts.keys().filter(|path| path.starts_with("crates/")) {
        let Some((folder, file)) = path.rsplit_once('/') else { continue };
        let Some(stem) = file.strip_suffix(".rs") else { continue };
        let (parents, name) = match stem {
            "lib" | "main" | "build" => continue,
            "mod" => parents_of(folder.rsplit_once('/').map_or("", |(above, _)| above), folder),
            _ => parents_of(folder, stem),
        };
        let declarations = [format!("mod {name};"), format!("{name}/mod.rs\"]"), format!("{name}.rs\"]")];
        let declares = |text: &str| declarations.iter().any(|declaration| text.contains(declaration));
        let declared = parents.iter().filter_map(|parent| texts.get(parent.as_str())).any(|text| declares(text))
            // What several programs of a folder share.
            || stem == "mod" && texts.iter().any(|(other, text)| in_programs(other, folder) && declares(text));
        if !declared && !is_program(root, path, &texts) {
            offences.insert(format!("orphan {path}"), 1);
        }
    }
}

/// The files that may declare a module which lies in a folder, and the module's name.
fn parents_of<'a>(folder: &str, name: &'a str) -> (Vec<String>, &'a str) {
    let inside = ["mod", "main", "lib", "build"].map(|stem| format!("{folder}/{stem}.rs"));
    let beside = format!("{folder}.rs");
    (inside.into_iter().chain([beside]).collect(), name.rsplit('/').next().unwrap_or(name))
}

/// True if a file is in the same folder of programs as a folder of modules.
fn in_programs(file: &str, folder: &str) -> bool {
    let programs = folder.rsplit_once('/').map_or("", |(above, _)| above);
    is_of_programs(programs) && file.starts_with(programs)
}

fn is_of_programs(folder: &str) -> bool {
    matches!(folder.rsplit('/').next(), Some("tests" | "benches" | "examples"))
}

/// Cargo compiles each file of these folders as a program of its own; where the tests have a `main.rs`, those that it is told.
fn is_program(root: &Path, path: &str, texts: &BTreeMap<&str, &str>) -> bool {
    let Some((folder, file)) = path.rsplit_once('/') else { return false };
    let listed = || {
        let manifest = folder.rsplit_once('/').map_or("", |(package, _)| package);
        let text = fs::read_to_string(root.join(manifest).join("Cargo.toml")).unwrap_or_default();
        text.contains(&format!("[[test]]\nname = {:?}\n", file.trim_end_matches(".rs")))
    };
    is_of_programs(folder) && (!texts.contains_key(format!("{folder}/main.rs").as_str()) || listed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_module_declares_is_an_orphan_and_one_that_cargo_finds_is_not() {
        let source = |path: &str, text: &str| Source::new(path, text.into());
        let sources = [
            source("crates/net/src/lib.rs", "pub mod a;\n// mod b;"),
            source("crates/net/src/a/mod.rs", "mod c;"),
            source("crates/net/src/a/c.rs", "#[path = \"../elsewhere.rs\"]\nmod d;"),
            source("crates/net/src/a/e.rs", ""),
            source("crates/net/src/b.rs", ""),
            source("crates/net/tests/main.rs", "mod listed;"),
            source("crates/net/tests/listed.rs", ""),
            source("crates/net/tests/unlisted.rs", ""),
            source("crates/sim/tests/alone.rs", ""),
        ];
        let mut offences = Offences::new();
        check(Path::new(""), &sources, &mut offences);
        let orphans = ["net/src/a/e", "net/src/b", "net/tests/unlisted"];
        assert_eq!(offences, Offences::from(orphans.map(|file| (format!("orphan crates/{file}.rs"), 1))));
    }
}
