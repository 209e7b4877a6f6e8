//! `tributary operator`: operators that people write themselves, from the first line to the switch.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use tributary_numeric::{DType, ReduceOp, native};
use tributary_operators::element::Element;
use tributary_operators::source::{self, Language};
use tributary_operators::{Sandbox, UserOperator, shipped};
use tributary_proto::contract::custom_op::{Capacity, CustomOp, OrderDependence};
use tributary_proto::protocols;
use tributary_pspin::operators::{self, OperatorCycles, build};

use crate::failure::Failure;
use crate::output;

/// The help. It names a protocol of the registry whose switches take operators of jobs.
fn help() -> String {
    let able = protocols::ALL.iter().find(|protocol| protocol.options.custom_ops.is_some());
    let protocol = able.map_or("NAME", |protocol| protocol.name);
    format!(
        "\
Examples:
  tributary operator new loudest.expr --element v:f32,i:i32     a file to begin with
  tributary operator check loudest.expr                         what the self-test says of it
  tributary operator build loudest.expr -o loudest.wasm         the module, to hand on
  tributary operator show                                       the operators that come along
  tributary operator bench maxloc                               what a packet costs, beside ours
  tributary operator cycles loudest.expr -o cycles.csv          what an element costs on a core
  tributary allreduce --protocol {protocol} --op loudest.expr --job hello \\
    --rank 0 --world-size 1 --elements 1000

A FILE ends with .expr (as in Python), .wat, .c (where clang and wasm-ld are) or .wasm, or is the
name of an operator that comes along. What its elements are it says in a comment, or --element
does: f32, or v:f32,i:i32 (fields one after the other), or opaque:BYTES. docs/operators.md goes
through all of it in ten minutes."
    )
}

/// The flags of `tributary operator`.
#[derive(clap::Args)]
#[command(after_help = help())]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Write a file to begin with: the greater of two elements
    New {
        /// What to write: .expr, .wat or .c; a file that is there stays
        file: PathBuf,
        /// What its elements are
        #[arg(long, value_name = "TYPE", default_value = "f32")]
        element: String,
    },
    /// Build the module of an operator
    Build {
        #[command(flatten)]
        of: Source,
        /// Where to write it
        #[arg(short, long, value_name = "FILE.wasm")]
        output: PathBuf,
    },
    /// Put an operator to the self-test: every switch does the same before it serves it
    Check(Source),
    /// Show what an operator is, or, without a name, which ones come along
    Show {
        /// The operator
        #[arg(value_name = "FILE")]
        file: Option<String>,
        /// Print the module of an expression as text
        #[arg(long)]
        wat: bool,
    },
    /// Count the cycles of an operator on a core of a simulated switch, where wasm2c and the cores' compiler are
    Cycles {
        #[command(flatten)]
        of: Source,
        /// The file for `operators` of [switches.cores]; one that is there gets another line
        #[arg(short, long, value_name = "FILE.csv")]
        output: Option<PathBuf>,
    },
    /// Measure what a packet costs, beside the sum of f32 by our own kernel
    Bench {
        #[command(flatten)]
        of: Source,
        /// Bytes of a packet's vector
        #[arg(long, value_name = "BYTES", default_value_t = 1_432, value_parser = clap::value_parser!(u32).range(64..=64_512))]
        bytes: u32,
    },
}

/// An operator.
#[derive(clap::Args)]
struct Source {
    /// The operator
    #[arg(value_name = "FILE")]
    file: String,
    /// What its elements are, where it does not say so
    #[arg(long, value_name = "TYPE")]
    element: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Source {
    fn element(&self) -> Result<Option<Element>, Failure> {
        self.element.as_deref().map(Element::parse).transpose().map_err(Failure::usage)
    }

    fn operator(&self) -> Result<UserOperator, Failure> {
        source::operator(&Sandbox::new(), &self.file, self.element()?.as_ref()).map_err(Failure::new)
    }
}

/// `tributary operator`.
pub fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::New { file, element } => new(&file, &element),
        Command::Build { of, output } => build(&of, &output),
        Command::Check(of) => check(&of),
        Command::Show { file: None, .. } => show_all(),
        Command::Show { file: Some(file), wat } => show(file, wat),
        Command::Cycles { of, output } => cycles(&of, output.as_deref()),
        Command::Bench { of, bytes } => bench(&of, bytes as usize),
    }
}

