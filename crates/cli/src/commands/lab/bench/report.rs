//! The report of a bench: one row for each star and loss, with one line for each contender.

use serde::Serialize;

use super::contender::Contender;
use super::crossing::Crossing;
use super::line::{Line, Sample};
use super::machine::Machine;
use super::plan::{Plan, Rate};
use super::promise::planned_seconds;
use crate::output::Table;

/// One star with one loss.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Hosts around the switch.
    pub hosts: u16,
    /// The rate of every link.
    #[serde(rename = "rate_gbps")]
    pub rate: Rate,
    /// The loss in percent, for each link and direction.
    pub loss_percent: f64,
    /// One for each contender that ran.
    pub lines: Vec<Line>,
    /// The crossings of lines of sparse tensors with others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crossings: Vec<Crossing>,
    /// All runs, until the report makes lines of them.
    #[serde(skip)]
    pub samples: Vec<(Contender, Sample)>,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// PyTorch's version.
    pub torch: Option<String>,
    /// Elements of the tensor.
    pub elements: usize,
    /// Collectives in one run.
    pub iters: u32,
    /// Runs of each contender.
    pub repetitions: u32,
    /// PyTorch's ranks on each host.
    pub ranks_per_host: u16,
    /// Threads of the switch.
    pub shards: u16,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// The rate of spare hosts' links; `None` for that of the others.
    pub spare_rate_gbps: Option<Rate>,
    /// The figures.
    pub rows: Vec<Row>,
    /// Notes for readers of the figures.
    pub notes: Vec<String>,
    /// The contenders, in the order of their turns.
    #[serde(skip)]
    pub contenders: Vec<Contender>,
}

impl Row {
    /// A row without runs.
    pub fn new(hosts: u16, rate: Rate, loss_percent: f64) -> Row {
        Row { hosts, rate, loss_percent, lines: Vec::new(), crossings: Vec::new(), samples: Vec::new() }
    }

    /// The medians of a contender's runs.
    fn line(&self, who: Contender, elements: usize, iters: u32) -> Option<Line> {
        let runs: Vec<&Sample> = self.samples.iter().filter(|(other, _)| *other == who).map(|(_, run)| run).collect();
        Line::of(who, &runs, elements, iters)
    }
}

impl Report {
    /// A report without figures.
    pub fn new(machine: Machine, plan: &Plan) -> Report {
        Report {
            machine,
            torch: None,
            elements: plan.elements,
            iters: plan.iters,
            repetitions: plan.repetitions,
            ranks_per_host: plan.ranks_per_host,
            shards: plan.shards,
            mtu: plan.mtu,
            spare_rate_gbps: plan.spare_rate,
            rows: Vec::new(),
            notes: Vec::new(),
            contenders: plan.contenders.clone(),
        }
    }

