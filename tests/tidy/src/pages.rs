//! Pages for people: prose in lines of at most 120 characters, and no more of it than somebody reads.

use crate::{Offences, Source};

const LINE: usize = 120;
/// The lines of all pages of `docs` together.
const DOCS: usize = 6_200;

/// Counts a page's long lines. Tables, headings, pictures and code are not prose, and what has no space cannot be broken.
pub fn check(path: &str, text: &str, offences: &mut Offences) {
    if !path.ends_with(".md") {
        return;
    }
    let mut fenced = false;
    for line in text.lines() {
        let begins = line.trim_start();
        fenced ^= begins.starts_with("```");
        let prose = !fenced && !begins.starts_with(['|', '#', '!', '<', '>']) && !line.starts_with("    ");
        if prose && begins.contains(' ') && line.chars().count() > LINE {
            *offences.entry(format!("page {path}")).or_default() += 1;
        }
    }
}

/// Counts the lines of all pages of `docs` together, if they are too many.
pub fn check_total(pages: &[(String, String)], offences: &mut Offences) {
    let docs = pages.iter().filter(|(path, _)| path.starts_with("docs/") && path.ends_with(".md"));
    let lines: usize = docs.map(|(_, text)| text.lines().count()).sum();
    if lines > DOCS {
        offences.insert("pages docs".into(), lines);
    }
}

/// Counts the references of pages to source files, such as `host/mod.rs`, that no source file's path ends with.
pub fn check_references(pages: &[(String, String)], sources: &[Source], offences: &mut Offences) {
    for (path, text) in pages.iter().filter(|(path, _)| path.ends_with(".md")) {
        let is_at = |source: &Source, name: &str| format!("/{}", source.path).ends_with(&format!("/{name}"));
        let missing = references(text).filter(|name| !sources.iter().any(|source| is_at(source, name))).count();
        if missing > 0 {
            offences.insert(format!("reference {path}"), missing);
        }
    }
}

/// What a page has between backquotes, if it is the path of a file of Rust without a pattern.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |name: &&str| name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_/.-".contains(letter));
    quoted.filter(|name| name.contains('/') && name.ends_with(".rs")).filter(is_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_to_a_source_file_that_does_not_exist_counts() {
        let sources = [Source::new("crates/proto/src/a/host/mod.rs", String::new())];
        let page = |text: &str| [("docs/a.md".to_string(), text.to_string())];
        let mut offences = Offences::new();
        check_references(
            &page("| `host/mod.rs` | `crates/proto/src/a/host/mod.rs`, `a/*/x.rs`, `mod.rs`, host/none.rs |"),
            &sources,
            &mut offences,
        );
        assert!(offences.is_empty());
        check_references(&page("see `host/none.rs` and `st/mod.rs`"), &sources, &mut offences);
        assert_eq!(offences, [("reference docs/a.md".to_string(), 2)].into());
    }

    #[test]
    fn prose_counts_and_tables_and_code_do_not() {
        let long = "word ".repeat(30);
        let text = format!("{long}\n| {long}\n```\n{long}\n```\n- {long}\n    {long}\nshort\n");
        let mut offences = Offences::new();
        check("docs/a.md", &text, &mut offences);
        assert_eq!(offences, [("page docs/a.md".to_string(), 2)].into());
    }

    #[test]
    fn pages_of_docs_are_counted_together_and_others_are_not() {
        let page = |path: &str, lines: usize| (path.to_string(), "word\n".repeat(lines));
        let mut offences = Offences::new();
        check_total(&[page("docs/a.md", DOCS - 1), page("docs/b/c.md", 1), page("README.md", 99)], &mut offences);
        assert!(offences.is_empty());
        check_total(&[page("docs/a.md", DOCS), page("docs/b/c.md", 1), page("docs/d.toml", 99)], &mut offences);
        assert_eq!(offences, [("pages docs".to_string(), DOCS + 1)].into());
    }
}