fn new(file: &Path, element: &str) -> Result<(), Failure> {
    let (language, element) =
        (Language::of(file).map_err(Failure::usage)?, Element::parse(element).map_err(Failure::usage)?);
    let text = language.template(&element).map_err(Failure::usage)?;
    if file.exists() {
        return Err(Failure::usage(format!("{} is there already: choose another name", file.display())));
    }
    fs::write(file, text).map_err(|error| Failure::new(format!("cannot write {}: {error}", file.display())))?;
    output::line(&format!("{}: edit it, then: tributary operator check {0}", file.display()))?;
    Ok(())
}

fn build(of: &Source, to: &Path) -> Result<(), Failure> {
    let operator = of.operator()?;
    fs::write(to, operator.module())
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", to.display())))?;
    let (bytes, hash) = (operator.module().len(), operator.hash());
    match of.json {
        true => output::json(&json!({ "file": to, "bytes": bytes, "sha256": hash.to_string() }))?,
        false => output::line(&format!("{}: {bytes} bytes, SHA-256 {hash}", to.display()))?,
    }
    Ok(())
}

/// The order that an operator needs, for people.
fn order(needs: OrderDependence) -> &'static str {
    match needs {
        OrderDependence::Nothing => "none: it commutes and associates, as far as the self-test has seen",
        OrderDependence::Arrangement => "reproducible=tree: it commutes, and which elements are combined first matters",
        OrderDependence::RankOrder => "reproducible=ranks: it does not commute, so that ranks stand in their order",
    }
}

fn as_json(operator: &UserOperator) -> serde_json::Value {
    let verdict = operator.verdict();
    json!({
        "name": operator.name(),
        "sha256": operator.hash().to_string(),
        "element": operator.element().to_string(),
        "element_size": operator.element_size(),
        "bytes": operator.module().len(),
        "needs": match verdict.needs {
            OrderDependence::Nothing => "nothing",
            OrderDependence::Arrangement => "tree",
            OrderDependence::RankOrder => "ranks",
        },
        "examples": verdict.examples,
        "fuel_per_call": verdict.fuel_per_call,
        "fuel_per_element": verdict.fuel_per_element,
    })
}

fn table(operator: &UserOperator) -> String {
    let verdict = operator.verdict();
    let mut lines = vec![
        format!("operator   {}", operator.name()),
        format!("SHA-256    {}", operator.hash()),
        format!("element    {} ({} bytes)", operator.element(), operator.element_size()),
        format!("module     {} bytes", operator.module().len()),
        format!("fuel       {} a call, {} an element", verdict.fuel_per_call, verdict.fuel_per_element),
        format!("order      {}", order(verdict.needs)),
    ];
    lines.extend(verdict.examples.iter().map(|example| format!("           {example}")));
    lines.join("\n")
}

fn check(of: &Source) -> Result<(), Failure> {
    let operator = of.operator()?;
    match of.json {
        true => output::json(&as_json(&operator))?,
        false => output::line(&format!("{}\nchecked    10000 triples of elements: it may be used", table(&operator)))?,
    }
    Ok(())
}

fn show(file: String, wat: bool) -> Result<(), Failure> {
    if wat {
        let (text, element) = match shipped::named(&file) {
            Some(shipped) => (shipped.source.to_owned(), Element::parse(shipped.element).map_err(Failure::new)?),
            None => source::expression(&file).map_err(Failure::usage)?,
        };
        output::line(&tributary_operators::expression::to_wat(&text, &element).map_err(Failure::new)?)?;
        return Ok(());
    }
    let text = shipped::named(&file).map(|shipped| format!("\n\n{}\n\n{}", shipped.about, shipped.source.trim_end()));
    let operator = Source { file, element: None, json: false }.operator()?;
    output::line(&format!("{}{}", table(&operator), text.unwrap_or_default()))?;
    Ok(())
}

