//! Files of at most 400 lines, functions that fit a screen.

use crate::{Offences, Source};

const FILE: usize = 400;
const FUNCTION: usize = 60;

/// Notes a file that is too long, and its functions that are.
pub fn check(source: &Source, offences: &mut Offences) {
    let lines = source.text.lines().count();
    if lines > FILE {
        offences.insert(format!("file {}", source.path), lines);
    }
    if source.is_rust() {
        for (name, lines) in functions(&source.code).into_iter().filter(|&(_, lines)| lines > FUNCTION) {
            // Of several with one name the longest.
            let longest = offences.entry(format!("function {} {name}", source.path)).or_default();
            *longest = lines.max(*longest);
        }
    }
}

/// Name and lines of every function that has a body, from `fn` to its closing brace.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
        if let (false, Some(body)) = (name.is_empty(), body(&code[at..])) {
            found.push((name, code[at..at + body].lines().count()));
        }
    }
    found
}

/// The bytes of a function from here to behind its closing brace; none if it is only declared.
fn body(code: &str) -> Option<usize> {
    let (mut round, mut braces, mut begun) = (0i32, 0i32, false);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            ';' if !begun && round == 0 => return None,
            '{' => (braces, begun) = (braces + 1, begun || round == 0),
            '}' => braces -= 1,
            _ => {}
        }
        if begun && braces == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_measured_to_its_own_closing_brace() {
        let code = "trait T {\n  fn declared(a: [u8; 4]);\n}\nfn short() {}\nfn nested(\n  a: u8,\n) -> [u8; 2] {\n  if a {\n  }\n  fn inner() {\n  }\n}\n";
        let expected = [("short", 1), ("nested", 8), ("inner", 2)].map(|(name, lines)| (name.to_string(), lines));
        assert_eq!(functions(code), expected);
    }

    #[test]
    fn the_longest_function_of_a_name_counts() {
        let long = format!("fn f() {{\n{}}}\nfn f() {{\n}}\n", "a;\n".repeat(70));
        let mut offences = Offences::new();
        check(&Source::new("a.rs", long), &mut offences);
        assert_eq!(offences, Offences::from([("function a.rs f".to_string(), 72)]));
    }
}
