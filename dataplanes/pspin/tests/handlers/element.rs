//! Types of elements, and how they are added: what handlers are held against.

use half::f16;

/// A type, by its name in the handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F32,
    F16,
    I32,
    I16,
    I8,
}

impl Element {
    pub const ALL: [Element; 5] = [Element::F32, Element::F16, Element::I32, Element::I16, Element::I8];

    pub fn name(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::F16 => "f16",
            Element::I32 => "i32",
            Element::I16 => "i16",
            Element::I8 => "i8",
        }
    }

    pub fn bytes(self) -> usize {
        match self {
            Element::F32 | Element::I32 => 4,
            Element::F16 | Element::I16 => 2,
            Element::I8 => 1,
        }
    }

    /// The bits of a + b. Integers wrap; a NaN is the canonical one.
    pub fn add(self, a: u32, b: u32) -> u32 {
        match self {
            Element::F32 => {
                let sum = f32::from_bits(a) + f32::from_bits(b);
                if sum.is_nan() { 0x7fc0_0000 } else { sum.to_bits() }
            }
            Element::F16 => {
                let [a, b] = [a, b].map(|bits| f16::from_bits(bits as u16).to_f32());
                let sum = a + b;
                if sum.is_nan() { 0x7e00 } else { f16::from_f32(sum).to_bits().into() }
            }
            Element::I32 => a.wrapping_add(b),
            Element::I16 => u32::from((a as u16).wrapping_add(b as u16)),
            Element::I8 => u32::from((a as u8).wrapping_add(b as u8)),
        }
    }

    /// Any value; among floats there are special ones, and many that are near enough to each other for sums to round.
    pub fn random(self, random: &mut Random) -> u32 {
        let bits = random.next() as u32;
        match self {
            Element::F32 => match random.below(16) {
                0 => [0x7f80_0000, 0xff80_0000, 0xffc1_2345, 0x8000_0000, 1, 0x007f_ffff][random.below(6)],
                1 => bits,
                _ => bits & 0x81ff_ffff | 0x3e00_0000,
            },
            Element::F16 => match random.below(16) {
                0 => [0x7c00, 0xfc00, 0xfe12, 0x8000, 1, 0x03ff][random.below(6)],
                1 => bits & 0xffff,
                _ => bits & 0x8fff | 0x3000,
            },
            Element::I32 => bits,
            Element::I16 => bits & 0xffff,
            Element::I8 => bits & 0xff,
        }
    }

    /// A small number, of which nothing is special.
    pub fn some(self) -> u32 {
        match self {
            Element::F32 => 1.5f32.to_bits(),
            Element::F16 => f16::from_f32(1.5).to_bits().into(),
            Element::I32 | Element::I16 | Element::I8 => 3,
        }
    }

    /// Values as they lie in a packet.
    pub fn pack(self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()[..self.bytes()].to_vec()).collect()
    }
}

/// Splitmix64, from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}
