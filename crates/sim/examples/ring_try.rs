use tributary_proto::time::Time;
fn main() {
    let text = "[network]\nrate = \"100 Gbit/s\"\nstar = { hosts = 2 }\n[[job]]\nprotocol = \"ring\"\ntensor = \"1 MB\"\ntype = \"i32\"\n";
    let config = tributary_sim::config::Config::parse(text).unwrap();
    let mut sim = tributary_sim::experiment::build(&config).unwrap();
    for _ in 0..40 { for _ in 0..20000 { if sim.open() == 0 || !sim.step(Time(u64::MAX)) { break; } } println!("{} events {} open {} {:?}", sim.fabric.now.as_secs_f64(), sim.events(), sim.open(), sim.traffic.seats[0].machine.poll_timeout()); if sim.open()==0 {break;} }
    println!("{:?}", sim.traffic.seats[0].machine.stats());
}
