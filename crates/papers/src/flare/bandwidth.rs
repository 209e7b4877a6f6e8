//! Figures 7, 10 and 11 and the rule of §6.4: how much a switch sums for its number of cores, and how much memory that takes,
//! by design and by the size of the data. Each is computed by the equations and by the processor, whose packets arrive
//! at random.

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_numeric::DType;
use tributary_proto::contract::work::{Needs, Work};
use tributary_sim::cores::model::{Costs, Design, Handling};
use tributary_sim::cores::prices::{Code, Prices};
use tributary_sim::cores::{Assignment, Shape};

use super::bench::{Bench, DesignName, Stream, shape};
use super::service::{Case, block_gap, equation_1, equation_2};
use crate::{Context, Experiment, Figure, Finding, Findings, ReproduceError, Series};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// K.
    pub cores: u32,
    /// C.
    pub cluster: u32,
    /// P: packets of a block.
    pub children: u64,
    /// Bytes of a packet's elements.
    pub payload: u64,
    /// The costs of packets.
    pub costs: CostsName,
    /// The least number of blocks in a run.
    pub blocks: u64,
    /// Packets arrive at equal intervals.
    #[serde(default)]
    pub steady: bool,
    /// A block gets the subset of cores with the fewest blocks as its first packet comes, and not by its number.
    #[serde(default)]
    pub first_come: bool,
    /// Cycles until a cluster's first handler is in its instruction cache; with it, one allreduce runs alone.
    #[serde(default)]
    pub cold: Option<u64>,
    /// The most blocks whose packets take turns; if left out, as many as the data has.
    #[serde(default)]
    pub most_staggered: Option<u64>,
    /// Sizes of the data, in KiB.
    pub sizes: Vec<u64>,
    /// The lines that are compared.
    pub lines: Vec<Line>,
    /// Ratios of findings.
    #[serde(default)]
    pub ratios: Vec<Ratio>,
}

/// One way to sum and to schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// How packets are summed.
    pub design: DesignName,
    /// S: 1, or C.
    pub subset: u32,
    /// The type of elements, if costs are counted.
    #[serde(default = "words")]
    pub r#type: String,
    /// The clusters are divided by this, and one share of them and of the blocks is simulated; the result is scaled to
    /// all.
    #[serde(default = "one")]
    pub divisor: u32,
}

