//! The report of the demo.

use serde::Serialize;
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::protocol::Protocol;

use super::arrays::Section;
use super::check::Verdict;
use crate::cluster::WorkerReport;
use crate::output::Table;

/// One protocol's run.
#[derive(Debug, Serialize)]
pub struct Line {
    /// The protocol that summed.
    pub protocol: &'static str,
    /// In which numbers it summed floats.
    #[serde(skip)]
    pub numbers: Numbers,
    /// Median completion time at the slowest worker.
    pub seconds: f64,
    /// Bits of the tensor divided by that time, in 10^9.
    pub goodput_gbps: f64,
    /// Elements of the tensor divided by that time.
    pub ate_per_s: f64,
    /// Packets that all workers sent, over all sums.
    pub packets_sent: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Fraction of the blocks whose sum was made in the network.
    pub in_network: f64,
    /// Whether the result is right.
    pub verdict: Verdict,
}

impl Line {
    /// Joins the workers' reports.
    pub fn new(protocol: &'static Protocol, workers: &[WorkerReport], verdict: Verdict) -> Line {
        let seconds = workers.iter().map(|worker| worker.seconds).fold(0.0, f64::max);
        let elements = workers.first().map_or(0, |worker| worker.elements) as f64;
        Line {
            protocol: protocol.name,
            numbers: (protocol.numbers)(&protocol.options.defaults()),
            seconds,
            goodput_gbps: elements * 32.0 / seconds / 1e9,
            ate_per_s: elements / seconds,
            packets_sent: workers.iter().map(|worker| worker.packets_sent).sum(),
            retransmissions: workers.iter().map(|worker| worker.retransmissions).sum(),
            in_network: workers.iter().map(|worker| worker.in_network).fold(1.0, f64::min),
            verdict,
        }
    }

    fn title(&self) -> String {
        let who = if self.in_network > 0.0 { "the switch sums" } else { "the hosts sum" };
        format!("{}: {who}", self.protocol)
    }

    fn sentence(&self) -> String {
        let bound = match self.numbers {
            Numbers::Fixed => "within Theorem 1's bound of the float64 sum",
            Numbers::Float => "within a float32 sum's bound of the float64 sum",
            Numbers::Int8(_) | Numbers::Thc4(_) => "within the bound of codes of the float64 sum",
        };
        match self.verdict.holds() {
            true => format!("{}: right. Every element is {bound}, and all ranks hold the same bits.", self.protocol),
            false => format!("{}: WRONG.", self.protocol),
        }
    }
}

/// Where the demo runs.
pub struct Setting {
    /// The place, as the end of a sentence.
    pub sentence: String,
    /// True if there are links with a rate.
    pub has_links: bool,
}

/// The results of the demo.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where it ran, as the end of a sentence.
    pub setting: String,
    /// How not to read the goodput, if there were no links.
    pub caveat: Option<&'static str>,
    /// Number of workers.
    pub workers: usize,
    /// Elements of each array.
    pub elements: usize,
    /// Sums of the same arrays.
    pub iters: u32,
    /// One for each protocol.
    pub lines: Vec<Line>,
}

/// What a figure of the loopback interface means.
pub const LOOPBACK_CAVEAT: &str = "\
Without links a figure shows how much work the processors have, and nothing about a network. The ring's hosts
send each tensor almost twice, which costs nothing here, and the switch is one more process that shares the
processors with the workers: the ring may well be ahead. As root, `make demo` measures on links of 1 Gbit/s.
";

impl Report {
    /// A report without runs.
    pub fn new(setting: Setting, workers: usize, elements: usize, iters: u32) -> Report {
        let caveat = if setting.has_links { None } else { Some(LOOPBACK_CAVEAT) };
        Report { setting: setting.sentence, caveat, workers, elements, iters, lines: Vec::new() }
    }

    /// The error, if there is one.
    pub fn error(&self) -> Option<String> {
        self.lines.iter().find(|line| !line.verdict.holds()).map(|line| {
            let worst = line.verdict.worst();
            match line.verdict.identical {
                false => format!("{}: the ranks' results differ", line.protocol),
                true => format!(
                    "{}: a sum is {:.1e} from the float64 sum, where {:.1e} is allowed",
                    line.protocol, worst.error, worst.bound
                ),
            }
        })
    }

