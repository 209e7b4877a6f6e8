//! Figures 13 and 14: sparse blocks in hash tables and arrays, with the counted costs of handlers. Indices are random,
//! block by block.

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_numeric::DType;
use tributary_proto::contract::work::{Needs, Work};
use tributary_sim::cores::prices::{Code, Prices, Storage};
use tributary_sim::cores::steps::{Called, Machine};
use tributary_sim::cores::{self, Processor};
use tributary_sim::rng::{Purpose, Rng};

use super::bench::{Stream, shape};
use crate::{Context, Experiment, Figure, Finding, Findings, ReproduceError, Series};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sparse {
    /// K.
    pub cores: u32,
    /// C.
    pub cluster: u32,
    /// P: packets of a block.
    pub children: u32,
    /// Pairs of a packet.
    pub pairs: u32,
    /// Additional pairs that fit into a packet, so that most blocks of a host fit.
    pub slack: u32,
    /// Slots of a hash table.
    pub hash_slots: u32,
    /// Bytes of a packet.
    pub payload: u64,
    /// How handlers are written.
    pub handlers: Code,
    /// The data of a host, in KiB.
    pub size: u64,
    /// Blocks of a run, at least.
    pub blocks: u64,
    /// Shares of elements that are not zero, in percent.
    pub densities: Vec<f64>,
}

/// Bytes of an element; an array has a bit for each element, a table an index for each value.
const VALUE: f64 = 4.0;
const KEY: f64 = 4.0;
const KIB: f64 = 1024.0;

/// One block in a switch.
#[derive(Default)]
struct Block {
    /// Of a hash table: the index in each slot, plus one.
    table: Vec<u32>,
    /// A bit for each index that some child has contributed.
    all: Vec<u64>,
    occupied: u32,
    children: u32,
    spilled: u32,
}

/// The totals of all blocks.
#[derive(Clone, Copy, Default)]
struct Counted {
    distinct: u64,
    out: u64,
    packets: u64,
    least_packets: u64,
}

/// A machine for blocks whose packets have random indices.
struct Blocks<'a> {
    setup: &'a Sparse,
    storage: Storage,
    span: u32,
    density: f64,
    prices: Prices,
    seed: u64,
    open: BTreeMap<u64, Block>,
    counted: Counted,
    cycles: f64,
}

impl Machine for Blocks<'_> {
    fn call(&mut self, _now: u64, packet: &cores::Packet, _buffer: u32) -> Called {
        let work = self.work(packet.block, packet.child);
        let called = self.prices.called(packet.needs, 0, &work, 1);
        self.cycles += (packet.start + called.combine.total() + called.end.total()) as f64;
        called
    }
}

impl Blocks<'_> {
    /// The machine's work for a child's packet.
    fn work(&mut self, number: u64, child: u32) -> Work {
        let Sparse { children, pairs, hash_slots, .. } = *self.setup;
        let mut rng = Rng::new(self.seed, Purpose::Arrivals, (number << 10 | u64::from(child)) + 1);
        let block = self.open.entry(number).or_default();
        if block.all.is_empty() {
            block.all = vec![0; self.span.div_ceil(64) as usize];
            block.table = vec![0; hash_slots as usize];
        }
        let mut work = Work::default();
        let mut index = 0.0;
        loop {
            // The gaps between elements of a random set have a geometric distribution.
            index += 1.0 + (rng.exponential() / -(1.0 - self.density).ln()).floor();
            if index > f64::from(self.span) {
                break;
            }
            let index = index as u32 - 1;
            let (word, bit) = (&mut block.all[index as usize / 64], 1 << (index % 64));
            let is_known = *word & bit != 0;
            *word |= bit;
            let there = match self.storage {
                Storage::Hash => std::mem::replace(&mut block.table[(index % hash_slots) as usize], index + 1),
                _ => {
                    if is_known {
                        index + 1
                    } else {
                        0
                    }
                }
            };
            match there {
                0 => work.inserted += 1,
                there if there == index + 1 => work.hit += 1,
                there => {
                    // The first element to arrive keeps its slot.
                    block.table[(index % hash_slots) as usize] = there;
                    work.spilled += 1;
                }
            }
        }
        // Spilled pairs are sent when they fill a packet.
        let spilled = block.spilled + work.spilled as u32;
        work.emitted += u64::from(spilled / pairs - block.spilled / pairs);
        block.spilled = spilled;
        block.occupied += work.inserted as u32;
        block.children += 1;
        if block.children == children {
            self.close(number, &mut work);
        }
        work
    }

    fn close(&mut self, number: u64, work: &mut Work) {
        let Sparse { children, pairs, hash_slots, .. } = *self.setup;
        let Some(block) = self.open.remove(&number) else { return };
        let kept = u64::from(block.occupied);
        let all = block.all.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        let cells = if self.storage == Storage::Hash { hash_slots } else { self.span };
        (work.completed, work.closed) = (1, children.into());
        (work.scanned_full, work.scanned_empty) = (kept, u64::from(cells) - kept);
        let rest = kept + u64::from(block.spilled % pairs);
        work.emitted += rest.div_ceil(pairs.into()).max(1);
        work.unfilled += rest % u64::from(pairs);
        let Counted { distinct, out, packets, least_packets } = &mut self.counted;
        *distinct += all;
        *out += kept + u64::from(block.spilled);
        *packets += u64::from(block.spilled / pairs) + rest.div_ceil(pairs.into()).max(1);
        *least_packets += all.div_ceil(pairs.into()).max(1);
    }
}

