//! Names of jobs: people type them, and they stand in URLs, metrics and log lines.

use std::fmt;

/// The text is no name, since it would need quoting. It is shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' cannot be a job's name: take 1 to 128 ASCII letters, digits and -_.:@+=")]
pub struct BadName(pub String);

/// A job's name: 1 to 128 ASCII letters, digits and `-_.:@+=`, so that it needs no quoting in a URL or a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName(String);

impl JobName {
    /// The longest name in bytes.
    pub const MAX_LEN: usize = 128;

    /// Checks a name.
    pub fn new(name: &str) -> Result<JobName, BadName> {
        let fits = (1..=JobName::MAX_LEN).contains(&name.len());
        if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@+=".contains(&byte)) {
            Ok(JobName(name.to_owned()))
        } else {
            Err(BadName(name.chars().take(JobName::MAX_LEN).collect()))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the name fits a pattern in which `*` stands for any characters, none included.
    pub fn matches(&self, pattern: &str) -> bool {
        let mut parts = pattern.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = self.0.strip_prefix(first) else { return false };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            // The leftmost match leaves the most for the parts that follow.
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_needs_no_quoting_anywhere() {
        for good in ["a", "team-a.run_7", "x:0", &"n".repeat(128)] {
            assert!(JobName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a/b", "ü", "a\n", "a\"", &"n".repeat(129)] {
            assert!(JobName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        let cases = [
            ("*", true),
            ("team-a", false),
            ("team-a*", true),
            ("team-a-7", true),
            ("*-7", true),
            ("*-8", false),
            ("team*a*7", true),
            ("team*b*7", false),
            ("team-a-7*", true),
            ("team-a-7*7", false),
            ("", false),
        ];
        let name = JobName::new("team-a-7").unwrap();
        for (pattern, fits) in cases {
            assert_eq!(name.matches(pattern), fits, "{pattern}");
        }
    }
}
