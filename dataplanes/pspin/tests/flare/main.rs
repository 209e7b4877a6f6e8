//! Charging handlers by the table of cycles agrees with running them: for Flare's own packets, dense and sparse, in cycles
//! and in the time of the collective.

mod handlers;
mod star;

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::tensor::Spec;
use tributary_sim::cores::prices::Code;

use star::{ELEMENTS_PER_PACKET, Job, run};

/// How far running every handler may be from the table, in cycles and in the job's time.
const TOLERANCE: f64 = 0.02;

/// Runs a job with handlers that are charged and with handlers that run.
fn compare(name: &str, job: &Job) {
    let (charged, ran) = (run(job, false), run(job, true));
    let (not_run, why) = &ran.not_run;
    assert_eq!(*not_run, 0, "{name}: {why:?}");
    let (cycles, time) = (ran.cycles / charged.cycles, ran.time / charged.time);
    println!("{name}: {:.0} cycles by the table, {cycles:.4} of them run, {time:.4} of the time", charged.cycles);
    // A tree's levels depend on nothing, so running them takes exactly the table's cycles.
    assert!(cycles != 1.0 || name.starts_with("tree"), "{name}: no handler ran");
    assert!((cycles - 1.0).abs() < TOLERANCE, "{name}: {cycles} of the cycles");
    assert!((time - 1.0).abs() < TOLERANCE, "{name}: {time} of the time");
}

#[test]
fn dense_handlers_that_run_take_what_the_table_says() {
    for dtype in [DType::I32, DType::F16, DType::I8] {
        for (design, code) in
            [("single", Code::Xpulp), ("multi:4", Code::Xpulp), ("tree", Code::Xpulp), ("single", Code::C)]
        {
            let elements = (128 * 1024 / dtype.size()) as u32;
            let job = Job {
                spec: Spec::allreduce(elements, dtype, ReduceOp::Sum),
                density_ppm: None,
                slots: 64,
                options: vec![("design", design.to_owned())],
                cells: 0,
                code,
            };
            compare(&format!("{design} of {dtype}, {code:?}"), &job);
        }
    }
}

#[test]
fn sparse_handlers_that_run_take_what_the_table_says() {
    for (storage, dtype, density) in [
        ("hash", DType::I32, 0.05),
        ("hash", DType::I32, 0.2),
        ("hash", DType::F32, 0.01),
        ("hash", DType::F16, 0.05),
        ("array", DType::I32, 0.05),
        ("array", DType::F32, 0.2),
        ("array", DType::F16, 0.05),
    ] {
        // A block spans as many indices as fill nine tenths of a packet, as the protocol would choose.
        let pairs = 4 * u64::from(ELEMENTS_PER_PACKET) / (2 + dtype.size() as u64);
        let density_ppm = (density * 1e6) as u32;
        let span = (pairs - pairs / 10) * 1_000_000 / u64::from(density_ppm);
        let options = vec![
            ("sparse", storage.to_owned()),
            ("density_ppm", density_ppm.to_string()),
            ("span", span.to_string()),
            ("hash_slots", "256".to_owned()),
        ];
        let elements = (512 * 1024 / dtype.size()) as u32;
        let job = Job {
            spec: Spec::allreduce(elements, dtype, ReduceOp::Sum),
            density_ppm: Some(density_ppm),
            slots: 16,
            options,
            cells: if storage == "hash" { 256 } else { span as u32 },
            code: Code::Xpulp,
        };
        compare(&format!("{storage} of {dtype}, {density} there"), &job);
    }
}
