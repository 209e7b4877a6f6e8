//! The two figures that the kernels are held to, in one run: `cargo bench -p tributary-numeric --bench ratios`.
//!
//! - What a switch does with a packet, against a plain copy of the same bytes between the same buffers.
//! - What native sums cost a switch, against fixed point's add of as many bytes of packet.
//! - How fast one core encodes and decodes, in GB/s of tensor in memory, kernel by kernel.
//!
//! Every candidate runs in every round, and each row's ratio is the median over rounds: a busy machine slows both sides.

use std::hint::black_box;
use std::time::Instant;

use tributary_numeric::kernels::{self, ElementKernels, FixedKernels, Kernels, Unscale};
use tributary_numeric::{BlockExponent, Combine, DType, Element, Lanes, ReduceOp, Scale, bf16, codec, f16, thc};

/// What a packet of 1500 bytes holds.
const ELEMENTS: usize = 360;
const BYTES: usize = 4 * ELEMENTS;

fn main() {
    // Without `--bench` (under `cargo test --benches`) only see that it runs.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 301 } else { 1 };
    for (cache, slots) in [("L1", 8), ("L2", 128)] {
        println!("\nswitch: {slots} slots of {ELEMENTS} values ({} KiB each way, {cache})", slots * BYTES / 1024);
        println!("{:<18} {:>8} {:>10}", "", "GB/s", "of copy");
        for (name, gbps, ratio) in switch(slots, rounds) {
            println!("{name:<18} {gbps:>8.1} {:>9.0} %", 100.0 * ratio);
        }
    }
    for table in kernels::available() {
        println!("\nswitch, {}: time for a byte of packet, of fixed point's add", table.name);
        let [store, add, load, merge] = ["store", "add", "load", "merge"];
        println!("{:<18} {store:>8} {add:>8} {load:>8} {merge:>8}", "");
        for (name, [store, add, load, merge]) in native_sums(table, rounds) {
            println!("{name:<18} {store:>8.2} {add:>8.2} {load:>8.2} {merge:>8.2}");
        }
    }
    println!("\nhost: blocks of {ELEMENTS} elements, GB/s of tensor ({} KiB of vectors)", HOST_BLOCKS * BYTES / 1024);
    let [a, b, c, d, e] = ["exponent", "encode", "exponent+encode", "decode sum", "decode avg of 3"];
    println!("{:<16} {a:>10} {b:>10} {c:>16} {d:>12} {e:>16}", "");
    for table in kernels::available() {
        host(table.name, &table.f32, rounds, |i| (i as f32 * 0.37).sin());
        host(table.name, &table.f16, rounds, |i| f16::from_f32((i as f32 * 0.37).sin()));
        host(table.name, &table.bf16, rounds, |i| bf16::from_f32((i as f32 * 0.37).sin()));
        host(table.name, &table.i32, rounds, |i| i as i32 * 40_503);
    }
    non_finite(rounds);
    println!("\nhost: codes of 8 bits, GB/s of tensor");
    println!("{:<16} {b:>10} {d:>12} {e:>16}", "");
    for table in kernels::available() {
        codes(table.name, &table.f32, rounds, |i| (i as f32 * 0.37).sin());
        codes(table.name, &table.f16, rounds, |i| f16::from_f32((i as f32 * 0.37).sin()));
        codes(table.name, &table.bf16, rounds, |i| bf16::from_f32((i as f32 * 0.37).sin()));
    }
    println!("\ncodes of 4 bits, GB/s of tensor of f32");
    println!("{:<16} {:>10} {:>10} {:>10} {:>10} {:>10}", "", "norm", "encode", "add", "decode", "with loss");
    for table in kernels::available() {
        rotated_codes(table, rounds);
    }
}

/// Rotated blocks: what hosts do, and the switch's sum of levels.
fn rotated_codes(table: &Kernels, rounds: usize) {
    let input: Vec<f32> = (0..thc::MAX_BLOCK).map(|i| (i as f32 * 0.37).sin()).collect();
    let kernels: &FixedKernels<f32> = table.f32.fixed.as_ref().expect("a type that has codes");
    let scale = Scale::rotated((kernels.norm)(&input), 3, 1, 7);
    let (mut vector, mut lanes) = (vec![0u8; input.len() / 2], vec![0u8; 2 * input.len()]);
    let (mut sums, mut output) = (vec![0u8; input.len()], input.clone());
    let mut times = [const { Vec::new() }; 5];
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..64).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / (64 * size_of_val(input.as_slice())) as f64
    };
    for _ in 0..rounds {
        times[0].push(time(&mut || _ = black_box((kernels.norm)(black_box(&input)))));
        times[1].push(time(&mut || (kernels.encode_rotated)(black_box(&input), scale, black_box(&mut vector))));
        times[2].push(time(&mut || (table.rotated_8.add)(black_box(&mut lanes), black_box(&vector))));
        times[3].push(time(&mut || {
            (table.rotated_8.load)(black_box(&lanes), black_box(&mut sums));
            (kernels.decode_rotated)(black_box(&sums), scale, ReduceOp::Sum, black_box(&mut output));
        }));
        times[4].push(time(&mut || {
            (kernels.encode_rotated_with_loss)(black_box(&input), scale, black_box(&mut vector), black_box(&mut output))
        }));
    }
    let [norm, encode, add, decode, loss] = times.map(|times| 1.0 / median(times));
    println!("{:<16} {norm:>10.2} {encode:>10.2} {add:>10.2} {decode:>10.2} {loss:>10.2}", table.name);
}

