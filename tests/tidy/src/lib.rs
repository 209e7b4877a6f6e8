//! The project's rules as a test: lengths, protocols' names, banned words, unsafe code, dependencies between crates, folders
//! and modules, dependencies on others, and pages.
//!
//! Every rule gives [`Offences`]: what breaks it, and how much. `offenders.txt` lists those that were there before the rule,
//! and may only shrink; `tests/house.rs` compares. Nothing here is compiled into a program.

mod arrows;
mod circles;
mod dependencies;
mod embedded;
mod lengths;
mod names;
mod orphans;
mod pages;
mod protocol_lists;
mod source;
mod unsafe_code;
mod versions;
pub mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use source::Source;

/// What breaks a rule, as `rule subject`, and by how much: lines, names, uses.
pub type Offences = BTreeMap<String, usize>;

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Everything that breaks a rule in the files of a repository.
pub fn offences(root: &Path) -> Offences {
    let sources = Source::all(root);
    let protocols = names::protocols(root);
    let mut offences = Offences::new();
    for source in &sources {
        lengths::check(source, &mut offences);
        names::check(source, &protocols, &mut offences);
        unsafe_code::check(source, &mut offences);
        arrows::check_folders(source, &mut offences);
    }
    arrows::check_crates(root, &mut offences);
    lengths::check_small(root, &sources, &mut offences);
    circles::check(&sources, &mut offences);
    orphans::check(root, &sources, &mut offences);
    embedded::check(root, &sources, &mut offences);
    dependencies::check(root, &mut offences);
    versions::check(root, &mut offences);
    protocol_lists::check(root, &protocols, &mut offences);
    sources.iter().for_each(|source| note_conflicts(&source.path, &source.text, &mut offences));
    let pages = source::pages(root);
    for (path, text) in &pages {
        note_conflicts(path, text, &mut offences);
        pages::check(path, text, &mut offences);
    }
    pages::check_total(&pages, &mut offences);
    pages::check_references(&pages, &sources, &mut offences);
    offences
}

/// Notes what a merge left of both sides.
fn note_conflicts(path: &str, text: &str, offences: &mut Offences) {
    let marks = text.lines().filter(|line| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ")).count();
    if marks > 0 {
        offences.insert(format!("merge {path}"), marks);
    }
}

/// The circles of modules inside of crates, a folder a line.
pub fn circles_inside(root: &Path) -> Vec<String> {
    circles::inside(&Source::all(root))
}

/// Reads a list of offenders: a number and an offence a line; `#` begins a comment.
pub fn read_list(text: &str) -> Offences {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let (count, offence) = line.trim().split_once(' ')?;
        Some((offence.trim().to_string(), count.parse().ok()?))
    };
    lines.map(|line| entry(line).unwrap_or_else(|| panic!("no number and offence: {line}"))).collect()
}

/// Writes the offences as [`read_list`] reads them.
pub fn write_list(offences: &Offences) -> String {
    offences.iter().map(|(offence, count)| format!("{count:5} {offence}\n")).collect()
}

/// What to do about an offence: one sentence for each rule.
pub fn advice(offence: &str) -> &'static str {
    match offence.split(' ').next().unwrap_or_default() {
        "file" => "a file has one purpose and at most 400 lines: split it by purpose",
        "small" => {
            "a file below 80 lines is merged with the file that it is read with, or has its reason in tests/tidy/small_files.txt"
        }
        "reason" => "this file is not there or not small any more: take its line out of tests/tidy/small_files.txt",
        "function" => "a function fits a screen, 60 lines: name its steps",
        "name" => {
            "protocols are named in their own folders alone: ask the protocol's value what it needs, or take its name as data"
        }
        "unsafe" => "unsafe code is for the leaves that tests/tidy/src/unsafe_code.rs lists: use what they offer",
        "crate" => {
            "ARCHITECTURE.md says which crate may use which: move what is shared towards numeric, proto or control"
        }
        "folder" => {
            "contract uses no other folder; tensors, congestion, reliability and aggregation build on it, in this order; protocols use all of these, but not each other"
        }
        "circle" => "what two files or folders of a crate share is in a third that knows neither of them",
        "circles" => {
            "modules of a folder that use each other in a circle: move what they share into a third; tests/tidy/src/circles.rs \
             prints them with `cargo test -p tributary-tidy circles_inside -- --nocapture`"
        }
        "orphan" => "nothing compiles this file: declare it (`mod NAME;`), in tests in their main.rs, or delete it",
        "sdist" => {
            "a built crate embeds this file, and the source distribution lacks it: list it in pyproject.toml, `include`"
        }
        "merge" => "a merge left both sides: choose",
        "protocol" => "every protocol has this file, or its line in this list: CONTRIBUTING.md, A new protocol",
        "page" => "prose of pages has lines of at most 120 characters: scripts/wrap-pages wraps it",
        "pages" => "all pages of docs have at most 6,200 lines together: say things once, and cut what nobody needs",
        "reference" => "a page names a source file that does not exist",
        "licence" => "deny.toml lists the licences that a dependency may have: use another crate",
        "versions" => "a crate in two versions is compiled twice: use the same, or add it to deny.toml with the reason",
        "exception" => "deny.toml allows two versions of a crate that now has one: remove the exception",
        "source" => "dependencies come from crates.io alone",
        "rust" => "Cargo.toml's rust-version is the oldest Rust: name the same version, `Rust X or newer`",
        _ => "no rule of tests/tidy has this name",
    }
}
