//! Cores that spin, against the processor of a switch: eight cores run the committed handlers on one memory, instruction by
//! instruction, and the processor gets the same packets and what these handlers were counted to when one core had them alone.

use tributary_numeric::DType;
use tributary_proto::contract::work::{Needs, Work};
use tributary_pspin::{Call, Cluster, Program, Ran, Timing, map};
use tributary_sim::cores::model::{Costs, Design, Handling, Modelled};
use tributary_sim::cores::prices::{Code, Prices};
use tributary_sim::cores::{Shape, Subset};
use tributary_sim::rng::{Purpose, Rng};

const CORES: u32 = 8;
const CHILDREN: u32 = 16;
const ELEMENTS: u32 = 256;
const BLOCKS: u64 = 64;
/// Blocks that the handlers keep at a time.
const WINDOW: u32 = 32;

/// Where things are in L1: the job, a place for each core's packet, blocks, and their buffers.
const JOB: u32 = map::L1;
const PACKETS: u32 = map::L1 + 0x100;
const PACKET_BYTES: u32 = 0x600;
const BLOCK_MEMORY: u32 = map::L1 + 0x4000;
const BUFFERS: u32 = map::L1 + 0x8000;
const BUFFER_BYTES: u32 = 8 + 4 * ELEMENTS;

/// A packet: when it comes, of which block, from which child.
type Packet = (u64, u64, u32);

/// Packets of blocks that take turns, some cycles apart on average.
fn arrivals(staggered: u64, gap: f64, seed: u64) -> Vec<Packet> {
    let (mut rng, mut at, turns) = (Rng::new(seed, Purpose::Arrivals, 0), 0.0, staggered * u64::from(CHILDREN));
    let packet = |number: u64| {
        at += gap * rng.exponential();
        let (group, turn) = (number / turns, number % turns);
        (at as u64, group * staggered + turn % staggered, (turn / staggered) as u32)
    };
    (0..BLOCKS * u64::from(CHILDREN)).map(packet).collect()
}

/// The packets through the committed handlers.
fn run(handler: &str, buffers: u32, packets: &[Packet]) -> Vec<Ran> {
    let file = include_bytes!("../handlers/bin/dense-xpulp.elf");
    let mut cluster = Cluster::new(&Program::read(file).unwrap(), &Timing::RI5CY, CORES as usize).unwrap();
    let job = [CHILDREN, WINDOW - 1, 0, 0, BLOCK_MEMORY, BUFFERS, BUFFER_BYTES, buffers];
    let bytes: Vec<u8> = job.iter().flat_map(|word| word.to_le_bytes()).collect();
    cluster.memory().write(JOB, &bytes).unwrap();
    let calls: Vec<Call<'_>> = packets.iter().map(|&(at, ..)| Call { at, function: handler }).collect();
    let bring = |memory: &mut tributary_pspin::Memory, core: usize, call: usize| {
        let (_, block, child) = packets[call];
        let address = PACKETS + core as u32 * PACKET_BYTES;
        let mut packet = (block as u32).to_le_bytes().to_vec();
        packet.extend((child as u16).to_le_bytes());
        packet.extend((ELEMENTS as u16).to_le_bytes());
        (0..ELEMENTS).for_each(|_| packet.extend(1u32.to_le_bytes()));
        memory.write(address, &packet)?;
        Ok(vec![address, JOB])
    };
    cluster.run(&calls, 1 << 32, bring).unwrap()
}

/// What one core alone was counted to.
fn costs(needs: Needs) -> Costs {
    let prices = Prices::new(Code::Xpulp, DType::I32).unwrap();
    let elements = u64::from(ELEMENTS);
    let first = prices.called(needs, 0, &Work { copied: elements, ..Work::default() }, 1);
    let later = prices.called(needs, 0, &Work { combined: elements, emitted: 1, ..Work::default() }, 1);
    let is_tree = matches!(needs, Needs::Leaf(..));
    Costs {
        start: prices.begin(needs).round() as u64,
        // Commands of a unit are carried out at once.
        copy: if is_tree { 0 } else { first.copy.total() },
        combine: later.combine.total(),
        merge: later.merge.total(),
        send: later.end.total(),
    }
}

/// Mean cycles of a handler, waiting included, and when the last one ended: of cores that run, and of the processor.
fn both(handler: &str, design: Design, packets: &[Packet]) -> [[f64; 2]; 2] {
    let (needs, buffers) = match design {
        Design::Buffers(buffers) => (Needs::Buffer(buffers as u16), buffers),
        _ => (Needs::Leaf(0, CHILDREN as u16), CHILDREN),
    };
    let ran = run(handler, buffers, packets);
    assert_eq!(ran.len(), packets.len());
    let sums = ran.iter().flat_map(|ran| &ran.commands).filter(|command| command.destination == 0);
    let expected: Vec<u8> = (0..ELEMENTS).flat_map(|_| CHILDREN.to_le_bytes()).collect();
    assert_eq!(sums.filter(|sum| sum.data[8..] == expected).count() as u64, BLOCKS, "{handler}: sums are right");
    let mean = |sum: u64| sum as f64 / packets.len() as f64;
    let ends = ran.iter().map(|ran| ran.ended).max().unwrap_or(0);
    let run = [mean(ran.iter().map(|ran| ran.ended - ran.began).sum()), ends as f64];

    let handling = Handling { design, children: CHILDREN, buffer_bytes: 1024, costs: costs(needs) };
    let mut processor = Modelled::new(Shape::ideal(1, CORES, Subset::Cluster), handling);
    let mut finished = Vec::new();
    for &(at, block, child) in packets {
        finished.extend(processor.advance(at));
        processor.arrive(at, block, child, 1).unwrap();
    }
    finished.extend(processor.advance(u64::MAX));
    let ends = finished.iter().map(|one| one.ended).max().unwrap_or(0);
    [run, [mean(finished.iter().map(|one| one.ended - one.started).sum()), ends as f64]]
}

#[test]
fn cores_that_spin_take_as_long_as_the_processor_has_them_wait() {
    // A handler takes its buffer before it has begun in full, which the processor has it do after: in a buffer that all want that is
    // some 40 cycles of 1,100 in which others wait, too.
    for (name, handler, design, staggered, load, within) in [
        ("one buffer, packets of a block together", "single_i32", Design::Buffers(1), 1, 1.0, 0.04),
        ("one buffer, packets of blocks in turns", "single_i32", Design::Buffers(1), 16, 0.9, 0.02),
        ("four buffers, packets of a block together", "multi_i32", Design::Buffers(4), 1, 0.5, 0.02),
        ("a tree, packets of a block together", "tree_i32", Design::Tree, 1, 0.9, 0.02),
    ] {
        for seed in 1..=2 {
            let packets = arrivals(staggered, 1100.0 / f64::from(CORES) / load, seed);
            let [[service, end], [modelled, modelled_end]] = both(handler, design, &packets);
            println!(
                "{name}, seed {seed}: {service:.0} cycles a handler, {modelled:.0} by the processor ({:.4}); all in {end} and {modelled_end} ({:.4})",
                service / modelled,
                end / modelled_end
            );
            assert!((service / modelled - 1.0).abs() < within, "{name}, seed {seed}: {service} and {modelled}");
            assert!((end / modelled_end - 1.0).abs() < within, "{name}, seed {seed}: {end} and {modelled_end}");
        }
    }
}
