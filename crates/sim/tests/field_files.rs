//! Files from the field: distributions of flow sizes, and lists of flows.

use std::path::PathBuf;

use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::{Format, run};

const STAR: &str = "[network]\nstar = { hosts = 4 }\nrate = \"10 Gbit/s\"\nmark_above = \"100 kB\"\n[[traffic]]\n";

fn report(traffic: &str) -> Report {
    let report = run(&Config::parse(&format!("{STAR}{traffic}")).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    report
}

/// The sentence that traffic is refused with.
fn refusal(traffic: &str) -> String {
    match Config::parse(&format!("{STAR}{traffic}")) {
        Err(error) => error.to_string(),
        Ok(config) => run(&config).map(|_| "no error".to_string()).unwrap_or_else(|error| error.to_string()),
    }
}

/// A file of this test alone, gone when it is over.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("tributary-field-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }

    /// Its path as a file of an experiment has it.
    fn quoted(&self) -> String {
        format!("{:?}", self.0.to_string_lossy())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn flows_have_the_sizes_of_a_file_of_two_columns() {
    let poisson = |sizes: &str| {
        format!("pattern = \"poisson\"\nhosts = \"all\"\nload = \"30 %\"\nuntil = \"20 ms\"\nsizes = {sizes}\n")
    };
    let published = include_str!("../data/web_search.csv").lines().filter_map(|line| line.split_once(','));
    let percent: String = published
        .filter_map(|(bytes, share)| Some(format!("{bytes} {}\n", 100.0 * share.parse::<f64>().ok()?)))
        .collect();
    let own = File::new("own.cdf", &percent);
    let ours = report(&poisson(&own.quoted()));
    let sizes = |report: &Report| report.flow_rows.iter().map(|row| row.bytes).sum::<u64>();
    assert!(ours.flow_rows.len() > 5);
    assert_eq!(sizes(&ours), sizes(&report(&poisson("\"web_search\""))));
    let short = File::new("short.cdf", "0 0\n1000 0.5\n");
    let sentence = refusal(&poisson(&short.quoted()));
    assert!(sentence.starts_with("traffic 0: sizes = ") && sentence.contains("its last share is 0.5"), "{sentence}");
    let sentence = refusal(&poisson("\"web_serch\""));
    assert!(sentence.contains("is neither \"web_search\", \"data_mining\", \"hadoop\" or"), "{sentence}");
}

/// The first window is ten packets of 1,460 bytes, so that shorter flows are alone as fast as their path.
#[test]
fn a_slowdown_is_1_on_an_idle_path_and_the_number_of_flows_that_share_a_link() {
    let flow = |from: u32, bytes: u32| format!("{{ from = \"host {from}\", to = \"host 3\", bytes = {bytes} }}");
    let slowdowns = |flows: &[String]| {
        let report = report(&format!("pattern = \"list\"\nflows = [{}]\n", flows.join(", ")));
        report.flow_rows.iter().map(|row| row.slowdown.unwrap()).collect::<Vec<_>>()
    };
    for bytes in [1, 1460, 1461, 14_600] {
        let alone = slowdowns(&[flow(0, bytes)]);
        assert!((alone[0] - 1.0).abs() < 1e-6, "{bytes} bytes: {alone:?}");
    }
    let shared = slowdowns(&[flow(0, 10_000_000), flow(1, 10_000_000), flow(2, 10_000_000)]);
    let last = shared.iter().copied().fold(0.0, f64::max);
    assert!((2.95..3.1).contains(&last), "{shared:?}");
}

#[test]
fn one_flow_begins_at_its_time() {
    let listed = |flows: &str| format!("pattern = \"list\"\nflows = [{flows}]\n");
    let of = report(&listed("{ from = \"host 1\", to = \"host 3\", bytes = \"1 MB\", at = \"40 us\" }"));
    let flow = &of.flow_rows[0];
    assert_eq!((of.flow_rows.len(), flow.src, flow.dst, flow.bytes), (1, 1, 3, 1_000_000));
    assert!((flow.start - 40e-6).abs() < 1e-12 && flow.seconds > 800e-6 && flow.seconds < 900e-6, "{flow:?}");
    let wrong = [
        ("{ from = \"host 1\", to = \"host 1\", bytes = 1 }", "a flow goes from host 1 to itself"),
        ("{ from = \"host 1\", to = \"host 4\", bytes = 1 }", "a flow goes from host 1 to host 4; there are 4, from 0"),
        ("{ from = \"host 1\", to = \"switch 0\", bytes = 1 }", "flows go between hosts, not from or to switch 0"),
    ];
    for (flow, sentence) in wrong {
        assert_eq!(refusal(&listed(flow)), format!("traffic 0: {sentence}"));
    }
    for (traffic, sentence) in [
        ("pattern = \"list\"\n", "traffic 0: a list needs flows"),
        ("pattern = \"list\"\nflows = \"no/such.csv\"\n", "traffic 0: flows = \"no/such.csv\": No such file"),
        ("pattern = \"list\"\nflows = []\nload = 0.5\n", "traffic 0: a list says by itself who sends how much"),
        ("pattern = \"permutation\"\nmessage = 9\nflows = []\n", "traffic 0: flows is for pattern = \"list\""),
    ] {
        assert!(refusal(traffic).starts_with(sentence), "{}", refusal(traffic));
    }
}

/// What one run reports another may repeat.
#[test]
fn the_flows_of_a_report_are_a_list_for_the_next_run() {
    let poisson = "pattern = \"poisson\"\nhosts = \"all\"\nload = \"30 %\"\nuntil = \"4 ms\"\nsizes = \"hadoop\"\n";
    let first = report(poisson);
    let table = first.tables().into_iter().find(|table| table.name == "flows").unwrap();
    let mut csv = Vec::new();
    table.write(Format::Csv, &mut csv).unwrap();
    let file = File::new("flows.csv", &String::from_utf8(csv).unwrap());
    let again = report(&format!("pattern = \"list\"\nflows = {}\n", file.quoted()));
    let flows = |report: &Report| {
        let mut rows: Vec<_> = report.flow_rows.iter().map(|row| (row.src, row.dst, row.bytes)).collect();
        rows.sort_unstable();
        rows
    };
    assert!(flows(&first).len() > 20);
    assert_eq!(flows(&again), flows(&first));
    let longest = |report: &Report| report.flow_rows.iter().map(|row| row.seconds).fold(0.0, f64::max);
    assert!((longest(&again) / longest(&first) - 1.0).abs() < 0.01, "{} and {}", longest(&again), longest(&first));
}
