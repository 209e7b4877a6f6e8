//! A module's outermost structure: its sections, read and written without looking into code.

use crate::error::OperatorError;

/// The beginning of every module: magic and version.
const PREAMBLE: [u8; 8] = *b"\0asm\x01\0\0\0";
/// The custom section with the operator's name.
const NAME: &str = "tributary.name";
/// The custom section with the kind of elements.
const ELEMENT: &str = "tributary.element";
const CUSTOM: u8 = 0;
const IMPORT: u8 = 2;
const FUNCTION: u8 = 3;
const START: u8 = 8;

/// What a module declares before it is compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    pub functions: u32,
    pub has_imports: bool,
    pub has_start: bool,
    pub name: Option<String>,
    pub element: Option<String>,
}

impl Outline {
    pub fn of(module: &[u8]) -> Result<Outline, OperatorError> {
        let truncated =
            || OperatorError::Module("this module of WebAssembly is incomplete: it ends in the middle".to_owned());
        let mut rest = module.strip_prefix(&PREAMBLE).ok_or_else(|| {
            OperatorError::Module("this is not a module of WebAssembly (its first bytes differ)".to_owned())
        })?;
        let mut outline = Outline::default();
        while let Some((&id, after)) = rest.split_first() {
            let (len, after) = leb(after).ok_or_else(truncated)?;
            let (body, after) = after.split_at_checked(len as usize).ok_or_else(truncated)?;
            rest = after;
            match id {
                IMPORT => outline.has_imports = leb(body).is_some_and(|(count, _)| count > 0),
                FUNCTION => outline.functions = leb(body).ok_or_else(truncated)?.0,
                START => outline.has_start = true,
                CUSTOM => {
                    let (len, body) = leb(body).ok_or_else(truncated)?;
                    let (name, text) = body.split_at_checked(len as usize).ok_or_else(truncated)?;
                    let text = || String::from_utf8(text.to_vec()).ok().filter(|text| text.chars().count() <= 200);
                    match name {
                        name if name == NAME.as_bytes() => outline.name = text(),
                        name if name == ELEMENT.as_bytes() => outline.element = text(),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }
}

/// The module with its name and the kind of its elements added, for people.
pub fn describe(module: &[u8], name: Option<&str>, element: Option<&str>) -> Vec<u8> {
    let mut whole = module.to_vec();
    for (section, text) in [(NAME, name), (ELEMENT, element)] {
        let Some(text) = text else { continue };
        let mut body = Vec::new();
        put_leb(&mut body, section.len() as u32);
        body.extend(section.bytes());
        body.extend(text.bytes());
        whole.push(CUSTOM);
        put_leb(&mut whole, body.len() as u32);
        whole.extend(body);
    }
    whole
}

/// An unsigned number of at most 32 bits (LEB128), and what follows it.
fn leb(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0u64;
    for (number, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * number);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, &bytes[number + 1..]));
        }
    }
    None
}

fn put_leb(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_is_called_and_what_its_elements_are() {
        let bare = PREAMBLE.to_vec();
        assert_eq!(Outline::of(&bare), Ok(Outline::default()));
        let long = "x".repeat(150);
        let whole = describe(&bare, Some(&long), Some("f32"));
        let outline = Outline::of(&whole).unwrap();
        assert_eq!((outline.name, outline.element), (Some(long), Some("f32".to_owned())));
        for end in PREAMBLE.len() + 1..whole.len() {
            // A module may also end behind its first section.
            let whole = Outline::of(&whole[..end]);
            assert!(whole.is_err() || whole.unwrap().element.is_none(), "{end}");
        }
        assert!(Outline::of(b"no module").is_err());
    }
}
