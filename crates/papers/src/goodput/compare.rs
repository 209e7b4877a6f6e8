//! Measurements seed by seed, and the findings that follow from several lines, points and states. The same seed draws the
//! same hosts and roots for every line, so ratios are taken seed by seed too.

use std::collections::BTreeMap;

use super::{Goodput, Line, Point};
use crate::Findings;
use crate::finding::Finding;

impl Goodput {
    /// Adds the findings that follow from others.
    pub(super) fn compare(&self, samples: &mut Samples, findings: &mut Findings) {
        for line in &self.lines {
            self.compare_ends(samples, findings, line);
            for state in ["idle", "congested"] {
                self.compare_points(samples, findings, line, state);
            }
            for point in &self.points {
                let drop = format!("{}-{}-drop", line.name, point.x);
                let [idle, congested] = ["idle", "congested"].map(|state| line.key(point, state));
                if samples.combine(&drop, [&idle, &congested], |idle, congested| 100.0 * (1.0 - congested / idle)) {
                    let [idle, congested] = [idle, congested].map(|key| samples.median(&key).unwrap_or(f64::NAN));
                    let text = format!("{idle:.1} Gbit/s idle, {congested:.1} congested");
                    findings.cause(drop, text + &again(samples, &[line], point, "congested"));
                }
                for state in ["idle", "congested"] {
                    self.compare_with_best(samples, findings, line, point, state);
                    for other in self.lines.iter().filter(|other| *other != line) {
                        self.compare_lines(samples, findings, [line, other], point, state);
                    }
                }
            }
            for other in self.lines.iter().filter(|other| *other != line) {
                for state in ["idle", "congested"] {
                    self.compare_most(samples, [line, other], state);
                }
            }
        }
    }

    /// A line divided by another at the point where that is most, seed by seed.
    fn compare_most(&self, samples: &mut Samples, [line, other]: [&Line; 2], state: &str) {
        let key = |at: &str| format!("{}-over-{}-{at}-{state}", line.name, other.name);
        let most = key("most");
        for point in &self.points {
            let here = key(&point.x.to_string());
            let so_far = if samples.median(&most).is_some() { &most } else { &here };
            samples.combine(&most, [so_far, &here], f64::max);
        }
    }

    /// The last point compared with the first.
    fn compare_ends(&self, samples: &mut Samples, findings: &mut Findings, line: &Line) {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return };
        let change = format!("{}-change", line.name);
        let of = [last, first].map(|point| line.key(point, "idle"));
        if samples.combine(&change, [&of[0], &of[1]], |last, first| 100.0 * (last / first - 1.0)) {
            let [last_gbps, first_gbps] = of.map(|key| samples.median(&key).unwrap_or(f64::NAN));
            let text = format!("{first_gbps:.1} Gbit/s at the first point, {last_gbps:.1} at the last");
            findings.cause(change, text + &again(samples, &[line], last, "idle"));
        }
    }

    /// A line's greatest point divided by its least, each point divided by each other, and each point's time divided by
    /// the first one's.
    fn compare_points(&self, samples: &mut Samples, findings: &mut Findings, line: &Line, state: &str) {
        let all = self.points.iter().filter_map(|point| samples.median(&line.key(point, state)));
        let (least, most) = all.fold((f64::INFINITY, 0.0f64), |(l, m), value| (l.min(value), m.max(value)));
        if most > 0.0 {
            findings.value(format!("{}-spread-{state}", line.name), most / least);
        }
        for point in &self.points {
            for other in self.points.iter().filter(|other| *other != point) {
                let key = format!("{}-{}-over-{}-{state}", line.name, point.x, other.x);
                samples.combine(&key, [&line.key(point, state), &line.key(other, state)], |ours, theirs| ours / theirs);
            }
        }
        let Some(first) = self.points.first() else { return };
        let first = format!("{}-time", line.key(first, state));
        for point in &self.points {
            let key = format!("{}-{}-over-first-{state}-time", line.name, point.x);
            samples.combine(&key, [&format!("{}-time", line.key(point, state)), &first], |time, first| time / first);
        }
    }

    /// A line divided by another.
    fn compare_lines(
        &self,
        samples: &mut Samples,
        findings: &mut Findings,
        [line, other]: [&Line; 2],
        point: &Point,
        state: &str,
    ) {
        let key = format!("{}-over-{}-{}-{state}", line.name, other.name, point.x);
        let of = [line, other].map(|line| line.key(point, state));
        if !samples.combine(&key, [&of[0], &of[1]], |ours, theirs| ours / theirs) {
            return;
        }
        let [ours, theirs] = of.map(|key| samples.median(&key).unwrap_or(f64::NAN));
        let text = format!("{} {ours:.1} Gbit/s, {} {theirs:.1}", line.name, other.name);
        let text = text + &again(samples, &[line, other], point, state);
        findings.cause(key, text + &self.steps_of(other, point, theirs));
    }

    /// A line divided by the best of the others of its protocol.
    fn compare_with_best(
        &self,
        samples: &mut Samples,
        findings: &mut Findings,
        line: &Line,
        point: &Point,
        state: &str,
    ) {
        let rivals = self.lines.iter().filter(|other| *other != line && other.protocol == line.protocol);
        let rivals = rivals.filter_map(|rival| Some((samples.median(&rival.key(point, state))?, rival)));
        let Some((theirs, best)) = rivals.max_by(|(a, _), (b, _)| a.total_cmp(b)) else { return };
        let key = format!("{}-over-best-{}-{state}", line.name, point.x);
        let of = [line, best].map(|line| line.key(point, state));
        if samples.combine(&key, [&of[0], &of[1]], |ours, theirs| ours / theirs) {
            let ours = samples.median(&of[0]).unwrap_or(f64::NAN);
            let text =
                format!("{} {ours:.1} Gbit/s, {} is the best of the others with {theirs:.1}", line.name, best.name);
            findings.cause(key, text);
        }
    }

    /// The time of the steps of a line whose hosts pass the tensor's chunks around.
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

/// How much was sent again, if anything. The paper reports no drops in its simulated network.
fn again(samples: &Samples, lines: &[&Line], point: &Point, state: &str) -> String {
    let shares: Vec<String> = lines
        .iter()
        .filter_map(|line| {
            let share = samples.median(&format!("{}-again", line.key(point, state)))?;
            (share >= 0.005).then(|| format!("{share:.1} % of {}'s packets", line.name))
        })
        .collect();
    match shares.is_empty() {
        true => "; nothing was sent again".into(),
        false => format!("; {} were sent again", shares.join(" and ")),
    }
}

/// Numbers by key, one for each seed.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<String, Vec<f64>>);

impl Samples {
    pub fn put(&mut self, key: impl Into<String>, values: Vec<f64>) {
        self.0.insert(key.into(), values);
    }

    /// The median over the seeds.
    pub fn median(&self, key: &str) -> Option<f64> {
        self.0.get(key).map(|values| Finding::over("seeds", values).median)
    }

    /// Adds a value that follows from two numbers of each seed; false if one of them is unknown.
    pub fn combine(&mut self, key: &str, of: [&str; 2], f: impl Fn(f64, f64) -> f64) -> bool {
        let [Some(a), Some(b)] = of.map(|key| self.0.get(key)) else { return false };
        let values = a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect();
        self.put(key, values);
        true
    }

    /// Medians and ranges.
    pub fn report(&self, findings: &mut Findings) {
        for (key, values) in &self.0 {
            findings.value(key, Finding::over("seeds", values));
        }
    }
}
