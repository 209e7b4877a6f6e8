//! The lengths of packets for a collective's blocks: computed once, and compared with each packet.

use crate::aggregation::ordered::VectorFormat;
use crate::contract::custom_op::CustomOps;
use crate::contract::drop_reason::DropReason;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::packet::PacketMut;
use crate::contract::tensor::Spec;
use crate::contract::values::Values;

/// The sizes of the collective whose packet came last. Packets of one collective follow each other, so that a switch
/// hardly ever has to divide.
#[derive(Clone, Hash)]
pub struct BlockSizes {
    values: Values,
    numbers: Numbers,
    narrow: NarrowBlocks,
    payload_bytes: usize,
    header_len: usize,
    operators: CustomOps,
    last: Option<(Spec, Sizes)>,
}

/// The sizes of one collective's packets.
#[derive(Clone, Copy, Hash)]
pub struct Sizes {
    /// How the collective's elements travel.
    pub encoding: Encoding,
    header_len: usize,
    /// The collective has no elements.
    is_barrier: bool,
    /// Hosts' packets: with a full block, if there is one, and with the rest behind the last full block, if there is
    /// one.
    host: [Option<Size>; 2],
    /// The same of switches' packets with partial results.
    partial: [Option<Size>; 2],
}

#[derive(Clone, Copy, Hash)]
struct Size {
    elements: u32,
    wire_len: usize,
    buffer_len: usize,
}

impl BlockSizes {
    /// The sizes of a job's packets, whose header has this many bytes.
    pub fn new(
        values: Values,
        numbers: Numbers,
        narrow: NarrowBlocks,
        payload_bytes: usize,
        header_len: usize,
    ) -> BlockSizes {
        let operators = CustomOps::default();
        BlockSizes { values, numbers, narrow, payload_bytes, header_len, operators, last: None }
    }

    /// The same, for a job with operators of its own.
    pub fn with_operators(self, operators: CustomOps) -> BlockSizes {
        BlockSizes { operators, ..self }
    }

    /// The sizes of a collective, if it can be summed.
    #[inline]
    pub fn of(&mut self, spec: &Spec) -> Result<&Sizes, DropReason> {
        if self.last.as_ref().is_none_or(|(last, _)| last != spec) {
            self.last = Some((*spec, self.work_out(spec)?));
        }
        self.last.as_ref().map(|(_, sizes)| sizes).ok_or(DropReason::BadField)
    }

    #[cold]
    fn work_out(&self, spec: &Spec) -> Result<Sizes, DropReason> {
        let encoding =
            Encoding::of_job(self.values, self.numbers, spec, &self.operators).ok_or(DropReason::BadField)?;
        let (header_len, full) = (self.header_len, encoding.block_elements(self.payload_bytes, self.narrow));
        if encoding.custom_op.is_some() && full as usize > self.payload_bytes {
            return Err(DropReason::BadField);
        }
        let size = |format: VectorFormat, elements: u32| Size {
            elements,
            wire_len: header_len + format.wire_len(&encoding, elements),
            buffer_len: header_len + format.buffer_len(&encoding, elements),
        };
        let rest = spec.elements % full;
        let sizes =
            |format| [(spec.elements >= full).then(|| size(format, full)), (rest > 0).then(|| size(format, rest))];
        let (host, partial) = (sizes(VectorFormat::Host), sizes(VectorFormat::Partial));
        Ok(Sizes { encoding, header_len, is_barrier: spec.elements == 0, host, partial })
    }
}

impl Sizes {
    /// The number of elements in the packet's vector; an error if the packet has not the length of a block of the
    /// collective. A packet may be without a vector if the collective is a barrier, or if `may_lack` is true.
    #[inline]
    pub fn elements(&self, format: VectorFormat, packet: &PacketMut<'_>, may_lack: bool) -> Result<u32, DropReason> {
        let known = match format {
            VectorFormat::Host => &self.host,
            VectorFormat::Partial => &self.partial,
        };
        let fits = |size: &&Size| size.wire_len == packet.wire_len && size.buffer_len == packet.len;
        if let Some(size) = known.iter().flatten().find(fits) {
            return Ok(size.elements);
        }
        let is_bare = packet.wire_len == self.header_len && packet.len == self.header_len;
        if is_bare && (may_lack || self.is_barrier) { Ok(0) } else { Err(DropReason::BadLength) }
    }
}
