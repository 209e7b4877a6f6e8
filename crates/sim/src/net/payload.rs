//! Payloads of packets: buffers of two sizes, shared by the copies of a multicast until one is rewritten.
//!
//! With fingerprints nearly all packets are short, but a few notices are long: hence the two sizes.

use tributary_numeric::prefetch;

/// A payload in [`Payloads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadId(u32);

impl PayloadId {
    /// No payload.
    pub const NONE: PayloadId = PayloadId(u32::MAX);
    /// The bit that distinguishes long payloads from short ones.
    const LONG: u32 = 1 << 31;

    /// True if it names no payload.
    pub fn is_none(self) -> bool {
        self == PayloadId::NONE
    }

    fn is_long(self) -> bool {
        self.0 & PayloadId::LONG != 0
    }

    fn index(self) -> usize {
        (self.0 & !PayloadId::LONG) as usize
    }
}

/// Bytes of a short payload: headers and a fingerprint. SwitchML's payloads take 60 bytes, within one line of the
/// cache.
const SHORT: usize = 128;
const LINE: usize = 64;
const NIL: u32 = u32::MAX;

/// The number of holders of a payload, and its length.
#[derive(Clone, Copy)]
struct Header {
    /// How many packets carry it; in a free buffer, the next free one.
    holders: u32,
    /// Bytes in use.
    len: u16,
    /// UDP payload bytes that it stands for on the wire.
    wire_len: u16,
}

#[repr(C, align(64))]
#[derive(Clone)]
struct ShortBuffer([u8; SHORT]);

#[derive(Clone)]
struct LongBuffer(Box<[u8]>);