impl Line {
    fn dtype(&self) -> Result<DType, ReproduceError> {
        let unknown = || ReproduceError::Bad(format!("{}: {} is not a type", self.name, self.r#type));
        DType::from_name(&self.r#type).ok_or_else(unknown)
    }
}

fn words() -> String {
    DType::I32.to_string()
}

fn one() -> u32 {
    1
}

/// The costs of packets.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CostsName {
    /// L, and no other costs.
    Model(u64),
    /// The counted costs of handlers.
    Counted(Code),
}

/// One finding divided by another, or by the largest of several.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// The ratio's name.
    pub key: String,
    /// The dividend: a finding, or the least of several.
    pub of: Vec<String>,
    /// The divisors.
    pub over: Vec<String>,
}

/// A cycle is a nanosecond, so that gigabits a second are bits a cycle.
const TERA: f64 = 1e-3;
const MIB: f64 = (1u64 << 20) as f64;
/// When queues are measured, packets arrive at this share of the switch's measured rate.
const LOADED: f64 = 0.95;

/// The results of one run, in Tbit/s and MiB.
#[derive(Clone, Copy)]
struct Measured {
    bandwidth: f64,
    input: f64,
    working: f64,
}

impl Experiment for Bandwidth {
    /// Findings, for each line and size: `<line>-<KiB>` in Tbit/s, `-input` and `-working` in MiB; each with `-model`
    /// by the equations as printed, and with `-right` by (C + 1) / 2; and every ratio by its key. Elements a second:
    /// `<line>-<KiB>-elements`, in 10^12.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.children < 2 || self.payload == 0 || self.blocks == 0 || self.sizes.contains(&0) {
            return Err(ReproduceError::Bad("numbers are one at least, and children two".into()));
        }
        let points: Vec<(&Line, u64, u64)> = self
            .lines
            .iter()
            .flat_map(|line| self.sizes.iter().map(move |&size| (line, size)))
            .flat_map(|(line, size)| (1..=context.seeds).map(move |seed| (line, size, seed)))
            .collect();
        let measured = context.watch.all(&points, |&(line, size, seed)| self.measure(line, size, seed))?;
        let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (&(line, size, _), measured) in points.iter().zip(&measured) {
            let mut note = |key: String, value: f64| values.entry(key).or_default().push(value);
            let name = format!("{}-{size}", line.name);
            let element = line.dtype()?.size() as f64;
            note(name.clone(), measured.bandwidth);
            note(format!("{name}-elements"), measured.bandwidth / 8.0 / element);
            note(format!("{name}-input"), measured.input);
            note(format!("{name}-working"), measured.working);
            for (kind, printed) in [("model", true), ("right", false)] {
                let model = self.model(line, size, printed);
                note(format!("{name}-{kind}"), model.bandwidth);
                note(format!("{name}-input-{kind}"), model.input);
                note(format!("{name}-working-{kind}"), model.working);
            }
        }
        let mut findings = Findings::default();
        self.explain(&mut findings);
        self.compare(&values, &mut findings)?;
        for (key, of_seeds) in &values {
            findings.value(key, Finding::over("seeds", of_seeds));
        }
        self.draw(&values, &mut findings);
        Ok(findings)
    }
}

impl Bandwidth {
    fn case(&self, line: &Line, size: u64) -> Case {
        Case {
            name: line.name.clone(),
            design: line.design,
            cores: self.cores / line.divisor,
            subset: line.subset,
            children: self.children,
            // For the line rate: a packet arrives whenever the cores together can take one more.
            gap: f64::from(line.divisor) / f64::from(self.cores),
            staggered: (size * 1024 / self.payload).min(self.most_staggered.unwrap_or(u64::MAX))
                / u64::from(line.divisor),
            rest: 0.0,
            steady: self.steady,
        }
    }

    /// The result of the equations, for a line at a size.
    fn model(&self, line: &Line, size: u64, printed: bool) -> Measured {
        let case = self.case(&Line { divisor: 1, ..line.clone() }, size);
        let (children, cores) = (self.children as f64, f64::from(self.cores));
        let service = equation_2(&case, self.cluster, printed);
        let rate = (cores / service).min(1.0 / case.gap);
        let queue = equation_1(&case, service);
        let latency = (children - 1.0) * block_gap(&case) + (queue + 1.0) * service;
        let buffers = match line.design {
            DesignName::Buffers(buffers) => buffers.into(),
            DesignName::Tree => (children - 1.0) / children.log2(),
        };
        let packet = self.payload as f64;
        Measured {
            // Packets in L, of as many cycles as L has if a packet is combined at a byte a cycle.
            bandwidth: rate / self.combine(line) * packet * 8.0 * TERA,
            input: (queue + 1.0) * cores * packet / MIB,
            working: buffers * rate / children * latency * packet / MIB,
        }
    }

    /// L.
    fn combine(&self, line: &Line) -> f64 {
        self.costs_of(line).map_or(f64::NAN, |costs| costs.combine as f64)
    }

