//! Runs the plan: for each star, all contenders in turn, with each loss.

use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tributary_numeric::DType;
use tributary_testbed::{Faults, Star, StarOptions};

use super::contender::{Beside, Contender, Ours};
use super::gloo::{Backend, Gloo};
use super::line::Sample;
use super::machine::Machine;
use super::plan::{Plan, StarPlan};
use super::report::{Report, Row};
use crate::cluster::cpu::{self, Softirq};
use crate::cluster::job::Data;
use crate::cluster::{Cluster, Hosts, Interrupt, JobRun, Process, Random};
use crate::failure::Failure;
use crate::npy::{self, Array, Header};
use crate::program::Program;

/// For one collective, also with heavy loss.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Measures everything. Without a Python that has PyTorch, Gloo is left out, and the report says why.
pub fn run(plan: &Plan, program: &Program, python: Option<&Path>, interrupt: &Interrupt) -> Result<Report, Failure> {
    let inputs = Inputs::make(plan)?;
    let progress = progress(plan, python.is_some());
    let mut report = Report::new(Machine::here(), plan);
    for star in &plan.stars {
        let mut bench = StarBench::open(plan, star, &inputs, program, python, interrupt)?;
        if let Some(reason) = &bench.no_gloo {
            report.leave_gloo_out(reason);
        }
        report.torch = report.torch.take().or(bench.gloo.as_ref().map(|gloo| gloo.version.clone()));
        report.add(bench.rows(&progress)?);
        for server in bench.servers {
            server.terminate(TIMEOUT)?;
        }
        bench.cluster.close()?;
    }
    progress.finish_and_clear();
    Ok(report)
}

/// Arrays of normal numbers, one of each size for each rank; dropping it deletes them.
struct Inputs {
    folder: tempfile::TempDir,
}

impl Inputs {
    fn make(plan: &Plan) -> Result<Inputs, Failure> {
        let folder = tempfile::Builder::new().prefix("tributary-bench-").tempdir()?;
        for rank in 0..plan.most_hosts() {
            let mut random = Random::new(rank as u64);
            for (name, elements) in [("large", plan.elements), ("small", plan.small_elements)] {
                let header = Header::vector(DType::F32, elements);
                let array = Array { header, data: npy::Data::F32(random.normals(elements)) };
                std::fs::write(folder.path().join(format!("{name}-{rank}.npy")), array.to_bytes())?;
            }
        }
        Ok(Inputs { folder })
    }

    fn of(&self, name: &str, hosts: u16) -> Vec<PathBuf> {
        (0..hosts).map(|rank| self.folder.path().join(format!("{name}-{rank}.npy"))).collect()
    }
}

/// The port of a spare host's switch.
const SPARE_PORT: u16 = 17777;

/// One star with its switch and, if they are measured, PyTorch's ranks.
struct StarBench<'a> {
    plan: &'a Plan,
    star: &'a StarPlan,
    inputs: &'a Inputs,
    cluster: Cluster,
    gloo: Option<Gloo>,
    /// PyTorch's ranks with our backend.
    words: Vec<(Contender, Gloo)>,
    /// Why Gloo is left out, if it was wanted.
    no_gloo: Option<String>,
    /// The parameter servers on the hosts after the workers', and the switches on the hosts after those.
    servers: Vec<Process>,
}

