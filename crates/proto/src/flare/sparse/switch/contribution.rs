//! How a switch takes a child's shard: it adds the shard once, answers it, or refuses it for lack of room.

use super::version::{Again, Resume, State};
use super::{Relation, SparseSwitch};
use crate::aggregation::block_sizes::VectorFormat;
use crate::aggregation::missing_ranks::Neighbour;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::PortId;
use crate::contract::switch::Verdict;
use crate::contract::work::{Claim, Instrumented, Needs, Work};
use crate::flare::sparse::layout::{Pairs, Storage};
use crate::flare::sparse::shards::Received;
use crate::flare::sparse::wire::{Header, Kind};

impl SparseSwitch {
    /// Takes in the pairs of a child's shard.
    pub(super) fn shard(
        &mut self,
        at: usize,
        header: &Header,
        body: &[u8],
        wire_len: usize,
    ) -> Result<Verdict, DropReason> {
        let layout = self.layout(&header.spec)?;
        let format = if self.missing_ranks.is_switch(Neighbour::Child(header.wid)) {
            VectorFormat::Partial
        } else {
            VectorFormat::Host
        };
        let pairs = layout.parse(body, wire_len, format, layout.span)?;
        let child = header.wid.index();
        let before_is_over = self.before_is_over(at, header.phase);
        let version = &mut self.versions[at];
        match (Relation::of(header.phase, version.phase), version.state) {
            (Relation::Earlier, _) | (Relation::Same, State::Unused) => return Err(DropReason::Stale),
            (Relation::Next, State::Closed | State::Unused) if before_is_over => {
                Received::check(&Received::default(), header.shard, header.count)?;
                version.begin(header.phase, header.spec, layout);
            }
            (Relation::Next | Relation::Later, _) => return Err(DropReason::Ahead),
            (Relation::Same, State::Mismatched) => {
                self.notify_mismatch(header);
                return Err(DropReason::Mismatch);
            }
            (Relation::Same, _) if version.spec != header.spec => return Err(self.mismatch_here(at, header)),
            (Relation::Same, _) => {}
        }
        let checked = self.versions[at].children[child].received.check(header.shard, header.count);
        match checked {
            Ok(()) if !self.versions[at].block.has_capacity(&layout, pairs.len()) => {
                self.refuse(at, child);
                Err(DropReason::Overflow)
            }
            Ok(()) => {
                self.take(at, header, &pairs, format);
                Ok(Verdict::Consume)
            }
            Err(DropReason::Duplicate) => {
                self.answer_again(at, header);
                Err(DropReason::Duplicate)
            }
            Err(reason) => Err(reason),
        }
    }

    /// True if every child has the whole sum of the phase before the previous one: the other version holds the previous
    /// phase, and that phase is complete.
    pub(super) fn before_is_over(&self, at: usize, phase: u32) -> bool {
        let shadow = &self.versions[at ^ 1];
        shadow.phase == phase.wrapping_sub(1) && shadow.is_over()
    }

    /// Adds a shard that is new and has room.
    fn take(&mut self, at: usize, header: &Header, pairs: &Pairs<'_>, format: VectorFormat) {
        let is_root = self.is_root();
        let version = &mut self.versions[at];
        let layout = version.layout.expect("the version has begun");
        let (before, ready) = (version.block.occupied(), version.available(is_root));
        let spilled = version.block.add(&layout, pairs, format, &mut self.scratch);
        let inserted = u64::from(version.block.occupied() - before);
        let child = &mut version.children[header.wid.index()];
        child.received.take(header.shard, header.count);
        let counters = &mut self.counters;
        counters.shards += 1;
        counters.empty_shards += u64::from(pairs.is_empty());
        counters.elements_in += pairs.len() as u64;
        counters.elements_spilled += spilled as u64;
        counters.work.inserted += inserted;
        counters.work.spilled += spilled as u64;
        counters.work.hit += pairs.len() as u64 - spilled as u64 - inserted;
        if child.received.is_complete() {
            version.complete += 1;
        } else if header.asks {
            version.owe(header.wid.index(), Resume::Gaps);
        }
        if usize::from(version.complete) == version.children.len() {
            version.state = State::Closed;
            counters.blocks_completed += 1;
            let (kept, positions) = (version.block.occupied(), version.block.positions(&layout));
            counters.elements_kept += u64::from(kept);
            counters.work.completed += 1;
            counters.work.closed += version.children.len() as u64;
            counters.work.scanned_full += u64::from(kept);
            counters.work.scanned_empty += u64::from(positions - kept);
            let (format, is_finished) = version.format(is_root);
            counters.work.unfilled += u64::from(version.block.unfilled(&layout, format));
            if is_finished {
                version.block.finish(&layout, self.world_size);
            }
        }
        // A child that fills a packet has caused that packet, even if it can leave only later.
        counters.work.emitted += u64::from(version.available(is_root) - ready);
        self.queue(at);
    }

    /// A child repeats a shard. If the shard asks, the child is told which shards have come, or gets the sum again if
    /// the sum is one packet.
    fn answer_again(&mut self, at: usize, header: &Header) {
        if !header.asks {
            return;
        }
        let is_root = self.is_root();
        let version = &mut self.versions[at];
        match is_root && version.state == State::Closed && version.sent.next == 1 && version.available(true) == 1 {
            true => version.send_again(Again::Child(header.wid.0), version.sent.lacking(0, 0)),
            false => version.owe(header.wid.index(), Resume::Gaps),
        }
        self.queue(at);
    }

    /// There is no room for pairs that may collide until the spilled pairs have arrived. So spilled pairs go again,
    /// since their receiver may not know that they are missing.
    fn refuse(&mut self, at: usize, child: usize) {
        self.counters.shards_refused += 1;
        let is_root = self.is_root();
        let version = &mut self.versions[at];
        version.children[child].refused = true;
        if is_root {
            let has = version.children[child].has;
            version.send_again(Again::Child(child as u16), version.sent.lacking(has, 0));
        } else {
            version.send_again(Again::Parent, version.sent.last());
        }
        self.queue(at);
    }
}

impl Instrumented for SparseSwitch {
    /// A packet about a block needs the whole block to itself; a sum on its way down does not.
    fn claim(&mut self, _ingress: PortId, packet: &[u8]) -> Claim {
        let (Ok(kind), Ok(header)) = (Kind::of(packet), Header::parse(packet)) else { return Claim::nothing(0) };
        let block = u64::from(header.idx);
        match kind {
            Kind::Shard | Kind::Taken | Kind::Have | Kind::Want => {
                let needs = match self.storage {
                    Storage::Hash => Needs::Table,
                    Storage::Array => Needs::Array,
                };
                Claim { block, needs }
            }
            Kind::Sum | Kind::Query | Kind::Report | Kind::Mismatch => Claim::nothing(block),
        }
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.counters.work)
    }
}
