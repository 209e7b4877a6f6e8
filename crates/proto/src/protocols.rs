//! The protocols that this build speaks: one line each. No other code outside their folders names them.

use crate::contract::protocol::Protocol;

/// Every protocol, in the order of its code.
pub static ALL: &[&Protocol] = &[
    // One line for each, so that adding or removing a protocol changes one line.
    &crate::switchml::PROTOCOL,
    &crate::ring::PROTOCOL,
    &crate::canary::PROTOCOL,
    &crate::ps::PROTOCOL,
    &crate::panama::PROTOCOL,
    &crate::atp::PROTOCOL,
    &crate::pa_atp::PROTOCOL,
    &crate::flare::PROTOCOL,
    &crate::sparcml::PROTOCOL,
];

/// The protocol with this name.
pub fn named(name: &str) -> Option<&'static Protocol> {
    ALL.iter().copied().find(|protocol| protocol.name == name)
}

/// The protocol with this code in the common header.
pub fn with_code(code: u8) -> Option<&'static Protocol> {
    ALL.iter().copied().find(|protocol| protocol.code == code)
}

/// The protocols' names.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|protocol| protocol.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::protocol::Placement;

    #[test]
    fn codes_and_names_are_unique() {
        for (index, protocol) in ALL.iter().enumerate() {
            assert_eq!(named(protocol.name), Some(*protocol));
            assert_eq!(with_code(protocol.code), Some(*protocol));
            assert!(ALL[..index].iter().all(|before| before.code < protocol.code), "in the order of codes");
        }
        assert_eq!(named("carrier pigeon"), None);
    }

    #[test]
    fn each_has_the_machines_that_its_placement_needs() {
        for protocol in ALL {
            assert!(!protocol.about.is_empty() && protocol.header_len > 0, "{protocol} overrides the base");
            assert_eq!(protocol.switch.is_some(), protocol.placement == Placement::Trees, "{protocol}");
            assert_eq!(protocol.shared.is_some(), protocol.placement == Placement::EveryHop, "{protocol}");
            for set in [&protocol.options].into_iter().chain(protocol.shared.as_ref().map(|shared| &shared.options)) {
                assert_eq!(set.protocol, protocol.name);
                assert_eq!(set.read(&set.defaults().to_text()), Ok(set.defaults()));
            }
        }
    }

    #[test]
    fn each_option_is_on_its_protocols_page() {
        for protocol in ALL {
            let page = format!("{}/../../docs/protocols/{}.md", env!("CARGO_MANIFEST_DIR"), protocol.name);
            let page = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{page}: {error}"));
            let shared = protocol.shared.iter().flat_map(|shared| shared.options.specs);
            for spec in protocol.options.specs.iter().chain(shared) {
                let row = format!("| `{}` | {} |", spec.name, spec.default);
                assert!(page.contains(&row), "{protocol}: no row that begins {row}");
            }
        }
    }
}
