//! Families of series, and the text that Prometheus reads (exposition format 0.0.4, which all its clients understand).

use std::fmt::Write;

/// The prefix of every name.
pub const PREFIX: &str = "tributary";

/// The kind of a family, for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value never falls while the switch runs.
    Counter,
    /// The value is how much there is now.
    Gauge,
}

impl Kind {
    /// Prometheus' word for the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// One series of a family: the values of its labels, in their order, and its value.
pub(crate) type Series = (Vec<String>, f64);

/// A text that is being written.
#[derive(Default)]
pub(crate) struct Exposition(String);

impl Exposition {
    /// Writes a family with its series. A family without series is written too, so that people find its name.
    pub fn family(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        labels: &[&str],
        series: impl IntoIterator<Item = Series>,
    ) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {}", kind.name()));
        for (values, value) in series {
            debug_assert_eq!(values.len(), labels.len(), "{name}");
            let pair = |(label, value): (&&str, &String)| format!("{label}=\"{}\"", escaped(value));
            let pairs: Vec<String> = labels.iter().zip(&values).map(pair).collect();
            match pairs.is_empty() {
                true => self.line(format_args!("{name} {value}")),
                false => self.line(format_args!("{name}{{{}}} {value}", pairs.join(","))),
            }
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }

    /// The whole text.
    pub fn text(self) -> String {
        self.0
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_its_help_its_kind_and_a_line_for_each_series() {
        let mut text = Exposition::default();
        text.family("a_total", Kind::Counter, "Counts a.", &[], [(vec![], 3.0)]);
        let odd = vec!["x\"y\\z\n".to_owned(), "2".to_owned()];
        text.family("b", Kind::Gauge, "Two\nlines.", &["who", "port"], [(odd, 0.5)]);
        text.family("c", Kind::Gauge, "Nothing yet.", &["who"], []);
        let lines = [
            "# HELP a_total Counts a.",
            "# TYPE a_total counter",
            "a_total 3",
            "# HELP b Two\\nlines.",
            "# TYPE b gauge",
            r#"b{who="x\"y\\z\n",port="2"} 0.5"#,
            "# HELP c Nothing yet.",
            "# TYPE c gauge",
            "",
        ];
        assert_eq!(text.text(), lines.join("\n"));
    }
}
