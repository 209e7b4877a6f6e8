//! What packets carry: equal pieces of memory, shared by the copies of a multicast until one of them is rewritten.

/// A payload in [`Payloads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadId(u32);

impl PayloadId {
    /// Nothing.
    pub const NONE: PayloadId = PayloadId(u32::MAX);

    /// True if it names no payload.
    pub fn is_none(self) -> bool {
        self == PayloadId::NONE
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

/// All payloads of a network.
pub struct Payloads {
    /// Bytes of each piece.
    stride: usize,
    bytes: Vec<u8>,
    headers: Vec<Header>,
    free: u32,
    in_use: usize,
}

const NIL: u32 = u32::MAX;

impl Payloads {
    /// Payloads of at most `longest` bytes.
    pub fn new(longest: usize) -> Payloads {
        Payloads { stride: longest.next_multiple_of(16), bytes: Vec::new(), headers: Vec::new(), free: NIL, in_use: 0 }
    }

    /// A new payload with one holder, its whole piece in use and not cleared.
    pub fn take(&mut self) -> PayloadId {
        self.in_use += 1;
        if self.free == NIL {
            let id = self.headers.len() as u32;
            self.headers.push(Header { holders: 1, len: self.stride as u32, wire_len: 0 });
            self.bytes.resize(self.bytes.len() + self.stride, 0);
            return PayloadId(id);
        }
        let id = self.free;
        let header = &mut self.headers[id as usize];
        self.free = header.len;
        *header = Header { holders: 1, len: self.stride as u32, wire_len: 0 };
        PayloadId(id)
    }

    /// One more packet carries it.
    pub fn share(&mut self, id: PayloadId) {
        if let Some(header) = self.headers.get_mut(id.0 as usize) {
            header.holders += 1;
        }
    }

    /// One packet less carries it; the last one frees it. Nothing happens to [`PayloadId::NONE`].
    pub fn release(&mut self, id: PayloadId) {
        let Some(header) = self.headers.get_mut(id.0 as usize) else { return };
        header.holders -= 1;
        if header.holders == 0 {
            header.len = self.free;
            self.free = id.0;
            self.in_use -= 1;
        }
    }

    /// A payload with the same content that the caller alone holds; takes over the caller's hold on `id`.
    pub fn own(&mut self, id: PayloadId) -> PayloadId {
        let header = self.headers[id.0 as usize];
        if header.holders == 1 {
            return id;
        }
        let copy = self.take();
        self.headers[copy.0 as usize] = Header { holders: 1, ..header };
        let from = id.0 as usize * self.stride;
        self.bytes.copy_within(from..from + header.len as usize, copy.0 as usize * self.stride);
        self.headers[id.0 as usize].holders -= 1;
        copy
    }

    /// Says how much of its piece a payload uses, and what it stands for on the wire.
    pub fn set_len(&mut self, id: PayloadId, len: usize, wire_len: usize) {
        debug_assert!(len <= self.stride);
        let header = &mut self.headers[id.0 as usize];
        (header.len, header.wire_len) = (len as u32, wire_len as u32);
    }

    /// UDP payload bytes that it stands for on the wire.
    pub fn wire_len(&self, id: PayloadId) -> usize {
        self.headers[id.0 as usize].wire_len as usize
    }

    /// The bytes in use.
    pub fn get(&self, id: PayloadId) -> &[u8] {
        let start = id.0 as usize * self.stride;
        &self.bytes[start..start + self.headers[id.0 as usize].len as usize]
    }

    /// The bytes in use, to be rewritten. The caller alone holds them (see [`Payloads::own`]).
    pub fn get_mut(&mut self, id: PayloadId) -> &mut [u8] {
        let header = &self.headers[id.0 as usize];
        debug_assert_eq!(header.holders, 1);
        let start = id.0 as usize * self.stride;
        &mut self.bytes[start..start + header.len as usize]
    }

    /// Payloads that some packet carries.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Bytes of memory behind them.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.headers.capacity() * size_of::<Header>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_payload_is_copied_before_it_is_rewritten() {
        let mut payloads = Payloads::new(8);
        let first = payloads.take();
        payloads.get_mut(first)[..3].copy_from_slice(b"abc");
        payloads.set_len(first, 3, 1000);
        payloads.share(first);
        let second = payloads.own(first);
        payloads.get_mut(second)[0] = b'x';
        assert_eq!((payloads.get(first), payloads.get(second)), (&b"abc"[..], &b"xbc"[..]));
        assert_eq!(payloads.wire_len(second), 1000);
        assert_eq!(payloads.own(first), first, "its only holder keeps it");
    }

    #[test]
    fn the_last_holder_frees_it() {
        let mut payloads = Payloads::new(8);
        let first = payloads.take();
        payloads.share(first);
        payloads.release(first);
        assert_eq!(payloads.in_use(), 1);
        payloads.release(first);
        assert_eq!((payloads.in_use(), payloads.take()), (0, first));
    }
}
