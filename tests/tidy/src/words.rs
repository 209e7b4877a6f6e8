//! The field's words: what this project called by a private or archaic word has a name in `docs/glossary.md`.
//!
//! `words.txt` has the uses that are left, a line for each word. They are counted over the whole repository, so that code
//! can move from one crate to another, and their number only shrinks.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Source, source};

/// Never the right word here, in code, comments or pages: the word and what to write instead.
const EVERYWHERE: &[(&str, &str)] = &[
    ("alibi", "`liveness_probe`"),
    ("anew", "again"),
    ("ascent", "`parent_client`"),
    ("astray", "reordered, or lost"),
    ("bereft", "`peer_lost`, or lacks"),
    ("betimes", "early"),
    ("farewell", "`shutdown`"),
    ("heed", "`handle_*`, or obey"),
    ("heeds", "`handle_*`, or obeys"),
    ("hopeless", "`give_up_at`"),
    ("onlooker", "`follower`"),
    ("onlookers", "`follower`"),
    ("quarrel", "`name_conflict`"),
    ("renounce", "`drop_child`, or give up"),
    ("replant", "`tree_repair`, or re-plan"),
    ("replanted", "re-planned"),
    ("replanting", "`tree_repair`"),
    ("replants", "`survives_tree_loss`"),
    ("seat", "`controller`, `pending_join`, `Endpoint`, `membership` or `core_slot`"),
    ("seats", "`controllers`, `pending_joins`, `endpoints`, `memberships` or `core_slots`"),
    ("sharers", "memory that jobs share"),
    ("stranger", "unauthorised client"),
    ("strangers", "`rejected_packets`, or unauthorised clients"),
    ("thereof", "(rephrase)"),
    ("thrice", "three times"),
    ("tidings", "`job_events`"),
    ("upon", "on"),
    ("wherefrom", "from which"),
    ("whereupon", "then"),
    ("whom", "(rephrase: name who it is)"),
];

/// English in a sentence, and a private meaning as a name: banned as words of identifiers and of file names.
const IDENTIFIERS: &[(&str, &str)] = &[
    ("above", "`parent`, for a switch"),
    ("apart", "`dedicated_server`"),
    ("asked", "`rate_limit`, or what was requested"),
    ("books", "`job_totals`"),
    ("complaint", "`error`"),
    ("complaints", "`errors`"),
    ("contest", "`merge_reports`, or `conflict`"),
    ("dismiss", "`remove_job`"),
    ("door", "`connection_limits`"),
    ("few", "`small_map`"),
    ("fn found", "`fn create`"),
    ("hear", "`handle_*` or `on_*`"),
    ("heard", "`received`, or `last_received`"),
    ("hears", "`handle_*` or `on_*`"),
    ("held", "`in_use`, `buffered` or `reserved`"),
    ("house", "`place_job`, or `admit`"),
    ("housing", "`tree_capacity`"),
    ("inquiry", "`exponent_hint`"),
    ("look", "`sample` or `poll`"),
    ("looks", "`samples`, or `shard_poller`"),
    ("obey", "`handle_command`"),
    ("obeys", "`handle_command`"),
    ("outlook", "`failure_detector`"),
    ("own op", "`custom_op`"),
    ("own operator", "`custom_op`"),
    ("part", "`fragment`, `shard` or `partition`"),
    ("parts", "`fragments`, `shards` or `partitions`"),
    ("piece", "`fragment`"),
    ("pieces", "`fragments`"),
    ("place", "`position`, `index` or `location`"),
    ("places", "`positions`, `indices` or `locations`"),
    ("planted", "`tree_switch`"),
    ("reap", "`expire`"),
    ("reaped", "`expired`"),
    ("room", "`ingress_buffers`, `quota`, `bounce_buffer`, `memory_budget`, `capacity` or `transmit_buf`"),
    ("rooms", "what the buffers or quotas are"),
    ("settle", "`drain` or `complete`"),
    ("settled", "`drained` or `completed`"),
    ("settles", "`drains` or `completes`"),
    ("speech", "`transmit`"),
    ("strikes", "`should_mark`"),
    ("survey", "`path_probe`"),
    ("tell", "`emit` or `notify`"),
    ("tells", "`emits` or `notifies`"),
    ("told", "`notified` or `reported`"),
    ("trouble", "`failure`"),
    ("world", "`world_size` (ranks), `state` (explored) or `scenario` (random)"),
    ("worlds", "`world_sizes`, `states` or `scenarios`"),
];