impl<'a> StarBench<'a> {
    fn open(
        plan: &'a Plan,
        star: &'a StarPlan,
        inputs: &'a Inputs,
        program: &Program,
        python: Option<&Path>,
        interrupt: &Interrupt,
    ) -> Result<StarBench<'a>, Failure> {
        let served = usize::from(star.hosts + plan.servers);
        let count = served + usize::from(plan.spare);
        let options = StarOptions { mtu: plan.mtu, ..StarOptions::new(count, star.rate.shaping()) };
        let mut hosts = Star::build(options)?;
        for (host, rate) in (served..count).filter_map(|host| Some((host, plan.spare_rate?))) {
            hosts.shape(host, rate.shaping())?;
        }
        let spare = switches(&hosts, program, served..count, interrupt)?;
        let workers = usize::from(star.hosts);
        let serving = workers..served;
        let may_serve: Vec<String> = serving.clone().map(|host| hosts.host_addr(host).to_string()).collect();
        let mut flags = vec!["--cores".to_owned(), plan.shards.to_string()];
        if !may_serve.is_empty() {
            flags.extend(["--servers".to_owned(), may_serve.join(",")]);
        }
        let mut cluster = Cluster::open_with(program, Hosts::Star(hosts), &flags, interrupt)?;
        let switch = cluster.switch_addr().to_owned();
        let hosts = cluster.hosts_mut().star_mut().ok_or_else(|| Failure::new("a bench has a star"))?;
        let ranks_per_host = plan.ranks_per_host;
        let backend = Backend { name: "gloo", number: 0, switches: Vec::new(), ranks_per_host };
        let joined = python.map(|python| Gloo::join(hosts, workers, &backend, python, interrupt));
        interrupt.check()?;
        let (gloo, no_gloo) = match joined {
            Some(Ok(gloo)) => (Some(gloo), None),
            Some(Err(Failure::Failed(sentence))) => (None, Some(sentence)),
            Some(Err(other)) => return Err(other),
            None => (None, None),
        };
        let words = match (python, &gloo) {
            (Some(python), Some(_)) => one_word(plan, hosts, workers, (&spare, &switch), python, interrupt)?,
            _ => Vec::new(),
        };
        let mut servers = serving.map(|host| cluster.serve(host)).collect::<Result<Vec<_>, _>>()?;
        servers.extend(spare.into_iter().map(|(process, _)| process));
        Ok(StarBench { plan, star, inputs, cluster, gloo, words, no_gloo, servers })
    }

    /// A row for each loss. Each repetition goes through all losses, so that a slow minute of the machine hits all
    /// alike.
    fn rows(&mut self, progress: &ProgressBar) -> Result<Vec<Row>, Failure> {
        let mut rows: Vec<Row> =
            self.star.losses.iter().map(|&loss| Row::new(self.star.hosts, self.star.rate, loss)).collect();
        for _ in 0..self.plan.repetitions {
            for row in &mut rows {
                if let Some(star) = self.cluster.hosts_mut().star_mut() {
                    star.set_faults(Faults::loss(row.loss_percent))?;
                }
                self.turn(row, progress)?;
            }
        }
        Ok(rows)
    }

    /// One run of each contender, large tensor and small.
    fn turn(&mut self, row: &mut Row, progress: &ProgressBar) -> Result<(), Failure> {
        for &contender in &self.plan.contenders {
            if contender.is_of_torch() && self.gloo.is_none() {
                continue;
            }
            progress.set_message(format!(
                "{}, {} hosts, {}, {} % loss",
                contender.name(),
                row.hosts,
                row.rate,
                row.loss_percent
            ));
            let sample = match contender {
                Contender::Ours(ours) => self.ours(ours)?,
                Contender::OneWord(_) | Contender::Gloo(_) => self.torch(contender)?,
            };
            row.samples.push((contender, sample));
            progress.inc(1);
        }
        Ok(())
    }

    fn ours(&mut self, ours: Ours) -> Result<Sample, Failure> {
        let mut job = JobRun {
            protocol: ours.protocol,
            first_host: 0,
            flags: ours.flags(),
            data: self.data(ours, "large", self.plan.elements),
            outputs: Vec::new(),
            iters: self.plan.iters,
            timeout: TIMEOUT,
        };
        let (softirq, others_cpu) = (Softirq::read(), others_cpu_seconds(&self.cluster, &self.servers));
        let workers = self.cluster.allreduce(&job)?;
        let others_cpu = others_cpu_seconds(&self.cluster, &self.servers) - others_cpu;
        let softirq_seconds = softirq.elapsed();
        job.data = self.data(ours, "small", self.plan.small_elements);
        job.iters = self.plan.small_iters;
        let small = self.cluster.allreduce(&job)?;
        Ok(Sample {
            seconds: slowest(workers.iter().map(|worker| worker.seconds)),
            small_seconds: slowest(small.iter().map(|worker| worker.seconds)),
            cpu_seconds: workers.iter().map(|worker| worker.cpu_seconds).sum::<f64>() + others_cpu,
            softirq_seconds,
            retransmissions: workers.iter().map(|worker| worker.retransmissions).sum(),
            packets_sent: Some(workers.iter().map(|worker| worker.packets_sent).sum()),
        })
    }

    /// Files for dense tensors; workers draw sparse tensors themselves.
    fn data(&self, ours: Ours, name: &str, elements: usize) -> Data {
        match ours.density {
            None => Data::Files(self.inputs.of(name, self.star.hosts)),
            Some(_) => Data::MadeUp { world_size: self.star.hosts, elements },
        }
    }

    fn torch(&mut self, contender: Contender) -> Result<Sample, Failure> {
        let density = contender.density();
        let own = self.words.iter_mut().find(|(who, _)| *who == contender).map(|(_, ranks)| ranks);
        let gloo = own.or(self.gloo.as_mut()).ok_or_else(|| Failure::new("Gloo did not join"))?;
        let (softirq, others_cpu) = (Softirq::read(), others_cpu_seconds(&self.cluster, &self.servers));
        let ranks = gloo.run(self.plan.elements, self.plan.iters, density)?;
        let others_cpu = others_cpu_seconds(&self.cluster, &self.servers) - others_cpu;
        let softirq_seconds = softirq.elapsed();
        let small = gloo.run(self.plan.small_elements, self.plan.small_iters, density)?;
        Ok(Sample {
            seconds: slowest(ranks.iter().map(|rank| rank.seconds)),
            small_seconds: slowest(small.iter().map(|rank| rank.seconds)),
            cpu_seconds: ranks.iter().map(|rank| rank.cpu_seconds).sum::<f64>() + others_cpu,
            softirq_seconds,
            retransmissions: ranks.iter().map(|rank| rank.retransmissions).sum(),
            packets_sent: None,
        })
    }
}

