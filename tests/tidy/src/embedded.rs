//! What a program embeds (`include_str!` and its kin) must be in the source distribution, or nobody can build from it.
//! cargo packs a crate's own folder; files outside of it come along only if `pyproject.toml` lists them.

use std::fs;
use std::path::Path;

use crate::{Offences, Source};

const MACROS: [&str; 3] = ["include_str!(", "include_bytes!(", "include!("];
/// Tests at the end of a file are not built.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// Notes every source file that embeds a file which the source distribution lacks.
pub fn check(root: &Path, sources: &[Source], offences: &mut Offences) {
    let manifest = fs::read_to_string(root.join("pyproject.toml")).unwrap_or_default();
    let packed = packed(&manifest);
    for source in sources.iter().filter(|source| source.is_rust()) {
        let Some(package) = package(&source.path) else { continue };
        let missing = embedded(source, package).into_iter().filter(|path| {
            // cargo packs the folders of all crates that the package depends on.
            !is_of_crates(path) && !packed.iter().any(|pattern| matches(pattern, path))
        });
        for path in missing {
            *offences.entry(format!("sdist {} {path}", source.path)).or_default() += 1;
        }
    }
}

fn is_of_crates(path: &str) -> bool {
    path.starts_with("crates/") || path.starts_with("dataplanes/")
}

/// The package whose library, program or build script a file belongs to: `crates/net` of `crates/net/src/lib.rs`.
fn package(path: &str) -> Option<&str> {
    let at = path.find("/src/").or_else(|| path.strip_suffix("/build.rs").map(str::len));
    at.filter(|_| is_of_crates(path)).map(|at| &path[..at])
}

/// The patterns of files outside of packages that a source distribution has, as `pyproject.toml` lists them.
fn packed(manifest: &str) -> Vec<&str> {
    let licences = manifest.lines().filter(|line| line.starts_with("license-files")).flat_map(literals);
    let included = manifest.split("\ninclude = [").nth(1).and_then(|rest| rest.split("}]").next()).unwrap_or_default();
    let entries = included.split('{').filter(|entry| entry.contains("sdist"));
    licences.chain(entries.filter_map(|entry| literals(entry).next())).collect()
}

/// The paths of embedded files, from the repository's root. A path with a macro's parameter ends before it with `*`.
fn embedded(source: &Source, package: &str) -> Vec<String> {
    let built = source.uncommented.split(TESTS).next().unwrap_or_default();
    let calls = MACROS.iter().flat_map(|name| built.split(name).skip(1));
    calls
        .map(|call| {
            let end = call.find([';', '{', '\n']).filter(|&end| call[..end].contains('"'));
            let call = &call[..end.unwrap_or_else(|| call.find(')').unwrap_or(call.len()))];
            let (known, parameter) = call.split_once('$').map_or((call, ""), |(known, _)| (known, "*"));
            let from_package = known.contains("CARGO_MANIFEST_DIR");
            let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let base = if from_package { package } else { folder };
            let names = literals(known).filter(|name| *name != "CARGO_MANIFEST_DIR");
            normal(&format!("{base}/{}{parameter}", names.collect::<String>()))
        })
        .collect()
}

/// What stands in quotes.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// The path without `..`, `.` and doubled slashes.
fn normal(path: &str) -> String {
    let mut names = Vec::new();
    for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
        if name == ".." {
            names.pop();
        } else {
            names.push(name);
        }
    }
    names.join("/")
}

/// Whether a path matches a pattern that may have one `*`, for some letters of a name.
fn matches(pattern: &str, path: &str) -> bool {
    let Some((before, behind)) = pattern.split_once('*') else { return pattern == path };
    let rest = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind));
    rest.is_some_and(|rest| !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "license-files = [\"LICENSE\"]\n[tool.maturin]\ninclude = [{ path = \"data/*.csv\", \
        format = \"sdist\" }, { path = \"pages/*.md\", format = \"wheel\" }, { path = \"one.toml\", format = \"sdist\" }]\n";

    fn missing(path: &str, text: &str) -> Vec<String> {
        let root = tempfile();
        fs::write(root.join("pyproject.toml"), MANIFEST).unwrap();
        let mut offences = Offences::new();
        check(&root, &[Source::new(path, text.into())], &mut offences);
        fs::remove_dir_all(&root).unwrap();
        let prefix = format!("sdist {path} ");
        offences.into_keys().map(|offence| offence.replacen(&prefix, "", 1)).collect()
    }

    fn tempfile() -> std::path::PathBuf {
        let name = std::thread::current().name().map(|name| name.replace(':', "-")).unwrap_or_default();
        let root = std::env::temp_dir().join(format!("tidy-{}-{name}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        root
    }

    #[test]
    fn embedded_files_outside_of_their_package_must_be_listed() {
        let text = "const A: &str = include_str!(\"../../../data/a.csv\");\n\
            const B: &str = include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../../one.toml\"));\n\
            const C: &[u8] = include_bytes!(\"../../../pages/c.md\");\n\
            const D: &str = include_str!(\n    \"../../../data/deep/d.csv\"\n);\n\
            const E: &str = include_str!(\"e.html\"); const F: &str = include_str!(\"../../../LICENSE\");\n\
            // include_str!(\"../../../in-a-comment\")\n";
        assert_eq!(missing("crates/a/src/lib.rs", text), ["data/deep/d.csv", "pages/c.md"]);
        assert_eq!(missing("dataplanes/a/src/lib.rs", text).len(), 2);
        assert_eq!(missing("crates/a/build.rs", "include!(\"../b/shared.rs\"); include!(\"../../c.rs\");"), ["c.rs"]);
    }

    #[test]
    fn a_parameter_of_a_macro_stands_for_any_name_and_tests_are_not_built() {
        let text = "macro_rules! of { ($n:literal) => { include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../../x/\", \
            $n, \".c\")) }; }\nmacro_rules! own { ($n:literal) => { include_str!(concat!(\"in/\", $n)) }; }\n\
            #[cfg(test)]\nmod tests {\n const T: &str = include_str!(\"../../../pages/t.md\");\n}\n";
        assert_eq!(missing("crates/a/src/lib.rs", text), ["x/*"]);
        assert_eq!(missing("crates/a/tests/main.rs", text), Vec::<String>::new());
    }
}
