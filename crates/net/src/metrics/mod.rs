//! What Prometheus reads of a switch. `/metrics` reports on the switch and on all jobs together, in a number of series
//! that does not grow with the jobs that come and go. `/metrics/jobs` reports on each job that is there.

mod exposition;
mod job_families;
mod switch_families;

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_proto::contract::metric::MetricValue;

use self::exposition::{Exposition, Series};
pub use self::exposition::{Kind, PREFIX};
use self::job_families::JOBS;
use self::switch_families::SWITCH;
use crate::control_plane::Totals;
use crate::history::History;
use crate::status::{JobStatus, MetricNumber, MetricStatus, SwitchStatus};

/// The states of a member, a server or a switch below.
const STATES: [&str; 3] = ["present", "left", "lost"];

/// The data from which the series are made.
pub(crate) struct MetricsInput {
    pub status: SwitchStatus,
    pub history: History,
    pub totals: Totals,
    /// The tenants of the file of tokens.
    pub tenants: Vec<Arc<str>>,
    /// When the switch started, in seconds since 1970.
    pub started_at_s: f64,
}

/// A family of series.
pub struct Family {
    /// The family's name, without the prefix of all names.
    name: &'static str,
    /// The kind of its values, for Prometheus.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// One sentence that says what the family means.
    pub help: &'static str,
    read: fn(&MetricsInput) -> Vec<Series>,
}

impl Family {
    const fn new(
        name: &'static str,
        kind: Kind,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&MetricsInput) -> Vec<Series>,
    ) -> Family {
        Family { name, kind, labels, help, read }
    }

    /// The family's name. That of the process has no prefix, as Prometheus's own clients name it.
    pub fn name(&self) -> String {
        match self.name.starts_with("process_") {
            true => self.name.to_owned(),
            false => format!("{PREFIX}_{}", self.name),
        }
    }
}

/// The families of `/metrics`, except those that protocols name themselves.
pub fn of_switches() -> &'static [Family] {
    SWITCH
}

/// The families of `/metrics/jobs`, except those that protocols name themselves.
pub fn of_jobs() -> &'static [Family] {
    JOBS
}

/// The text of `/metrics`.
pub(crate) fn switch_text(input: &MetricsInput) -> String {
    let mut text = Exposition::default();
    families(&mut text, SWITCH, input);
    let shared = input.status.switch.shared.iter().flat_map(|shared| {
        shared.metrics.iter().map(|metric| (own_name(&shared.protocol, "", &metric.name), Vec::new(), metric.clone()))
    });
    protocols_own(&mut text, &[], shared);
    let totals = input.totals.protocols.iter().flat_map(|(protocol, totals)| {
        let metrics = MetricStatus::all(&totals.metrics);
        metrics.into_iter().map(|metric| (own_name(protocol, "jobs_", &metric.name), Vec::new(), metric))
    });
    protocols_own(&mut text, &[], totals);
    text.text()
}

/// The text of `/metrics/jobs`.
pub(crate) fn jobs_text(input: &MetricsInput) -> String {
    let mut text = Exposition::default();
    families(&mut text, JOBS, input);
    let own = input.status.jobs.iter().flat_map(|job| {
        let name = |metric: &MetricStatus| own_name(&job.protocol, "job_", &metric.name);
        job.metrics.iter().map(move |metric| (name(metric), job_families::with(job, &[]), metric.clone()))
    });
    protocols_own(&mut text, &["name", "id"], own);
    text.text()
}

fn families(text: &mut Exposition, families: &[Family], input: &MetricsInput) {
    for family in families {
        text.family(&family.name(), family.kind, family.help, family.labels, (family.read)(input));
    }
}

/// The name of the family for a protocol's own metric.
fn own_name(protocol: &str, of: &str, metric: &str) -> String {
    format!("{PREFIX}_{}_{of}{metric}", protocol.replace('-', "_"))
}

/// Writes the protocols' own metrics: one family for each name that the protocols give.
fn protocols_own(
    text: &mut Exposition,
    labels: &[&str],
    metrics: impl Iterator<Item = (String, Vec<String>, MetricStatus)>,
) {
    let mut families: BTreeMap<String, (Kind, String, Vec<Series>)> = BTreeMap::new();
    for (name, values, metric) in metrics {
        let (name, kind) = match metric.value {
            MetricNumber::Counter(_) => (format!("{name}_total"), Kind::Counter),
            MetricNumber::Gauge(_) => (name, Kind::Gauge),
        };
        let (.., series) = families.entry(name).or_insert((kind, metric.help, Vec::new()));
        series.push((values, MetricValue::from(metric.value).as_f64()));
    }
    for (name, (kind, help, series)) in families {
        text.family(&name, kind, &help, labels, series);
    }
}

fn one(value: f64) -> Vec<Series> {
    vec![(Vec::new(), value)]
}

/// The number of jobs' members, or of jobs' servers or switches, in each state.
fn by_state(input: &MetricsInput, states: fn(&JobStatus) -> Vec<&str>) -> Vec<Series> {
    let found: Vec<&str> = input.status.jobs.iter().flat_map(states).collect();
    let count = |state| found.iter().filter(|&&other| other == state).count() as f64;
    STATES.map(|state| (vec![state.to_owned()], count(state))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_protocol_have_its_name_without_dashes_and_those_of_jobs_one_family_with_their_labels() {
        let metric = |name: &str, value| MetricStatus { name: name.into(), help: "Feathers lost.".into(), value };
        let own = [("a", 3), ("b", 4)].map(|(job, losses)| {
            let name = own_name("carrier-pigeon", "job_", "losses");
            (name, vec![job.to_owned()], metric("losses", MetricNumber::Counter(losses)))
        });
        let rest = (own_name("pigeon", "", "rest_seconds"), vec!["a".into()], metric("", MetricNumber::Gauge(0.5)));
        let mut text = Exposition::default();
        protocols_own(&mut text, &["name"], own.into_iter().chain([rest]));
        let lines = [
            "# HELP tributary_carrier_pigeon_job_losses_total Feathers lost.",
            "# TYPE tributary_carrier_pigeon_job_losses_total counter",
            r#"tributary_carrier_pigeon_job_losses_total{name="a"} 3"#,
            r#"tributary_carrier_pigeon_job_losses_total{name="b"} 4"#,
            "# HELP tributary_pigeon_rest_seconds Feathers lost.",
            "# TYPE tributary_pigeon_rest_seconds gauge",
            r#"tributary_pigeon_rest_seconds{name="a"} 0.5"#,
            "",
        ];
        assert_eq!(text.text(), lines.join("\n"));
    }

    #[test]
    fn names_say_once_what_they_count() {
        let names: Vec<String> = SWITCH.iter().chain(JOBS).map(Family::name).collect();
        for (index, (family, name)) in SWITCH.iter().chain(JOBS).zip(&names).enumerate() {
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
            assert!(family.help.ends_with('.'), "{name}");
            assert!(!names[..index].contains(name), "{name} is there twice");
            assert!(!family.labels.iter().any(|label| ["job", "instance"].contains(label)), "{name}: Prometheus's own");
        }
    }
}
