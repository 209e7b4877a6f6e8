//! Files of an idea: at most 400 lines, and fewer than 80 only with a reason. Functions that fit a screen.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::{Offences, Source};

const FILE: usize = 400;
const SMALL_FILE: usize = 80;
const FUNCTION: usize = 60;
/// Files that are small for a reason: a path and the reason in each line.
const REASONS: &str = "tests/tidy/small_files.txt";

/// Notes a file that is too long, and its functions that are.
pub fn check(source: &Source, offences: &mut Offences) {
    let lines = source.text.lines().count();
    if lines > FILE {
        offences.insert(format!("file {}", source.path), lines);
    }
    if source.is_rust() {
        for (name, lines) in functions(&source.code).into_iter().filter(|&(_, lines)| lines > FUNCTION) {
            // Of several with one name the longest.
            let longest = offences.entry(format!("function {} {name}", source.path)).or_default();
            *longest = lines.max(*longest);
        }
    }
}

/// Notes files of crates' sources that are small without a reason, and reasons for files that are not small or not there.
pub fn check_small(root: &Path, sources: &[Source], offences: &mut Offences) {
    let reasons = fs::read_to_string(root.join(REASONS)).unwrap_or_default();
    check_reasons(&reasons, sources, offences);
}

fn check_reasons(reasons: &str, sources: &[Source], offences: &mut Offences) {
    let lines = reasons.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut reasons: BTreeMap<&str, &str> = lines.map(|line| line.split_once(": ").unwrap_or((line, ""))).collect();
    let is_of_a_crate = |source: &&Source| {
        let is_below = |folder: &&str| source.path.starts_with(*folder);
        source.is_rust() && source.path.contains("/src/") && ["crates/", "dataplanes/"].iter().any(is_below)
    };
    for source in sources.iter().filter(is_of_a_crate) {
        let is_small = source.text.lines().count() < SMALL_FILE && !is_contents(source);
        let has_reason = is_small && reasons.remove(source.path.as_str()).is_some_and(|reason| !reason.is_empty());
        if is_small && !has_reason {
            offences.insert(format!("small {}", source.path), 1);
        }
    }
    offences.extend(reasons.keys().map(|path| (format!("reason {path}"), 1)));
}

/// True if a file is the first page of its folder: it says what the modules are, and has at most a static value.
fn is_contents(source: &Source) -> bool {
    let is_first = ["/mod.rs", "/lib.rs", "/main.rs"].iter().any(|name| source.path.ends_with(name));
    let words = |line: &str| line.trim_start_matches("pub(crate) ").trim_start_matches("pub ").to_string();
    let declares = |line: &str| ["fn ", "struct ", "enum ", "impl", "trait "].iter().any(|is| line.starts_with(is));
    is_first && !source.code.lines().map(words).any(|line| declares(&line))
}

/// Name and lines of every function that has a body, from `fn` to its closing brace.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
        if let (false, Some(body)) = (name.is_empty(), body(&code[at..])) {
            found.push((name, code[at..at + body].lines().count()));
        }
    }
    found
}

/// The bytes of a function from here to behind its closing brace; none if it is only declared.
fn body(code: &str) -> Option<usize> {
    let (mut round, mut braces, mut begun) = (0i32, 0i32, false);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            ';' if !begun && round == 0 => return None,
            '{' => (braces, begun) = (braces + 1, begun || round == 0),
            '}' => braces -= 1,
            _ => {}
        }
        if begun && braces == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_measured_to_its_own_closing_brace() {
        let code = "trait T {\n  fn declared(a: [u8; 4]);\n}\nfn short() {}\nfn nested(\n  a: u8,\n) -> [u8; 2] {\n  if a {\n  }\n  fn inner() {\n  }\n}\n";
        let expected = [("short", 1), ("nested", 8), ("inner", 2)].map(|(name, lines)| (name.to_string(), lines));
        assert_eq!(functions(code), expected);
    }

    #[test]
    fn the_longest_function_of_a_name_counts() {
        let long = format!("fn f() {{\n{}}}\nfn f() {{\n}}\n", "a;\n".repeat(70));
        let mut offences = Offences::new();
        check(&Source::new("a.rs", long), &mut offences);
        assert_eq!(offences, Offences::from([("function a.rs f".to_string(), 72)]));
    }

    #[test]
    fn a_small_file_needs_a_reason_and_a_reason_a_small_file() {
        let source =
            |name: &str, lines: usize| Source::new(&format!("crates/a/src/{name}"), "fn f() {}\n".repeat(lines));
        let first_page = Source::new("crates/a/src/b/mod.rs", "//! What is here.\npub mod c;\npub use c::C;\n".into());
        let sources =
            [source("bare.rs", 79), source("listed.rs", 79), source("large.rs", 80), source("lib.rs", 3), first_page];
        let reasons =
            "# why\ncrates/a/src/listed.rs: a table\ncrates/a/src/large.rs: it was small\ncrates/a/src/lib.rs: \n";
        let mut offences = Offences::new();
        check_reasons(reasons, &sources, &mut offences);
        let expected = ["small crates/a/src/bare.rs", "small crates/a/src/lib.rs", "reason crates/a/src/large.rs"];
        assert_eq!(offences, expected.map(|offence| (offence.to_string(), 1)).into());
    }
}