/// The results of one run.
struct Measured {
    bandwidth: f64,
    model: f64,
    traffic: f64,
    packets: f64,
    block_kib: f64,
    values_kib: f64,
}

/// The findings of all seeds by name.
type Values = BTreeMap<String, Vec<f64>>;

impl Experiment for Sparse {
    /// Findings, for `hash` and `array` and each density in percent: `<storage>-<density>` in Tbit/s of input, and
    /// `-model`, K / tau with the mean cycles of a packet; `-traffic` and `-packets`, what is sent on divided by the
    /// least possible; `-memory` and `-values` in KiB a block. `dense` is the bandwidth of dense packets at the same
    /// prices. Ratios: `<storage>-over-dense`, at 10 %; `hash-change`, hash's greatest divided by its least;
    /// `array-over-hash-<density>`; `array-fall`, array's at the least density divided by that at the greatest.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.children < 2 || self.pairs <= self.slack || self.densities.iter().any(|&d| d <= 0.0 || d >= 100.0) {
            return Err(ReproduceError::Bad("children are two at least, and densities between 0 and 100".into()));
        }
        let storages = [Storage::Hash, Storage::Array];
        let points: Vec<(Storage, f64, u64)> = storages
            .iter()
            .flat_map(|&storage| self.densities.iter().map(move |&density| (storage, density)))
            .flat_map(|(storage, density)| (1..=context.seeds).map(move |seed| (storage, density, seed)))
            .collect();
        let measured = context.watch.all(&points, |&(storage, density, seed)| self.measure(storage, density, seed))?;
        let mut values = Values::new();
        for (&(storage, density, _), found) in points.iter().zip(&measured) {
            let name = format!("{}-{density}", storage.name());
            let each = [
                ("", found.bandwidth),
                ("-model", found.model),
                ("-traffic", found.traffic),
                ("-packets", found.packets),
                ("-memory", found.block_kib),
                ("-values", found.values_kib),
            ];
            each.into_iter().for_each(|(key, value)| values.entry(format!("{name}{key}")).or_default().push(value));
        }
        let mut findings = Findings::default();
        self.compare(context.seeds, &values, &mut findings)?;
        for (key, of_seeds) in &values {
            findings.value(key, Finding::over("seeds", of_seeds));
        }
        self.draw(&values, &mut findings);
        let fewer = "where few elements collide a packet costs less: a pair that spills takes twice the cycles of one that meets its own; \
                     with densities of 5 % and more it is constant";
        let spans = "a packet's block at 1 % spans 14,800 elements, 58 KiB; at 0.1 % it is 600 KiB";
        let tenth = "148 values of four bytes are 0.58 KiB, a tenth of what is printed, at any density";
        for (key, cause) in [("hash-change", fewer), ("array-1-memory", spans), ("array-1-values", tenth)] {
            findings.cause(key, cause);
        }
        Ok(findings)
    }
}

