//! The header of a `.npy` file: magic, version, length, and a Python dictionary with three keys.

use std::ops::Range;

use tributary_numeric::DType;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Data begins at a multiple of this, as in numpy's own files.
const ALIGNMENT: usize = 64;

/// The order of the elements in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last index runs fastest.
    C,
    /// The first index runs fastest.
    Fortran,
}

/// The description of the elements in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type. A `.npy` file has no name for bfloat16: numpy with `ml_dtypes` writes it as two raw bytes (`V2`).
    pub dtype: DType,
    /// True if the high byte comes first.
    pub big_endian: bool,
    /// The order of the elements.
    pub order: Order,
    /// Length of each dimension; none for a single number.
    pub shape: Vec<usize>,
}

impl Header {
    /// A header for a vector, with this machine's byte order.
    pub fn vector(dtype: DType, elements: usize) -> Header {
        Header { dtype, big_endian: cfg!(target_endian = "big"), order: Order::C, shape: vec![elements] }
    }

    /// The number of elements; `None` if it is too large for a `usize`.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, &length| product.checked_mul(length))
    }

    /// The header and the bytes behind it; the error completes a sentence that begins with the file's name.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
        let (text, body) = split(bytes)?;
        let text = std::str::from_utf8(&bytes[text]).map_err(|_| "has a .npy header that is not text".to_string())?;
        let descr = value(text, "descr")?;
        let (dtype, big_endian) = parse_descr(descr)?;
        let order = match value(text, "fortran_order")?.split([',', '}']).next().unwrap_or("").trim() {
            "True" => Order::Fortran,
            "False" => Order::C,
            other => return Err(format!("has a damaged .npy header: fortran_order is '{}'", other.escape_debug())),
        };
        let shape = parse_shape(value(text, "shape")?)?;
        Ok((Header { dtype, big_endian, order, shape }, &bytes[body]))
    }

    /// The header's bytes in version 1.0 of the format, which has room for any shape that numpy allows (32 dimensions).
    pub fn to_bytes(&self) -> Vec<u8> {
        let endian = if self.big_endian { '>' } else { '<' };
        let descr = match self.dtype {
            DType::F32 => format!("{endian}f4"),
            DType::F16 => format!("{endian}f2"),
            DType::BF16 => format!("{endian}V2"),
            DType::I32 => format!("{endian}i4"),
            DType::F64 => format!("{endian}f8"),
            DType::I8 => "|i1".to_string(),
            DType::I16 => format!("{endian}i2"),
            DType::I64 => format!("{endian}i8"),
            DType::U8 => "|u1".to_string(),
        };
        let order = if self.order == Order::Fortran { "True" } else { "False" };
        let lengths: String = match self.shape.as_slice() {
            [one] => format!("{one},"),
            many => many.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
        };
        let mut text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({lengths}), }}");
        let unpadded = MAGIC.len() + 4 + text.len() + 1;
        text.push_str(&" ".repeat(unpadded.next_multiple_of(ALIGNMENT) - unpadded));
        text.push('\n');
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[1, 0]);
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }
}

/// The ranges of the dictionary and of the elements.
fn split(bytes: &[u8]) -> Result<(Range<usize>, Range<usize>), String> {
    if !bytes.starts_with(MAGIC) {
        return Err("is no .npy file (numpy.save writes one)".to_string());
    }
    let cut_off = || "is a .npy file whose header is cut off".to_string();
    let (start, length) = match bytes.get(6).ok_or_else(cut_off)? {
        1 => (10, bytes.get(8..10).map(|b| u64::from(u16::from_le_bytes([b[0], b[1]])))),
        2 | 3 => (12, bytes.get(8..12).map(|b| u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])))),
        version => return Err(format!("is a .npy file of version {version}; 1, 2 and 3 are known")),
    };
    let end = start as u64 + length.ok_or_else(cut_off)?;
    if end > bytes.len() as u64 {
        return Err(cut_off());
    }
    Ok((start..end as usize, end as usize..bytes.len()))
}

/// The text behind a key of the dictionary, up to the dictionary's end.
fn value<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let quoted = [format!("'{key}'"), format!("\"{key}\"")];
    quoted
        .iter()
        .find_map(|quoted| text.split_once(quoted.as_str()))
        .and_then(|(_, rest)| rest.trim_start().strip_prefix(':'))
        .map(str::trim_start)
        .ok_or_else(|| format!("has a damaged .npy header: it does not name '{key}'"))
}

fn parse_descr(text: &str) -> Result<(DType, bool), String> {
    const KNOWN: &str = "f8, f4, f2, V2 (bf16), i8, i4, i2, i1 and u1";
    const REMEDY: &str = "save it as one of them, for example with numpy: array.astype('float32')";
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let Some(descr) = quote.and_then(|quote| text[1..].split(quote).next()) else {
        return Err(format!("holds records; {KNOWN} can be reduced: {REMEDY}"));
    };
    let dtype = match descr.trim_start_matches(['<', '>', '=', '|']) {
        "f4" => DType::F32,
        "f2" => DType::F16,
        "V2" | "bfloat16" => DType::BF16,
        "i4" => DType::I32,
        "f8" => DType::F64,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i8" => DType::I64,
        "u1" => DType::U8,
        _ => {
            return Err(format!("holds elements of type '{}'; {KNOWN} can be reduced: {REMEDY}", descr.escape_debug()));
        }
    };
    Ok((dtype, descr.starts_with('>')))
}

fn parse_shape(text: &str) -> Result<Vec<usize>, String> {
    let damaged = || "has a damaged .npy header: its shape is not a tuple of lengths".to_string();
    let (inside, _) = text.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(damaged)?;
    let lengths = inside.split(',').map(str::trim).filter(|length| !length.is_empty());
    lengths.map(|length| length.trim_end_matches('L').parse().map_err(|_| damaged())).collect()
}
