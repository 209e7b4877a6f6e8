//! A report as pictures: collectives, flows, links and queues.

use super::Report;
use crate::figure::{Figure, Series};

/// The points of a line that represents any number of values.
const MOST_POINTS: usize = 200;

impl Report {
    /// The figures for which there is data.
    pub fn figures(&self) -> Vec<Figure> {
        let figures = [self.collective_figure(), self.flow_figure(), self.utilisation_figure(), self.queue_figure()];
        figures.into_iter().chain(self.timelines()).filter(|figure| !figure.series.is_empty()).collect()
    }

    fn collective_figure(&self) -> Figure {
        let line = |job: &super::JobReport| {
            Series::new(
                format!("{} ({})", job.name, job.protocol),
                (job.iterations.iter().enumerate())
                    .filter_map(|(number, row)| Some((number, row.end? - row.start)))
                    .map(|(number, seconds)| [number as f64, job.tensor_bytes as f64 * 8e-9 / seconds])
                    .collect(),
            )
        };
        Figure {
            title: "Goodput of each collective".into(),
            x: "collective".into(),
            y: "Gbit/s".into(),
            log_x: false,
            series: self.jobs.iter().map(line).filter(|line| !line.points.is_empty()).collect(),
            marks: Vec::new(),
        }
    }

    /// The share of flows that were complete after a time.
    fn flow_figure(&self) -> Figure {
        let line = |kind: &str| {
            let seconds = self.flow_rows.iter().filter(|row| row.kind == kind).map(|row| row.seconds).collect();
            let points =
                quantiles(seconds).into_iter().map(|[share, seconds]| [1e6 * seconds, 100.0 * share]).collect();
            Series::new(if kind == "dctcp" { "flows under DCTCP".into() } else { format!("{kind}s") }, points)
        };
        Figure {
            title: "Completion times of messages and flows".into(),
            x: "us".into(),
            y: "complete, %".into(),
            log_x: true,
            series: ["message", "dctcp"].map(line).into_iter().filter(|line| !line.points.is_empty()).collect(),
            marks: Vec::new(),
        }
    }

    fn utilisation_figure(&self) -> Figure {
        let series = self.by_group(|row| 100.0 * row.utilisation);
        let title = "Share of the run that links spent sending".into();
        let (x, y) = ("links, from the least used, %".into(), "used, %".into());
        Figure { title, x, y, log_x: false, series, marks: Vec::new() }
    }

    fn queue_figure(&self) -> Figure {
        let series = self.by_group(|row| row.counters.max_queue_bytes as f64 / 1024.0);
        let title = "Most that ever waited in output queues".into();
        let (x, y) = ("queues, from the emptiest, %".into(), "KiB".into());
        Figure { title, x, y, log_x: false, series, marks: Vec::new() }
    }

    /// For each group of links, the value that a share of them does not exceed.
    fn by_group(&self, value: impl Fn(&super::LinkRow) -> f64) -> Vec<Series> {
        let line = |name: &String| {
            let values = self.link_rows.iter().filter(|row| row.group() == *name).map(&value).collect();
            let points = quantiles(values).into_iter().map(|[share, value]| [100.0 * share, value]).collect();
            Series::new(name, points)
        };
        self.links.iter().map(|group| line(&group.name)).collect()
    }
}

/// Pairs of a share and the value that this share of all does not exceed, from the least value to the greatest.
fn quantiles(mut values: Vec<f64>) -> Vec<[f64; 2]> {
    values.sort_by(f64::total_cmp);
    let share = |index: usize| (index + 1) as f64 / values.len() as f64;
    let step = values.len().div_ceil(MOST_POINTS).max(1);
    let last = values.len().checked_sub(1);
    let indices = (0..values.len()).step_by(step).chain(last.filter(|last| !last.is_multiple_of(step)));
    indices.map(|index| [share(index), values[index]]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_many_values_are_thinned_and_end_with_the_greatest() {
        assert_eq!(quantiles(vec![]), Vec::<[f64; 2]>::new());
        assert_eq!(quantiles(vec![3.0, 1.0]), [[0.5, 1.0], [1.0, 3.0]]);
        let many = quantiles((0..1_001).map(f64::from).collect());
        assert!(many.len() <= MOST_POINTS + 1);
        assert_eq!((many[0][1], many[many.len() - 1]), (0.0, [1.0, 1000.0]));
    }
}
