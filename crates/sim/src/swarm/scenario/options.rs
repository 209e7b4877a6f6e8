//! The jobs' options, drawn from the protocols' declarations (this file knows no option's meaning), their operators, and jobs
//! that come and go.

use std::collections::BTreeMap;

use tributary_control::config::{OptionTable, OptionText, texts};
use tributary_numeric::{DType, ReduceOp};
use tributary_operators::element::Element;
use tributary_operators::shipped;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::options::{Defaults, Kind, OptionSet, Options, TO_THE_LETTER};
use tributary_proto::contract::protocol::{Placement, Protocol, ShardShape};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

use super::{Draw, END};
use crate::config::{
    Bytes, CollectiveKind, Duration, Hosts, JobSection, Network, OperatorSource, RootChoice, Share, SmallModels,
    Timeouts, TrainingSection,
};
use crate::engine::{Data, Magnitudes};

/// An operator whose result changes if any two elements change order or are combined along another tree: it checks the
/// order as a fingerprint checks contributions.
pub const ORDERED: &str = "(a ^ a >> 29) * 1103515245 + (b ^ b >> 31) * 12345";

impl Draw {
    /// Options, an element type and an operator that the protocol supports.
    pub(super) fn arithmetic(&mut self, protocol: &Protocol) -> (OptionTable, DType, ReduceOp) {
        let mut options = OptionTable::new();
        if protocol.options.specs.contains(&Numbers::OPTION) && self.0.chance(0.5) {
            options.insert(Numbers::OPTION.name.to_owned(), OptionText("fixed".to_owned()));
        }
        let chosen = protocol.options.read(&texts(&options)).expect("the option is one of the protocol's");
        let all = DType::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)));
        let can = |&(dtype, op): &(DType, ReduceOp)| (protocol.check)(&Spec::allreduce(1, dtype, op), &chosen).is_ok();
        let possible: Vec<(DType, ReduceOp)> = all.filter(can).collect();
        let (dtype, op) = self.of(&possible);
        (options, dtype, op)
    }

    /// Roots chosen as a fabric's controller chooses them, for half of the jobs with planned trees.
    pub(super) fn choose_roots(&mut self, job: &mut JobSection) {
        if self.0.chance(0.5) && job.protocol.switch.is_some() {
            job.root_choice = RootChoice::LeastLoaded;
        }
    }

    /// Memory that jobs share: from the least possible to plenty, held for shorter or longer than needed.
    pub(super) fn switches(&mut self) -> BTreeMap<String, OptionTable> {
        let shared = protocols::ALL.iter().filter_map(|protocol| protocol.shared.as_ref());
        shared.map(|shared| (shared.options.protocol.to_owned(), self.options(&shared.options))).collect()
    }

    /// The options of a job besides its arithmetic, as far as the protocol supports the job's collective with them.
    pub(super) fn choose_options(&mut self, job: &mut JobSection) {
        let mut drawn = self.options(&job.protocol.options);
        // The option for floats may be set to its default, unless the arithmetic was drawn otherwise.
        drawn.retain(|name, text| {
            name != Numbers::OPTION.name || text.0 == Numbers::OPTION.default && !job.options.contains_key(name)
        });
        let spec = spec_of(job);
        let together = |drawn: &OptionTable| {
            let mut options = drawn.clone();
            options.append(&mut job.options.clone());
            options
        };
        let fits = |drawn: &OptionTable| {
            let chosen = job.protocol.options.read(&texts(&together(drawn)));
            chosen.is_ok_and(|chosen| (job.protocol.check)(&spec, &chosen).is_ok())
        };
        if let Some(drawn) = largest_valid(drawn, fits) {
            job.options = together(&drawn);
        }
    }

    /// Codes, for some of the jobs whose floats can be summed so: of 8 bits, with sums in either width, or of 4.
    pub(super) fn choose_codes(&mut self, job: &mut JobSection) {
        let set = &job.protocol.options;
        let (numbers, down) = self.of(&[("int8", "8"), ("int8", "16"), ("thc4", "8")]);
        if !set.specs.contains(&Numbers::DOWN) || !self.0.chance(0.3) {
            return;
        }
        let mut options = job.options.clone();
        options.insert(Numbers::OPTION.name.to_owned(), OptionText(numbers.to_owned()));
        options.insert(Numbers::DOWN.name.to_owned(), OptionText(down.to_owned()));
        let chosen = set.read(&texts(&options));
        if chosen.is_ok_and(|chosen| (job.protocol.check)(&spec_of(job), &chosen).is_ok()) {
            job.options = options;
        }
    }

    /// Results that may lack ranks, for half of the jobs that can have them: averages of floats, with an option that
    /// allows it.
    pub(super) fn allow_partial(&mut self, job: &mut JobSection) {
        let set = &job.protocol.options;
        let is_allreduce = matches!(job.collective, CollectiveKind::Allreduce);
        if set.quorum.is_none() || !is_allreduce || !self.0.chance(0.5) {
            return;
        }
        let dtype = self.of(&[DType::F32, DType::F16, DType::F64]);
        let with = |name: &str, word: &str| {
            let mut options = job.options.clone();
            options.insert(name.to_owned(), OptionText(word.to_owned()));
            options
        };
        let lacks = |options: &OptionTable| {
            let read = set.read(&texts(options));
            read.is_ok_and(|read| set.quorum(&read, 100).is_some_and(|least| least < 100))
        };
        let words = set.specs.iter().filter_map(|spec| match spec.kind {
            Kind::Choice(words) => Some(words.iter().map(|word| with(spec.name, word))),
            _ => None,
        });
        let possible: Vec<OptionTable> = words.flatten().filter(lacks).collect();
        let chosen = self.0.below(possible.len() as u32) as usize;
        let elements = job.tensor.0 / job.dtype.size() as u64;
        (job.options, job.tensor) = (possible[chosen].clone(), Bytes(elements * dtype.size() as u64));
        (job.dtype, job.op) = (dtype, ReduceOp::Avg);
    }

    /// Sparse tensors for some of the jobs that can sum them; the options are drawn again.
    pub(super) fn make_sparse(&mut self, job: &mut JobSection) {
        let set = &job.protocol.options;
        if set.sparse.is_none() || !self.0.chance(0.5) {
            return;
        }
        // With a lower density, blocks would be so long that their arrays take gigabytes.
        let density = self.of(&[0.001, 0.01, 0.1, 0.5, 1.0]);
        let spec = Spec::allreduce(1, job.dtype, job.op);
        let fits = |drawn: &OptionTable| {
            let chosen = set.of_sparse(&texts(drawn), Some((density * 1e6) as u64)).unwrap_or_default();
            let read = set.read_with(&chosen, Defaults::Simulated);
            read.is_ok_and(|chosen| job.protocol.check_sparse(&spec, &chosen).is_ok() && is_small(job, &chosen))
        };
        if let Some(options) = largest_valid(self.options(set), fits) {
            (job.density, job.options) = (Some(Share(density)), options);
            (job.collective, job.root) = (CollectiveKind::Allreduce, None);
            // Tables of one or two elements refuse nearly all packets again and again.
            job.tensor = job.tensor.min(Bytes(10_000 * job.dtype.size() as u64));
        }
    }

    /// Custom operators for some of the jobs that can have them, and real elements for most of these.
    pub(super) fn choose_custom_op(&mut self, job: &mut JobSection) {
        let set = &job.protocol.options;
        let (Some(of_operators), CollectiveKind::Allreduce, None) = (set.custom_ops, job.collective, job.density)
        else {
            return;
        };
        if !self.0.chance(0.3) {
            return;
        }
        let (operator, element, dtype) = match self.0.below(shipped::ALL.len() as u32 + 2) as usize {
            index if index < shipped::ALL.len() => (shipped::ALL[index].name, shipped::ALL[index].element, DType::F32),
            _ => (ORDERED, "i64", DType::I64),
        };
        let size = Element::parse(element).map_or(1, |element| element.size() as u64);
        // The operator decides the order, and the other options must suit it.
        let decided: Vec<&str> = of_operators(&[]).into_iter().map(|(name, _)| name).collect();
        job.options.retain(|name, _| !decided.contains(&name.as_str()));
        let orders = set.specs.iter().filter(|spec| decided.contains(&spec.name));
        let orders: Vec<(&str, &str)> = orders
            .filter_map(|spec| if let Kind::Choice(words) = spec.kind { Some((spec.name, words)) } else { None })
            .flat_map(|(name, words)| words.iter().map(move |&word| (name, word)))
            .collect();
        let fits = |drawn: &OptionTable| {
            orders.iter().all(|&(name, word)| {
                let mut given = texts(drawn);
                given.insert(name.to_owned(), word.to_owned());
                set.read_with(&given, Defaults::Simulated).is_ok()
            })
        };
        job.options = largest_valid(job.options.clone(), fits).unwrap_or_default();
        (job.operator, job.data) = (Some(OperatorSource::Text(operator.to_owned())), Data::Real);
        if self.0.chance(0.2) {
            job.data = Data::Fingerprints;
        }
        (job.dtype, job.op) = (dtype, JobSection::OP);
        job.elements_per_packet = job.elements_per_packet.clamp(16, 256);
        // Accumulators of real elements are as long as the elements.
        let trees = job.trees.unwrap_or(1);
        job.slots = Some(job.slots.unwrap_or(16 * trees).min(32 * trees));
        job.tensor = Bytes(self.between(0, 5_000) * size);
    }

    /// Some options of a set, each within its bounds, that are valid together.
    fn options(&mut self, set: &OptionSet) -> OptionTable {
        let mut table = OptionTable::new();
        // Modules are drawn elsewhere.
        for spec in set.specs.iter().filter(|spec| spec.kind != Kind::CustomOps) {
            let text = self.value(spec.kind);
            if self.0.chance(0.3) {
                continue;
            }
            table.insert(spec.name.to_owned(), OptionText(text));
            if set.read_with(&texts(&table), Defaults::Simulated).is_err() {
                table.remove(spec.name);
            }
        }
        table
    }

    /// A value that an option may have; small ones are more likely.
    fn value(&mut self, kind: Kind) -> String {
        match kind {
            Kind::Count { least, most } => self.of(&[least, 1, 2, 7, 64]).clamp(least, most).to_string(),
            Kind::Time { least, most } => {
                let nanos = self.of(&[0, 100, 1_000, 5_000, 20_000, 100_000]);
                Span::from_nanos(nanos).clamp(least, most).to_text()
            }
            Kind::Choice(words) => {
                let words: Vec<&str> = words.iter().copied().filter(|&word| word != TO_THE_LETTER).collect();
                self.of(&words).to_owned()
            }
            Kind::Flag => self.0.chance(0.5).to_string(),
            Kind::CustomOps => String::new(),
        }
    }
}