/// A buffer of either size.
trait Buffer: Clone {
    fn new(bytes: &[u8]) -> Self;
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl Buffer for ShortBuffer {
    fn new(bytes: &[u8]) -> ShortBuffer {
        let mut buffer = ShortBuffer([0; SHORT]);
        buffer.0[..bytes.len()].copy_from_slice(bytes);
        buffer
    }
    fn bytes(&self) -> &[u8] {
        &self.0
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Buffer for LongBuffer {
    fn new(bytes: &[u8]) -> LongBuffer {
        LongBuffer(bytes.into())
    }
    fn bytes(&self) -> &[u8] {
        &self.0
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Payloads of one size. Headers are stored separately from bytes: eight headers fit into a line of the cache.
struct Pool<B> {
    headers: Vec<Header>,
    buffers: Vec<B>,
    free: u32,
    /// The longest payload so far.
    longest: usize,
}

impl<B: Buffer> Pool<B> {
    const EMPTY: Pool<B> = Pool { headers: Vec::new(), buffers: Vec::new(), free: NIL, longest: 0 };

    /// Stores a payload, in a free buffer if there is one.
    fn store(&mut self, header: Header, bytes: &[u8]) -> u32 {
        self.longest = self.longest.max(bytes.len());
        if self.free == NIL {
            self.headers.push(header);
            self.buffers.push(B::new(bytes));
            return self.buffers.len() as u32 - 1;
        }
        let index = self.free;
        let (old, buffer) = (&mut self.headers[index as usize], &mut self.buffers[index as usize]);
        self.free = std::mem::replace(old, header).holders;
        match buffer.bytes_mut().get_mut(..bytes.len()) {
            Some(start) => start.copy_from_slice(bytes),
            None => *buffer = B::new(bytes),
        }
        index
    }

    fn get(&self, index: usize) -> (&[u8], usize) {
        let header = self.headers[index];
        (&self.buffers[index].bytes()[..usize::from(header.len)], usize::from(header.wire_len))
    }

    fn get_mut(&mut self, index: usize) -> (&mut [u8], usize) {
        let header = self.headers[index];
        debug_assert_eq!(header.holders, 1);
        (&mut self.buffers[index].bytes_mut()[..usize::from(header.len)], usize::from(header.wire_len))
    }

    /// Releases one hold; true if it was the last.
    fn release(&mut self, index: usize) -> bool {
        let header = &mut self.headers[index];
        header.holders -= 1;
        if header.holders > 0 {
            return false;
        }
        header.holders = self.free;
        self.free = index as u32;
        true
    }

    /// Makes a copy with one holder, and releases one hold on the original.
    fn copy(&mut self, index: usize) -> u32 {
        self.headers[index].holders -= 1;
        let (header, copy) = (Header { holders: 1, ..self.headers[index] }, self.buffers[index].clone());
        self.store(header, &copy.bytes()[..usize::from(header.len)])
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        if let (Some(header), Some(buffer)) = (self.headers.get(index), self.buffers.get(index)) {
            prefetch::first_line(header);
            buffer.bytes().chunks(LINE).take(self.longest.div_ceil(LINE)).for_each(prefetch::first_line);
        }
    }
}

/// All payloads of a network.
pub struct Payloads {
    short: Pool<ShortBuffer>,
    long: Pool<LongBuffer>,
    in_use: usize,
}

impl Default for Payloads {
    fn default() -> Payloads {
        Payloads { short: Pool::EMPTY, long: Pool::EMPTY, in_use: 0 }
    }
}

impl Payloads {
    /// A new payload with these bytes, which stand for `wire_len` bytes of UDP payload. It has one holder.
    pub fn store(&mut self, bytes: &[u8], wire_len: usize) -> PayloadId {
        self.in_use += 1;
        let header = Header { holders: 1, len: bytes.len() as u16, wire_len: wire_len as u16 };
        if bytes.len() <= SHORT {
            PayloadId(self.short.store(header, bytes))
        } else {
            PayloadId(self.long.store(header, bytes) | PayloadId::LONG)
        }
    }

    /// Adds `more` packets that carry it.
    pub fn share(&mut self, id: PayloadId, more: u32) {
        if !id.is_none() {
            self.header(id).holders += more;
        }
    }

    /// Removes one packet that carries it; the last one frees it. [`PayloadId::NONE`] is ignored.
    pub fn release(&mut self, id: PayloadId) {
        let freed = match id {
            PayloadId::NONE => false,
            id if id.is_long() => self.long.release(id.index()),
            id => self.short.release(id.index()),
        };
        self.in_use -= usize::from(freed);
    }

    /// A payload with the same content that the caller alone holds, in exchange for the caller's hold on `id`.
    pub fn make_unique(&mut self, id: PayloadId) -> PayloadId {
        if self.header(id).holders == 1 {
            return id;
        }
        self.in_use += 1;
        if id.is_long() {
            PayloadId(self.long.copy(id.index()) | PayloadId::LONG)
        } else {
            PayloadId(self.short.copy(id.index()))
        }
    }

    /// Shortens a payload, and sets its length on the wire.
    pub fn set_len(&mut self, id: PayloadId, len: usize, wire_len: usize) {
        let header = self.header(id);
        debug_assert!(len <= usize::from(header.len));
        (header.len, header.wire_len) = (len as u16, wire_len as u16);
    }

    /// The bytes, and their length on the wire as UDP payload.
    pub fn get(&self, id: PayloadId) -> (&[u8], usize) {
        if id.is_long() { self.long.get(id.index()) } else { self.short.get(id.index()) }
    }

    /// Fetches a payload's memory.
    #[inline]
    pub fn prefetch(&self, id: PayloadId) {
        self.short.prefetch(id.index());
    }

    /// The same as [`Payloads::get`], mutable. The caller must be the only holder (see [`Payloads::make_unique`]).
    pub fn get_mut(&mut self, id: PayloadId) -> (&mut [u8], usize) {
        if id.is_long() { self.long.get_mut(id.index()) } else { self.short.get_mut(id.index()) }
    }

    /// How many payloads are in use.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Bytes of memory of all payloads.
    pub fn memory_bytes(&self) -> usize {
        let long: usize = self.long.buffers.iter().map(|buffer| size_of::<LongBuffer>() + buffer.bytes().len()).sum();
        let headers = (self.short.headers.capacity() + self.long.headers.capacity()) * size_of::<Header>();
        headers + self.short.buffers.capacity() * size_of::<ShortBuffer>() + long
    }

    fn header(&mut self, id: PayloadId) -> &mut Header {
        if id.is_long() { &mut self.long.headers[id.index()] } else { &mut self.short.headers[id.index()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_payload_is_copied_before_it_is_rewritten() {
        for len in [3, SHORT, SHORT + 1] {
            let mut payloads = Payloads::default();
            let first = payloads.store(&vec![7; len], 1000);
            payloads.share(first, 1);
            let second = payloads.make_unique(first);
            payloads.get_mut(second).0[0] = 9;
            assert_eq!(payloads.get(first), (&vec![7; len][..], 1000));
            assert_eq!((payloads.get(second).0[0], payloads.get(second).1), (9, 1000));
            assert_eq!(payloads.make_unique(first), first, "its only holder keeps it");
            assert_eq!(payloads.in_use(), 2);
        }
    }

    #[test]
    fn the_last_holder_frees_it() {
        let mut payloads = Payloads::default();
        let first = payloads.store(b"abc", 3);
        payloads.share(first, 2);
        payloads.release(first);
        payloads.release(first);
        assert_eq!(payloads.in_use(), 1);
        payloads.release(first);
        assert_eq!((payloads.in_use(), payloads.store(b"x", 1)), (0, first));
    }
}
