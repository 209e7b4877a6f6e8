//! Ranks in the sentences of refusals and reports.

use std::fmt;

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
