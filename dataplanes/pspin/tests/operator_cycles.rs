//! Custom operators as programs for the cores: they give what the modules give, in the cycles of the committed table, which the
//! simulator reads.

use std::path::{Path, PathBuf};
use std::{env, fs};

use tributary_operators::shipped::{self, Shipped};
use tributary_operators::{Sandbox, UserOperator, source};
use tributary_proto::contract::operator::Operator;
use tributary_pspin::operators::build::{self, NotBuilt};
use tributary_pspin::operators::{HEADER, count, line};
use tributary_sim::cores::operators::{OperatorCycles, Table};

/// Set to write programs and table instead.
const BLESS: &str = "TRIBUTARY_BLESS";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn operator(name: &str) -> UserOperator {
    source::operator(&Sandbox::new(), name, None).unwrap()
}

fn committed(shipped: &Shipped) -> PathBuf {
    repository().join(format!("dataplanes/pspin/handlers/operators/bin/{}.elf", shipped.name))
}

/// The program of a module where the tools are here; what is left out is said.
fn built(shipped: &Shipped) -> Option<Vec<u8>> {
    match build::program(&source::module_without_vectors(shipped.name, None).unwrap()) {
        Ok(program) => Some(program),
        Err(NotBuilt::NoTool(tool)) => {
            eprintln!("left out: {tool} is not installed (Debian's wabt and gcc-riscv64-unknown-elf)");
            None
        }
        Err(error) => panic!("{}: {error}", shipped.name),
    }
}

#[test]
fn programs_of_operators_give_what_their_modules_give_in_the_cycles_of_the_committed_table() {
    let bless = env::var_os(BLESS).is_some();
    let mut table = format!("{HEADER}\n");
    for shipped in shipped::ALL {
        if bless && let Some(program) = built(&shipped) {
            fs::write(committed(&shipped), program).unwrap();
        }
        let (operator, program) = (operator(shipped.name), fs::read(committed(&shipped)).unwrap());
        let cycles = count(&operator, &program).unwrap_or_else(|why| panic!("{}: {why}", shipped.name));
        table += &format!("{}\n", line(&operator, &cycles));
    }
    let file = repository().join("experiments/operator-cycles.csv");
    if bless {
        fs::write(&file, &table).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), table, "{BLESS}=1 with the tools writes programs and table again");
}

#[test]
fn the_tools_make_the_committed_programs() {
    for shipped in shipped::ALL {
        let Some(program) = built(&shipped) else { return };
        assert!(program == fs::read(committed(&shipped)).unwrap(), "{} is built to another program", shipped.name);
    }
}

#[test]
fn a_program_that_computes_something_else_is_refused() {
    let program = fs::read(committed(shipped::named("xor").unwrap())).unwrap();
    let other = operator("complex-product");
    assert_eq!(other.element_size(), operator("xor").element_size());
    let why = count(&other, &program).unwrap_err();
    assert!(why.contains("other elements than in the sandbox"), "{why}");
}

#[test]
fn the_simulator_reads_what_is_written_here() {
    let (operator, program) = (operator("xor"), fs::read(committed(shipped::named("xor").unwrap())).unwrap());
    let counted = count(&operator, &program).unwrap();
    let mut table = Table::default();
    table.add(&format!("{HEADER}\n{}\n", line(&operator, &counted))).unwrap();
    let OperatorCycles { per_call, per_element, estimated } = table.find(&operator);
    assert!(!estimated && (per_call - counted.per_call).abs() < 1e-3, "{per_call}");
    assert!((per_element - counted.per_element).abs() < 1e-3, "{per_element}");
}
