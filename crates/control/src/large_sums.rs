//! Where the large sums of a job are made, as its workers have planned it from the rates that they measured: a report for
//! operators. The switch does nothing with it, so a wrong one misleads nobody but readers of that job.

use serde::{Deserialize, Serialize};

/// The most switches that a report names, with the ranks' own hosts.
const MOST_WAYS: usize = 65;
/// The longest name of a way: of a host with a port, or of several addresses.
const LONGEST_NAME: usize = 512;
/// The share of a sum's time from which on a link counts as busy all the time.
const BUSY: f64 = 0.98;

/// How the large sums of a job are shared out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargeSums {
    /// Gbit/s of tensor that the plan promises.
    pub expected_gbps: f64,
    /// Gbit/s that the link of each rank's host carries.
    pub host_link_gbps: f64,
    /// Who sums.
    pub ways: Vec<SumShare>,
}

/// A way by which sums are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumShare {
    /// "HOST:PORT" of the switch or the servers, with commas between; none for the ranks' own hosts.
    pub at: Option<String>,
    /// Its share of each large tensor: 0 to 1, and 1 for all ways together.
    pub share: f64,
    /// Gbit/s of tensor that it sums alone.
    pub alone_gbps: f64,
    /// The share of a sum's time for which its link is busy: 0 to 1.
    pub busy: f64,
}

impl SumShare {
    /// Whether a faster link here would make sums faster.
    pub fn is_limit(&self) -> bool {
        self.busy > BUSY
    }

    fn name(&self) -> &str {
        self.at.as_deref().unwrap_or("the ranks' own hosts")
    }
}

impl LargeSums {
    /// What is wrong with a report that came over the network, if something is.
    pub fn check(&self) -> Result<(), String> {
        if self.ways.is_empty() || self.ways.len() > MOST_WAYS {
            return Err(format!("large sums are made in 1 to {MOST_WAYS} ways, not {}", self.ways.len()));
        }
        let is_rate = |rate: f64| rate.is_finite() && rate >= 0.0;
        let is_share = |share: f64| (0.0..=1.0 + f64::EPSILON.sqrt()).contains(&share);
        let rates = self.ways.iter().map(|way| way.alone_gbps).chain([self.expected_gbps, self.host_link_gbps]);
        if !rates.into_iter().all(is_rate) {
            return Err("a rate of large sums is not a number of Gbit/s".to_owned());
        }
        if !self.ways.iter().all(|way| is_share(way.share) && is_share(way.busy)) {
            return Err("a share of large sums is not a number from 0 to 1".to_owned());
        }
        let is_name = |name: &String| name.len() <= LONGEST_NAME && name.bytes().all(|byte| byte.is_ascii_graphic());
        match self.ways.iter().filter_map(|way| way.at.as_ref()).all(is_name) {
            true => Ok(()),
            false => Err(format!("a way of large sums has a name of at most {LONGEST_NAME} ASCII letters and digits")),
        }
    }

    /// The line of a job with this name in a table of jobs.
    pub fn line(&self, job: &str) -> String {
        format!("large sums of {job}: {}", self.sentence())
    }

    /// The shares as a sentence.
    pub fn sentence(&self) -> String {
        let share = |way: &SumShare| {
            format!("{:.0} % at {} (alone {:.2} Gbit/s)", way.share * 100.0, way.name(), way.alone_gbps)
        };
        let limits: Vec<&str> = self.ways.iter().filter(|way| way.is_limit()).map(SumShare::name).collect();
        let limits = if limits.is_empty() {
            String::new()
        } else {
            format!(", limited by the links at {}", limits.join(" and at "))
        };
        format!(
            "{}; expected {:.2} Gbit/s{limits}",
            self.ways.iter().map(share).collect::<Vec<_>>().join(", "),
            self.expected_gbps
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums() -> LargeSums {
        let way = |at: Option<&str>, share, busy| SumShare { at: at.map(str::to_owned), share, alone_gbps: 0.25, busy };
        let ways = vec![way(Some("10.0.0.9:17777"), 0.34, 1.0), way(None, 0.66, 0.5)];
        LargeSums { expected_gbps: 0.75, host_link_gbps: 1.0, ways }
    }

    #[test]
    fn a_report_says_who_sums_how_much_and_which_link_is_the_limit() {
        assert_eq!(
            sums().sentence(),
            "34 % at 10.0.0.9:17777 (alone 0.25 Gbit/s), 66 % at the ranks' own hosts (alone 0.25 Gbit/s); \
             expected 0.75 Gbit/s, limited by the links at 10.0.0.9:17777"
        );
    }

    #[test]
    fn a_report_that_would_not_fit_a_line_or_has_no_numbers_is_refused() {
        assert_eq!(sums().check(), Ok(()));
        let wrong: [fn(&mut LargeSums); 8] = [
            |sums| sums.ways.clear(),
            |sums| sums.ways = vec![sums.ways[0].clone(); MOST_WAYS + 1],
            |sums| sums.expected_gbps = f64::NAN,
            |sums| sums.ways[1].alone_gbps = f64::INFINITY,
            |sums| sums.ways[0].share = 1.1,
            |sums| sums.ways[0].busy = -0.1,
            |sums| sums.ways[0].at = Some("a".repeat(LONGEST_NAME + 1)),
            |sums| sums.ways[0].at = Some("a\x1b[2J".to_owned()),
        ];
        for (at, spoil) in wrong.into_iter().enumerate() {
            let mut sums = sums();
            spoil(&mut sums);
            assert!(sums.check().is_err(), "{at}");
        }
    }
}