/// Phrases in which a banned word of identifiers is the field's word. Two spaces stand for a dot, as in torch's
/// `dist.group.WORLD`.
const NATURAL: &[(&str, &str)] = &[
    ("above", "all above"),
    ("above", "mark above"),
    ("above", "pause above"),
    ("parts", "raw parts"),
    ("place", "in place"),
    ("place", "out of place"),
    ("world", "dist  group  world"),
    ("world", "world size"),
];

/// Turns of phrase that need a second reading. `*` is any word.
const PHRASES: &[(&str, &str)] = &[
    ("are no *", "are not"),
    ("as it were", "(leave it out)"),
    ("at the door", "(say what is refused)"),
    ("but for", "except for"),
    ("for ever", "permanently, or for the lifetime of the job"),
    ("for want of", "for lack of"),
    ("is no *", "is not a"),
    ("lest", "so that … not"),
    ("of its own accord", "by itself"),
    ("once for all", "once"),
    ("so many", "this many, or the number of"),
    ("was no *", "was not a"),
    ("were no *", "were not"),
    ("with whom", "(rephrase)"),
];

/// Words before and after which `is no` is natural: there is no switch, this is no longer so.
const BEFORE_NO: [&str; 2] = ["there", "here"];
const AFTER_NO: [&str; 12] =
    ["longer", "more", "less", "fewer", "later", "earlier", "better", "worse", "larger", "smaller", "one", "such"];

/// What the rule does not read: the rule itself, and the licence's text.
const UNREAD: [&str; 2] = ["tests/tidy/", "docs/glossary.md"];

/// Where a use stands: what programs are made of, what people read, and all other files.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Uses {
    /// In `crates/*/src`, `dataplanes/*/src` and `python`.
    pub src: usize,
    /// In pages, `*.md`.
    pub pages: usize,
    /// In tests, examples, experiments and benches.
    pub rest: usize,
}

impl Uses {
    /// All of them.
    pub fn total(self) -> usize {
        self.src + self.pages + self.rest
    }

    fn add(&mut self, path: &str, uses: usize) {
        let is_src = path.starts_with("python/")
            || ["crates/", "dataplanes/"].iter().any(|folder| path.starts_with(folder)) && path.contains("/src/");
        match () {
            () if path.ends_with(".md") => self.pages += uses,
            () if is_src => self.src += uses,
            () => self.rest += uses,
        }
    }
}

/// The uses of each banned word, and the files that use it with their numbers.
#[derive(Default)]
pub struct Found {
    /// By word.
    pub uses: BTreeMap<&'static str, Uses>,
    /// By word, as path and uses.
    pub files: BTreeMap<&'static str, Vec<(String, usize)>>,
}

/// Looks for banned words in all files below a root.
pub fn count(root: &Path) -> Found {
    let mut found = Found::default();
    for source in Source::all(root) {
        if source.is_rust() || source.path.ends_with(".py") {
            read(&source.path, &source.text, &source.code, &mut found);
        }
    }
    for (path, text) in source::pages(root) {
        read(&path, &text, "", &mut found);
    }
    found
}

/// What to write instead of a banned word.
pub fn replacement(word: &str) -> &'static str {
    let mut all = EVERYWHERE.iter().chain(IDENTIFIERS).chain(PHRASES);
    all.find(|(banned, _)| *banned == word).map_or("", |(_, instead)| instead)
}

/// Reads `words.txt`: three numbers and a word a line.
pub fn read_list(text: &str) -> BTreeMap<String, Uses> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let (mut rest, mut numbers) = (line.trim_start(), [0; 3]);
        for number in &mut numbers {
            let (digits, behind) = rest.split_once(' ')?;
            (*number, rest) = (digits.parse().ok()?, behind.trim_start());
        }
        let [src, pages, others] = numbers;
        Some((rest.to_string(), Uses { src, pages, rest: others }))
    };
    lines.map(|line| entry(line).unwrap_or_else(|| panic!("not three numbers and a word: {line}"))).collect()
}

/// Writes the uses as [`read_list`] reads them.
pub fn write_list(found: &Found) -> String {
    let lines = found.uses.iter().filter(|(_, uses)| uses.total() > 0);
    lines.map(|(word, Uses { src, pages, rest })| format!("{src:5} {pages:5} {rest:5} {word}\n")).collect()
}

