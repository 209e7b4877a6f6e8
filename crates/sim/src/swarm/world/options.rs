//! Options, drawn from what protocols declare: nothing here knows what an option means.

use std::collections::BTreeMap;

use tributary_control::option_text::{OptionTable, OptionText, texts};
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::options::{Defaults, Kind, OptionSet, Options};
use tributary_proto::contract::protocol::JobShape;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

use super::Draw;
use crate::config::{Bytes, CollectiveKind, JobSection, Share};

impl Draw {
    /// Memory that jobs share: from the least that there may be to plenty, held for less or for longer than it is needed.
    pub(super) fn switches(&mut self) -> BTreeMap<String, OptionTable> {
        let shared = protocols::ALL.iter().filter_map(|protocol| protocol.shared.as_ref());
        shared.map(|shared| (shared.options.protocol.to_owned(), self.options(&shared.options))).collect()
    }

    /// What the members of a job choose besides its arithmetic, as far as the protocol can then do what the job is for.
    pub(super) fn choose(&mut self, job: &mut JobSection) {
        let mut drawn = self.options(&job.protocol.options);
        drawn.remove(Numbers::OPTION.name);
        let spec = Spec::allreduce(1, job.dtype, job.op);
        let together = |drawn: &OptionTable| {
            let mut options = drawn.clone();
            options.append(&mut job.options.clone());
            options
        };
        let fits = |drawn: &OptionTable| {
            let chosen = job.protocol.options.read(&texts(&together(drawn)));
            chosen.is_ok_and(|chosen| (job.protocol.can)(&spec, &chosen).is_ok())
        };
        if let Some(drawn) = most_that(drawn, fits) {
            job.options = together(&drawn);
        }
    }

    /// Sparse tensors for some of the jobs that can sum them, whatever they were for, with options of their own.
    pub(super) fn thin(&mut self, job: &mut JobSection) {
        let set = &job.protocol.options;
        if set.sparse.is_none() || !self.0.chance(0.5) {
            return;
        }
        // Blocks of fewer elements are so long that arrays of them take gigabytes.
        let density = self.of(&[0.001, 0.01, 0.1, 0.5, 1.0]);
        let spec = Spec::allreduce(1, job.dtype, job.op);
        let fits = |drawn: &OptionTable| {
            let chosen = set.of_sparse(&texts(drawn), Some((density * 1e6) as u64)).unwrap_or_default();
            let read = set.read_with(&chosen, Defaults::Simulated);
            read.is_ok_and(|chosen| job.protocol.can_sparse(&spec, &chosen).is_ok() && is_small(job, &chosen))
        };
        if let Some(options) = most_that(self.options(set), fits) {
            (job.density, job.options) = (Some(Share(density)), options);
            (job.collective, job.root) = (CollectiveKind::Allreduce, None);
            // Tables of an element or two refuse nearly all that comes, again and again.
            job.tensor = job.tensor.min(Bytes(10_000 * job.dtype.size() as u64));
        }
    }

    /// Some options of a set, each within its bounds, that go together.
    fn options(&mut self, set: &OptionSet) -> OptionTable {
        let mut table = OptionTable::new();
        for spec in set.specs {
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

    /// A value that an option may have, more often a small one.
    fn value(&mut self, kind: Kind) -> String {
        match kind {
            Kind::Count { least, most } => self.of(&[least, 1, 2, 7, 64]).clamp(least, most).to_string(),
            Kind::Time { least, most } => {
                let nanos = self.of(&[0, 100, 1_000, 5_000, 20_000, 100_000]);
                Span::from_nanos(nanos).clamp(least, most).to_text()
            }
            Kind::Choice(words) => self.of(words).to_owned(),
            Kind::Flag => self.0.chance(0.5).to_string(),
        }
    }
}

/// The drawn options without those, from the last on, that do not go with the rest; nothing if even none of them do.
fn most_that(mut drawn: OptionTable, fit: impl Fn(&OptionTable) -> bool) -> Option<OptionTable> {
    while !fit(&drawn) {
        drawn.pop_last()?;
    }
    Some(drawn)
}

/// True if switches keep little for the job, with as many slots as it may get: there are many switches, and a machine takes all its
/// memory at once.
fn is_small(job: &JobSection, options: &Options) -> bool {
    const MOST_BYTES: u64 = 64 << 20;
    let shape = JobShape {
        slots: job.slots.unwrap_or(4096),
        elements_per_packet: job.elements_per_packet,
        children: 16,
        world: 16,
        levels: true,
        options,
    };
    (job.protocol.memory)(&shape) <= MOST_BYTES
}