    fn costs_of(&self, line: &Line) -> Result<Costs, ReproduceError> {
        let code = match self.costs {
            CostsName::Model(combine) => {
                // §6.3 says that a copy into a tree's buffer is negligible; the first packet of another buffer takes L
                // like the others.
                let copy = if line.design == DesignName::Tree { 0 } else { combine };
                return Ok(Costs { start: 0, copy, combine, merge: combine, send: 0 });
            }
            CostsName::Counted(code) => code,
        };
        let dtype = line.dtype()?;
        let prices = Prices::new(code, dtype);
        let prices = prices.ok_or_else(|| ReproduceError::Bad(format!("there are no handlers for {dtype}")))?;
        let needs = match line.design {
            DesignName::Buffers(buffers) => Needs::Buffer(buffers as u16),
            DesignName::Tree => Needs::Leaf(0, self.children as u16),
        };
        let elements = self.payload / dtype.size() as u64;
        let first = prices.called(needs, 0, &Work { copied: elements, ..Work::default() }, 1);
        let later = prices.called(needs, 0, &Work { combined: elements, emitted: 1, ..Work::default() }, 1);
        Ok(Costs {
            start: prices.begin(needs).round() as u64,
            copy: first.copy.total(),
            combine: if line.design == DesignName::Tree { later.merge.total() } else { later.combine.total() },
            merge: later.merge.total(),
            send: later.end.total(),
        })
    }

    fn measure(&self, line: &Line, size: u64, seed: u64) -> Result<Measured, ReproduceError> {
        let costs = self.costs_of(line)?;
        let mut case = self.case(line, size);
        case.staggered = case.staggered.max(1);
        if line.divisor == 0 || !(self.cores / self.cluster).is_multiple_of(line.divisor) {
            return Err(ReproduceError::Bad(format!("{}: clusters cannot be divided by {}", line.name, line.divisor)));
        }
        let assignment = if self.first_come { Assignment::FirstCome } else { Assignment::ByNumber };
        let (cold_start, shape) = (self.cold.unwrap_or(0), shape(case.cores, self.cluster, line.subset)?);
        let shape = Shape { cold_start, assignment, ..shape };
        let service = (costs.start + costs.combine) as f64;
        let at_rate = self.feed(line, &case, shape, case.gap * service, seed)?;
        let packet = self.payload as f64 * f64::from(line.divisor);
        let rate = self.rate(&at_rate);
        let loaded = match self.cold {
            Some(_) => at_rate,
            None => self.feed(line, &case, shape, 1.0 / (LOADED * rate), seed)?,
        };
        let counters = loaded.processor.counters();
        Ok(Measured {
            bandwidth: rate * packet * 8.0 * TERA,
            input: counters.packets.peak() as f64 * packet / MIB,
            working: counters.working_bytes.mean(loaded.end()) * packet / MIB,
        })
    }

    /// Packets a cycle: of all packets if an allreduce runs alone, else of those in the middle of the run.
    fn rate(&self, bench: &Bench) -> f64 {
        let finished = &bench.finished;
        if self.cold.is_some() {
            return finished.len() as f64 / bench.end().max(1) as f64;
        }
        let last = finished.iter().map(|one| one.arrived).max().unwrap_or(0);
        let (from, to) = (last / 4, last - last / 4);
        let middle = finished.iter().filter(|one| (from..to).contains(&one.ended)).count();
        if middle == 0 {
            // There are few packets, and all end after the last one has arrived.
            return finished.len() as f64 / bench.end().max(1) as f64;
        }
        middle as f64 / (to - from).max(1) as f64
    }

    fn feed(&self, line: &Line, case: &Case, shape: Shape, gap: f64, seed: u64) -> Result<Bench, ReproduceError> {
        // The same number of blocks for a share of the clusters: results vary no more there.
        let blocks = if self.cold.is_some() { case.staggered } else { self.blocks.next_multiple_of(case.staggered) };
        let stream =
            Stream { blocks, children: self.children, staggered: case.staggered, gap, random: !self.steady, rest: 0.0 };
        let (design, costs) = (Design::from(line.design), self.costs_of(line)?);
        let handling = Handling { design, children: self.children as u32, buffer_bytes: 1, costs };
        let mut bench = Bench::plain(shape, handling);
        bench.run(&stream.arrivals(seed))?;
        Ok(bench)
    }

