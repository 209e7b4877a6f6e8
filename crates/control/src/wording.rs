//! Numbers as sentences for people show them: in refusals, errors and reports.

use std::fmt;

use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

/// Ranks in a sentence: `rank 3`, `ranks 0, 1, 5`, or the first sixteen and how many more.
pub struct Ranks<'a>(pub &'a [u16]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        let shown: Vec<String> = self.0.iter().take(SHOWN).map(u16::to_string).collect();
        write!(f, "rank{} {}", if self.0.len() == 1 { "" } else { "s" }, shown.join(", "))?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Words that others have chosen, as one line without characters that control a terminal, and not too long.
pub fn printable(text: &str) -> String {
    const LONGEST: usize = 1_000;
    let mut line = String::new();
    for c in text.chars() {
        if line.len() > LONGEST {
            line.push('…');
            break;
        }
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

/// The protocols that a fabric serves.
pub(crate) fn for_fabrics() -> Vec<&'static str> {
    let all = protocols::ALL.iter().filter(|protocol| protocol.placement != Placement::Hosts);
    all.map(|protocol| protocol.name).collect()
}

/// A time in seconds, without the digits that binary fractions add: 100 us are 0.0001 s.
pub(crate) fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e12
}

/// A number of bytes with a unit.
pub(crate) struct HumanBytes(pub u64);

impl fmt::Display for HumanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_024 => write!(f, "{} bytes", self.0),
            1_024..1_048_576 => write!(f, "{:.1} KiB", self.0 as f64 / 1_024.0),
            1_048_576..1_073_741_824 => write!(f, "{:.1} MiB", self.0 as f64 / 1_048_576.0),
            _ => write!(f, "{:.1} GiB", self.0 as f64 / 1_073_741_824.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_are_one_line_that_controls_no_terminal() {
        assert_eq!(printable("a\u{1b}[2J\u{7}\r\nFAKE \u{9b}"), "a\\u{1b}[2J\\u{7}\\r\\nFAKE \\u{9b}");
        let long = printable(&"\u{1b}".repeat(100_000));
        assert!(long.len() < 1_100 && long.ends_with('…'), "{}", long.len());
        assert_eq!(printable("ordinary words, 'ä'"), "ordinary words, 'ä'");
    }

    #[test]
    fn a_time_has_the_digits_that_a_person_wrote() {
        assert_eq!(seconds(Span::from_micros(100)).to_string(), "0.0001");
        assert_eq!(seconds(Span::from_millis(300)).to_string(), "0.3");
    }

    #[test]
    fn only_the_first_ranks_are_listed() {
        assert_eq!(Ranks(&[3]).to_string(), "rank 3");
        assert_eq!(Ranks(&[0, 1, 5]).to_string(), "ranks 0, 1, 5");
        let all: Vec<u16> = (0..20).collect();
        assert!(Ranks(&all).to_string().ends_with("14, 15 and 4 more"));
    }

    #[test]
    fn bytes_have_the_largest_unit_of_which_there_is_one() {
        let cases =
            [(0, "0 bytes"), (1_023, "1023 bytes"), (1_024, "1.0 KiB"), (3 << 19, "1.5 MiB"), (2 << 30, "2.0 GiB")];
        for (bytes, text) in cases {
            assert_eq!(HumanBytes(bytes).to_string(), text);
        }
    }
}