    /// Notes once why Gloo is left out.
    pub fn leave_gloo_out(&mut self, reason: &str) {
        let remedy = "It needs a Python with this package and PyTorch (in a clone: make torch), told by --python.";
        let note = format!("Gloo was left out. {reason}. {remedy}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Takes the rows of one star, the one without loss first if there is one.
    pub fn add(&mut self, mut rows: Vec<Row>) {
        for row in &mut rows {
            let lines = self.contenders.iter().filter_map(|&who| row.line(who, self.elements, self.iters));
            row.lines = lines.collect();
            let ate: Vec<(Contender, f64)> = row.lines.iter().map(|line| (line.who, line.ate_per_s)).collect();
            let of = |who: Contender| ate.iter().find(|(other, _)| *other == who).map(|(_, ate)| *ate);
            for line in &mut row.lines {
                let over = |base: Option<f64>| base.map(|base| line.ate_per_s / base);
                let others = |who: &Contender| *who != line.who;
                line.times_gloo = over(of(line.who.gloo()));
                line.times_f32 = over(Some(line.who.of_f32()).filter(others).and_then(of));
                line.times_fixed = over(line.who.in_fixed_point().filter(others).and_then(of));
                let planned =
                    planned_seconds(line.who, (row.hosts, row.rate), self.spare_rate_gbps, self.elements, self.mtu);
                line.planned_seconds = planned;
                line.times_plan = planned.map(|planned| line.seconds / planned);
                line.times_dense = over(Some(line.who.dense()).filter(others).and_then(of));
            }
            row.crossings = Crossing::all(&row.lines);
        }
        let loss_free: Vec<(Contender, f64)> = rows
            .iter()
            .filter(|row| row.loss_percent == 0.0)
            .flat_map(|row| row.lines.iter().map(|line| (line.who, line.seconds)))
            .collect();
        for line in rows.iter_mut().filter(|row| row.loss_percent > 0.0).flat_map(|row| &mut row.lines) {
            let base = loss_free.iter().find(|(who, _)| *who == line.who);
            line.times_loss_free = base.map(|(_, seconds)| line.seconds / seconds);
        }
        self.rows.extend(rows);
    }

    /// The tables for people.
    pub fn render(&self) -> String {
        let mut text = format!(
            "{} elements ({:.1} MB of float32), median of {} x {} collectives; {} switch thread(s), MTU {}\n\
             {}, TCP {}{}\n\n",
            self.elements,
            self.elements as f64 * 4.0 / 1e6,
            self.repetitions,
            self.iters,
            self.shards,
            self.mtu,
            self.machine,
            self.machine.tcp_congestion_control,
            self.torch.as_ref().map_or(String::new(), |version| format!(", PyTorch {version}")),
        );
        text += &self.table().render();
        for (row, crossing) in
            self.rows.iter().flat_map(|row| row.crossings.iter().map(move |crossing| (row, crossing)))
        {
            let Row { hosts, rate, loss_percent, .. } = row;
            text += &format!("\n{hosts} hosts, {rate}, {loss_percent} % loss: {crossing}");
        }
        for note in &self.notes {
            text += &format!("\n\n{note}");
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            "hosts",
            "links",
            "loss %",
            "who",
            "Gbit/s",
            "M ATE/s",
            "x Gloo",
            "x f32",
            "x fixed",
            "x dense",
            "x loss-free",
            "x plan",
            "1 KiB us",
            "CPU s/GB",
            "softirq s/GB",
            "sent again",
        ]);
        let or_blank = |number: Option<f64>| number.map_or("-".to_string(), |number| format!("{number:.2}"));
        for row in &self.rows {
            for line in &row.lines {
                table.row([
                    match self.ranks_per_host {
                        1 => row.hosts.to_string(),
                        ranks => format!("{} x {ranks}", row.hosts),
                    },
                    row.rate.to_string(),
                    row.loss_percent.to_string(),
                    line.who.name(),
                    format!("{:.3}", line.goodput_gbps),
                    format!("{:.1}", line.ate_per_s / 1e6),
                    or_blank(line.times_gloo),
                    or_blank(line.times_f32),
                    or_blank(line.times_fixed),
                    or_blank(line.times_dense),
                    or_blank(line.times_loss_free),
                    or_blank(line.times_plan),
                    format!("{:.0}", line.small_us),
                    format!("{:.2}", line.cpu_s_per_gb),
                    format!("{:.2}", line.softirq_s_per_gb),
                    line.retransmissions.to_string(),
                ]);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::DType;

    use super::*;
    use crate::cluster::job;
    use crate::commands::lab::bench::contender::Beside;

    fn row(loss_percent: f64, runs: &[(Contender, f64)]) -> Row {
        let sample = |seconds: f64| Sample { seconds, ..Sample::default() };
        let samples = runs.iter().map(|&(who, seconds)| (who, sample(seconds))).collect();
        Row { samples, ..Row::new(4, Rate::Gbps(1.0), loss_percent) }
    }

    fn contenders(dtypes: &[DType], numbers: &[&'static str]) -> Vec<Contender> {
        let protocols: Vec<_> = job::protocols().collect();
        Contender::all(&protocols, dtypes, numbers, &[], &[1])
    }

    fn ours() -> Contender {
        contenders(&[DType::F32], &["float"])[0]
    }

    fn report() -> Report {
        Report {
            machine: Machine::here(),
            torch: None,
            elements: 1_000_000,
            iters: 1,
            repetitions: 3,
            ranks_per_host: 1,
            shards: 1,
            mtu: 1500,
            spare_rate_gbps: None,
            rows: Vec::new(),
            notes: Vec::new(),
            contenders: contenders(&[DType::F32, DType::BF16], &["float", "fixed"]),
        }
    }

    #[test]
    fn lines_are_medians_and_compare_with_gloo_and_with_no_loss() {
        let (ours, gloo) = (ours(), Contender::Gloo(None));
        let mut report = report();
        let clean = row(0.0, &[(ours, 9.0), (ours, 1.0), (ours, 2.0), (gloo, 4.0)]);
        let lossy = row(1.0, &[(ours, 3.0), (gloo, 12.0)]);
        report.add(vec![clean, lossy]);
        let line = |row: usize, who| report.rows[row].lines.iter().find(|line| line.who == who).expect("a line");
        assert_eq!(line(0, ours).seconds, 2.0);
        assert_eq!(line(0, ours).goodput_gbps, 0.016);
        assert_eq!(line(0, ours).times_gloo, Some(2.0));
        assert_eq!(line(0, ours).times_loss_free, None);
        assert_eq!(line(1, ours).times_loss_free, Some(1.5));
        assert_eq!(line(1, gloo).times_loss_free, Some(3.0));
    }

    #[test]
    fn types_compare_by_elements_and_floats_with_fixed_point() {
        let [float, fixed, narrow, narrow_fixed] = report().contenders[..4] else {
            panic!("four of the first protocol")
        };
        let mut report = report();
        report.add(vec![row(0.0, &[(float, 4.0), (fixed, 2.0), (narrow, 1.0), (narrow_fixed, 2.0)])]);
        let ratios: Vec<_> =
            report.rows[0].lines.iter().map(|line| (line.dtype, line.times_f32, line.times_fixed)).collect();
        let expected =
            [("f32", None, Some(0.5)), ("f32", None, None), ("bf16", Some(4.0), Some(2.0)), ("bf16", Some(1.0), None)];
        assert_eq!(ratios, expected);
        assert_eq!(report.rows[0].lines[2].goodput_gbps, 0.016, "two bytes an element");
        assert!(report.render().contains(&narrow_fixed.name()));
    }

    #[test]
    fn a_contender_that_follows_a_plan_compares_with_it() {
        let (word, gloo) = (Contender::OneWord(Beside::Nothing), Contender::Gloo(None));
        let mut report = Report { contenders: vec![word, gloo], ..report() };
        report.add(vec![row(0.0, &[(word, 0.1), (gloo, 0.2)])]);
        let [ours, others] = &report.rows[0].lines[..] else { panic!("two lines") };
        let planned = ours.planned_seconds.expect("links have a rate");
        assert_eq!(ours.times_plan, Some(0.1 / planned));
        assert_eq!((others.planned_seconds, others.times_plan), (None, None));
        assert!(report.render().contains(&format!("{:.2}", 0.1 / planned)));
    }

    #[test]
    fn a_contender_that_did_not_run_has_no_line_and_the_reason_is_printed_once() {
        let mut report = report();
        report.add(vec![row(0.0, &[(ours(), 1.0)])]);
        report.leave_gloo_out("There is no PyTorch");
        report.leave_gloo_out("There is no PyTorch");
        assert_eq!(report.rows[0].lines.len(), 1);
        assert_eq!(report.rows[0].lines[0].times_gloo, None);
        assert_eq!(report.render().matches("Gloo was left out. There is no PyTorch.").count(), 1);
    }
}
