//! Machines that write down what a driver gives them and what they answer. A protocol is a value, so a test gives the driver a
//! protocol whose machines are these, round the real ones.

mod host;
mod switch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::{HostConfig, SharedJob, SharedSwitchConfig, SwitchConfig};
use tributary_proto::contract::drive::record::Made;
use tributary_proto::contract::host::{Host, HostEvent};
use tributary_proto::contract::ids::{JobId, OpId, PortId};
use tributary_proto::contract::packet::{Addr, Ecn};
use tributary_proto::contract::protocol::{MakeSwitch, Protocol, Shared};
use tributary_proto::contract::switch::{SharedSwitch, Switch, Verdict};
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;

use self::host::TapedHost;
use self::switch::TapedSwitch;

/// What a host was given.
#[derive(Clone, Debug)]
pub enum HostInput {
    Submission { input: Vec<u8>, dtype: DType, op: ReduceOp, deadline: Option<Time> },
    Packet { from: Addr, bytes: Vec<u8>, ecn: Ecn },
    Timeout,
    Abortion,
    End,
    Nothing,
}

/// What a host was given at a time.
#[derive(Clone, Debug)]
pub struct At {
    pub now: Time,
    pub what: HostInput,
}

/// What a host reports to its caller: the collective, and its result's bytes or why there is none.
pub type Outcome = (OpId, Result<Vec<u8>, String>);

/// From one drain of a host to the next.
#[derive(Clone, Debug, Default)]
pub struct HostTurn {
    pub inputs: Vec<At>,
    pub drained_at: Time,
    pub sent: Vec<Made<Addr>>,
    pub outcomes: Vec<Outcome>,
    /// When the host's timer was due after that.
    pub due: Option<Time>,
    is_over: bool,
}

/// All that happened to a host's machine.
#[derive(Clone, Debug)]
pub struct HostTape {
    pub config: HostConfig,
    pub turns: Vec<HostTurn>,
}

impl HostTape {
    fn turn(&mut self) -> &mut HostTurn {
        if self.turns.last().is_none_or(|turn| turn.is_over) {
            self.turns.push(HostTurn::default());
        }
        self.turns.last_mut().expect("one is there")
    }

    fn note(&mut self, now: Time, what: HostInput) {
        self.turn().inputs.push(At { now, what });
    }
}

/// A packet that came to a switch, and what became of it there.
#[derive(Clone, Debug)]
pub struct Passage {
    pub ingress: PortId,
    pub came: Vec<u8>,
    pub came_with: Ecn,
    pub verdict: Verdict,
    pub left: Vec<u8>,
    pub left_with: Ecn,
}

/// What a switch was given.
#[derive(Clone, Debug)]
pub enum SwitchInput {
    Added(Box<SharedJob>),
    Removed(JobId),
    Burst(Vec<Passage>),
    Timeout,
    Nothing,
}

/// From one drain of a switch to the next.
#[derive(Clone, Debug)]
pub struct SwitchTurn {
    pub now: Time,
    pub input: SwitchInput,
    pub made: Vec<Made<Verdict>>,
    /// When the switch's timer was due after that.
    pub due: Option<Time>,
    is_over: bool,
}

/// What a switch's machine was made from.
#[derive(Clone, Debug)]
pub enum SwitchMade {
    Shared(SharedSwitchConfig),
    Own(SwitchConfig),
}

/// All that happened to a switch's machine.
#[derive(Clone, Debug)]
pub struct SwitchTape {
    pub made: SwitchMade,
    pub turns: Vec<SwitchTurn>,
}

impl SwitchTape {
    fn begin(&mut self, now: Time, input: SwitchInput) {
        self.turns.push(SwitchTurn { now, input, made: Vec::new(), due: None, is_over: false });
    }

    /// A job came or went. No driver drains a machine after that.
    fn plan(&mut self, input: SwitchInput) {
        self.turns.push(SwitchTurn { now: Time::ZERO, input, made: Vec::new(), due: None, is_over: true });
    }

    fn pass(&mut self, now: Time, passage: Passage) {
        match self.turns.last_mut() {
            Some(SwitchTurn { now: then, input: SwitchInput::Burst(packets), is_over: false, .. }) if *then == now => {
                packets.push(passage);
            }
            _ => self.begin(now, SwitchInput::Burst(vec![passage])),
        }
    }
}

type Shareable<T> = Arc<Mutex<T>>;

