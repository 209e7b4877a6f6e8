//! SwitchML Figure 11: the cost of scaling and conversion of element types, and the gain of two-byte elements.

use serde::Deserialize;
use tributary_numeric::DType;
use tributary_proto::switchml::PROTOCOL;

use super::rack::{Elements, Rack, RackJob};
use super::scaling::RateAndPool;
use crate::finding::{Figure, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversion {
    /// The rack.
    pub rack: Rack,
    /// Elements in the tensor.
    pub elements: u32,
    /// Ranks.
    pub workers: u32,
    /// Elements of four bytes in a packet.
    pub elements_per_packet: u16,
    /// Link rates, and the pool size at each.
    pub rates: Vec<RateAndPool>,
    /// The lines of the figure; the others are compared with the first.
    pub lines: Vec<Line>,
}

/// One line of the figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// The elements' type.
    #[serde(rename = "type")]
    pub dtype: String,
    /// True if floats are summed in fixed point.
    #[serde(default)]
    pub fixed_point: bool,
}

impl Line {
    fn elements(&self) -> Result<Elements, ReproduceError> {
        let dtype = DType::from_name(&self.dtype)
            .ok_or_else(|| ReproduceError::Bad(format!("\"{}\" is not an element type", self.dtype)))?;
        Ok(Elements { dtype, fixed_point: self.fixed_point })
    }
}

impl Experiment for Conversion {
    /// For each rate, and each line except the first, the finding `<line>-<gbit>`: its ATE/s divided by the first
    /// line's.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut jobs = Vec::new();
        for rate in &self.rates {
            for line in &self.lines {
                jobs.push(self.job(rate, line.elements()?));
            }
        }
        let rates = context.watch.all(&jobs, |job| Ok(job.elements_per_second(&job.run(context.watch)?)))?;
        let mut findings = Findings::default();
        let mut series: Vec<Vec<[f64; 2]>> = vec![Vec::new(); self.lines.len()];
        for (rate, ate) in self.rates.iter().zip(rates.chunks(self.lines.len())) {
            for ((line, ate_per_s), points) in self.lines.iter().zip(ate).zip(&mut series) {
                points.push([rate.gbit as f64, ate_per_s / 1e6]);
                let key = format!("{}-{}", line.name, rate.gbit);
                findings.cause(&*key, self.cause(rate, ate[0], *ate_per_s));
                findings.value(key, ate_per_s / ate[0]);
            }
        }
        let named = self.lines.iter().zip(series);
        findings.figures.push(Figure {
            title: "Aggregated tensor elements per second by element type".into(),
            x: "link rate (Gbit/s)".into(),
            y: "ATE/s (10^6)".into(),
            log_x: true,
            series: named.map(|(line, points)| Series::new(&line.name, points)).collect(),
            marks: Vec::new(),
        });
        Ok(findings)
    }
}

impl Conversion {
    fn cause(&self, rate: &RateAndPool, first: f64, ate: f64) -> String {
        let ms = |ate: f64| 1e3 * f64::from(self.elements) / ate;
        format!(
            "{:.3} ms at {} Gbit/s where {} takes {:.3} ms: packets have the same bytes, and in fixed point each slot \
             agrees on an exponent first",
            ms(ate),
            rate.gbit,
            self.lines[0].name,
            ms(first)
        )
    }

    fn job(&self, rate: &RateAndPool, of: Elements) -> RackJob {
        RackJob {
            rack: self.rack,
            gbit: rate.gbit,
            protocol: &PROTOCOL,
            servers: None,
            workers: self.workers,
            elements: self.elements,
            of,
            elements_per_packet: self.elements_per_packet,
            slots: rate.slots,
            rto: None,
            to_the_letter: false,
            host_ns: 0.0,
            loss: 0.0,
            seed: 1,
        }
    }
}
