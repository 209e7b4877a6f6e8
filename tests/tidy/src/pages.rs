//! Pages for people: prose in lines of at most 120 characters.

use crate::Offences;

const LINE: usize = 120;

/// Counts a page's long lines. Tables, headings, pictures and code are not prose, and what has no space cannot be broken.
pub fn check(path: &str, text: &str, offences: &mut Offences) {
    if !path.ends_with(".md") {
        return;
    }
    let mut fenced = false;
    for line in text.lines() {
        let begins = line.trim_start();
        fenced ^= begins.starts_with("```");
        let prose = !fenced && !begins.starts_with(['|', '#', '!', '<', '>']) && !line.starts_with("    ");
        if prose && begins.contains(' ') && line.chars().count() > LINE {
            *offences.entry(format!("page {path}")).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_counts_and_tables_and_code_do_not() {
        let long = "word ".repeat(30);
        let text = format!("{long}\n| {long}\n```\n{long}\n```\n- {long}\n    {long}\nshort\n");
        let mut offences = Offences::new();
        check("docs/a.md", &text, &mut offences);
        assert_eq!(offences, [("page docs/a.md".to_string(), 2)].into());
    }
}
