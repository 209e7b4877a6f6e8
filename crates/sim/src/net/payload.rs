//! What packets carry: pieces of memory of two sizes, shared by the copies of a multicast until one is rewritten.
//!
//! With fingerprints nearly all packets are short, and a few notices are not: hence the two sizes.

use tributary_numeric::prefetch;

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

    fn is_long(self) -> bool {
        self.0 & PayloadId::LONG != 0
    }

    fn index(self) -> usize {
        (self.0 & !PayloadId::LONG) as usize
    }
}

/// Bytes of a short payload: headers and a fingerprint. SwitchML's take 60: with the piece's own header four more than a
/// line of the cache.
const SHORT: usize = 120;
const NIL: u32 = u32::MAX;

/// Who holds a payload and how long it is.
#[derive(Clone, Copy)]
struct Header {
    /// Packets that carry it; when free, the next free piece.
    holders: u32,
    /// Bytes in use.
    len: u16,
    /// UDP payload bytes that it stands for on the wire.
    wire_len: u16,
}

#[repr(C, align(64))]
#[derive(Clone)]
struct ShortPiece {
    header: Header,
    bytes: [u8; SHORT],
}

#[derive(Clone)]
struct LongPiece {
    header: Header,
    bytes: Box<[u8]>,
}

/// A piece of either size.
trait Piece: Clone {
    fn new(header: Header, bytes: &[u8]) -> Self;
    fn header(&mut self) -> &mut Header;
    fn bytes(&mut self) -> &mut [u8];
}

impl Piece for ShortPiece {
    fn new(header: Header, bytes: &[u8]) -> ShortPiece {
        let mut piece = ShortPiece { header, bytes: [0; SHORT] };
        piece.bytes[..bytes.len()].copy_from_slice(bytes);
        piece
    }
    fn header(&mut self) -> &mut Header {
        &mut self.header
    }
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Piece for LongPiece {
    fn new(header: Header, bytes: &[u8]) -> LongPiece {
        LongPiece { header, bytes: bytes.into() }
    }
    fn header(&mut self) -> &mut Header {
        &mut self.header
    }
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Payloads of one size.
struct Pieces<P> {
    pieces: Vec<P>,
    free: u32,
}

impl<P: Piece> Pieces<P> {
    /// A place for a payload; what is in a place that was free is written over.
    fn store(&mut self, header: Header, bytes: &[u8]) -> u32 {
        if self.free == NIL {
            self.pieces.push(P::new(header, bytes));
            return self.pieces.len() as u32 - 1;
        }
        let index = self.free;
        let piece = &mut self.pieces[index as usize];
        self.free = piece.header().holders;
        match piece.bytes().get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                *piece.header() = header;
            }
            None => *piece = P::new(header, bytes),
        }
        index
    }

    /// True if that was the last holder.
    fn release(&mut self, index: usize) -> bool {
        let header = self.pieces[index].header();
        header.holders -= 1;
        if header.holders > 0 {
            return false;
        }
        header.holders = self.free;
        self.free = index as u32;
        true
    }

    /// A copy with one holder, who holds the original no longer.
    fn copy(&mut self, index: usize) -> u32 {
        let mut copy = self.pieces[index].clone();
        self.pieces[index].header().holders -= 1;
        copy.header().holders = 1;
        let (header, len) = (*copy.header(), usize::from(copy.header().len));
        self.store(header, &copy.bytes()[..len])
    }
}

/// All payloads of a network.
pub struct Payloads {
    short: Pieces<ShortPiece>,
    long: Pieces<LongPiece>,
    in_use: usize,
}

impl Default for Payloads {
    fn default() -> Payloads {
        let (short, long) = (Pieces { pieces: Vec::new(), free: NIL }, Pieces { pieces: Vec::new(), free: NIL });
        Payloads { short, long, in_use: 0 }
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

    /// `more` more packets carry it.
    pub fn share(&mut self, id: PayloadId, more: u32) {
        if !id.is_none() {
            self.header(id).holders += more;
        }
    }

    /// One packet less carries it; the last one frees it. Nothing happens to [`PayloadId::NONE`].
    pub fn release(&mut self, id: PayloadId) {
        let freed = match id {
            PayloadId::NONE => false,
            id if id.is_long() => self.long.release(id.index()),
            id => self.short.release(id.index()),
        };
        self.in_use -= usize::from(freed);
    }

    /// A payload with the same content that the caller alone holds; takes over the caller's hold on `id`.
    pub fn own(&mut self, id: PayloadId) -> PayloadId {
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

    /// Shortens a payload, and says what it stands for on the wire now.
    pub fn set_len(&mut self, id: PayloadId, len: usize, wire_len: usize) {
        let header = self.header(id);
        debug_assert!(len <= usize::from(header.len));
        (header.len, header.wire_len) = (len as u16, wire_len as u16);
    }

    /// The bytes, and how many bytes of UDP payload they stand for on the wire.
    pub fn get(&self, id: PayloadId) -> (&[u8], usize) {
        let (header, bytes) = if id.is_long() {
            let piece = &self.long.pieces[id.index()];
            (piece.header, &piece.bytes[..])
        } else {
            let piece = &self.short.pieces[id.index()];
            (piece.header, &piece.bytes[..])
        };
        (&bytes[..usize::from(header.len)], usize::from(header.wire_len))
    }

    /// Fetches a payload's memory.
    #[inline]
    pub fn prefetch(&self, id: PayloadId) {
        if let Some(piece) = self.short.pieces.get(id.index()) {
            prefetch::whole(piece);
        }
    }

    /// The same as [`Payloads::get`], to be rewritten. The caller alone holds them (see [`Payloads::own`]).
    pub fn get_mut(&mut self, id: PayloadId) -> (&mut [u8], usize) {
        let header = *self.header(id);
        debug_assert_eq!(header.holders, 1);
        let bytes =
            if id.is_long() { self.long.pieces[id.index()].bytes() } else { self.short.pieces[id.index()].bytes() };
        (&mut bytes[..usize::from(header.len)], usize::from(header.wire_len))
    }

    /// Payloads that some packet carries.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Bytes of memory behind them.
    pub fn memory_bytes(&self) -> usize {
        let long: usize = self.long.pieces.iter().map(|piece| size_of::<LongPiece>() + piece.bytes.len()).sum();
        self.short.pieces.capacity() * size_of::<ShortPiece>() + long
    }

    fn header(&mut self, id: PayloadId) -> &mut Header {
        if id.is_long() { self.long.pieces[id.index()].header() } else { self.short.pieces[id.index()].header() }
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
