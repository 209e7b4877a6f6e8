//! What the path to a switch does to congestion marks and to the order of packets.

use tributary_net::group::{Group, PathReport};

use super::Check;
use super::smoke::{job, options, remedy};

const MARKS: &str = "ECN";
const ORDER: &str = "order";

/// Checks that ECN survives the path, and that the path keeps the order.
pub fn checks(switch: &str) -> Vec<Check> {
    let report = options(switch, &job(), 0, 1).and_then(|options| {
        let report = Group::probe_path(&options);
        report.map_err(|error| error.to_string())
    });
    match report {
        Ok(report) => vec![marks(&report), order(&report)],
        Err(sentence) => {
            let remedy = remedy(&sentence);
            vec![Check::fail(MARKS, sentence, remedy)]
        }
    }
}

fn marks(report: &PathReport) -> Check {
    let PathReport { answered, capable, marked, .. } = *report;
    match (answered, capable + marked) {
        (0, _) => Check::fail(MARKS, "no packet came back", "open the switch's UDP ports in the firewalls on the way"),
        (_, kept) if kept == answered => {
            Check::ok(MARKS, format!("congestion marks survive the way there and back ({marked} of {answered} marked)"))
        }
        (_, kept) => Check::warn(
            MARKS,
            format!(
                "{} of {answered} packets came back without their ECN bits: windows will see no marks",
                answered - kept
            ),
            "let tunnels, firewalls and routers on the way keep the two low bits of the TOS byte",
        ),
    }
}

fn order(report: &PathReport) -> Check {
    let PathReport { sent, answered, overtaken, .. } = *report;
    match overtaken {
        0 => Check::ok(ORDER, format!("{answered} of {sent} packets came back, in their order")),
        _ => Check::warn(
            ORDER,
            format!(
                "{overtaken} of {answered} packets were overtaken: protocols that sum in order will send them again"
            ),
            "let bonds and equal paths on the way choose by addresses and ports, not packet by packet",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_path_is_judged_by_what_came_back() {
        let whole = PathReport { sent: 512, answered: 512, capable: 500, marked: 12, overtaken: 0 };
        assert_eq!((marks(&whole).level, order(&whole).level), (Level::Ok, Level::Ok));
        let bleached = marks(&PathReport { capable: 0, marked: 0, ..whole });
        assert_eq!(bleached.level, Level::Warn);
        assert!(bleached.found.contains("512 of 512"), "{}", bleached.found);
        let shuffled = order(&PathReport { overtaken: 7, ..whole });
        assert_eq!(shuffled.level, Level::Warn);
        assert!(shuffled.found.contains("7 of 512"), "{}", shuffled.found);
        assert_eq!(marks(&PathReport::default()).level, Level::Fail);
    }
}
