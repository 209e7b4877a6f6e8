//! The elements of an operator, for people: one number, several with names, or a number of bytes.
//!
//! As text: `f32`, or `v:f32,i:i32` (fields one after the other, without gaps), or `opaque:5`.

use std::fmt;

use half::{bf16, f16};

use crate::error::OperatorError;

/// One number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// An integer of this many bytes, signed or unsigned.
    Int {
        /// 1, 2, 4 or 8.
        bytes: usize,
        /// Two's complement.
        signed: bool,
    },
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// This many bytes without a known meaning.
    Opaque(usize),
}

/// A number in an element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name; empty if it is the whole element.
    pub name: String,
    /// Its type.
    pub scalar: Scalar,
    /// Its offset in the element, in bytes.
    pub offset: usize,
}

/// An element's numbers, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    fields: Vec<Field>,
}

const NAMES: [(&str, Scalar); 12] = [
    ("i8", Scalar::Int { bytes: 1, signed: true }),
    ("u8", Scalar::Int { bytes: 1, signed: false }),
    ("i16", Scalar::Int { bytes: 2, signed: true }),
    ("u16", Scalar::Int { bytes: 2, signed: false }),
    ("i32", Scalar::Int { bytes: 4, signed: true }),
    ("u32", Scalar::Int { bytes: 4, signed: false }),
    ("i64", Scalar::Int { bytes: 8, signed: true }),
    ("u64", Scalar::Int { bytes: 8, signed: false }),
    ("f16", Scalar::F16),
    ("bf16", Scalar::Bf16),
    ("f32", Scalar::F32),
    ("f64", Scalar::F64),
];

impl Scalar {
    /// Bytes of the type.
    pub fn size(self) -> usize {
        match self {
            Scalar::Int { bytes, .. } | Scalar::Opaque(bytes) => bytes,
            Scalar::F16 | Scalar::Bf16 => 2,
            Scalar::F32 => 4,
            Scalar::F64 => 8,
        }
    }

    /// The type with this name.
    pub fn named(name: &str) -> Option<Scalar> {
        let opaque = || name.strip_prefix("opaque:")?.parse().ok().map(Scalar::Opaque);
        NAMES.iter().find(|(known, _)| *known == name).map(|&(_, scalar)| scalar).or_else(opaque)
    }

    /// A value, formatted for people.
    fn show(self, bytes: &[u8]) -> String {
        let mut wide = [0; 8];
        wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        let word = u64::from_le_bytes(wide);
        match self {
            Scalar::Int { bytes, signed: true } => {
                let shift = 64 - 8 * bytes as u32;
                ((word << shift) as i64 >> shift).to_string()
            }
            Scalar::Int { signed: false, .. } => word.to_string(),
            Scalar::F16 => f16::from_bits(word as u16).to_string(),
            Scalar::Bf16 => bf16::from_bits(word as u16).to_string(),
            Scalar::F32 => format!("{:?}", f32::from_bits(word as u32)),
            Scalar::F64 => format!("{:?}", f64::from_bits(word)),
            Scalar::Opaque(_) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Values at which operators go wrong, as the lower bytes of a word.
    pub(crate) fn specials(self) -> Vec<u64> {
        let floats = |small: [f64; 8]| small.to_vec();
        const USUAL: [f64; 8] = [0.0, -0.0, 1.0, -1.0, 0.5, -3.0, f64::INFINITY, f64::NAN];
        match self {
            Scalar::Int { bytes, signed } => {
                let most = u64::MAX >> (64 - 8 * bytes as u32);
                let top = if signed { most >> 1 } else { most };
                vec![0, 1, most, top, top.wrapping_add(1) & most, 2, most - 1, 7]
            }
            Scalar::F16 => floats(USUAL).into_iter().map(|x| f16::from_f64(x).to_bits().into()).collect(),
            Scalar::Bf16 => floats(USUAL).into_iter().map(|x| bf16::from_f64(x).to_bits().into()).collect(),
            Scalar::F32 => {
                let usual = floats(USUAL).into_iter().map(|x| u64::from((x as f32).to_bits()));
                usual.chain([f32::MAX, f32::MIN_POSITIVE, f32::NEG_INFINITY].map(|x| x.to_bits().into())).collect()
            }
            Scalar::F64 => {
                let more = [f64::MAX, f64::MIN_POSITIVE, f64::NEG_INFINITY];
                floats(USUAL).into_iter().chain(more).map(f64::to_bits).collect()
            }
            Scalar::Opaque(_) => vec![0, u64::MAX, 1, 0x80],
        }
    }

    /// An ordinary value made of random bits: a float of moderate size, or any integer.
    pub(crate) fn usual(self, random: u64) -> u64 {
        let moderate = (random as i32) as f64 / 65_536.0;
        match self {
            Scalar::Int { .. } | Scalar::Opaque(_) => random,
            Scalar::F16 => f16::from_f64(moderate / 1_024.0).to_bits().into(),
            Scalar::Bf16 => bf16::from_f64(moderate).to_bits().into(),
            Scalar::F32 => (moderate as f32).to_bits().into(),
            Scalar::F64 => moderate.to_bits(),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, scalar)| scalar == self) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "opaque:{}", self.size()),
        }
    }
}