/// What a job of the scenario sums, of any length.
fn spec_of(job: &JobSection) -> Spec {
    match job.collective {
        CollectiveKind::Allreduce | CollectiveKind::Barrier => Spec::allreduce(1, job.dtype, job.op),
        CollectiveKind::Reduce => Spec::reduce(1, job.dtype, job.op, Rank(0)),
        CollectiveKind::Broadcast => Spec::broadcast(1, Rank(0)),
    }
}

/// The drawn options, without the last ones if they are not valid together; `None` if not even the empty set is.
fn largest_valid(mut drawn: OptionTable, fit: impl Fn(&OptionTable) -> bool) -> Option<OptionTable> {
    while !fit(&drawn) {
        drawn.pop_last()?;
    }
    Some(drawn)
}

/// True if switches keep little memory for the job, with as many slots as it may get: there are many switches, and a
/// machine takes all its memory at once.
fn is_small(job: &JobSection, options: &Options) -> bool {
    const MAX_BYTES: u64 = 64 << 20;
    let shape = ShardShape {
        slots: job.slots.unwrap_or(4096),
        elements_per_packet: job.elements_per_packet,
        children: 16,
        world_size: 16,
        levels: true,
        options,
    };
    (job.protocol.memory)(&shape) <= MAX_BYTES
}

