//! What a protocol of the list must have outside of its code: its tests, a fuzz target, golden bytes, its header on the
//! page of the wire and in the dissector, its page, and a line in each list for people. Whoever adds one learns it here.

use std::fs;
use std::path::Path;

use crate::Offences;

/// Protocols whose packets, and so whose tests of packets, are those of another, or of a family's machines.
const PACKETS_OF: [(&str, &str); 3] = [("atp", "best_effort"), ("pa_atp", "best_effort"), ("ps", "switchml")];
/// Pages that have a line for each protocol: its name as people type it, or a link to its page.
const LISTS: [&str; 6] = [
    "README.md",
    "docs/README.md",
    "docs/simulator-reference.md",
    "docs/reproducibility.md",
    "docs/torch.md",
    "mkdocs.yml",
];

/// Notes what each protocol lacks.
pub fn check(root: &Path, protocols: &[String], offences: &mut Offences) {
    for name in protocols {
        for missing in missing(root, name) {
            offences.insert(format!("protocol {name} {missing}"), 1);
        }
    }
}

fn missing(root: &Path, name: &str) -> Vec<String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let packets = PACKETS_OF.iter().find(|(protocol, _)| *protocol == name).map_or(name, |&(_, packets)| packets);
    let mut missing = Vec::new();
    for folder in ["crates/proto/tests", "fuzz/fuzz_targets", "tests/golden"] {
        if !has_file_of(&root.join(folder), packets) {
            missing.push(format!("{folder}/{packets}*"));
        }
    }
    let typed = name.replace('_', "-");
    let page = format!("docs/protocols/{typed}.md");
    let Some(title) = read(&page).lines().next().and_then(first_word) else {
        missing.push(page);
        return missing;
    };
    let wire = read("docs/wire.md");
    if !wire.lines().filter(|line| line.starts_with("## ")).any(|heading| has_word(heading, &title)) {
        missing.push("docs/wire.md".into());
    }
    let dissector = read("docs/tributary.lua");
    let known = dissector.split("local PROTOCOLS = {").nth(1).and_then(|rest| rest.split("\n}").next());
    if !has_word(known.unwrap_or_default(), &title) {
        missing.push("docs/tributary.lua".into());
    }
    let mentions = [format!("protocols/{typed}.md"), format!("`{typed}`"), format!("\"{typed}\"")];
    let unlisted = LISTS.iter().filter(|list| !mentions.iter().any(|mention| read(list).contains(mention)));
    missing.extend(unlisted.map(|list| list.to_string()));
    missing
}

/// True if a folder has a file or folder that bears the name.
fn has_file_of(folder: &Path, name: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|file| file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '.'])))
}

/// The first word of a page's title, in small letters: `parameter` of `# Parameter servers`.
fn first_word(title: &str) -> Option<String> {
    Some(title.strip_prefix("# ")?.split_whitespace().next()?.to_lowercase())
}

/// True if a text has the word, in whatever letters. A hyphen belongs to a word: PA-ATP does not name ATP.
fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_lowercase();
    text.split(|c: char| !c.is_alphanumeric() && c != '-').any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_that_is_new_is_told_all_that_it_lacks() {
        let lacks = missing(&crate::repository(), "hoarder");
        let all = ["crates/proto/tests/hoarder*", "fuzz/fuzz_targets/hoarder*", "tests/golden/hoarder*"];
        assert_eq!(lacks, [&all[..], &["docs/protocols/hoarder.md"]].concat());
    }

    #[test]
    fn a_word_is_whole() {
        assert!(has_word("## ATP and PA-ATP: 36 bytes more", "atp"));
        assert!(!has_word("## PA-ATP: 36 bytes more", "atp"));
    }
}