/// CPU seconds of the switch in the middle, and of the parameter servers and switches on other hosts.
fn others_cpu_seconds(cluster: &Cluster, servers: &[Process]) -> f64 {
    cluster.switch_cpu_seconds() + servers.iter().map(|server| cpu::seconds_of(server.pid())).sum::<f64>()
}

/// Starts a switch on each of these hosts; the processes, and "HOST:PORT" of each.
fn switches(
    hosts: &Star,
    program: &Program,
    spare: std::ops::Range<usize>,
    interrupt: &Interrupt,
) -> Result<Vec<(Process, String)>, Failure> {
    let start = |host: usize| {
        let listen = format!("{}:{SPARE_PORT}", hosts.host_addr(host));
        let mut words = program.words().iter();
        let mut command =
            hosts.host(host).command(words.next().ok_or_else(|| Failure::new("a program has a name"))?)?;
        command.args(words).args(["switch", "--listen", &listen, "--json"]);
        let mut switch = Process::spawn(format!("the switch on host {host}"), command, interrupt)?;
        switch.next_line(TIMEOUT)?;
        Ok((switch, listen))
    };
    spare.map(start).collect()
}

/// PyTorch's ranks for each contender that needs some with our backend.
fn one_word(
    plan: &Plan,
    hosts: &Star,
    workers: usize,
    (spare, switch): (&[(Process, String)], &str),
    python: &Path,
    interrupt: &Interrupt,
) -> Result<Vec<(Contender, Gloo)>, Failure> {
    let words = plan
        .contenders
        .iter()
        .filter_map(|&who| if let Contender::OneWord(beside) = who { Some((who, beside)) } else { None });
    let join = |(index, (who, beside)): (usize, (Contender, Beside))| {
        let switches = match beside {
            Beside::Nothing => Vec::new(),
            Beside::Spare(count) => spare.iter().take(count.into()).map(|(_, address)| address.clone()).collect(),
            Beside::Switch => vec![switch.to_owned()],
        };
        let ranks_per_host = plan.ranks_per_host;
        let backend = Backend { name: "tributary", number: 1 + index as u16, switches, ranks_per_host };
        Ok((who, Gloo::join(hosts, workers, &backend, python, interrupt)?))
    };
    words.enumerate().map(join).collect()
}

fn slowest(seconds: impl Iterator<Item = f64>) -> f64 {
    seconds.fold(0.0, f64::max)
}

fn progress(plan: &Plan, with_gloo: bool) -> ProgressBar {
    let rows: usize = plan.stars.iter().map(|star| star.losses.len()).sum();
    let contenders = plan.contenders.iter().filter(|who| with_gloo || !who.is_of_torch()).count();
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left: {msg}").expect("a right template");
    ProgressBar::new((rows * contenders) as u64 * u64::from(plan.repetitions)).with_style(style)
}
