//! An expression's structure, with Python's precedence.

use super::error;
use super::lexer::{Token, tokens};
use crate::error::OperatorError;

/// The greatest depth of an expression.
const MOST_DEPTH: usize = 64;

/// An expression after parsing.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Int(i128),
    Float(f64),
    /// A name: `a`, `b`, or the name of a line.
    Name(String),
    /// A field: `a.v`.
    Field(String, String),
    Unary(&'static str, Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    /// The first if the condition holds, else the second.
    If {
        condition: Box<Node>,
        then: Box<Node>,
        otherwise: Box<Node>,
    },
    Call(String, Vec<Node>),
}

/// A line: a value, with or without a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub name: Option<String>,
    pub value: Node,
}

pub fn parse(source: &str) -> Result<Vec<Line>, OperatorError> {
    let tokens = tokens(source)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
    let mut lines = Vec::new();
    while parser.at < tokens.len() {
        let name = match &tokens[parser.at..] {
            [Token::Name(name), Token::Sign("="), ..] => {
                parser.at += 2;
                Some(name.clone())
            }
            _ => None,
        };
        let value = parser.choice()?;
        match parser.next() {
            Some(Token::End) => lines.push(Line { name, value }),
            other => return Err(unexpected(other)),
        }
    }
    if lines.is_empty() { Err(error("the expression is empty".to_owned())) } else { Ok(lines) }
}

fn unexpected(token: Option<&Token>) -> OperatorError {
    error(match token {
        None | Some(Token::End) => "the expression ends in the middle".to_owned(),
        Some(Token::Name(name)) => format!("\"{name}\" is not expected there"),
        Some(Token::Int(value)) => format!("\"{value}\" is not expected there"),
        Some(Token::Float(value)) => format!("\"{value}\" is not expected there"),
        Some(Token::Sign("=")) => "\"=\" gives a line a name; \"==\" compares".to_owned(),
        Some(Token::Sign(sign @ ("**" | "//" | "%"))) => {
            format!("there is no \"{sign}\": there are + - * / & | ^ ~ << >>, and / is for floats")
        }
        Some(Token::Sign(sign)) => format!("\"{sign}\" is not expected there"),
    })
}

