//! The hardware design of `dataplanes/panama` and the simulator: `[switches.accelerator]` takes the cycles that were measured on
//! the design, and the design itself, in a simulator of hardware, is one switch of a simulated network.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tributary_numeric::{DType, ReduceOp};
use tributary_operators::element::Element;
use tributary_operators::{Sandbox, describe, expression};
use tributary_proto::contract::config::{SwitchConfig, TimerConfig};
use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::switch::{Emission, PortView, Switch, SwitchReport, Verdict};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::panama::PROTOCOL;
use tributary_sim::config::Config;
use tributary_sim::engine::{CustomOp, Data, JobPlan, Magnitudes, Settings, Simulation};
use tributary_sim::experiment::build;
use tributary_sim::topology::{Graph, LinkId, LinkSpec, Rate, leaf_spine, star};

fn dataplane() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dataplanes/panama")
}

/// The time of a sum of one packet of four bytes an element, on one switch.
fn seconds(ports: u64, elements: u64, rest: &str) -> Span {
    let text = format!(
        "[network]\nstar = {{ hosts = {ports} }}\nrate = \"10 Gbit/s\"\n[[job]]\nprotocol = \"panama\"\nhosts = \"all\"\n\
         placement = \"packed\"\ntensor = {}\nelements_per_packet = {elements}\nslots = 8\n{rest}",
        4 * elements
    );
    let mut sim = build(&Config::parse(&text).unwrap()).unwrap();
    assert!(sim.run_until_finished(Time::ZERO + Span::from_millis(1000)), "{text}");
    let iteration = &sim.traffic.jobs.all()[0].iterations[0];
    iteration.end.unwrap().since(iteration.start.unwrap())
}

/// `make rtl` measures what the file has. Its cycles count from a frame's first byte in, while a simulated packet arrives as a
/// whole: the difference is the beats of the frame.
#[test]
fn a_simulated_sum_waits_for_the_cycles_that_were_measured_on_the_design() {
    let mut lines = 0;
    for line in std::fs::read_to_string(dataplane().join("latency.csv")).unwrap().lines() {
        let words: Option<Vec<u64>> = line.split(',').map(|word| word.parse().ok()).collect();
        let Some(&[ports, bits, bytes, together, late]) = words.as_deref() else { continue };
        let (elements, beats) = ((bytes - 80) / 4, (8 * bytes).div_ceil(bits));
        let accelerator = format!("[switches.accelerator]\nbus_bits = {bits}\n");
        let straggler = "stragglers = { ranks = [0], late = \"10 us\" }\n";
        for (cycles, rest) in [(together, ""), (late, straggler)] {
            let added = Span::from_nanos(5).times(cycles - beats);
            let with = seconds(ports, elements, &format!("{rest}{accelerator}"));
            assert_eq!(with, seconds(ports, elements, rest) + added, "{line} {rest}");
        }
        let fixed = "[switches.accelerator]\nlatency = \"987.5 ns\"\n";
        assert_eq!(seconds(ports, elements, fixed), seconds(ports, elements, "") + Span(987_500));
        lines += 1;
    }
    assert!(lines > 10, "{lines} lines");
}

/// Bytes of a packet before its elements (docs/wire.md).
const HEADER_LEN: usize = 38;

/// What a switch has sent out of each port: congestion bits and bytes.
type Sent = Arc<Mutex<BTreeMap<u16, Vec<(u8, Vec<u8>)>>>>;

fn note(sent: &Sent, port: PortId, ecn: Ecn, bytes: &[u8]) {
    sent.lock().unwrap().entry(port.0).or_default().push((ecn as u8, bytes.to_vec()));
}

/// The wire has big-endian numbers, and a simulated packet elements as operators take them.
fn swap(packet: &mut [u8]) {
    packet[HEADER_LEN..].chunks_exact_mut(4).for_each(<[u8]>::reverse);
}

/// The software switch, and where it notes what it sends.
struct Software {
    machine: Box<dyn Switch>,
    members: Vec<PortId>,
    sent: Option<Sent>,
}

impl Software {
    fn boxed(config: &SwitchConfig, sent: Option<Sent>) -> Box<dyn Switch> {
        let machine = PROTOCOL.switch(Values::Elements, config).unwrap();
        Box::new(Software { machine, members: config.members.clone(), sent })
    }
}

