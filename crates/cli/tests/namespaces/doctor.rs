//! `tributary doctor` on a way that does to packets what windows that follow marks cannot use.

use std::collections::BTreeMap;

use tributary_testbed::Faults;

use crate::namespaces::network::{Network, ended, text, tributary};

/// What doctor finds of each check: how bad, and the sentence.
fn findings(network: &Network) -> BTreeMap<String, (String, String)> {
    let mut command = tributary(network.star.host(0));
    command.args(["doctor", "--switch", &network.switch_addr().to_string(), "--json"]);
    let output = ended(command.spawn().unwrap());
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let word = |check: &serde_json::Value, key: &str| check[key].as_str().unwrap().to_owned();
    let checks = report["checks"].as_array().unwrap().iter();
    checks.map(|check| (word(check, "name"), (word(check, "level"), word(check, "found")))).collect()
}

#[test]
fn doctor_says_that_a_way_keeps_the_order_and_whether_congestion_marks_survive_it() {
    let Some(network) = Network::build(1, Faults::default()) else { return };
    let whole = findings(&network);
    assert_eq!((whole["ECN"].0.as_str(), whole["order"].0.as_str()), ("ok", "ok"), "{whole:?}");

    // As some tunnels and firewalls do.
    let mut bleach = network.star.host(0).command("nft").unwrap();
    bleach.arg("table ip bleach {\nchain out {\ntype filter hook postrouting priority 0;\nip ecn set not-ect\n}\n}\n");
    assert!(bleach.status().unwrap().success());
    let bleached = findings(&network);
    let (level, found) = &bleached["ECN"];
    assert!(level == "warn" && found.contains("without their ECN bits"), "{bleached:?}");
    assert_eq!(bleached["order"].0, "ok", "{bleached:?}");
}
