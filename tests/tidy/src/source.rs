//! A source file: its text, and its code without comments and with or without what stands in quotes.

use std::fs;
use std::path::Path;

/// Folders whose files must keep the rules, and the endings of those files.
const FOLDERS: [&str; 8] = ["crates", "dataplanes", "fuzz", "python", "tests", "examples", "experiments", "benches"];

/// One file of Rust or Python.
pub struct Source {
    /// Its path in the repository, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
    /// The same with every comment blanked out (in Python docstrings too). Line breaks stay where they are.
    pub uncommented: String,
    /// The same with the content of literals blanked out as well.
    pub code: String,
}

impl Source {
    /// A file with this text.
    pub fn new(path: &str, text: String) -> Source {
        let blanked = if path.ends_with(".rs") { blank_rust } else { blank_python };
        let (uncommented, code) = (blanked(&text, false), blanked(&text, true));
        Source { path: path.to_string(), text, uncommented, code }
    }

    /// All files below a root that the rules are about.
    pub fn all(root: &Path) -> Vec<Source> {
        let mut sources = Vec::new();
        FOLDERS.iter().for_each(|folder| collect(root, folder, &mut sources));
        sources
    }

    /// True if the file is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// What people read: path and text of every page, and of every file of settings or experiments.
pub fn pages(root: &Path) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut note = |path: &str, text| pages.push((path.to_string(), text));
    for folder in [".", "docs", "deploy", "crates", "experiments", "examples", "tests", "python"] {
        walk(root, folder, folder != ".", &[".md", ".toml", ".pyi"], &mut note);
    }
    pages
}

fn collect(root: &Path, folder: &str, sources: &mut Vec<Source>) {
    walk(root, folder, true, &[".rs", ".py"], &mut |path, text| sources.push(Source::new(path, text)));
}

/// Gives path and text of the files in a folder with one of the endings: in what is below it too, if `deep`.
fn walk(root: &Path, folder: &str, deep: bool, endings: &[&str], note: &mut impl FnMut(&str, String)) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder == "." { name.clone() } else { format!("{folder}/{name}") };
        if entry.path().is_dir() {
            if deep && name != "target" && !name.starts_with('.') {
                walk(root, &path, deep, endings, note);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            let text = fs::read_to_string(entry.path()).unwrap_or_else(|error| panic!("{path}: {error}"));
            note(&path, text);
        }
    }
}

/// Copies text, except for what is to be blanked out.
struct Blanker<'a> {
    rest: &'a str,
    out: String,
}

impl Blanker<'_> {
    /// Takes so many bytes as they are, or as spaces; line breaks stay.
    fn take(&mut self, bytes: usize, blank: bool) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.out.extend(taken.chars().map(|c| if blank && c != '\n' { ' ' } else { c }));
        self.rest = rest;
    }
}

/// The bytes of a literal that begins with a quote: to behind its end, escapes counted.
fn quoted(text: &str, quote: &str, escapes: bool) -> usize {
    let mut at = quote.len();
    while at < text.len() && !text[at..].starts_with(quote) {
        let next = text[at..].chars().next().map_or(1, char::len_utf8);
        at += next;
        if escapes && next == 1 && text.as_bytes()[at - 1] == b'\\' {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    (at + quote.len()).min(text.len())
}

fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The bytes of a `/* */` that may hold others.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    loop {
        match text.get(at..) {
            Some(rest) if rest.starts_with("/*") => (depth, at) = (depth + 1, at + 2),
            Some(rest) if rest.starts_with("*/") => (depth, at) = (depth - 1, at + 2),
            Some(rest) => match rest.chars().next() {
                Some(c) => at += c.len_utf8(),
                None => return text.len(),
            },
            None => return text.len(),
        }
        if depth == 0 {
            return at;
        }
    }
}

/// The bytes of a raw string, `r"..."` or `r#"..."#`, if the text begins with one.
fn raw_string(text: &str) -> Option<usize> {
    let behind = text.strip_prefix('r')?;
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    let body = behind[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let open = text.len() - body.len();
    Some(body.find(&end).map_or(text.len(), |at| open + at + end.len()))
}

/// The bytes of a character literal, if the text begins with one and not with a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        return Some(quoted(text, "'", true));
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(at + 1)
}

fn blank_rust(text: &str, literals: bool) -> String {
    let mut blanker = Blanker { rest: text, out: String::with_capacity(text.len()) };
    while let Some(c) = blanker.rest.chars().next() {
        let (rest, in_word) = (blanker.rest, blanker.out.ends_with(|c: char| c.is_alphanumeric() || c == '_'));
        if rest.starts_with("//") {
            blanker.take(line(rest), true);
        } else if rest.starts_with("/*") {
            blanker.take(block_comment(rest), true);
        } else if c == '"' {
            blanker.take(quoted(rest, "\"", true), literals);
        } else if let Some(bytes) = raw_string(rest).filter(|_| !in_word) {
            blanker.take(bytes, literals);
        } else if let Some(bytes) = character(rest).filter(|_| c == '\'') {
            blanker.take(bytes, literals);
        } else {
            blanker.take(c.len_utf8(), false);
        }
    }
    blanker.out
}

fn blank_python(text: &str, literals: bool) -> String {
    let mut blanker = Blanker { rest: text, out: String::with_capacity(text.len()) };
    while let Some(c) = blanker.rest.chars().next() {
        let rest = blanker.rest;
        let triple = ["\"\"\"", "'''"].into_iter().find(|quote| rest.starts_with(quote));
        if c == '#' {
            blanker.take(line(rest), true);
        } else if let Some(quote) = triple {
            blanker.take(quoted(rest, quote, true), true);
        } else if c == '"' || c == '\'' {
            blanker.take(quoted(rest, &c.to_string(), true), literals);
        } else {
            blanker.take(c.len_utf8(), false);
        }
    }
    blanker.out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_out_and_lines_stay() {
        let text = "fn f<'a>() { // a }\n  let s = \"b } \\\" }\"; /* c { /* } */ } */\n  let t = r#\"d \" }\"#; let u = '}';\n}\n";
        let source = Source::new("a.rs", text.into());
        assert_eq!(source.code.lines().count(), 4);
        assert_eq!(source.code.matches('}').count(), 1, "{}", source.code);
        assert!(source.code.contains("fn f<'a>() {") && source.code.contains("let u ="));
        assert!(source.uncommented.contains("b }") && !source.uncommented.contains("a }"));
        assert!(source.uncommented.contains("d \" }") && !source.uncommented.contains("c {"));
    }

    #[test]
    fn docstrings_are_comments() {
        let source = Source::new("a.py", "\"\"\"ring\"\"\"\nx = \"ps\"  # canary\n".into());
        assert_eq!(source.uncommented.trim(), "x = \"ps\"");
        assert!(!source.code.contains("ps"));
    }
}