impl Element {
    /// An element of this many bytes.
    pub fn opaque(bytes: usize) -> Element {
        Element { fields: vec![Field { name: String::new(), scalar: Scalar::Opaque(bytes), offset: 0 }] }
    }

    /// Parses the text that [`Element`] displays.
    pub fn parse(text: &str) -> Result<Element, OperatorError> {
        let wrong = |what: String| {
            let known = NAMES.map(|(name, _)| name).join(", ");
            OperatorError::Source(format!(
                "{what}: an element is one of {known}, or opaque:BYTES, or named fields as in \
                                           v:f32,i:i32"
            ))
        };
        if let Some(scalar) = Scalar::named(text) {
            return Element { fields: vec![Field { name: String::new(), scalar, offset: 0 }] }.sized();
        }
        let mut fields: Vec<Field> = Vec::new();
        for field in text.split(',') {
            let (name, of) = field.split_once(':').ok_or_else(|| wrong(format!("\"{text}\" is not a type")))?;
            let scalar = Scalar::named(of.trim()).ok_or_else(|| wrong(format!("\"{}\" is not a type", of.trim())))?;
            let name = name.trim().to_owned();
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name || fields.iter().any(|field| field.name == name) {
                return Err(wrong(format!("\"{name}\" is not a name for a field, or is there twice")));
            }
            let offset = fields.last().map_or(0, |last| last.offset + last.scalar.size());
            fields.push(Field { name, scalar, offset });
        }
        Element { fields }.sized()
    }

    fn sized(self) -> Result<Element, OperatorError> {
        match self.size() {
            1..=64 => Ok(self),
            size => Err(OperatorError::Source(format!("an element of {size} bytes is not possible: it has 1 to 64"))),
        }
    }

    /// Bytes of the element.
    pub fn size(&self) -> usize {
        self.fields.last().map_or(0, |last| last.offset.saturating_add(last.scalar.size()))
    }

    /// The element's numbers.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// An element, formatted for people.
    pub fn show(&self, bytes: &[u8]) -> String {
        let value = |field: &Field| field.scalar.show(&bytes[field.offset..][..field.scalar.size()]);
        if let [only] = &self.fields[..]
            && only.name.is_empty()
        {
            return value(only);
        }
        let named = self.fields.iter().map(|field| format!("{}={}", field.name, value(field)));
        format!("({})", named.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Field { name, scalar, .. }) in self.fields.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match name.is_empty() {
                true => write!(f, "{comma}{scalar}")?,
                false => write!(f, "{comma}{name}:{scalar}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_numbers_fields_or_bytes() {
        for (text, size) in [("f32", 4), ("bf16", 2), ("opaque:5", 5), ("v:f32,i:i32", 8), ("a:u8,b:f64", 9)] {
            let element = Element::parse(text).unwrap();
            assert_eq!((element.to_string().as_str(), element.size()), (text, size));
        }
        for wrong in ["", "f33", "v:f32,v:i32", "1:f32", "opaque:0", "opaque:65", "opaque:99999999999999999999", "a:b"]
        {
            assert!(Element::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_shown_in_their_own_type() {
        let show = |text: &str, bytes: &[u8]| Element::parse(text).unwrap().show(bytes);
        assert_eq!(show("f32", &(-0.0f32).to_le_bytes()), "-0.0");
        assert_eq!(show("i16", &[0xff, 0xff]), "-1");
        assert_eq!(show("opaque:3", &[1, 2, 0xab]), "0102ab");
        assert_eq!(show("v:u8,i:f64", &[[7].as_slice(), &1.5f64.to_le_bytes()].concat()), "(v=7, i=1.5)");
    }
}