/// What all machines of a recording are made from, and their tapes.
struct Studio {
    original: &'static Protocol,
    /// One packet in this many is lost to the machine, if any are.
    lose: Option<u64>,
    hosts: Vec<Shareable<HostTape>>,
    switches: Vec<Shareable<SwitchTape>>,
}

static STUDIO: Mutex<Option<Studio>> = Mutex::new(None);
/// Held by a recording as long as it lasts: functions that make machines know no test.
static TURN: Mutex<()> = Mutex::new(());

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn in_studio<T>(work: impl FnOnce(&mut Studio) -> T) -> T {
    work(lock(&STUDIO).as_mut().expect("a recording is under way"))
}

/// A recording of one protocol's machines.
pub struct Recording {
    protocol: &'static Protocol,
    _turn: MutexGuard<'static, ()>,
}

impl Recording {
    /// Begins to record, after any other recording.
    pub fn of(original: &'static Protocol, lose: Option<u64>) -> Recording {
        let turn = lock(&TURN);
        *lock(&STUDIO) = Some(Studio { original, lose, hosts: Vec::new(), switches: Vec::new() });
        let shared = original.shared.as_ref().map(|shared| Shared { machine: taped_shared, ..*shared });
        let switch = original.switch.map(|_| taped_switch as MakeSwitch);
        let protocol = Box::leak(Box::new(Protocol { host: taped_host, switch, shared, ..*original }));
        Recording { protocol, _turn: turn }
    }

    /// The protocol whose machines are recorded.
    pub fn protocol(&self) -> &'static Protocol {
        self.protocol
    }

    /// What was recorded: the hosts by rank, and the switch.
    pub fn end(self) -> (Vec<HostTape>, Vec<SwitchTape>) {
        let Studio { hosts, switches, .. } = lock(&STUDIO).take().expect("a recording is under way");
        let mut hosts: Vec<HostTape> = hosts.iter().map(|tape| lock(tape).clone()).collect();
        hosts.sort_by_key(|tape| tape.config.rank.0);
        (hosts, switches.iter().map(|tape| lock(tape).clone()).collect())
    }
}

/// Loses one packet in this many.
struct Losses {
    every: Option<u64>,
    seen: u64,
}

impl Losses {
    fn takes_next(&mut self) -> bool {
        self.seen += 1;
        self.every.is_some_and(|every| self.seen.is_multiple_of(every))
    }
}

fn taped_host(values: Values, config: &HostConfig) -> Box<dyn Host> {
    in_studio(|studio| {
        let tape = Arc::new(Mutex::new(HostTape { config: config.clone(), turns: Vec::new() }));
        studio.hosts.push(Arc::clone(&tape));
        let losses = Losses { every: studio.lose, seen: 0 };
        Box::new(TapedHost { machine: studio.original.host(values, config), tape, losses }) as Box<dyn Host>
    })
}

fn tape_of_switch(studio: &mut Studio, made: SwitchMade) -> (Shareable<SwitchTape>, Losses) {
    let tape = Arc::new(Mutex::new(SwitchTape { made, turns: Vec::new() }));
    studio.switches.push(Arc::clone(&tape));
    (tape, Losses { every: studio.lose, seen: 0 })
}

fn taped_switch(values: Values, config: &SwitchConfig) -> Box<dyn Switch> {
    in_studio(|studio| {
        let machine = studio.original.switch(values, config).expect("the protocol has machines in switches");
        let (tape, losses) = tape_of_switch(studio, SwitchMade::Own(config.clone()));
        Box::new(TapedSwitch { machine, tape, losses }) as Box<dyn Switch>
    })
}

fn taped_shared(values: Values, config: &SharedSwitchConfig) -> Box<dyn SharedSwitch> {
    in_studio(|studio| {
        let machine = studio.original.shared_switch(values, config).expect("the protocol's jobs share a machine");
        let (tape, losses) = tape_of_switch(studio, SwitchMade::Shared(config.clone()));
        Box::new(TapedSwitch { machine, tape, losses }) as Box<dyn SharedSwitch>
    })
}

/// The bytes of a tensor's result.
pub fn output(tensor: &dyn Tensor) -> Vec<u8> {
    let elements = tensor.spec().elements as usize;
    let mut bytes = vec![0; tensor.native_len(elements)];
    tensor.read_output(0..elements, &mut bytes);
    bytes
}

/// What a host reports with an event.
pub fn outcome_of(event: &HostEvent) -> Outcome {
    match event {
        HostEvent::Done { op, tensor } => (*op, Ok(output(&**tensor))),
        HostEvent::Failed { op, error, .. } => (*op, Err(error.to_string())),
    }
}