/// Each kernel of each table, with GB/s and the ratio to the copy of the same round.
fn switch(slots: usize, rounds: usize) -> Vec<(String, f64, f64)> {
    let mut lanes = vec![0u32; slots * ELEMENTS];
    let mut copies = vec![0u8; slots * BYTES];
    let mut packets: Vec<u8> = (0..slots * BYTES).map(|i| i as u8).collect();
    let tables = kernels::available();
    let mut names = vec!["copy".to_string()];
    names
        .extend(tables.iter().flat_map(|t| ["store_be", "add_be", "load_be"].map(|what| format!("{what} {}", t.name))));
    let mut times = vec![Vec::new(); names.len()];
    for _ in 0..rounds {
        let mut row = 0;
        let mut record = |nanos: f64| {
            times[row].push(nanos);
            row += 1;
        };
        let pairs = |slot: usize| (slot * ELEMENTS..(slot + 1) * ELEMENTS, slot * BYTES..(slot + 1) * BYTES);
        record(per_byte(slots, |slot| {
            let at = pairs(slot).1;
            black_box(&mut copies[at.clone()]).copy_from_slice(black_box(&packets[at]));
        }));
        for Kernels { store_be, add_be, load_be, .. } in tables.iter() {
            for kernel in [store_be, add_be] {
                record(per_byte(slots, |slot| {
                    let (at, bytes) = pairs(slot);
                    kernel(black_box(&mut lanes[at]), black_box(&packets[bytes]));
                }));
            }
            record(per_byte(slots, |slot| {
                let (at, bytes) = pairs(slot);
                load_be(black_box(&lanes[at]), black_box(&mut packets[bytes]));
            }));
        }
    }
    let copy = times[0].clone();
    let ratio = |times: &[f64]| median(copy.iter().zip(times).map(|(copy, time)| copy / time).collect());
    names.into_iter().zip(&times).map(|(name, times)| (name, 1.0 / median(times.clone()), ratio(times))).collect()
}

/// Store, add, load and merge of each accumulator: the median of their ratios to fixed point's add of the same round.
fn native_sums(table: &Kernels, rounds: usize) -> Vec<(&'static str, [f64; 4])> {
    const SLOTS: usize = 8;
    let natives = DType::ALL.into_iter().filter_map(|dtype| table.combine(dtype, ReduceOp::Sum));
    let combines: Vec<&Combine> = [&table.fixed, &table.codes_8].into_iter().chain(natives).collect();
    let mut times = vec![[const { Vec::new() }; 4]; combines.len()];
    for _ in 0..rounds {
        for (combine, times) in combines.iter().zip(&mut times) {
            let lane_bytes = BYTES / combine.wire_size * combine.lane_size;
            let stride = lane_bytes.next_multiple_of(64);
            let (mut lanes, other) = (Lanes::zeroed(SLOTS * stride), Lanes::zeroed(stride));
            let mut packets = vec![0u8; SLOTS * BYTES];
            let at = |slot: usize| (slot * stride..slot * stride + lane_bytes, slot * BYTES..(slot + 1) * BYTES);
            for (kernel, times) in [combine.store, combine.add].into_iter().zip(&mut times[..]) {
                times.push(per_byte(SLOTS, |slot| {
                    let (lane, bytes) = at(slot);
                    kernel(black_box(&mut lanes[lane]), black_box(&packets[bytes]));
                }));
            }
            times[2].push(per_byte(SLOTS, |slot| {
                let (lane, bytes) = at(slot);
                (combine.load)(black_box(&lanes[lane]), black_box(&mut packets[bytes]));
            }));
            times[3].push(per_byte(SLOTS, |slot| {
                (combine.merge)(black_box(&mut lanes[at(slot).0]), black_box(&other[..lane_bytes]));
            }));
        }
    }
    let add = times[0][1].clone();
    let ratio = |times: &Vec<f64>| median(add.iter().zip(times).map(|(add, time)| time / add).collect());
    combines.iter().zip(&times).map(|(combine, times)| (combine.name, [0, 1, 2, 3].map(|i| ratio(&times[i])))).collect()
}

/// Nanoseconds for each byte of vector, over enough passes that the clock's own cost vanishes.
fn per_byte(slots: usize, mut each: impl FnMut(usize)) -> f64 {
    let passes = 2048 / slots;
    let start = Instant::now();
    for _ in 0..passes {
        (0..slots).for_each(&mut each);
    }
    start.elapsed().as_nanos() as f64 / (passes * slots * BYTES) as f64
}

