use std::sync::atomic::AtomicBool;
fn main() {
    let stop = AtomicBool::new(false);
    let watch = tributary_sim::reproduce::Watch { expect: &|_| {}, done: &|| {}, stop: &stop };
    for id in std::env::args().skip(2) {
        let quick = std::env::args().nth(1).unwrap() == "quick";
        let start = std::time::Instant::now();
        match tributary_sim::reproduce::find(&id).unwrap().run(quick, 5, &watch) {
            Ok(outcome) => {
                println!("== {id} {:.1?}", start.elapsed());
                for row in &outcome.rows {
                    println!("{:60} {:>28} {:>28} {:.3} {:?} {}", row.published.what, row.published_text(), row.ours_text(), row.ratio.unwrap_or(0.0), row.verdict, row.cause.as_deref().unwrap_or(""));
                }
                for note in &outcome.notes { println!("note: {note}"); }
                for f in &outcome.figures { println!("fig {}", f.title); for s in &f.series { println!("   {} {:?}", s.name, s.points); } }
            }
            Err(error) => println!("{id}: {error}"),
        }
    }
}