/// The average bytes of the models' gradients.
const MODEL_BYTES: f64 = 211e6;

impl Draw {
    /// One section, in a tenth of all scenarios.
    pub(super) fn trainings(&mut self, hosts: u32, heal: Span, network: &Network) -> Vec<TrainingSection> {
        if hosts < 2 || !self.0.chance(0.1) {
            return Vec::new();
        }
        let protocol = self.training_protocol();
        let trees = (protocol.placement == Placement::Trees).then(|| self.between(1, 4) as u16);
        let most = self.between(2, u64::from(hosts)) as u16;
        let least = self.between(1, u64::from(most)) as u16;
        let (scale, iterations) = (self.of(&[20_000, 200_000, 2_000_000]), self.between(1, 3) as u32);
        let jobs = self.between(1, 8) as f64;
        // The load with which about `jobs` jobs arrive until the scenario heals.
        let mean = f64::from(least + most) / 2.0 - 1.0;
        let bits = jobs * 16.0 * mean * f64::from(iterations) * MODEL_BYTES / f64::from(scale);
        let load = bits / (network.rate.0.0 as f64 * f64::from(hosts) * heal.as_secs_f64());
        let small = SmallModels { below: Bytes(40_000_000), protocol: self.training_protocol() };
        vec![TrainingSection {
            name: None,
            protocol,
            hosts: Hosts::All,
            workers_per_host: self.of(&[1, 1, 3]),
            workers: [least, most],
            models: Default::default(),
            scale,
            small_models: (self.0.chance(0.3) && protocol.placement == Placement::Trees).then_some(small),
            op: ReduceOp::Sum,
            iterations,
            load: Share(load.min(1.0)),
            start: Duration::default(),
            until: Duration(heal),
            options: Default::default(),
            elements_per_packet: self.of(&[31, 256, 360]),
            slots: trees.map(|trees| trees * self.between(1, 64) as u16),
            trees,
            magnitudes: Magnitudes::Random,
            rto: Timeouts::default(),
            timeout: Some(END),
        }]
    }

    /// A protocol without servers that sums floats.
    fn training_protocol(&mut self) -> &'static Protocol {
        let sum = Spec::allreduce(1, DType::F32, ReduceOp::Sum);
        let can = |protocol: &Protocol| (protocol.check)(&sum, &protocol.options.defaults()).is_ok();
        let possible: Vec<&Protocol> =
            protocols::ALL.iter().copied().filter(|protocol| protocol.server.is_none() && can(protocol)).collect();
        self.of(&possible)
    }
}