impl Sparse {
    /// Ratios of bandwidths.
    fn compare(&self, seeds: u64, values: &Values, findings: &mut Findings) -> Result<(), ReproduceError> {
        let dense = self.dense()?;
        findings.value("dense", dense);
        let mut ratio = |key: String, of: &dyn Fn(usize) -> Option<f64>| {
            let ratios: Option<Vec<f64>> = (0..seeds as usize).map(of).collect();
            ratios.into_iter().for_each(|ratios| findings.value(key.clone(), Finding::over("seeds", &ratios)));
        };
        let at =
            |storage: &str, density: f64, seed: usize| values.get(&format!("{storage}-{density}"))?.get(seed).copied();
        let bounds = |storage: &'static str, seed: usize| {
            self.densities.iter().filter_map(move |&density| at(storage, density, seed)).collect::<Vec<f64>>()
        };
        for storage in ["hash", "array"] {
            ratio(format!("{storage}-over-dense"), &|seed| Some(at(storage, 10.0, seed)? / dense));
        }
        for &density in &self.densities {
            ratio(format!("array-over-hash-{density}"), &|seed| {
                Some(at("array", density, seed)? / at("hash", density, seed)?)
            });
        }
        ratio("hash-change".into(), &|seed| {
            let all = bounds("hash", seed);
            Some(all.iter().copied().reduce(f64::max)? / all.iter().copied().reduce(f64::min)?)
        });
        ratio("array-fall".into(), &|seed| Some(bounds("array", seed).first()? / bounds("array", seed).last()?));
        Ok(())
    }

    fn draw(&self, values: &Values, findings: &mut Findings) {
        let line = |storage: &str, suffix: &str| {
            let point = |&density: &f64| {
                let found = values.get(&format!("{storage}-{density}{suffix}"))?;
                Some([density, Finding::over("seeds", found).median])
            };
            Series::new(storage, self.densities.iter().filter_map(point).collect())
        };
        for (title, y, suffix) in [
            ("Bandwidth by density", "Tbit/s", ""),
            ("Memory of a block by density", "KiB", "-memory"),
            ("Elements that go on, over those of the sum", "times", "-traffic"),
        ] {
            let series = vec![line("hash", suffix), line("array", suffix)];
            let (title, x, y) = (title.into(), "density, %".into(), y.into());
            findings.figures.push(Figure { title, x, y, log_x: true, series, marks: Vec::new() });
        }
    }

    fn prices(&self) -> Result<Prices, ReproduceError> {
        let none = || ReproduceError::Bad("there are no handlers for f32".into());
        Prices::new(self.handlers, DType::F32).ok_or_else(none)
    }

    /// K / tau for dense packets, all of which are combined.
    fn dense(&self) -> Result<f64, ReproduceError> {
        let (prices, needs) = (self.prices()?, Needs::Buffer(1));
        let work = Work { combined: self.payload / 4, ..Work::default() };
        let service = prices.begin(needs) + prices.called(needs, 0, &work, 1).combine.total() as f64;
        Ok(f64::from(self.cores) / service * self.payload as f64 * 8e-3)
    }

    /// The mean cycles of a packet, block by block, which the model uses as tau.
    fn mean_cycles(&self, mut alone: Blocks<'_>, packet: &dyn Fn(u64, u32) -> cores::Packet) -> f64 {
        let blocks = (self.blocks / 8).max(1);
        for (block, child) in (0..blocks).flat_map(|block| (0..self.children).map(move |child| (block, child))) {
            alone.call(0, &packet(block, child), 0);
        }
        alone.cycles / (blocks * u64::from(self.children)) as f64
    }

    /// Bytes of a block, in KiB.
    fn block_kib(&self, storage: Storage, span: u32) -> f64 {
        let memory = |cells: u32, each: f64| f64::from(cells) * each / KIB;
        match storage {
            Storage::Hash => memory(self.hash_slots, KEY + VALUE) + memory(self.pairs, 2.0 + VALUE),
            _ => memory(span, VALUE + 1.0 / 8.0),
        }
    }

    fn measure(&self, storage: Storage, density: f64, seed: u64) -> Result<Measured, ReproduceError> {
        let needs = if storage == Storage::Hash { Needs::Table } else { Needs::Array };
        let (prices, density) = (self.prices()?, density / 100.0);
        let span = (f64::from(self.pairs - self.slack) / density).round() as u32;
        let machine = |seed| Blocks {
            setup: self,
            storage,
            span,
            density,
            prices,
            seed,
            open: BTreeMap::new(),
            counted: Counted::default(),
            cycles: 0.0,
        };
        let start = prices.begin(needs).round() as u64;
        let packet = |block, child| cores::Packet { needs, start, ..cores::Packet::new(block, child, 1) };
        let service = self.mean_cycles(machine(seed), &packet);
        let staggered = (self.size * 1024 / self.payload).max(1);
        let stream = Stream {
            blocks: self.blocks.next_multiple_of(staggered),
            children: self.children.into(),
            staggered,
            gap: service / f64::from(self.cores),
            random: true,
            rest: 0.0,
        };
        let mut processor = Processor::new(shape(self.cores, self.cluster, self.cluster)?);
        let mut machine = machine(seed);
        let (mut ended, mut last) = (Vec::new(), 0);
        for (at, arrival) in stream.arrivals(seed) {
            ended.extend(processor.advance(at, &mut machine).iter().map(|one| one.ended));
            let full = |_| ReproduceError::Bad("the packet memory is full".into());
            processor.arrive(at, packet(arrival.block, arrival.child), &mut machine).map_err(full)?;
            last = at;
        }
        let (from, to) = (last / 4, last - last / 4);
        let middle = ended.iter().filter(|&&at| (from..to).contains(&at)).count() as f64;
        while let Some(next) = processor.next_time() {
            processor.advance(next, &mut machine);
        }
        let bits = self.payload as f64 * 8e-3;
        let Counted { distinct, out, packets, least_packets } = machine.counted;
        Ok(Measured {
            bandwidth: middle / (to - from).max(1) as f64 * bits,
            model: f64::from(self.cores) / service * bits,
            traffic: out as f64 / distinct as f64,
            packets: packets as f64 / least_packets as f64,
            block_kib: self.block_kib(storage, span),
            values_kib: f64::from(span) * density * VALUE / KIB,
        })
    }
}
