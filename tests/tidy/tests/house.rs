//! The rules hold, but for the offenders in `offenders.txt`, whose numbers may only shrink.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use tributary_tidy::{Offences, advice, circles_inside, offences, read_list, repository, write_list};

/// Set to write smaller numbers into the list.
const RENEW: &str = "TRIBUTARY_RENEW_TIDY";
const HEADER: &str = "\
# What breaks a rule of the house since before the rule: how much (lines, lines that name, uses), and what. Numbers only
# shrink. Smaller ones are written by `TRIBUTARY_RENEW_TIDY=1 cargo test -p tributary-tidy`; new or larger ones never.
";

#[test]
fn nothing_breaks_a_rule_that_did_not_before_and_what_is_mended_leaves_the_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("offenders.txt");
    let listed = read_list(&fs::read_to_string(&path).unwrap());
    let found = offences(&repository());
    let worse: Vec<String> = found
        .iter()
        .filter(|&(offence, count)| *count > listed.get(offence).copied().unwrap_or_default())
        .map(|(offence, count)| {
            let before = listed.get(offence).map_or(String::new(), |before| format!(", {before} before"));
            format!("  {offence}: {count}{before}")
        })
        .collect();
    let rules: BTreeSet<&str> = worse.iter().map(|offence| advice(offence.trim_start())).collect();
    let rules: Vec<&str> = rules.into_iter().collect();
    assert!(worse.is_empty(), "{} new or larger offences:\n{}\n{}", worse.len(), worse.join("\n"), rules.join("\n"));
    if env::var_os(RENEW).is_some() {
        fs::write(&path, format!("{HEADER}\n{}", write_list(&found))).unwrap();
        return;
    }
    let mended: Offences = listed
        .into_iter()
        // Circles move with their modules, and small files with their branches: these shrink when somebody renews the list.
        .filter(|(offence, _)| !offence.starts_with("circles ") && !offence.starts_with("small "))
        .filter(|(offence, count)| found.get(offence).copied().unwrap_or_default() < *count)
        .collect();
    assert!(
        mended.is_empty(),
        "thank you: these have shrunk. Renew the list with `{RENEW}=1 cargo test -p tributary-tidy`; before, it said\n{}",
        write_list(&mended)
    );
}

#[test]
fn circles_inside_crates_are_printed() {
    circles_inside(&repository()).iter().for_each(|circle| println!("{circle}"));
}
