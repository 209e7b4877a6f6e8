//! Versions of the control API. Each request and each answer names its version in a header, which is read first, since
//! another version may encode the rest differently. Requests without the header are accepted, because people write such
//! requests by hand. `docs/compatibility.md` says what may change when.

/// The version of the control API. Unknown fields are errors, so it rises whenever a path, a field or a meaning
/// changes.
pub const API_VERSION: u16 = 6;

/// The header that names the version.
pub const HEADER: &str = "x-tributary-api";

/// The sentence for two processes that speak different versions. Each is named as in "the switch at 10.0.0.1:17777".
pub fn differ(what: &str, asker: (&str, u16), switch: (&str, u16)) -> String {
    let older = if asker.1 < switch.1 { asker.0 } else { switch.0 };
    format!(
        "{} speaks version {} of {what} and {} version {}, so {older} is the older: install the same version of Tributary \
         on both",
        asker.0, asker.1, switch.0, switch.1
    )
}

/// Refuses an answer with the header of another version: a sentence about the switch that has answered.
pub fn refuse_answer(header: Option<&str>, switch: &str) -> Option<String> {
    match header?.parse() {
        Ok(API_VERSION) => None,
        Ok(theirs) => Some(differ("the control API", ("this program", API_VERSION), (switch, theirs))),
        Err(_) => {
            Some(format!("what {switch} names as its version of the control API is not a number: is it a switch?"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_of_two_is_named_whichever_asks() {
        let sentence = |asker, switch| differ("the wire format", ("this worker", asker), ("this switch", switch));
        let end = "is the older: install the same version of Tributary on both";
        assert!(sentence(1, 2).ends_with(&format!("so this worker {end}")), "{}", sentence(1, 2));
        assert!(sentence(3, 2).ends_with(&format!("so this switch {end}")), "{}", sentence(3, 2));
        assert!(
            sentence(3, 2).starts_with("this worker speaks version 3 of the wire format and this switch version 2")
        );
    }

    #[test]
    fn an_answer_of_ours_or_without_a_version_is_taken() {
        assert_eq!(refuse_answer(None, "the switch"), None);
        assert_eq!(refuse_answer(Some(&API_VERSION.to_string()), "the switch"), None);
        for garbage in ["", "-1", "70000", "one"] {
            assert!(refuse_answer(Some(garbage), "the switch").unwrap().contains("not a number"), "{garbage}");
        }
    }
}