impl Switch for Software {
    fn memory_bytes(&self) -> usize {
        self.machine.memory_bytes()
    }
    fn report(&self) -> SwitchReport {
        self.machine.report()
    }
    fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, ports: &dyn PortView) -> Verdict {
        swap(&mut packet.bytes[..packet.len]);
        let verdict = self.machine.process(now, ingress, packet, ports);
        if let (Verdict::Group(_), Some(sent)) = (verdict, &self.sent) {
            self.members.iter().for_each(|&port| note(sent, port, packet.ecn, &packet.bytes[..packet.len]));
        }
        swap(&mut packet.bytes[..packet.len]);
        assert!(!matches!(verdict, Verdict::Drop(_)), "{verdict:?} in a network without losses");
        verdict
    }
    fn handle_timeout(&mut self, now: Time) {
        self.machine.handle_timeout(now);
    }
    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission> {
        let emission = self.machine.poll_transmit(now, buf);
        assert_eq!(emission, None, "nothing is said besides sums in a network without losses");
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.machine.poll_timeout()
    }
}

/// The design, at the other end of a socket: `dataplanes/panama/tests/cosim.py` has the lines.
struct Hardware {
    lines: BufReader<UnixStream>,
    sums: Vec<(PortId, Ecn, Vec<u8>)>,
    is_busy: bool,
    now: Time,
    sent: Sent,
}

/// 200 MHz.
const CYCLE: u64 = 5_000;

impl Hardware {
    fn new(stream: UnixStream, config: &SwitchConfig, sent: &Sent) -> Hardware {
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let lines = BufReader::new(stream);
        let mut hardware = Hardware { lines, sums: Vec::new(), is_busy: false, now: Time::ZERO, sent: sent.clone() };
        let (job, slots) = (&config.job, config.job.slots / config.job.trees);
        let members = config.members.iter().zip(&config.below);
        let members: String = members.map(|(port, below)| format!(" {}:{}", port.0, below.ranks().len())).collect();
        hardware.ask(&format!("install {} {} {slots} {}{members}", job.job.0, job.key.0, job.elements_per_packet));
        hardware
    }

    fn ask(&mut self, line: &str) {
        writeln!(self.lines.get_mut(), "{line}").expect("the design's simulator runs");
        self.is_busy = false;
        loop {
            let mut answer = String::new();
            self.lines.read_line(&mut answer).expect("the design's simulator answers");
            let words: Vec<&str> = answer.split_whitespace().collect();
            match words[..] {
                ["sum", port, ecn, hex] => {
                    let digits = |at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
                    let ecn = [Ecn::NotCapable, Ecn::Capable, Ecn::Capable, Ecn::CongestionExperienced]
                        [ecn.parse::<usize>().unwrap()];
                    let bytes = (0..hex.len() / 2).map(digits).collect();
                    self.sums.push((PortId(port.parse().unwrap()), ecn, bytes));
                }
                ["busy"] => self.is_busy = true,
                ["."] => return,
                _ => panic!("the design's simulator says {answer:?}"),
            }
        }
    }
}

impl Switch for Hardware {
    fn memory_bytes(&self) -> usize {
        0
    }
    fn report(&self) -> SwitchReport {
        SwitchReport::default()
    }
    fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, _: &dyn PortView) -> Verdict {
        swap(&mut packet.bytes[..packet.len]);
        let hex: String = packet.bytes[..packet.len].iter().map(|byte| format!("{byte:02x}")).collect();
        let ecn = [0, 2, 3][packet.ecn as usize];
        self.now = now;
        self.ask(&format!("frame {} {} {ecn} {hex}", now.0.div_ceil(CYCLE), ingress.0));
        Verdict::Consume
    }
    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.ask(&format!("run {}", now.0 / CYCLE));
    }
    fn poll_transmit(&mut self, _: Time, buf: &mut [u8]) -> Option<Emission> {
        if self.sums.is_empty() {
            return None;
        }
        let (port, ecn, bytes) = self.sums.remove(0);
        note(&self.sent, port, ecn, &bytes);
        let len = bytes.len();
        buf[..len].copy_from_slice(&bytes);
        swap(&mut buf[..len]);
        Some(Emission { len, wire_len: len, ecn, verdict: Verdict::Port(port), ingress: None })
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.is_busy.then_some(Time((self.now.0 / CYCLE + 1) * CYCLE))
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.ask("end");
        }
    }
}

/// A job of real floats, with infinities and NaNs among them: each rank checks every element.
fn plan(members: &[u32], root: u32) -> JobPlan {
    let module = expression::compile("a + b", &Element::parse("f32").unwrap()).unwrap();
    let operator = Sandbox::new().load(&describe(&module, Some("expression"), Some("f32"))).unwrap();
    JobPlan {
        name: "job".into(),
        protocol: &PROTOCOL,
        members: members.iter().map(|&host| NodeId(host)).collect(),
        spec: Spec::allreduce(9 * 64 + 5, DType::F32, ReduceOp::Sum),
        sparse: None,
        custom_op: Some(CustomOp { operator: Arc::new(operator), data: Data::Real, cycles: None }),
        magnitudes: Magnitudes::Random,
        operations: Default::default(),
        iterations: 2,
        start: Time::ZERO,
        compute: Span::ZERO,
        options: PROTOCOL.options.defaults(),
        elements_per_packet: 64,
        slots: 8,
        roots: vec![root],
        timers: TimerConfig::default(),
        timeout: None,
    }
}

