//! A protocol's own counters and gauges, by name. Drivers pass them on to people and to monitoring unchanged.

/// One figure of a protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// The figure's name within its protocol: lower case with underscores, the unit last (`timeout_seconds`).
    pub name: &'static str,
    /// One sentence that says what the figure means.
    pub help: &'static str,
    /// The kind of the figure, and its present value.
    pub value: MetricValue,
}

/// The value of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    /// How often something has happened; it never falls.
    Counter(u64),
    /// How much there is of something now, or was at most.
    Gauge(f64),
}

impl Metric {
    /// A counter.
    pub const fn counter(name: &'static str, value: u64, help: &'static str) -> Metric {
        Metric { name, help, value: MetricValue::Counter(value) }
    }

    /// A gauge.
    pub const fn gauge(name: &'static str, value: f64, help: &'static str) -> Metric {
        Metric { name, help, value: MetricValue::Gauge(value) }
    }
}

impl MetricValue {
    /// The value of two machines together: counters are added, of gauges the larger counts.
    #[must_use]
    pub fn with(self, other: MetricValue) -> MetricValue {
        match (self, other) {
            (MetricValue::Counter(own), MetricValue::Counter(other)) => MetricValue::Counter(own + other),
            (MetricValue::Gauge(own), MetricValue::Gauge(other)) => MetricValue::Gauge(own.max(other)),
            (own, _) => own,
        }
    }

    /// The value as a number.
    pub fn as_f64(self) -> f64 {
        match self {
            MetricValue::Counter(count) => count as f64,
            MetricValue::Gauge(value) => value,
        }
    }
}

/// Adds the figures of another machine of the same protocol.
pub fn combine(sum: &mut Vec<Metric>, more: &[Metric]) {
    for metric in more {
        match sum.iter_mut().find(|known| known.name == metric.name) {
            Some(known) => known.value = known.value.with(metric.value),
            None => sum.push(*metric),
        }
    }
}

/// The value of a counter or gauge by name; `None` if no figure has that name.
pub fn named(metrics: &[Metric], name: &str) -> Option<f64> {
    metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value.as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_several_machines_add_up_and_of_gauges_the_largest_counts() {
        let mut sum = vec![Metric::counter("losses", 3, ""), Metric::gauge("wait_seconds", 0.5, "")];
        combine(&mut sum, &[Metric::gauge("wait_seconds", 0.25, ""), Metric::counter("losses", 4, "")]);
        combine(&mut sum, &[Metric::counter("finds", 1, "")]);
        assert_eq!(["losses", "wait_seconds", "finds"].map(|name| named(&sum, name)), [7.0, 0.5, 1.0].map(Some));
        assert_eq!(named(&sum, "wings"), None);
    }
}