fn show_all() -> Result<(), Failure> {
    let line = |shipped: &shipped::Shipped| format!("{:16} {:24} {}", shipped.name, shipped.element, shipped.about);
    output::line(&shipped::ALL.iter().map(line).collect::<Vec<_>>().join("\n"))?;
    Ok(())
}

/// Builds the operator for the cores, runs it there, and notes its cycles.
fn cycles(of: &Source, to: Option<&Path>) -> Result<(), Failure> {
    let operator = of.operator()?;
    let wrong = |why: String| Failure::new(format!("{}: {why}", operator.name()));
    let module = source::module_without_vectors(&of.file, of.element()?.as_ref()).map_err(Failure::new)?;
    let program = build::program(&module).map_err(|error| wrong(error.to_string()))?;
    let counted = operators::count(&operator, &program).map_err(wrong)?;
    if let Some(path) = to {
        let unwritten = |error| Failure::new(format!("cannot write {}: {error}", path.display()));
        let row = operators::line(&operator, &counted);
        let known = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => format!("{}\n", operators::HEADER),
            Err(error) => return Err(Failure::new(format!("cannot read {}: {error}", path.display()))),
        };
        fs::write(path, format!("{known}{row}\n")).map_err(unwritten)?;
    }
    let OperatorCycles { per_call, per_element } = counted;
    let (name, hash) = (operator.name(), operator.hash());
    match of.json {
        true => output::json(&json!({
            "name": name, "sha256": hash.to_string(), "cycles_per_call": per_call, "cycles_per_element": per_element,
        }))?,
        false => output::line(&format!("{name}: {per_element:.1} cycles an element, {per_call:.0} a call"))?,
    }
    Ok(())
}

/// Measures the operator and the kernel in turns, so that both meet the same load; the fastest round of each counts.
fn bench(of: &Source, bytes: usize) -> Result<(), Failure> {
    const ROUNDS: usize = 200;
    const CALLS: u32 = 200;
    let operator = of.operator()?;
    let bytes = bytes / operator.element_size() * operator.element_size();
    let mut instance = operator.instance(Capacity { vector_bytes: bytes, accumulators: 1 });
    let floats = bytes / 4 * 4;
    let kernel = native(DType::F32, ReduceOp::Sum).expect("floats have sums");
    let other = operator.sample(1, bytes / operator.element_size());
    instance.store(0, &operator.sample(2, bytes / operator.element_size())).map_err(Failure::new)?;
    let zeros = vec![0u8; floats];
    let (mut sums, mut best) = (vec![0u8; floats], [Duration::MAX; 2]);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            instance.add(0, std::hint::black_box(&other)).map_err(Failure::new)?;
        }
        best[0] = best[0].min(start.elapsed() / CALLS);
        let start = Instant::now();
        for _ in 0..CALLS {
            (kernel.add)(std::hint::black_box(&mut sums), std::hint::black_box(&zeros));
        }
        best[1] = best[1].min(start.elapsed() / CALLS);
    }
    let [own, native] = best.map(|time| time.as_nanos() as f64);
    let ratio = own / native.max(1.0);
    match of.json {
        true => output::json(&json!({
            "name": operator.name(), "bytes": bytes, "ns_per_packet": own, "native_f32_sum_ns": native, "ratio": ratio,
        }))?,
        false => output::line(&format!(
            "{}: {own:.0} ns for a packet of {bytes} bytes; the sum of f32 by our own kernel: {native:.0} ns ({ratio:.1} times)",
            operator.name()
        ))?,
    }
    Ok(())
}
