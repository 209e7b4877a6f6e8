//! What Prometheus reads of a switch: as many series after a thousand jobs as after the first, totals that never fall, and a
//! page of the documentation that has every name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::support::{PATIENCE, connect_options};
use tributary_net::group::Group;
use tributary_net::metrics::{self, Family, PREFIX};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;

fn switch() -> RunningSwitch {
    RunningSwitch::start(&SwitchOptions::new("127.0.0.1:0".parse().unwrap())).unwrap()
}

/// A job of one rank that sums something and ends.
fn job(switch: SocketAddr, protocol: &'static Protocol, name: &str) {
    let group = Group::connect(&connect_options(switch, protocol, name, 0, 1)).unwrap();
    let mut data = vec![1.0_f32; 1_000];
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    group.close();
}

fn get(switch: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(switch).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: switch\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Every series, without its value.
fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').map(|(series, value)| (series.into(), value.parse().unwrap())).unwrap())
        .collect()
}

#[test]
fn many_jobs_make_no_series_and_what_ended_jobs_have_done_still_counts() {
    let switch = switch();
    let addr = switch.listen_addr();
    let all = |number: usize| {
        let protocol = protocols::ALL[number % protocols::ALL.len()];
        job(addr, protocol, &format!("job-{number}"));
        series(&get(addr, "/metrics"))
    };
    let mut last = BTreeMap::new();
    for number in 0..protocols::ALL.len() {
        last = all(number);
    }
    let names: BTreeSet<String> = last.keys().cloned().collect();
    for number in protocols::ALL.len()..10 * protocols::ALL.len() {
        let now = all(number);
        assert!(
            now.keys().eq(&names),
            "new: {:?}",
            now.keys().filter(|&name| !names.contains(name)).collect::<Vec<_>>()
        );
        for (series, before) in last.iter().filter(|(series, _)| series.split('{').next().unwrap().ends_with("_total"))
        {
            assert!(now[series] >= *before, "{series} fell from {before} to {}", now[series]);
        }
        last = now;
    }
    let jobs = 10 * protocols::ALL.len();
    assert_eq!(last["tributary_jobs_formed_total"], jobs as f64);
    let ended = last[r#"tributary_jobs_ended_total{end="left"}"#];
    assert!((jobs as f64 - 1.0..=jobs as f64).contains(&ended), "{ended} of {jobs}");
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.placement == Placement::Trees) {
        // Each of ten jobs has summed a block at least.
        let name = format!("tributary_jobs_blocks_total{{protocol=\"{}\"}}", protocol.name);
        assert!(last[&name] >= 10.0, "{name} {}", last[&name]);
    }
}

#[test]
fn refused_joins_are_counted_by_code() {
    let switch = switch();
    let addr = switch.listen_addr();
    let count = |code: &str| series(&get(addr, "/metrics"))[&format!("tributary_api_errors_total{{code=\"{code}\"}}")];
    assert_eq!((count("full"), count("wrong_key")), (0.0, 0.0), "they are there before the first");
    get(addr, "/nothing");
    assert_eq!(count("not_found"), 1.0);
}

/// Where the page has a table.
const BEGIN: &str = "<!-- made from the code: TRIBUTARY_BLESS=1 cargo test -p tributary-net metrics -->\n";
const END: &str = "<!-- end -->";

#[test]
fn the_documentation_has_every_metric_and_no_other() {
    let (switch, mut texts) = (switch(), [String::new(), String::new()]);
    for protocol in protocols::ALL {
        let addr = switch.listen_addr();
        let group = Group::connect(&connect_options(addr, protocol, protocol.name, 0, 1)).unwrap();
        group.allreduce_in_place(&mut [1.0_f32; 1_000], ReduceOp::Sum, PATIENCE).unwrap();
        texts[0] += &get(addr, "/metrics");
        texts[1] += &get(addr, "/metrics/jobs");
        group.close();
    }
    let tables = [table(metrics::of_switches()), table(metrics::of_jobs()), protocols_table(&texts)];
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let mut made = String::new();
    let mut sections = text.split(BEGIN);
    made += sections.next().unwrap();
    let mut tables = tables.iter();
    for section in sections {
        let rest = section.split_once(END).expect("a table has an end").1;
        write!(made, "{BEGIN}\n{}\n{END}{rest}", tables.next().expect("there are three tables")).unwrap();
    }
    assert!(tables.next().is_none(), "the page has all tables");
    if std::env::var_os("TRIBUTARY_BLESS").is_some() {
        std::fs::write(&page, &made).unwrap();
    }
    let differs = made.lines().zip(text.lines()).find(|(made, text)| made != text);
    assert!(
        made == text || std::env::var_os("TRIBUTARY_BLESS").is_some(),
        "TRIBUTARY_BLESS=1 writes it again: {differs:?}"
    );
}

/// A row for each family that is declared.
fn table(declared: &[Family]) -> String {
    let mut rows = vec!["| name | kind | labels | what it says |".to_owned(), "|---|---|---|---|".to_owned()];
    for family in declared {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        rows.push(format!("| `{}` | {} | {} | {} |", family.name(), family.kind.name(), labels.join(" "), family.help));
    }
    rows.join("\n")
}

/// A row for each figure that protocols name themselves: which protocols have it, and in which families.
fn protocols_table(texts: &[String; 2]) -> String {
    let declared: BTreeSet<String> =
        metrics::of_switches().iter().chain(metrics::of_jobs()).map(Family::name).collect();
    let mut figures: BTreeMap<[&str; 3], [BTreeSet<&str>; 2]> = BTreeMap::new();
    for text in texts {
        let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
        let kinds: BTreeMap<_, _> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        for (name, help) in helps.filter(|(name, _)| !declared.contains(*name)) {
            let (protocol, family, figure) = own_figure(name);
            let [protocols, families] = figures.entry([figure, kinds[name], help]).or_default();
            protocols.insert(protocol);
            families.insert(family);
        }
    }
    let list = |items: &BTreeSet<&str>| items.iter().map(|item| format!("`{item}`")).collect::<Vec<_>>().join(" ");
    let mut rows =
        vec!["| NAME | kind | PROTOCOL | of | what it says |".to_owned(), "|---|---|---|---|---|".to_owned()];
    for ([figure, kind, help], [protocols, families]) in &figures {
        rows.push(format!("| `{figure}` | {kind} | {} | {} | {help} |", list(protocols), list(families)));
    }
    rows.join("\n")
}

/// The protocol in a family's name as it stands there, what the family is of, and the protocol's own name for the figure.
fn own_figure(name: &str) -> (&str, &str, &str) {
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('_')).expect(name);
    let has_name = |protocol: &&&Protocol| {
        rest.strip_prefix(&protocol.name.replace('-', "_")).is_some_and(|rest| rest.starts_with('_'))
    };
    let len = protocols::ALL.iter().find(has_name).unwrap_or_else(|| panic!("{name} names no protocol")).name.len();
    let figure = &rest[len + 1..];
    let of = |family| figure.strip_prefix(family)?.strip_prefix('_').map(|figure| (&rest[..len], family, figure));
    of("jobs").or_else(|| of("job")).unwrap_or((&rest[..len], "shared", figure))
}
