//! Golden packets: files of hexadecimal bytes in the repository's `tests/golden`, with a comment after `#` for each field.

use std::path::Path;

/// The bytes of a golden packet.
pub fn bytes(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(format!("{name}.hex"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let fields = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let bytes = fields.flat_map(str::split_whitespace).map(|byte| u8::from_str_radix(byte, 16));
    bytes.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
