//! Custom operators: the module that real switches run is called by the simulated ones, and computes in the test what must
//! come out.

use std::ops::ControlFlow;

use tributary_operators::shipped;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::experiment::run_on_threads;
use tributary_sim::report::Report;
use tributary_sim::run;
use tributary_sim::swarm::ORDERED;

const ONE_SWITCH: &str = "star = { hosts = 5 }";
const LEVELS: &str = "leaf_spine = { leaves = 3, spines = 2, hosts_per_leaf = 3 }";

/// The first protocol that takes custom operators, or that takes none.
fn protocol(takes_custom_ops: bool) -> &'static str {
    let is_such = |protocol: &&&'static Protocol| protocol.options.custom_ops.is_some() == takes_custom_ops;
    protocols::ALL.iter().find(is_such).expect("there are both").name
}

/// A job over a network, whose links lose and double some of its packets.
fn experiment(network: &str, job: &str) -> Config {
    let protocol = protocol(true);
    Config::parse(&format!(
        "[network]\n{network}\n[[job]]\nprotocol = '{protocol}'\n{job}\n[[fault]]\nlinks = 'all'\nloss = 0.02\nduplication = 0.02\nreordering = 0.02"
    ))
    .unwrap_or_else(|error| panic!("{job}: {error}"))
}

fn right(network: &str, job: &str) -> Report {
    let report = run(&experiment(network, job)).unwrap_or_else(|error| panic!("{job}: {error}"));
    assert_eq!(report.failure(), None, "{network} {job}: {report}");
    report
}

fn refused(job: &str) -> String {
    run(&experiment(ONE_SWITCH, job)).unwrap_err().to_string()
}

#[test]
fn every_operator_that_comes_along_gives_in_the_network_what_it_gives_at_home() {
    for shipped in shipped::ALL {
        let elements = 3_001 * tributary_operators::element::Element::parse(shipped.element).unwrap().size();
        let job = format!("operator = '{}'\ndata = 'real'\ntensor = {elements}\niterations = 2", shipped.name);
        let [one, levels] = [(ONE_SWITCH, job.clone()), (LEVELS, format!("{job}\ntrees = 2"))]
            .map(|(network, job)| right(network, &job).to_string());
        for said in [one, levels] {
            let line = said.lines().find(|line| line.contains("  operator ")).unwrap_or_default().to_owned();
            assert!(line.contains(shipped.name) && line.contains(shipped.element), "{said}");
            assert!(line.ends_with("; every result is what the module gives at home"), "{said}");
        }
    }
}

/// An operator whose bits depend on who stands where and who meets first.
#[test]
fn the_order_that_an_operator_needs_is_kept_over_any_switches() {
    for network in [ONE_SWITCH, LEVELS] {
        let job =
            format!("operator = '{ORDERED}'\ntype = 'i64'\ndata = 'real'\ntensor = '80 kB'\nplacement = 'random'");
        right(network, &job);
    }
    let weak = format!("operator = '{ORDERED}'\ntype = 'i64'\ntensor = '80 kB'\noptions = {{ reproducible = 'tree' }}");
    assert!(
        refused(&weak).contains("choose reproducible=ranks, as the operator does not commute"),
        "{}",
        refused(&weak)
    );
}

/// In levels a sum of floats depends on the switches of the tree, of which there are several here.
#[test]
fn a_sum_along_the_switches_is_that_of_one_of_its_trees() {
    let job = "operator = 'a + b'\ntype = 'f32'\ndata = 'real'\ntensor = '200 kB'\ntrees = 2";
    right(LEVELS, job);
    right(LEVELS, &format!("{job}\noptions = {{ reproducible = 'ranks' }}"));
}