    fn compare(&self, values: &BTreeMap<String, Vec<f64>>, findings: &mut Findings) -> Result<(), ReproduceError> {
        for Ratio { key, of, over } in &self.ratios {
            let at = |names: &[String], seed: usize, better: fn(f64, f64) -> f64| -> Result<f64, ReproduceError> {
                let unknown = |name: &String| ReproduceError::Bad(format!("{key}: nothing is found of {name}"));
                let each = names.iter().map(|name| {
                    values.get(name).and_then(|of_seeds| of_seeds.get(seed)).copied().ok_or_else(|| unknown(name))
                });
                let each: Vec<f64> = each.collect::<Result<_, _>>()?;
                each.into_iter().reduce(better).ok_or_else(|| ReproduceError::Bad(format!("{key}: compares nothing")))
            };
            let seeds = of.first().and_then(|name| values.get(name)).map_or(1, Vec::len);
            let ratios = (0..seeds).map(|seed| Ok(at(of, seed, f64::min)? / at(over, seed, f64::max)?));
            findings.value(key, Finding::over("seeds", &ratios.collect::<Result<Vec<_>, ReproduceError>>()?));
        }
        Ok(())
    }

    /// Why measured values may differ from published ones.
    fn explain(&self, findings: &mut Findings) {
        let random = "packets of all the data's blocks take turns, so that all of them are begun at once, and the model has no more than a block \
                      for each core; with most_staggered = 512 it is the model's";
        let printed =
            "the printed rule has the numbers 2 and 4 exchanged; with four buffers from 128 KiB it is the row below";
        let short = "an allreduce of so little is over before all cores have a packet's time to themselves: its first and last handlers \
                     are most of it, and the cold cache costs 1,230 cycles of that; cold = 0 has the rest";
        let design = "the authors' handlers spin for a buffer that the packet's header names, at random; ours take whichever is free, so \
                      that two buffers serve two handlers at any size; equation 2 has them wait L (C - 1) / 2 as a single one's";
        for line in &self.lines {
            for size in &self.sizes {
                let name = format!("{}-{size}", line.name);
                findings.cause(format!("{name}-working"), random);
                match (self.cold, line.design) {
                    (Some(_), _) => findings.cause(name, short),
                    (None, DesignName::Buffers(2..)) => findings.cause(name, design),
                    _ => {}
                }
            }
        }
        for Ratio { key, .. } in &self.ratios {
            findings.cause(key, if key.starts_with("printed") { printed } else { random });
            if key.contains("scaling") {
                let cause = "four clusters see a sixteenth of the packets, and their random gaps average out over fewer of them";
                findings.cause(key, cause);
            }
        }
    }

    /// A line for each design, simulated and by the equations.
    fn draw(&self, values: &BTreeMap<String, Vec<f64>>, findings: &mut Findings) {
        let series = |suffix: &str, called: &str| -> Vec<Series> {
            let points = |line: &Line| {
                let at = |&size: &u64| {
                    let found = Finding::over("seeds", values.get(&format!("{}-{size}{suffix}", line.name))?);
                    Some([size as f64, found.median])
                };
                self.sizes.iter().filter_map(at).collect()
            };
            self.lines.iter().map(|line| Series::new(format!("{}{called}", line.name), points(line))).collect()
        };
        let figure = |title: &str, y: &str, series| Figure {
            title: title.into(),
            x: "data, KiB".into(),
            y: y.into(),
            log_x: true,
            series,
            marks: Vec::new(),
        };
        let mut both = series("", "");
        if matches!(self.costs, CostsName::Model(_)) {
            both.extend(series("-model", ", equations"));
        }
        findings.figures.push(figure("Bandwidth by size", "Tbit/s", both));
        findings.figures.push(figure("Input buffers by size", "MiB", series("-input", "")));
        findings.figures.push(figure("Working memory by size", "MiB", series("-working", "")));
    }
}