/// Binary operators from the loosest to the tightest.
const LEVELS: [&[&str]; 5] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"]];
const COMPARISONS: [&str; 6] = ["<", ">", "<=", ">=", "==", "!="];

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a Token> {
        let token = self.tokens.get(self.at);
        self.at += 1;
        token
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = match self.tokens.get(self.at) {
            Some(Token::Name(name)) => name == word,
            Some(Token::Sign(sign)) => *sign == word,
            _ => false,
        };
        self.at += usize::from(found);
        found
    }

    fn one_of(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        signs.iter().copied().find(|sign| self.takes(sign))
    }

    fn expect(&mut self, sign: &str) -> Result<(), OperatorError> {
        if self.takes(sign) { Ok(()) } else { Err(unexpected(self.tokens.get(self.at))) }
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, OperatorError>) -> Result<T, OperatorError> {
        if self.depth >= MOST_DEPTH {
            return Err(error(format!("the expression is more than {MOST_DEPTH} levels deep")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn choice(&mut self) -> Result<Node, OperatorError> {
        self.deeper(|parser| {
            let then = Box::new(parser.either()?);
            if !parser.takes("if") {
                return Ok(*then);
            }
            let condition = Box::new(parser.either()?);
            parser.expect("else")?;
            let otherwise = Box::new(parser.choice()?);
            Ok(Node::If { condition, then, otherwise })
        })
    }

    fn either(&mut self) -> Result<Node, OperatorError> {
        self.row(&["or"], |parser| parser.row(&["and"], Self::negation))
    }

    /// Operands with operators of one level between them, applied from left to right.
    fn row(
        &mut self,
        operators: &[&'static str],
        operand: impl Fn(&mut Self) -> Result<Node, OperatorError>,
    ) -> Result<Node, OperatorError> {
        let (mut left, mut count) = (operand(self)?, 0);
        while let Some(operator) = self.one_of(operators) {
            count += 1;
            if count > MOST_DEPTH {
                return Err(error(format!("more than {MOST_DEPTH} operands in a row: give some of them names")));
            }
            left = Node::Binary(operator, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn negation(&mut self) -> Result<Node, OperatorError> {
        if self.takes("not") {
            return self.deeper(|parser| Ok(Node::Unary("not", Box::new(parser.negation()?))));
        }
        self.comparison()
    }

    /// `a < b < c` is `a < b and b < c`.
    fn comparison(&mut self) -> Result<Node, OperatorError> {
        let mut left = self.level(0)?;
        let mut whole: Option<Node> = None;
        while let Some(operator) = self.one_of(&COMPARISONS) {
            let right = self.level(0)?;
            let this = Node::Binary(operator, Box::new(left), Box::new(right.clone()));
            whole = Some(match whole {
                None => this,
                Some(before) => Node::Binary("and", Box::new(before), Box::new(this)),
            });
            left = right;
        }
        Ok(whole.unwrap_or(left))
    }

    fn level(&mut self, level: usize) -> Result<Node, OperatorError> {
        match LEVELS.get(level) {
            Some(operators) => self.row(operators, |parser| parser.level(level + 1)),
            None => self.row(&["*", "/"], Self::sign),
        }
    }

    fn sign(&mut self) -> Result<Node, OperatorError> {
        match self.one_of(&["-", "+", "~"]) {
            None => self.atom(),
            Some(sign) => self.deeper(|parser| {
                let value = parser.sign()?;
                Ok(match (sign, value) {
                    ("-", Node::Int(value)) => Node::Int(-value),
                    ("-", Node::Float(value)) => Node::Float(-value),
                    ("+", value) => value,
                    (sign, value) => Node::Unary(sign, Box::new(value)),
                })
            }),
        }
    }

    fn atom(&mut self) -> Result<Node, OperatorError> {
        match self.next() {
            Some(Token::Int(value)) => Ok(Node::Int(*value)),
            Some(Token::Float(value)) => Ok(Node::Float(*value)),
            Some(Token::Sign("(")) => {
                let value = self.choice()?;
                self.expect(")")?;
                Ok(value)
            }
            Some(Token::Name(name)) if self.takes("(") => {
                let mut arguments = Vec::new();
                while !self.takes(")") {
                    if !arguments.is_empty() {
                        self.expect(",")?;
                    }
                    arguments.push(self.choice()?);
                }
                Ok(Node::Call(name.clone(), arguments))
            }
            Some(Token::Name(name)) if self.takes(".") => match self.next() {
                Some(Token::Name(field)) => Ok(Node::Field(name.clone(), field.clone())),
                other => Err(unexpected(other)),
            },
            Some(Token::Name(name)) => Ok(Node::Name(name.clone())),
            other => Err(unexpected(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(source: &str) -> String {
        parse(source).unwrap_err().to_string()
    }

    #[test]
    fn precedence_is_pythons() {
        let parsed = |source: &str| parse(source).unwrap();
        assert_eq!(parsed("a + b * 2 << 1 & 3"), parsed("((a + (b * 2)) << 1) & 3"));
        assert_eq!(
            parsed("a if not a < b and a > 0 or b == 1 else b"),
            parsed("a if (((not (a < b)) and (a > 0)) or (b == 1)) else b")
        );
        assert_eq!(parsed("a < b < 3"), parsed("a < b and b < 3"));
        assert_eq!(parsed("x = a; x # twice"), parsed("x = a\n\nx"));
    }

    #[test]
    fn a_wrong_expression_is_refused_in_a_sentence() {
        assert_eq!(sentence(""), "the expression is empty");
        assert_eq!(sentence("a +"), "the expression ends in the middle");
        assert_eq!(sentence("a ** 2"), "there is no \"**\": there are + - * / & | ^ ~ << >>, and / is for floats");
        assert_eq!(sentence("a = = b"), "\"=\" gives a line a name; \"==\" compares");
        assert_eq!(sentence("a @ b"), "\"@\" has no meaning in an expression");
        assert!(sentence(&"(".repeat(1000)).ends_with("levels deep"));
        assert!(sentence(&"a + ".repeat(1000)).contains("operands in a row"));
        assert!(sentence("1e").contains("is not a number"));
    }
}