#[test]
fn operators_come_from_expressions_with_fields_and_from_files() {
    let fields = "operator = { expression = '''v = a.v + b.v\nn = a.n + b.n''', element = 'v:i32,n:i16' }";
    right(ONE_SWITCH, &format!("{fields}\ndata = 'real'\ntensor = 6000"));
    let path = std::env::temp_dir().join(format!("tributary-sim-{}.expr", std::process::id()));
    std::fs::write(&path, "# element: i16\nmax(a, b)\n").unwrap();
    let said = right(ONE_SWITCH, &format!("operator = '{}'\ndata = 'real'\ntensor = 6000", path.display()));
    assert!(said.jobs[0].operator.as_ref().unwrap().element == "i16", "{said}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn fingerprints_stand_for_elements_where_nothing_else_is_said() {
    let said = right(LEVELS, "operator = 'maxloc'\ntensor = '8 MB'").to_string();
    assert!(said.contains("fingerprints in its place: every contribution is there once"), "{said}");
}

/// A module that is fit in the self-test, whose vectors are short, and fails in the network; as half a job.
fn failing(name: &str) -> (std::path::PathBuf, String) {
    let wat = "(module (memory (export \"memory\") 1) (global (export \"tributary_abi\") i32 (i32.const 1))
        (global (export \"element_size\") i32 (i32.const 4)) (func (export \"combine\") (param i32 i32 i32)
        (if (i32.gt_u (local.get 2) (i32.const 200)) (then unreachable))))";
    let path = std::env::temp_dir().join(format!("tributary-sim-{name}-{}.wat", std::process::id()));
    std::fs::write(&path, format!(";; element: f32\n{wat}")).unwrap();
    let job = format!("name = 'bad'\noperator = '{}'\ndata = 'real'\ntensor = '100 kB'", path.display());
    (path, job)
}

fn assert_all_ranks_fail(report: &Report, ranks: usize) {
    let bad = &report.jobs[0];
    assert_eq!(bad.errors.len(), ranks, "{report}");
    for error in &bad.errors {
        let whole = error.contains(": the operator tributary-sim-")
            && error.contains("(SHA-256 ")
            && error.contains("has trapped: wasm `unreachable`")
            && error.contains(", at switch ")
            && error.ends_with("; the job is over");
        assert!(whole, "{error}");
    }
    let fault = bad.fault.as_ref().unwrap();
    assert!(fault.starts_with("switch ") && fault.contains(": the operator"), "{fault}");
    assert_eq!(bad.wrong_sums, 0, "{report}");
    assert!(report.failure().unwrap().starts_with("bad: rank "), "{report}");
}

#[test]
fn a_module_that_fails_in_a_switch_fails_its_job_on_every_rank_with_its_name_and_no_other_job() {
    let (path, job) = failing("alone");
    let good = "name = 'good'\nhosts = 'all'\noperator = 'xor'\ndata = 'real'\ntensor = '800 kB'\niterations = 3";
    let protocol = protocol(true);
    let both = format!("{job}\nhosts = 'all'\ntimeout = '5 s'\n[[job]]\nprotocol = '{protocol}'\n{good}");
    let report = run(&experiment(ONE_SWITCH, &both)).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_all_ranks_fail(&report, 5);
    assert!(report.seconds < 5.0, "nobody waits for a deadline: {report}");
    let good = &report.jobs[1];
    assert!(good.complete && good.fault.is_none(), "{report}");
}

/// A rank that computes, and waits for nothing, fails too; and a run on two threads is the same.
#[test]
fn in_levels_ranks_of_all_racks_fail_at_one_moment_on_any_number_of_threads() {
    let (path, job) = failing("levels");
    let job = format!("{job}\nstragglers = {{ ranks = [8], late = '20 ms' }}");
    let config = experiment(LEVELS, &job);
    let [one, two] =
        [1, 2].map(|threads| run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert_all_ranks_fail(&one, 9);
    assert_eq!((&one.jobs[0].errors, &one.trace_hash), (&two.jobs[0].errors, &two.trace_hash));
}

#[test]
fn what_goes_together_with_no_operator_is_said() {
    for (job, said) in [
        ("data = 'real'\ntensor = 4", "data = \"real\" is for jobs with a custom operator"),
        ("operator = 'xor'\nop = 'max'\ntensor = 8", "op = \"max\" beside operator: a job has one of the two"),
        ("operator = 'xor'\ntensor = 12", "a tensor of 12 B is not a whole number of xor's elements of 8 bytes"),
        ("operator = 'xor'\ntensor = 8\nelements_per_packet = 1", "elements_per_packet = 2 at least"),
        ("operator = 'zor'\ntensor = 8", "operator = \"zor\" is not an expression"),
        ("operator = 'there-is-none.expr'\ntensor = 8", "cannot read there-is-none.expr"),
        ("operator = 'xor'\ndensity = 0.1\ntensor = 8", "custom operators are for dense tensors"),
    ] {
        assert!(refused(job).contains(said), "{job}: {}", refused(job));
    }
    let none = protocol(false);
    let other =
        format!("[network]\nstar = {{ hosts = 2 }}\n[[job]]\nprotocol = '{none}'\noperator = 'xor'\ntensor = 8");
    let error = run(&Config::parse(&other).unwrap()).unwrap_err().to_string();
    let said = format!("{none} takes no custom operators; take {}", protocol(true));
    assert!(error.contains(&said), "{error}");
}
