//! How a step merges what comes: sparse chunks when all of them are there, dense chunks block by block.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Chunks, Running, brought};
use crate::aggregation::ordered::VectorFormat;
use crate::contract::ids::Rank;
use crate::sparcml::chunk::{self, Chunk};
use crate::sparcml::codec::Blocks;
use crate::sparcml::plan::Merge;

impl Running {
    /// Of a dense tensor: sums what all ranks of this step have brought so far, and writes it if it is the result.
    pub(super) fn sum_blocks(&mut self) {
        let Some(step) = self.plan.steps.get(self.at).filter(|step| step.merge != Merge::Gather) else { return };
        let (label, is_result) = (step.label, step.is_result());
        let number = self.summed_chunk(step.merge);
        let range = self.plan.range(number, self.spec.elements);
        let blocks = Blocks::new(&self.codec, &range);
        let theirs = self.incoming.iter_mut().filter(|((_, of), _)| *of == label);
        let come = theirs.filter_map(|((from, _), incoming)| Some((*from, incoming.lanes_mut(number)?)));
        let ranks: Vec<(Rank, &mut [u8])> = come.collect();
        let silent = step.from.len() - ranks.len();
        let come = ranks.iter().map(|(_, lanes)| lanes.len()).min().filter(|_| silent == 0).unwrap_or(0);
        self.behind = silent + ranks.iter().filter(|(_, lanes)| lanes.len() <= come).count();
        let fresh = self.sum.len()..come;
        if fresh.is_empty() {
            return;
        }
        let mut mine = match self.chunks.get(&number).map(|chunk| &chunk.data) {
            Some(chunk::Data::Full { lanes }) => lanes[fresh.clone()].to_vec(),
            _ => brought(&blocks, &fresh, &*self.tensor, self.me),
        };
        let at = ranks.partition_point(|(rank, _)| *rank < self.me);
        let mut lanes: Vec<&mut [u8]> = ranks.into_iter().map(|(_, lanes)| &mut lanes[fresh.clone()]).collect();
        lanes.insert(at, &mut mine);
        blocks.sum(&mut lanes);
        self.sum.extend_from_slice(lanes[0]);
        if is_result {
            let lanes = &mut self.sum[fresh.clone()];
            (self.codec.combine.finish)(lanes, self.world_size);
            if self.spec.primitive.receives(self.me) {
                blocks.write(fresh.start, lanes, &mut *self.tensor);
            }
        }
    }

    /// The chunk that a step sums.
    fn summed_chunk(&self, merge: Merge) -> u16 {
        if merge == Merge::Own { self.me.0 } else { 0 }
    }

    /// Merges the messages of this step into what is held; false if a message is invalid, so that the collective never
    /// completes.
    pub(super) fn merge_step(&mut self) -> bool {
        let step = &self.plan.steps[self.at];
        let (label, merge, is_result) = (step.label, step.merge, step.is_result());
        let mut come = Vec::new();
        for &from in &step.from {
            let message = self.incoming.remove(&(from, label)).unwrap_or_default();
            let chunks = message.into_chunks().into_iter().map(|(number, chunk)| (number, Arc::new(chunk)));
            come.push((from, chunks.collect::<Chunks>()));
        }
        match merge {
            Merge::Gather => self.chunks.extend(come.into_iter().flat_map(|(_, chunks)| chunks)),
            Merge::Combine | Merge::Own if !self.is_sparse && !come.is_empty() => {
                return self.take_sum(merge, is_result);
            }
            Merge::Combine => {
                for (_, chunks) in come {
                    self.format = VectorFormat::Partial;
                    for (number, theirs) in chunks {
                        let Some(mine) = self.chunks.remove(&number) else { return false };
                        let Some(sum) = self.combined(mine, &theirs) else { return false };
                        self.chunks.insert(number, Arc::new(sum));
                    }
                }
            }
            Merge::Own => {
                let Some(sum) = self.own_chunk(come) else { return false };
                self.chunks = BTreeMap::from([(self.me.0, Arc::new(sum))]);
            }
        }
        if is_result {
            self.finish();
        }
        true
    }

    /// Of a dense tensor: the step's sum becomes what is held; false if the sum is not whole.
    fn take_sum(&mut self, merge: Merge, is_result: bool) -> bool {
        let number = self.summed_chunk(merge);
        let range = self.plan.range(number, self.spec.elements);
        let chunk = Chunk { range, data: chunk::Data::Full { lanes: std::mem::take(&mut self.sum) } };
        let is_whole = self.codec.is_whole(&chunk);
        self.format = if is_result { VectorFormat::Host } else { VectorFormat::Partial };
        self.chunks = BTreeMap::from([(number, Arc::new(chunk))]);
        is_whole
    }

    fn combined(&self, mine: Arc<Chunk>, theirs: &Chunk) -> Option<Chunk> {
        let sum = Arc::unwrap_or_clone(mine).combined(theirs, self.codec.combine)?;
        let is_shorter_dense = self.is_sparse && self.codec.is_shorter_dense(sum.count(), sum.range.len());
        Some(if is_shorter_dense { sum.densified(self.codec.combine) } else { sum })
    }

    /// The sum of this rank's chunk. Contributions of neighbouring ranks are combined in pairs, then the pairs' sums,
    /// so that each element is copied only a few times and not once for each rank.
    fn own_chunk(&mut self, come: Vec<(Rank, Chunks)>) -> Option<Chunk> {
        let mut chunks = BTreeMap::from([(self.me, self.chunks.remove(&self.me.0)?)]);
        for (from, theirs) in come {
            let [(number, chunk)] = <[_; 1]>::try_from(theirs).ok()?;
            if number != self.me.0 {
                return None;
            }
            chunks.insert(from, chunk);
        }
        let mut chunks: Vec<Arc<Chunk>> = chunks.into_values().collect();
        while chunks.len() > 1 {
            let mut sums = Vec::with_capacity(chunks.len().div_ceil(2));
            let mut rest = chunks.into_iter();
            while let Some(first) = rest.next() {
                sums.push(match rest.next() {
                    Some(second) => Arc::new(self.combined(first, &second)?),
                    None => first,
                });
            }
            chunks = sums;
        }
        let sum = Arc::unwrap_or_clone(chunks.pop()?);
        Some(if self.gathers_dense { sum.densified(self.codec.combine) } else { sum })
    }
}
