//! Canary's evaluation (De Sensi et al., 2023): its experiments, on the fat trees of its simulations, and the memory that a
//! switch needs by the paper's formulas (§3.2.2 and §4.2).

use serde::Deserialize;
use tributary_sim::config::{Bytes, DataRate, Duration};

use crate::paper::{Paper, embedded, read};
use crate::{Context, Experiment, Findings, ReproduceError};

/// Canary's files, and the kinds of experiments that only they have.
pub static PAPER: Paper = Paper {
    bases: embedded! {
        "canary-base"
    },
    files: embedded! {
        "canary-fig2"
        "canary-fig6"
        "canary-fig7a"
        "canary-fig7b"
        "canary-fig8"
        "canary-fig9"
        "canary-fig10"
        "canary-fig11"
        "canary-windows"
        "canary-collisions"
        "canary-timeouts"
        "canary-s322"
        "canary-s42"
    },
    kinds: &[("descriptors", read::<Descriptors>)],
};

/// A switch and its network.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptors {
    /// `b`: the rate at which one allreduce sends through the switch.
    pub rate: DataRate,
    /// `d`: hops of the longest path.
    pub diameter: u32,
    /// `l`: the delay of a hop.
    pub hop: Duration,
    /// `t`: how long a switch waits.
    pub timeout: Duration,
    /// `r`: how long the leader takes to answer.
    pub leader: Duration,
    /// `p`: ports of the switch.
    pub ports: u32,
    /// `s`: shards of its children bitmap.
    pub shards: u32,
    /// How many descriptors the switch has.
    pub descriptors: u32,
    /// Bytes on the wire of one packet, which takes one descriptor.
    pub packet: Bytes,
}

impl Experiment for Descriptors {
    /// Findings `memory` (KiB of one allreduce), `allreduces` (how many the descriptors hold), and `groups` (entries of
    /// the multicast table).
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.shards == 0 || self.ports / self.shards > 32 {
            return Err(ReproduceError::Bad("a shard of the children bitmap has 1 to 32 ports".into()));
        }
        let seconds = 2.0 * f64::from(self.diameter) * (self.hop.0 + self.timeout.0).as_secs_f64();
        let lifetime = seconds + self.leader.0.as_secs_f64();
        let bytes = self.rate.0.0 as f64 / 8.0 * lifetime;
        let mut findings = Findings::default();
        findings.value("memory", bytes / 1024.0);
        let cause = format!("{bytes:.0} bytes are {:.1} KiB: the paper's KiB are thousands of bytes", bytes / 1024.0);
        findings.cause("memory", cause);
        let descriptors = bytes / self.packet.0 as f64;
        findings.value("allreduces", (f64::from(self.descriptors) / descriptors).floor());
        findings.value("groups", f64::from(self.shards) * 2f64.powi((self.ports / self.shards) as i32));
        findings.note(format!(
            "A descriptor lives for 2d(l + t) + r = {:.1} us, in which {bytes:.0} bytes come in at full rate.",
            1e6 * lifetime
        ));
        Ok(findings)
    }
}

/// Canary's figures: what their lines have in common, what was fitted, and what restores a tree.
#[cfg(test)]
mod tests {
    use crate::{Entry, Memory, Outcome, ReproduceError, Verdict, Watch, find};
    use std::sync::atomic::AtomicBool;

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
}
