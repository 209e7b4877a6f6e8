//! The words of an expression.

use super::error;
use crate::error::OperatorError;

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Name(String),
    Int(i128),
    Float(f64),
    /// An operator, a bracket, a comma.
    Sign(&'static str),
    /// The end of a line.
    End,
}

/// Longer signs come first.
const SIGNS: [&str; 24] = [
    "<<", ">>", "<=", ">=", "==", "!=", "**", "//", "+", "-", "*", "/", "%", "&", "|", "^", "~", "<", ">", "(", ")",
    ",", ".", "=",
];

pub fn tokens(source: &str) -> Result<Vec<Token>, OperatorError> {
    let mut tokens = Vec::new();
    for line in source.split(['\n', ';']) {
        let line = line.split('#').next().unwrap_or_default();
        let before = tokens.len();
        words(line, &mut tokens)?;
        if tokens.len() > before {
            tokens.push(Token::End);
        }
    }
    Ok(tokens)
}

fn words(mut rest: &str, tokens: &mut Vec<Token>) -> Result<(), OperatorError> {
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return Ok(()) };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            let (token, after) = number(rest)?;
            tokens.push(token);
            rest = after;
        } else if is_word(first) {
            let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..len].to_owned()));
            rest = &rest[len..];
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            return Err(error(format!("\"{first}\" has no meaning in an expression")));
        }
    }
}

fn number(text: &str) -> Result<(Token, &str), OperatorError> {
    let wrong = |text: &str| error(format!("\"{text}\" is not a number"));
    if let Some(digits) = text.strip_prefix("0x") {
        let len = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        let value = i128::from(u64::from_str_radix(&digits[..len], 16).map_err(|_| wrong(&text[..len + 2]))?);
        return Ok((Token::Int(value), &digits[len..]));
    }
    let mut len = 0;
    let mut is_float = false;
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(len) {
        match byte {
            b'0'..=b'9' => {}
            b'.' | b'e' | b'E' => is_float = true,
            b'+' | b'-' if matches!(bytes[len - 1], b'e' | b'E') => {}
            _ => break,
        }
        len += 1;
    }
    let (digits, rest) = text.split_at(len);
    let token = match is_float {
        true => digits.parse().map(Token::Float).map_err(|_| wrong(digits)),
        false => digits.parse::<u64>().map(|value| Token::Int(value.into())).map_err(|_| wrong(digits)),
    };
    Ok((token?, rest))
}
