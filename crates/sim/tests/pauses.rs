//! Why senders are stopped: the trees along which PAUSE spreads, and the page of a network over time.

use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::table::Format;
use tributary_sim::{run, run_on_threads};

/// Three hosts send to a fourth, and no mark slows them down.
const INCAST: &str = r#"
[network]
leaf_spine = { leaves = 2, spines = 1, hosts_per_leaf = 3 }
rate = "10 Gbit/s"
core.rate = "40 Gbit/s"
queue = "60 kB"
lossless = { xoff = "20 kB" }
[[traffic]]
pattern = "list"
flows = [
    { from = "host 0", to = "host 5", bytes = "400 kB" },
    { from = "host 1", to = "host 5", bytes = "400 kB" },
    { from = "host 3", to = "host 5", bytes = "400 kB" },
]
[report]
pauses = true
"#;

fn report(text: &str) -> Report {
    run(&Config::parse(text).unwrap()).unwrap()
}

fn csv(report: &Report, name: &str) -> String {
    let (mut bytes, tables) = (Vec::new(), report.tables());
    tables.iter().find(|table| table.name == name).unwrap().write(Format::Csv, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_pause_spreads_from_the_hot_port_over_the_spine_to_the_hosts_that_send() {
    let report = report(INCAST);
    let pauses = report.pauses.as_ref().unwrap();
    assert_eq!(pauses.trees.iter().map(|tree| &tree.root[..]).collect::<Vec<_>>(), ["leaf 1 to host 5"]);
    let tree = &pauses.trees[0];
    let mut branches: Vec<_> = tree.branches.iter().map(|it| (&it.link[..], &it.by[..], it.depth)).collect();
    branches.sort_unstable();
    let expected = [
        ("host 0 to leaf 0", "leaf 0 to spine 0", 3),
        ("host 1 to leaf 0", "leaf 0 to spine 0", 3),
        ("host 3 to leaf 1", "leaf 1 to host 5", 1),
        ("leaf 0 to spine 0", "spine 0 to leaf 1", 2),
        ("spine 0 to leaf 1", "leaf 1 to host 5", 1),
    ];
    assert_eq!(branches, expected);
    let counted: u64 = report.link_rows.iter().map(|row| row.counters.pauses).sum();
    assert_eq!((pauses.stops, tree.stops, pauses.left_out), (counted, counted, 0));
    let sum: f64 = tree.branches.iter().map(|branch| branch.seconds).sum();
    assert!((sum - tree.seconds).abs() < 1e-12 && tree.seconds < 5.0 * report.seconds, "{tree:?}");
    assert!(report.to_string().contains("PAUSEs spread from 1 queue\n  leaf 1 to host 5: "), "{report}");
    let rows = csv(&report, "pauses");
    assert_eq!(rows.lines().count(), 1 + branches.len());
    assert!(rows.contains("\n0,leaf 1 to host 5,leaf 0 to spine 0,spine 0 to leaf 1,2,"), "{rows}");
}

#[test]
fn looking_for_causes_changes_nothing_and_threads_find_the_same() {
    let config = Config::parse(INCAST).unwrap();
    let without = report(&INCAST.replace("pauses = true", ""));
    assert_eq!(without.pauses, None);
    let reports: Vec<Report> = [1, 2, 3]
        .into_iter()
        .map(|threads| run_on_threads(&config, threads, &mut |_| std::ops::ControlFlow::Continue(())).unwrap())
        .collect();
    for report in &reports {
        assert_eq!((&report.trace_hash, &report.pauses), (&without.trace_hash, &reports[0].pauses));
    }
}

#[test]
fn only_networks_with_pause_have_causes() {
    let error = |text: &str| run(&Config::parse(text).unwrap()).unwrap_err().to_string();
    let sentence = "report: pauses are those of whole cables: give [network] lossless, and no service";
    assert_eq!(error(&INCAST.replace("lossless = { xoff = \"20 kB\" }", "")), sentence);
    assert_eq!(error(&INCAST.replace("{ xoff = \"20 kB\" }", "{ kind = \"credits\" }")), sentence);
    assert_eq!(error(&INCAST.replace("lossless = {", "service = \"strict\"\nlossless = {")), sentence);
}

#[test]
fn a_page_has_the_links_that_are_sampled_and_no_name_ends_its_data() {
    let text = format!("{INCAST}sample = \"4 us\"\nlinks = \"core\"\n");
    let config = Config::parse(&text).unwrap();
    let (report, graph) = (run(&config).unwrap(), config.network.build().unwrap());
    let page = report.page(&graph, "a </script> b").unwrap();
    assert_eq!(page.matches("</script>").count(), 2, "one behind the data, one behind the code");
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let len = |key: &str| data[key].as_array().unwrap().len();
    let frames = data["frames"].as_u64().unwrap() as usize;
    assert!(frames > 200, "{frames}");
    assert_eq!((data["title"].as_str(), len("nodes")), (Some("a </script> b"), 9));
    assert_eq!((len("links"), len("unsampled")), (4, 12));
    assert_eq!(["utilisation", "queued", "paused"].map(len), [4 * frames; 3]);
    assert_eq!(report_without_samples(&graph), None);
}

fn report_without_samples(graph: &tributary_sim::Graph) -> Option<String> {
    report(INCAST).page(graph, "none")
}
