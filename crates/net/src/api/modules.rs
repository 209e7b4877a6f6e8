//! The modules of a job's custom operators as JSON. Each rank sends them with its join, and a child switch sends them to its
//! parent once.

use tributary_operators::Library;
use tributary_proto::contract::options::Options;

use super::error::ApiError;
use axum::http::StatusCode;

/// The most bytes that the modules of one join may have as text. Two of the longest modules fit.
pub(crate) const MOST_BYTES: usize = 256 * 1024;

/// The modules of the operators that a job's options name.
pub(crate) fn of(options: &Options) -> Vec<String> {
    options.operators().iter().map(|operator| hex(operator.module())).collect()
}

/// The options, with the operators that they name made from these modules.
pub(crate) fn provide(options: Options, modules: &[String], library: &Library) -> Result<Options, ApiError> {
    let Some(first) = options.operators().lacks() else { return Ok(options) };
    let refused = |error: String| ApiError::new(StatusCode::BAD_REQUEST, "operator_refused", error);
    let wrong = || ApiError::bad_request("a module is not of hexadecimal digits".into());
    let mut operators = Vec::with_capacity(modules.len());
    for module in modules {
        let module = bytes(module).ok_or_else(wrong)?;
        operators.push(library.operator(&module).map_err(|error| refused(error.to_string()))?);
    }
    let options = options.provided(&operators);
    match options.operators().lacks() {
        None => Ok(options),
        Some(hash) if modules.is_empty() => {
            debug_assert_eq!(hash, first);
            Err(refused(format!("the join names the operator {hash} and brings no module: name its file")))
        }
        Some(hash) => Err(refused(format!("no module of the join is the operator {hash}"))),
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)] as char).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |&[high, low]: &[u8; 2]| Some((digit(high)? << 4 | digit(low)?) as u8);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_survives_as_text() {
        let module: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes(&hex(&module)), Some(module));
        assert_eq!((bytes("0"), bytes("0g"), bytes("éé")), (None, None, None));
    }
}