/// Input, packets and output together stay inside a second-level cache.
const HOST_BLOCKS: usize = 64;

fn host<T: Element>(table: &str, kernels: &ElementKernels<T>, rounds: usize, element: fn(usize) -> T) {
    let kernels: &FixedKernels<T> = kernels.fixed.as_ref().expect("a type that has fixed point");
    let input: Vec<T> = (0..HOST_BLOCKS * ELEMENTS).map(element).collect();
    let mut output = input.clone();
    let mut vectors = vec![0u8; HOST_BLOCKS * BYTES];
    let mut times = [const { Vec::new() }; 5];
    for _ in 0..rounds {
        times[0].push(per_tensor_byte(&input, |at, _| {
            black_box((kernels.max_abs)(black_box(&input[at])));
        }));
        times[1].push(per_tensor_byte(&input, |at, bytes| {
            (kernels.encode)(black_box(&input[at]), [1024.0, 1.0], black_box(&mut vectors[bytes]))
        }));
        times[2].push(per_tensor_byte(&input, |at, bytes| {
            black_box(BlockExponent::of_magnitude((kernels.max_abs)(black_box(&input[at.clone()]))));
            (kernels.encode)(black_box(&input[at]), [1024.0, 1.0], black_box(&mut vectors[bytes]))
        }));
        for (divisor, times) in [1.0, 3.0].into_iter().zip(&mut times[3..]) {
            let unscale = Unscale { unit: if T::DTYPE.is_float() { 1.0 / 1024.0 } else { 1.0 }, divisor };
            times.push(per_tensor_byte(&input, |at, bytes| {
                (kernels.decode)(black_box(&vectors[bytes]), unscale, black_box(&mut output[at]))
            }));
        }
    }
    let [exponent, encode, both, sum, avg] = times.map(|times| 1.0 / median(times));
    let name = format!("{} {table}", T::DTYPE);
    println!("{name:<16} {exponent:>10.1} {encode:>10.1} {both:>16.1} {sum:>12.1} {avg:>16.1}");
}

/// Codes, and sums of codes in 8 bits.
fn codes<T: Element>(table: &str, kernels: &ElementKernels<T>, rounds: usize, element: fn(usize) -> T) {
    let kernels: &FixedKernels<T> = kernels.fixed.as_ref().expect("a type that has fixed point");
    let input: Vec<T> = (0..HOST_BLOCKS * ELEMENTS).map(element).collect();
    let (mut output, mut vectors) = (input.clone(), vec![0u8; input.len()]);
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        times[0].push(per_tensor_byte(&input, |at, _| {
            (kernels.encode_codes)(black_box(&input[at.clone()]), 127.0, black_box(&mut vectors[at]))
        }));
        for (divisor, times) in [127.0, 381.0].into_iter().zip(&mut times[1..]) {
            let unscale = Unscale { unit: 3.0, divisor };
            times.push(per_tensor_byte(&input, |at, _| {
                (kernels.decode_codes_8)(black_box(&vectors[at.clone()]), unscale, black_box(&mut output[at]))
            }));
        }
    }
    let [encode, sum, avg] = times.map(|times| 1.0 / median(times));
    println!("{:<16} {encode:>10.1} {sum:>12.1} {avg:>16.1}", format!("{} {table}", T::DTYPE));
}

/// Blocks that each hold an infinity: the same plain code for every instruction set.
fn non_finite(rounds: usize) {
    let mut input: Vec<f32> = (0..HOST_BLOCKS * ELEMENTS).map(|i| (i as f32 * 0.37).sin()).collect();
    input.iter_mut().step_by(ELEMENTS).for_each(|x| *x = f32::INFINITY);
    let (mut output, mut vectors) = (input.clone(), vec![0u8; HOST_BLOCKS * BYTES]);
    let scale = Scale::new(codec::exponent(&input), 3);
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        times[0].push(per_tensor_byte(&input, |at, _| {
            black_box(codec::exponent(black_box(&input[at])));
        }));
        times[1].push(per_tensor_byte(&input, |at, bytes| {
            codec::encode(black_box(&input[at]), scale, black_box(&mut vectors[bytes]))
        }));
        times[2].push(per_tensor_byte(&input, |at, bytes| {
            codec::decode(black_box(&vectors[bytes]), scale, ReduceOp::Sum, black_box(&mut output[at]))
        }));
    }
    let [exponent, encode, sum] = times.map(|times| 1.0 / median(times));
    println!("{:<16} {exponent:>10.1} {encode:>10.1} {:>16} {sum:>12.1}", "f32 non-finite", "");
}

fn per_tensor_byte<T: Element>(
    input: &[T],
    mut each: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
) -> f64 {
    const PASSES: usize = 16;
    let start = Instant::now();
    for block in (0..PASSES).flat_map(|_| 0..HOST_BLOCKS) {
        each(block * ELEMENTS..(block + 1) * ELEMENTS, block * BYTES..(block + 1) * BYTES);
    }
    start.elapsed().as_nanos() as f64 / (PASSES * size_of_val(input)) as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
