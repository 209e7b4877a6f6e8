//! What packets carry: pieces of memory of two sizes, shared by the copies of a multicast until one is rewritten.
//!
//! With fingerprints nearly all packets are short and a few notices are not; so the two sizes.

/// A payload in [`Payloads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadId(u32);

impl PayloadId {
    /// Nothing.
    pub const NONE: PayloadId = PayloadId(u32::MAX);
    /// The bit that tells long payloads from short ones.
    const LONG: u32 = 1 << 31;

    /// True if it names no payload.
    pub fn is_none(self) -> bool {
        self == PayloadId::NONE
    }

    fn index(self) -> usize {
        (self.0 & !PayloadId::LONG) as usize
    }
}

#[derive(Clone, Copy)]
struct Header {
    /// Packets that carry it; 0 when free.
    holders: u32,
    /// Bytes in use, or the next free piece.
    len: u32,
    /// UDP payload bytes that it stands for on the wire.
    wire_len: u32,
}

/// Payloads of one size.
struct Pieces {
    stride: usize,
    bytes: Vec<u8>,
    headers: Vec<Header>,
    free: u32,
}

const NIL: u32 = u32::MAX;

impl Pieces {
    fn new(stride: usize) -> Pieces {
        Pieces { stride, bytes: Vec::new(), headers: Vec::new(), free: NIL }
    }

    fn take(&mut self, header: Header) -> usize {
        if self.free == NIL {
            self.headers.push(header);
            self.bytes.resize(self.bytes.len() + self.stride, 0);
            return self.headers.len() - 1;
        }
        let index = self.free as usize;
        self.free = self.headers[index].len;
        self.headers[index] = header;
        index
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.headers.capacity() * size_of::<Header>()
    }
}

/// All payloads of a network.
pub struct Payloads {
    short: Pieces,
    long: Pieces,
    in_use: usize,
}

/// Bytes of a short payload: SwitchML's headers and a fingerprint are 56.
const SHORT: usize = 64;

impl Payloads {
    /// Payloads of at most `longest` bytes.
    pub fn new(longest: usize) -> Payloads {
        Payloads { short: Pieces::new(SHORT), long: Pieces::new(longest.next_multiple_of(64).max(SHORT)), in_use: 0 }
    }

    /// A new payload with these bytes, which stand for `wire_len` bytes of UDP payload. It has one holder.
    pub fn store(&mut self, bytes: &[u8], wire_len: usize) -> PayloadId {
        self.in_use += 1;
        let header = Header { holders: 1, len: bytes.len() as u32, wire_len: wire_len as u32 };
        let (pieces, bit) = if bytes.len() <= SHORT { (&mut self.short, 0) } else { (&mut self.long, PayloadId::LONG) };
        let index = pieces.take(header);
        let start = index * pieces.stride;
        pieces.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        PayloadId(index as u32 | bit)
    }

    /// `more` more packets carry it.
    pub fn share(&mut self, id: PayloadId, more: u32) {
        if !id.is_none() {
            self.header(id).holders += more;
        }
    }

    /// One packet less carries it; the last one frees it. Nothing happens to [`PayloadId::NONE`].
    pub fn release(&mut self, id: PayloadId) {
        if id.is_none() {
            return;
        }
        let pieces = self.pieces(id);
        let header = &mut pieces.headers[id.index()];
        header.holders -= 1;
        if header.holders == 0 {
            header.len = pieces.free;
            pieces.free = id.index() as u32;
            self.in_use -= 1;
        }
    }

    /// A payload with the same content that the caller alone holds; takes over the caller's hold on `id`.
    pub fn own(&mut self, id: PayloadId) -> PayloadId {
        let pieces = self.pieces(id);
        let header = pieces.headers[id.index()];
        if header.holders == 1 {
            return id;
        }
        pieces.headers[id.index()].holders -= 1;
        let copy = pieces.take(Header { holders: 1, ..header });
        let from = id.index() * pieces.stride;
        pieces.bytes.copy_within(from..from + header.len as usize, copy * pieces.stride);
        self.in_use += 1;
        PayloadId(copy as u32 | id.0 & PayloadId::LONG)
    }

    /// Shortens a payload, and says what it stands for on the wire now.
    pub fn set_len(&mut self, id: PayloadId, len: usize, wire_len: usize) {
        let header = self.header(id);
        debug_assert!(len <= header.len as usize);
        (header.len, header.wire_len) = (len as u32, wire_len as u32);
    }

    /// The bytes, and how many bytes of UDP payload they stand for on the wire.
    pub fn get(&self, id: PayloadId) -> (&[u8], usize) {
        let pieces = if id.0 & PayloadId::LONG == 0 { &self.short } else { &self.long };
        let header = pieces.headers[id.index()];
        let start = id.index() * pieces.stride;
        (&pieces.bytes[start..start + header.len as usize], header.wire_len as usize)
    }

    /// The same, to be rewritten. The caller alone holds them (see [`Payloads::own`]).
    pub fn get_mut(&mut self, id: PayloadId) -> (&mut [u8], usize) {
        let pieces = self.pieces(id);
        let header = pieces.headers[id.index()];
        debug_assert_eq!(header.holders, 1);
        let start = id.index() * pieces.stride;
        (&mut pieces.bytes[start..start + header.len as usize], header.wire_len as usize)
    }

    /// Payloads that some packet carries.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Bytes of memory behind them.
    pub fn memory_bytes(&self) -> usize {
        self.short.memory_bytes() + self.long.memory_bytes()
    }

    fn pieces(&mut self, id: PayloadId) -> &mut Pieces {
        if id.0 & PayloadId::LONG == 0 { &mut self.short } else { &mut self.long }
    }

    fn header(&mut self, id: PayloadId) -> &mut Header {
        &mut self.pieces(id).headers[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_payload_is_copied_before_it_is_rewritten() {
        for len in [3, SHORT, SHORT + 1] {
            let mut payloads = Payloads::new(200);
            let first = payloads.store(&vec![7; len], 1000);
            payloads.share(first, 1);
            let second = payloads.own(first);
            payloads.get_mut(second).0[0] = 9;
            assert_eq!(payloads.get(first), (&vec![7; len][..], 1000));
            assert_eq!((payloads.get(second).0[0], payloads.get(second).1), (9, 1000));
            assert_eq!(payloads.own(first), first, "its only holder keeps it");
            assert_eq!(payloads.in_use(), 2);
        }
    }

    #[test]
    fn the_last_holder_frees_it() {
        let mut payloads = Payloads::new(8);
        let first = payloads.store(b"abc", 3);
        payloads.share(first, 2);
        payloads.release(first);
        payloads.release(first);
        assert_eq!(payloads.in_use(), 1);
        payloads.release(first);
        assert_eq!((payloads.in_use(), payloads.store(b"x", 1)), (0, first));
    }
}
