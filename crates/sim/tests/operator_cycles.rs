//! Custom operators on cores: a packet costs what the table of cycles says, and where nobody has counted an operator's cycles they
//! are estimated, and everything says so. `dataplanes/pspin` counts them.

use std::{env, fs};

use tributary_operators::shipped;
use tributary_operators::{Sandbox, UserOperator, source};
use tributary_proto::contract::custom_op::CustomOp;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::cores::operators::{HEADER, OperatorCycles, Table};
use tributary_sim::experiment::run;
use tributary_sim::report::Report;
use tributary_sim::table::Format;

fn operator(source: &str) -> UserOperator {
    tributary_operators::source::operator(&Sandbox::new(), source, None).unwrap()
}

/// The protocol whose switches take operators of jobs' own.
fn protocol() -> &'static str {
    protocols::ALL.iter().find(|protocol| protocol.options.custom_ops.is_some()).unwrap().name
}

fn ran(operator: &str, cores: &str) -> Report {
    let protocol = protocol();
    let text = format!(
        "[network]\nstar = {{ hosts = 4 }}\n[[job]]\nhosts = \"all\"\nprotocol = \"{protocol}\"\noperator = \"{operator}\"\n\
         data = \"real\"\ntype = \"i32\"\ntensor = \"32 KiB\"\nslots = 16\nelements_per_packet = 256\n\
         options = {{ design = \"single\" }}\n[switches.cores]\nclusters = 4\ncold_misses = 0\n{cores}"
    );
    let report = run(&Config::parse(&text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    report
}

fn cycles(report: &Report) -> OperatorCycles {
    report.jobs[0].operator.as_ref().unwrap().cycles.unwrap()
}

fn combined(report: &Report) -> u64 {
    report.cores[0].cycles.iter().find(|cycles| cycles.kind == "combine").unwrap().cycles
}

#[test]
fn a_packet_costs_a_call_of_the_operator_and_its_elements() {
    let report = ran("xor", "");
    let OperatorCycles { per_call, per_element, estimated } = cycles(&report);
    assert!(!estimated && !report.cores[0].estimated);
    assert!(report.to_string().contains("cycles an element and"), "{report}");
    assert!(!report.to_string().contains("ESTIMATED"), "{report}");
    // 32 blocks of 1 KiB, four packets each, of which three are combined: 128 elements of eight bytes.
    let one = (per_call * 1e3).round() as u64 + (128.0 * per_element * 1e3).round() as u64;
    assert_eq!(combined(&report), 32 * 3 * one / 1000);
}

#[test]
fn cycles_that_nobody_has_counted_are_estimated_and_marked_in_text_and_tables() {
    let report = ran("a ^ b ^ 0", "");
    assert!(cycles(&report).estimated && report.cores[0].estimated);
    assert!(report.to_string().contains("ESTIMATED from its fuel"), "{report}");
    let folder = env::temp_dir().join(format!("tributary-estimated-{}", std::process::id()));
    report.write_files(&folder, Format::Csv).unwrap();
    for table in ["jobs.csv", "cores.csv"] {
        let text = fs::read_to_string(folder.join(table)).unwrap();
        let (head, row) = text.split_once('\n').unwrap();
        let column = head.split(',').position(|name| name == "estimated").expect(table);
        assert_eq!(row.trim_end().split(',').nth(column), Some("true"), "{table}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_of_counted_cycles_ends_the_estimate() {
    let module = source::module("xor", None).unwrap();
    let file = env::temp_dir().join(format!("tributary-cycles-{}.csv", std::process::id()));
    let counted = OperatorCycles { per_call: 7.0, per_element: 11.0, estimated: false };
    let hash = Sandbox::new().load(&module).unwrap().hash();
    fs::write(&file, format!("{HEADER}\n{hash},xor,\"u8\",8,7,11,1\n")).unwrap();
    assert_eq!(cycles(&ran("xor", &format!("operators = {file:?}"))), counted);
    fs::write(&file, "something,else\n").unwrap();
    let protocol = protocol();
    let text = format!(
        "[network]\nstar = {{ hosts = 2 }}\n[[job]]\nprotocol = \"{protocol}\"\noperator = \"xor\"\ntensor = \"4 KiB\"\nhosts = \"all\"\n\
         [switches.cores]\noperators = {file:?}\n"
    );
    let error = run(&Config::parse(&text).unwrap()).unwrap_err().to_string();
    assert!(error.contains("its first line is not"), "{error}");
    fs::remove_file(&file).unwrap();
}

/// What an estimate is worth: the same operators, had nobody counted them.
#[test]
fn an_estimate_is_fuel_times_what_a_unit_of_it_takes_in_operators_that_come_along() {
    let table = Table::shipped();
    let per_fuel = |name: &str| {
        let counted = table.find(&operator(name));
        assert!(!counted.estimated, "{name}");
        counted.per_element / operator(name).verdict().fuel_per_element as f64
    };
    let ratios = shipped::ALL.map(|shipped| per_fuel(shipped.name));
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    println!("cycles of a unit of fuel: {ratios:.2?}, and {mean:.2} as their geometric mean");
    let report = ran("a ^ b ^ 0", "");
    let fuel = report.jobs[0].operator.as_ref().unwrap();
    assert!(cycles(&report).per_element > mean && cycles(&report).per_call > 1.0, "{fuel:?}");
}
