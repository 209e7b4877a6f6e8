//! Pages for people: prose in lines of at most 120 characters.

use crate::Offences;

const LINE: usize = 120;

/// Notes a page's long lines. Tables, code and lines that are one link cannot be broken.
pub fn check(path: &str, text: &str, offences: &mut Offences) {
    if !path.ends_with(".md") {
        return;
    }
    let mut fenced = false;
    let mut long = 0;
    for line in text.lines() {
        let begins = line.trim_start();
        if begins.starts_with("```") {
            fenced = !fenced;
        }
        let breakable = begins.contains(' ') && !begins.starts_with(['|', '#', '!']);
        long += usize::from(!fenced && breakable && line.chars().count() > LINE);
    }
    if long > 0 {
        offences.insert(format!("page {path}"), long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_counts_and_tables_and_code_do_not() {
        let long = "word ".repeat(30);
        let text = format!("{long}\n| {long}\n```\n{long}\n```\n- {long}\nshort\n");
        let mut offences = Offences::new();
        check("docs/a.md", &text, &mut offences);
        assert_eq!(offences, [("page docs/a.md".to_string(), 2)].into());
    }
}
