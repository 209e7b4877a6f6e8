//! Canary's figures: what their lines have in common, what was fitted, and what restores a tree.

use std::sync::atomic::AtomicBool;

use crate::{Entry, Memory, Outcome, ReproduceError, Verdict, Watch, find};

fn run(entry: &Entry) -> Result<Outcome, ReproduceError> {
    let stop = AtomicBool::new(false);
    entry.run(true, 1, &Watch::silent(&stop), &Memory::default())
}

#[test]
fn formulas_that_are_exact_are_exact_and_a_unit_that_is_not_the_papers_differs() {
    let verdict = |id| run(&find(id).unwrap()).unwrap().rows[0].verdict;
    assert_eq!((verdict("canary-s42"), verdict("canary-s322")), (Verdict::Agrees, Verdict::Differs));
}

#[test]
fn every_line_of_a_figure_has_the_framing_that_the_file_gives() {
    let mut entry = find("canary-fig7b").unwrap();
    entry.change("framing=30 B").unwrap();
    let sentence = run(&entry).unwrap_err().to_string();
    assert!(sentence.contains("framing = 30 B leaves no room for the 36 bytes of switchml's header"), "{sentence}");
}

#[test]
fn what_a_paper_leaves_open_can_be_varied_and_each_row_says_what_it_is_then() {
    let text = include_str!("experiments/canary-fig6.toml").replace(
        "[parameters]",
        "[[fitted]]\nwhat = \"the framing\"\nbecause = \"a test\"\nothers = [\n\
         { name = \"61 B\", set = { framing = \"61 B\" } },\n\
         { name = \"200 B\", set = { framing = \"200 B\", \"network.rate\" = \"99 Gbit/s\" } },\n]\n\n\
         [[open]]\nwhat = \"the header\"\nbecause = \"a test\"\nothers = [\n\
         { name = \"30 B\", set = { framing = \"30 B\" } },\n]\n\n[parameters]",
    );
    let entry = Entry::parse("made-up", &text).unwrap();
    let stop = AtomicBool::new(false);
    let watch = Watch::silent(&stop);
    let memory = Memory::default();
    let mut outcome = entry.run(true, 1, &watch, &memory).unwrap();
    assert_eq!((&*outcome.fitted[0].what, outcome.rows[0].verdict), ("the framing", Verdict::Agrees));
    assert!(outcome.rows[0].elsewhere.is_empty(), "nobody has asked");
    entry.vary(&mut outcome, 1, &watch, &memory).unwrap();
    let elsewhere: Vec<_> = outcome.rows[0].elsewhere.iter().map(|other| (&*other.with, other.verdict)).collect();
    assert_eq!(elsewhere, [("61 B", Verdict::Agrees), ("200 B", Verdict::Differs)]);
    let [first, second] = &outcome.rows[0].elsewhere[..] else { panic!("{elsewhere:?}") };
    assert!(first.ours.median > second.ours.median, "longer packets carry less: {first:?} and {second:?}");
    // What cannot be run is said, and what can is measured.
    assert_eq!(&*outcome.open[0].what, "the header");
    let not_measured = outcome.notes.iter().find(|note| note.starts_with("Not measured with 30 B: "));
    assert!(not_measured.is_some_and(|note| note.contains("no room for the 60 bytes")), "{:?}", outcome.notes);
    let unknown = text.replace("framing = \"61 B\" }", "framming = \"61 B\" }");
    let sentence = Entry::parse("made-up", &unknown).unwrap_err().to_string();
    assert!(sentence.contains("unknown field `framming`"), "{sentence}");
}

#[test]
fn a_full_array_restores_subtrees_and_makes_the_same_sums() {
    let outcome = run(&find("canary-collisions").unwrap()).unwrap();
    for row in outcome.rows.iter().filter(|row| row.published.key.ends_with("restorations")) {
        assert!(row.ours.low > 0.0, "{}: {}", row.published.what, row.ours_text());
    }
}
