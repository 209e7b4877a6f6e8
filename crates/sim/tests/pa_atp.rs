//! PA-ATP in the simulator: windows over time, and what two tenants of one switch leave each other.

use tributary_proto::contract::ids::Rank;
use tributary_sim::config::Config;
use tributary_sim::report::{JobReport, Report, SlotsReport};
use tributary_sim::run;

/// A job whose first rank has a slow link: its leaders' windows and what switches hold are there step by
/// step.
#[test]
fn windows_of_ranks_and_what_switches_hold_for_jobs_are_sampled() {
    let text = r#"
        [network]
        star = { hosts = 5 }
        mark_above = "80 KiB"
        [[job]]
        name = "train"
        protocol = "pa-atp"
        hosts = [0, 1, 2, 3]
        tensor = "512 KiB"
        elements_per_packet = 62
        slots = 4096
        [[fault]]
        links = [["host 0", "switch 0"]]
        rate = "10 Gbit/s"
        [report]
        sample = "2 us"
    "#;
    let config = Config::parse(text).unwrap();
    let report = run(&config).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    let slots = report.jobs[0].slots_in_use.expect("samples were asked for");
    assert!(slots.most > 100.0 && slots.mean > 0.0 && slots.mean < slots.most, "{slots:?}");
    let samples = report.samples.as_ref().unwrap();
    let of = |rank: u16, name: &str| -> Vec<f64> {
        let rank = Some(Rank(rank));
        let rows = samples.job_samples().filter(|(_, gauge, _)| gauge.rank == rank && gauge.name == name);
        rows.map(|(.., value)| value).collect()
    };
    assert_eq!(of(1, "window_packets").len(), samples.steps);
    let most = |rank, name| of(rank, name).into_iter().fold(0.0, f64::max);
    assert!(most(1, "leads_blocks") > 2.0 * most(0, "leads_blocks"), "rank 0 is the straggler");
    let last = report.tables().into_iter().find(|table| table.name == "job_samples").unwrap();
    assert_eq!(last.columns[0].values.len(), samples.steps * (1 + 4 * 4), "the job, and four figures of each rank");
}

/// `experiments/tenants.toml`: job A has a slow rank, job B is well, and the switch has slots for 208 blocks.
fn tenants() -> Report {
    let path = format!("{}/../../experiments/tenants.toml", env!("CARGO_MANIFEST_DIR"));
    let report = run(&Config::parse(&std::fs::read_to_string(path).unwrap()).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    report
}

/// The file has two jobs for each protocol, A and B: SwitchML's, ATP's, StrawAsyn's, PA-ATP's.
#[derive(Clone, Copy)]
enum Line {
    Static,
    ByResults,
    Straw,
    Limited,
}

fn job(report: &Report, line: Line, tenant: usize) -> &JobReport {
    &report.jobs[2 * line as usize + tenant]
}

fn slots(report: &Report, line: Line, tenant: usize) -> SlotsReport {
    job(report, line, tenant).slots_in_use.expect("the file asks for samples")
}

const A: usize = 0;
const B: usize = 1;

#[test]
fn two_tenants_share_a_switch_as_each_protocol_lets_them() {
    let report = tenants();
    let unsummed = |line, tenant| 1.0 - job(&report, line, tenant).in_network.unwrap();
    // 52 slots of two blocks each are A's, whatever it does with them, and B has no more.
    assert!([A, B].iter().all(|&tenant| slots(&report, Line::Static, tenant).most <= 52.0), "{report}");
    // B has of the memory what A leaves: more than half of it at times.
    assert!(slots(&report, Line::ByResults, B).most > 104.0, "{report}");
    // A's leaders fill the memory, and blocks of B go to servers.
    assert!(slots(&report, Line::Straw, A).most > 0.9 * 208.0 && unsummed(Line::Straw, B) > 0.3, "{report}");
    // A's leaders go as far as AWD lets them, and hardly anything of either goes to servers.
    assert!([A, B].iter().all(|&tenant| unsummed(Line::Limited, tenant) < 0.05), "{report}");
    assert!(unsummed(Line::ByResults, A) > 0.1 && unsummed(Line::ByResults, B) > 0.1, "{report}");
    let seconds = |line, tenant| job(&report, line, tenant).seconds.unwrap();
    assert!(seconds(Line::Limited, A) < seconds(Line::ByResults, A), "{report}");
    assert!(seconds(Line::Limited, B) < seconds(Line::Straw, B), "{report}");
}
