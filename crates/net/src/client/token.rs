//! The token by which a tenant or an operator is known to a switch.

use std::env::{self, VarError};
use std::fmt;

use tributary_control::config::is_token_byte;

/// The environment variable.
pub const VARIABLE: &str = "TRIBUTARY_TOKEN";

/// The token that this process shows to switches: the value of a request's `Authorization`. It comes from the environment
/// and never from an argument, because all users of the machine can read arguments. It never appears in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// A token. The error is a sentence that does not contain the token.
    pub fn new(token: &str) -> Result<Token, String> {
        match !token.is_empty() && token.bytes().all(is_token_byte) {
            true => Ok(Token(format!("Bearer {token}"))),
            false => Err(format!("{VARIABLE} holds characters that no token has: set it as it was given")),
        }
    }

    /// The token of this process, if it has one.
    pub fn of_this_process() -> Result<Option<Token>, String> {
        match env::var(VARIABLE) {
            Ok(token) => Token::new(token.trim()).map(Some),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(format!("{VARIABLE} holds no text: set it as it was given")),
        }
    }

    /// The header's value.
    pub fn header(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_and_is_not_printed() {
        let token = Token::new("abc-DEF_123=").unwrap();
        assert_eq!(token.header(), "Bearer abc-DEF_123=");
        assert!(!format!("{token:?}").contains("abc"));
        for wrong in ["", "a b", "a\r\nX: y", "\u{fc}"] {
            assert!(Token::new(wrong).unwrap_err().contains(VARIABLE));
        }
    }
}