/// Runs the job to its end with another machine in one switch; the packets of each link.
fn run(graph: Graph, plan: JobPlan, make: &mut dyn FnMut(&SwitchConfig) -> Box<dyn Switch>) -> Vec<u64> {
    let root = plan.roots[0];
    let mut sim = Simulation::new(graph, Settings::default());
    let job = sim.install(plan).unwrap();
    sim.replace_machines(job, &mut |switch, config| match switch == root {
        true => make(config),
        false => Software::boxed(config, None),
    });
    assert!(sim.run_until_finished(Time::ZERO + Span::from_millis(1000)), "the job is not finished");
    let job = &sim.traffic.jobs.all()[0];
    assert!(job.is_complete() && job.errors.is_empty(), "{:?}", job.errors);
    let links = (0..sim.fabric.links().len() as u32).map(LinkId);
    links.map(|link| sim.fabric.counters(link).packets).collect()
}

/// Starts the design in Icarus Verilog; it connects to the socket.
fn start(socket: &Path) -> Child {
    let python = dataplane().join("../../.venv-rtl/bin/python");
    let target = dataplane().join("../../target/rtl-cosim");
    let mut command = Command::new(python);
    command.arg(dataplane().join("tests/run.py")).args(["--name", "cosim", "--module", "cosim"]);
    command.env("PANAMA_COSIM", socket).env("PANAMA_TARGET", target).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Why the design cannot be simulated here, if it cannot.
fn missing() -> Option<&'static str> {
    let found = |tool: &str| {
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|it| it.join(tool).exists()))
    };
    if !found("iverilog") || !found("vvp") {
        return Some("Icarus Verilog is not installed");
    }
    let root = dataplane().join("../..");
    if !root.join(".venv-rtl/.tools").exists() {
        return Some("a .venv-rtl with cocotb is missing");
    }
    (!root.join("target/debug/examples/panama_switch").exists()).then_some("the software switch is not built")
}

/// One switch of the network is the design. Every rank checks every element of every sum; both switches send the same packets
/// in the same order out of each port, and the links carry as many. The bench compares what the design decided about each
/// frame with the software switch besides. Times differ: a frame goes in when it has arrived as a whole.
#[test]
fn a_switch_of_a_simulated_network_is_the_design() {
    if let Some(why) = missing() {
        eprintln!(
            "left out: no switch was the hardware design, as {why}: make rtl installs and builds what this needs"
        );
        return;
    }
    let spec =
        LinkSpec { rate: Rate(10_000_000_000), delay: Span::from_micros(1), queue_bytes: 1 << 20, mark_bytes: None };
    // Three ranks in another order than their ports; two switches below the design, with two ranks each.
    let star = star(4, spec, Span::ZERO);
    let tree = leaf_spine(2, 1, 2, spec, spec, Span::ZERO);
    for (graph, members, root) in [(star, vec![3, 0, 1], 0), (tree, vec![0, 1, 2, 3], 2)] {
        let (soft, hard) = (Sent::default(), Sent::default());
        let in_software =
            run(graph.clone(), plan(&members, root), &mut |config| Software::boxed(config, Some(soft.clone())));
        let directory = std::env::temp_dir().join(format!("tributary-cosim-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut design = start(&socket);
        let stream = accept(&listener, &mut design);
        let in_hardware = run(graph, plan(&members, root), &mut |config| {
            Box::new(Hardware::new(stream.try_clone().unwrap(), config, &hard))
        });
        assert!(design.wait().unwrap().success(), "the bench says why: target/rtl-cosim has its log");
        std::fs::remove_dir_all(&directory).unwrap();
        let (soft, hard) = (soft.lock().unwrap(), hard.lock().unwrap());
        assert!(soft.len() >= 2 && soft.values().all(|sums| sums.len() == 2 * 10), "{:?}", soft.keys());
        assert_eq!(*soft, *hard, "{members:?}: other packets");
        assert_eq!(in_software, in_hardware, "{members:?}");
    }
}

/// The design's connection; the test fails if its simulator ends before.
fn accept(listener: &UnixListener, design: &mut Child) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    for _ in 0..1200 {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            return stream;
        }
        assert_eq!(design.try_wait().unwrap(), None, "the design's simulator has ended: target/rtl-cosim has its log");
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("the design's simulator does not start");
}
