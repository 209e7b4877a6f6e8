//! Banned words: their uses in `words.txt` only shrink, counted over the whole repository so that code can move.

use std::path::Path;
use std::{env, fs};

use tributary_tidy::{repository, words};

const HEADER: &str = "\
# Banned words that are still used: in crates/*/src and python, in pages, in all other files. tests/tidy/src/words.rs has the
# replacement of each. The numbers only shrink: `TRIBUTARY_RENEW_TIDY=1 cargo test -p tributary-tidy` writes smaller ones.
";
/// How many of the files that use a word a message names.
const NAMED: usize = 12;

#[test]
fn no_banned_word_is_used_more_often_than_before() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("words.txt");
    let listed = words::read_list(&fs::read_to_string(&path).unwrap());
    let found = words::count(&repository());
    let mut worse = String::new();
    for (&word, uses) in &found.uses {
        let before = listed.get(word).copied().unwrap_or_default().total();
        if uses.total() > before {
            let files: Vec<String> =
                found.files[word].iter().take(NAMED).map(|(file, uses)| format!("{file} ({uses})")).collect();
            let instead = words::replacement(word);
            worse += &format!(
                "  `{word}`: {} uses, {before} before. Write {instead}.\n    in {}\n",
                uses.total(),
                files.join(", ")
            );
        }
    }
    assert!(worse.is_empty(), "banned words (docs/glossary.md has the field's):\n{worse}");
    if env::var_os("TRIBUTARY_RENEW_TIDY").is_some() {
        fs::write(&path, format!("{HEADER}\n{}", words::write_list(&found))).unwrap();
    }
}
