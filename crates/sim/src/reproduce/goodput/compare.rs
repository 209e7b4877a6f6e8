//! What follows from several lines, points and states together.

use super::{Goodput, Line, Point};
use crate::reproduce::Findings;
use crate::reproduce::finding::Finding;

impl Goodput {
    /// The findings that follow from others.
    pub(super) fn compare(&self, findings: &mut Findings) {
        let mean = |findings: &Findings, key: String| findings.values.get(&key).map(|value| value.low);
        for line in &self.lines {
            let at = |findings: &Findings, point: Option<&Point>| {
                point.and_then(|point| mean(findings, format!("{}-{}-idle", line.name, point.x)))
            };
            if let (Some(first), Some(last)) = (at(findings, self.points.first()), at(findings, self.points.last())) {
                findings.value(format!("{}-change", line.name), 100.0 * (last / first - 1.0));
                let told = format!("{first:.1} Gbit/s at the first point, {last:.1} at the last");
                let again = self.points.last().map_or(String::new(), |point| again(findings, &[line], point, "idle"));
                findings.cause(format!("{}-change", line.name), format!("{told}{again}"));
            }
            for state in ["idle", "congested"] {
                let all =
                    self.points.iter().filter_map(|point| mean(findings, format!("{}-{}-{state}", line.name, point.x)));
                let (least, most) = all.fold((f64::INFINITY, 0.0f64), |(l, m), value| (l.min(value), m.max(value)));
                for point in &self.points {
                    let time = |point: &Point| mean(findings, format!("{}-{}-{state}-time", line.name, point.x));
                    if let (Some(first), Some(later)) = (self.points.first().and_then(time), time(point)) {
                        findings.value(format!("{}-{}-over-first-{state}-time", line.name, point.x), later / first);
                    }
                }
                if most > 0.0 {
                    findings.value(format!("{}-spread-{state}", line.name), most / least);
                }
            }
            for point in &self.points {
                let key = format!("{}-{}", line.name, point.x);
                let (idle, congested) =
                    (mean(findings, format!("{key}-idle")), mean(findings, format!("{key}-congested")));
                if let (Some(idle), Some(congested)) = (idle, congested) {
                    findings.value(format!("{key}-drop"), Finding::from(100.0 * (1.0 - congested / idle)));
                    let told = format!("{idle:.1} Gbit/s idle, {congested:.1} congested");
                    let again = again(findings, &[line], point, "congested");
                    findings.cause(format!("{key}-drop"), format!("{told}{again}"));
                }
                for state in ["idle", "congested"] {
                    self.compare_with_best(findings, line, point, state);
                }
                for other in self.lines.iter().filter(|other| *other != line) {
                    for state in ["idle", "congested"] {
                        let ours = mean(findings, format!("{key}-{state}"));
                        let theirs = mean(findings, format!("{}-{}-{state}", other.name, point.x));
                        if let (Some(ours), Some(theirs)) = (ours, theirs) {
                            let key = format!("{}-over-{}-{}-{state}", line.name, other.name, point.x);
                            let told = format!("{} {ours:.1} Gbit/s, {} {theirs:.1}", line.name, other.name);
                            let told = told + &again(findings, &[line, other], point, state);
                            let told = told + &self.steps_of(other, point, theirs);
                            findings.cause(&*key, told);
                            findings.value(key, ours / theirs);
                        }
                    }
                }
            }
        }
    }

    /// Notes a line over the best of the others of its protocol.
    fn compare_with_best(&self, findings: &mut Findings, line: &Line, point: &Point, state: &str) {
        let mean = |line: &Line| findings.values.get(&format!("{}-{}-{state}", line.name, point.x)).map(|v| v.low);
        let rivals = self.lines.iter().filter(|other| *other != line && other.protocol == line.protocol);
        let best = rivals.filter_map(|rival| Some((mean(rival)?, rival))).max_by(|(a, _), (b, _)| a.total_cmp(b));
        if let (Some(ours), Some((theirs, best))) = (mean(line), best) {
            let key = format!("{}-over-best-{}-{state}", line.name, point.x);
            let told =
                format!("{} {ours:.1} Gbit/s, {} is the best of the others with {theirs:.1}", line.name, best.name);
            findings.cause(&*key, told);
            findings.value(key, ours / theirs);
        }
    }

    /// What the steps of a line take whose hosts pass the tensor's parts round.
    fn steps_of(&self, line: &Line, point: &Point, goodput_gbps: f64) -> String {
        let Some(per_peer) = line.steps_per_peer else { return String::new() };
        let graph = self.network.build().map_or(0, |graph| graph.hosts());
        let n = (f64::from(graph) * point.hosts / 100.0).round() / f64::from(point.jobs);
        let bits = 8.0 * self.tensor_of(point).0 as f64;
        let (steps, all_us) = (per_peer * (n - 1.0), bits / goodput_gbps * 1e-3);
        format!(
            "; {}'s {steps:.0} steps take {:.2} us each, of which a step's data at line rate {:.2} us: the rest is \
             latency and waiting, which larger tensors hide",
            line.name,
            all_us / steps,
            bits / n / self.network.rate.0.0 as f64 * 1e6
        )
    }
}

/// What was sent again, if anything. The paper tells of no drops in its simulated network.
fn again(findings: &Findings, lines: &[&Line], point: &Point, state: &str) -> String {
    let shares: Vec<String> = lines
        .iter()
        .filter_map(|line| {
            let share = findings.values.get(&format!("{}-{}-{state}-again", line.name, point.x))?.low;
            (share >= 0.005).then(|| format!("{share:.1} % of {}'s packets", line.name))
        })
        .collect();
    match shares.is_empty() {
        true => "; nothing was sent again".into(),
        false => format!("; {} were sent again", shares.join(" and ")),
    }
}