fn read(path: &str, text: &str, code: &str, found: &mut Found) {
    if UNREAD.iter().any(|unread| path.starts_with(unread)) {
        return;
    }
    let name = path.rsplit('/').next().unwrap_or(path).split('.').next().unwrap_or_default();
    let words = [sequence(name), sequence(text)].concat();
    let names = [sequence(name), sequence(code)].concat();
    let mut note = |word, uses| {
        if uses > 0 {
            found.uses.entry(word).or_default().add(path, uses);
            found.files.entry(word).or_default().push((path.to_string(), uses));
        }
    };
    for (word, _) in EVERYWHERE.iter().chain(PHRASES) {
        note(word, matches(&words, word));
    }
    for (word, _) in IDENTIFIERS {
        let natural = NATURAL.iter().filter(|(banned, _)| banned == word);
        note(word, matches(&names, word) - natural.map(|(_, phrase)| matches(&names, phrase)).sum::<usize>());
    }
}

/// How often words follow each other; `*` is any word, but for those before and after which a phrase is natural.
fn matches(words: &[String], phrase: &str) -> usize {
    let phrase: Vec<&str> = phrase.split(' ').collect();
    let is_no = phrase.last() == Some(&"*");
    let natural = |at: usize| {
        let before = at.checked_sub(1).map_or("", |before| words[before].as_str());
        let after = words[at + phrase.len() - 1].as_str();
        is_no && (BEFORE_NO.contains(&before) || AFTER_NO.contains(&after))
    };
    let same = |at: usize| {
        phrase.iter().zip(&words[at..]).all(|(&wanted, word)| wanted == word || wanted == "*" && !word.is_empty())
    };
    (0..(words.len() + 1).saturating_sub(phrase.len())).filter(|&at| same(at) && !natural(at)).count()
}

/// The words of a text in lower case, one after the other: those of `SwitchPorts` and `switch_ports`, too. An empty word
/// stands where punctuation ends a phrase; the signs of a comment do not.
fn sequence(text: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut before = ' ';
    for c in text.chars() {
        let last = words.last_mut().expect("there is always one");
        if c.is_alphanumeric() {
            if last.is_empty() || c.is_uppercase() && before.is_lowercase() || !before.is_alphanumeric() {
                words.push(String::new());
            }
            words.last_mut().expect("there is always one").extend(c.to_lowercase());
        } else if !c.is_whitespace() && !"/*#!_>'".contains(c) && !last.is_empty() {
            words.push(String::new());
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let mut found = Found::default();
        let source = Source::new(path, text.into());
        read(path, text, if path.ends_with(".md") { "" } else { &source.code }, &mut found);
        found.uses.into_iter().map(|(word, uses)| (word, uses.total())).collect()
    }

    #[test]
    fn private_words_are_found_in_identifiers_comments_pages_and_file_names() {
        assert_eq!(uses("a.rs", "struct JobSeat; // a seat\nlet SEAT = the_seat;"), [("seat", 4)]);
        assert_eq!(uses("a/alibi.rs", ""), [("alibi", 1)]);
        assert_eq!(uses("docs/a.md", "A `stranger` waits."), [("stranger", 1)]);
    }

    #[test]
    fn english_words_are_banned_as_names_and_not_in_sentences() {
        assert_eq!(uses("a.rs", "// part of a place\nlet part_place = \"the room\";"), [("part", 1), ("place", 1)]);
        assert!(uses("docs/a.md", "Summing takes place in part above the threshold.").is_empty());
        assert_eq!(
            uses(
                "a.rs",
                "let world = world_size; struct InPlaceSum; out_of_place(dist.group.WORLD); fn found() {} let found = 1;"
            ),
            [("fn found", 1), ("world", 1)]
        );
    }

    #[test]
    fn phrases_are_found_across_lines_and_not_across_punctuation() {
        assert_eq!(
            uses("a.rs", "// kept for\n// ever, and a host is no\n/// switch"),
            [("for ever", 1), ("is no *", 1)]
        );
        assert!(uses("docs/a.md", "There is no switch. It is no longer there. So it is. No switch.").is_empty());
    }

    #[test]
    fn the_list_is_read_as_it_is_written() {
        let uses = Uses { src: 3, pages: 0, rest: 12 };
        let found = Found { uses: BTreeMap::from([("for ever", uses)]), ..Found::default() };
        assert_eq!(read_list(&write_list(&found)), BTreeMap::from([("for ever".to_string(), uses)]));
    }

    #[test]
    fn every_word_has_a_replacement_and_one_line() {
        let all: Vec<&str> = EVERYWHERE.iter().chain(IDENTIFIERS).chain(PHRASES).map(|(word, _)| *word).collect();
        for (at, word) in all.iter().enumerate() {
            assert!(!replacement(word).is_empty() && !all[..at].contains(word), "{word}");
        }
    }
}