    /// The tables for people.
    pub fn render(&self) -> String {
        let megabytes = self.elements as f64 * 4.0 / 1e6;
        let head = format!(
            "{} workers and a switch, {}.\nEach worker summed its own array of {} float32 ({megabytes:.1} MB) {} times with \
             the others'.\n",
            self.workers, self.setting, self.elements, self.iters
        );
        let verdicts: Vec<String> = self.lines.iter().map(Line::sentence).collect();
        let head = self.caveat.map_or(head.clone(), |caveat| format!("{head}{caveat}"));
        format!("{head}\n{}\n\n{}\n\n{}", self.speeds().render(), self.errors().render(), verdicts.join("\n"))
    }

    fn speeds(&self) -> Table {
        let mut table = Table::new(["", "Gbit/s", "M ATE/s", "packets", "sent again", "summed in the network"]);
        for line in &self.lines {
            table.row([
                line.title(),
                format!("{:.3}", line.goodput_gbps),
                format!("{:.1}", line.ate_per_s / 1e6),
                line.packets_sent.to_string(),
                line.retransmissions.to_string(),
                format!("{:.0} %", line.in_network * 100.0),
            ]);
        }
        table
    }

    /// The largest error of each section, as a share of the bound for the protocol's numbers.
    fn errors(&self) -> Table {
        let headings = self.lines.iter().map(|line| line.protocol.to_string());
        let mut table = Table::new(std::iter::once("largest error / its bound".to_string()).chain(headings));
        for (index, section) in Section::ALL.iter().enumerate() {
            let shares = self.lines.iter().map(|line| format!("{:.2}", line.verdict.extremes[index].share));
            table.row(std::iter::once(section.name().to_string()).chain(shares));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Extreme;
    use tributary_proto::contract::protocol::Protocol;

    use super::*;

    fn protocol() -> &'static Protocol {
        crate::cluster::job::protocols().next().expect("a protocol")
    }

    fn report(share: f64, identical: bool) -> Report {
        let worker = WorkerReport {
            seconds: 0.5,
            elements: 1_000_000,
            packets_sent: 10,
            retransmissions: 1,
            in_network: 1.0,
            elements_per_packet: 360,
            slots: 512,
            cpu_seconds: 0.1,
            trees: Vec::new(),
        };
        let extremes = vec![Extreme { error: share, bound: 1.0, share }; Section::ALL.len()];
        let setting = Setting { sentence: "somewhere".to_string(), has_links: true };
        let mut report = Report::new(setting, 2, 1_000_000, 5);
        let verdict = Verdict { identical, extremes };
        report.lines.push(Line::new(protocol(), &[worker.clone(), worker], verdict));
        report
    }

    #[test]
    fn a_right_result_is_said_to_be_right() {
        let report = report(0.5, true);
        assert_eq!(report.error(), None);
        assert_eq!(report.lines[0].packets_sent, 20);
        assert_eq!(report.lines[0].goodput_gbps, 0.064);
        assert!(report.render().contains(&format!("{}: right.", protocol().name)));
    }

    #[test]
    fn the_tables_of_all_protocols_fit_a_terminal_of_100_columns() {
        let mut wide = report(0.5, true);
        for protocol in crate::cluster::job::protocols().skip(1) {
            let one = report(0.5, true).lines.remove(0);
            wide.lines.push(Line { protocol: protocol.name, ..one });
        }
        let tables = [wide.speeds().render(), wide.errors().render()].join("\n");
        assert!(tables.lines().all(|line| line.chars().count() <= 100), "{tables}");
    }

    #[test]
    fn what_a_figure_of_loopback_means_is_said_before_the_figures() {
        let report = |has_links| Report::new(Setting { sentence: "there".to_string(), has_links }, 2, 1, 1).render();
        let (there, elsewhere) = (report(false), report(true));
        let caveat = there.find("the ring may well be ahead").expect("it is said");
        assert!(caveat < there.find("Gbit/s  ").expect("the heading of the table"), "{there}");
        assert!(!elsewhere.contains("ring may"), "{elsewhere}");
    }

    #[test]
    fn the_bound_is_named_after_what_floats_are_summed_as() {
        let mut report = report(0.5, true);
        assert!(report.render().contains("within a float32 sum's bound"), "switchml sums floats unless told otherwise");
        report.lines[0].numbers = Numbers::Fixed;
        assert!(report.render().contains("within Theorem 1's bound"));
    }

    #[test]
    fn a_wrong_one_is_a_failure_with_a_sentence() {
        assert!(report(1.5, true).error().is_some_and(|text| text.contains("where 1.0e0 is allowed")));
        assert!(report(0.5, false).error().is_some_and(|text| text.contains("differ")));
    }
}
