//! SwitchML Figures 2 and 12: training with gradients that are summed in fixed point, compared with floats.
//!
//! A small network learns to guess the next character of a text, on several workers that average their gradients in
//! every step. It uses only additions and multiplications of binary32, so that a seed gives the same bits on every
//! machine.

mod network;

use serde::Deserialize;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::TimerConfig;
use tributary_sim::rng::{Purpose, Rng};

use self::network::{Example, Network, Shape};
use super::bench::Bench;
use crate::finding::{Figure, Finding, Series, mean};
use crate::{Context, Experiment, Findings, ReproduceError};

/// The text: our licence, which does not change.
const TEXT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE"));
/// The last of this many examples in a row is for the test.
const TEST_EVERY: usize = 7;

/// The training.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Ranks.
    pub workers: u16,
    /// How many examples each rank has in a step.
    pub batch: usize,
    /// How many steps there are.
    pub steps: usize,
    /// The number of steps between two tests of the accuracy.
    pub test_every: usize,
    /// How many characters the network sees.
    pub context: usize,
    /// How many units its hidden layer has.
    pub hidden: usize,
    /// The step size.
    pub rate: f32,
    /// Momentum.
    pub momentum: f32,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// Pool size.
    pub slots: u16,
}

/// One training.
struct Trained {
    /// The step, the accuracy in percent, and the mean loss, of each test.
    curve: Vec<(usize, f64, f64)>,
}

impl Trained {
    fn accuracy(&self) -> f64 {
        self.curve.last().map_or(0.0, |&(_, accuracy, _)| accuracy)
    }

    fn loss(&self) -> f64 {
        self.curve.last().map_or(0.0, |&(_, _, loss)| loss)
    }
}

impl Experiment for Training {
    /// Findings `accuracy` (fixed point's at the end less that of floats, in points) and `loss` (fixed point's divided
    /// by that of floats), seed by seed; `fixed` and `float` are the accuracies in percent.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let (examples, symbols) = examples(self.context);
        let is_test = |index: usize| index % TEST_EVERY == TEST_EVERY - 1;
        let subset = |test: bool| {
            let of = examples.iter().enumerate().filter(|(index, _)| is_test(*index) == test);
            of.map(|(_, example)| example.clone()).collect::<Vec<Example>>()
        };
        let (learn, test) = (subset(false), subset(true));
        let kinds = ["fixed", "float"];
        let points: Vec<(&str, u64)> =
            kinds.iter().flat_map(|&numbers| (1..=context.seeds).map(move |seed| (numbers, seed))).collect();
        let shape = Shape { context: self.context, symbols, hidden: self.hidden };
        let train = |&(numbers, seed): &(&str, u64)| {
            context.watch.check()?;
            self.train(numbers, seed, shape, &learn, &test)
        };
        let runs = context.watch.all(&points, train)?;
        let (fixed, float) = runs.split_at(context.seeds as usize);
        let mut findings = self.findings(fixed, float);
        findings.note(format!(
            "{} examples to learn from and {} to test with: {} characters of a text of {} different ones, and the next \
             one. {} parameters, {} workers, {} steps. One test example is {:.3} points.",
            learn.len(),
            test.len(),
            self.context,
            symbols,
            Network::new(shape, &mut Rng::new(1, Purpose::Numbers, 0)).parameters.len(),
            self.workers,
            self.steps,
            100.0 / test.len() as f64
        ));
        Ok(findings)
    }
}

impl Training {
    fn findings(&self, fixed: &[Trained], float: &[Trained]) -> Findings {
        let mut findings = Findings::default();
        let pairs = |of: &dyn Fn(&Trained, &Trained) -> f64| {
            Finding::over("seeds", &fixed.iter().zip(float).map(|(a, b)| of(a, b)).collect::<Vec<_>>())
        };
        let accuracies = |runs: &[Trained]| runs.iter().map(Trained::accuracy).collect::<Vec<_>>();
        let text = format!(
            "fixed point {:.2} % on average, floats {:.2} %",
            mean(&accuracies(fixed)),
            mean(&accuracies(float))
        );
        findings.value("accuracy", pairs(&|fixed, float| fixed.accuracy() - float.accuracy()));
        findings.value("loss", pairs(&|fixed, float| fixed.loss() / float.loss()));
        findings.cause("accuracy", &*text);
        findings.cause("loss", &*text);
        findings.note(format!("Accuracy at the end: {text}."));
        for (name, runs) in [("fixed", fixed), ("float", float)] {
            findings.value(name, Finding::over("seeds", &accuracies(runs)));
        }
        let line = |name: &str, runs: &[Trained]| {
            let mut drawn = Series::new(name, Vec::new());
            for (index, &(step, ..)) in runs[0].curve.iter().enumerate() {
                let seeds = Finding::over("seeds", &runs.iter().map(|run| run.curve[index].1).collect::<Vec<_>>());
                drawn.points.push([step as f64, seeds.median]);
                drawn.ranges.push([seeds.low, seeds.high]);
            }
            drawn
        };
        findings.figures.push(Figure {
            title: "Accuracy over steps".into(),
            x: "steps".into(),
            y: "accuracy (%)".into(),
            log_x: false,
            series: vec![line("fixed point", fixed), line("float32", float)],
            marks: Vec::new(),
        });
        findings
    }

    fn train(
        &self,
        numbers: &str,
        seed: u64,
        shape: Shape,
        learn: &[Example],
        test: &[Example],
    ) -> Result<Trained, ReproduceError> {
        let mut rng = Rng::new(seed, Purpose::Numbers, 0);
        let mut bench =
            Bench::new(self.workers, self.slots, self.elements_per_packet, numbers, TimerConfig::default())?;
        let mut network = Network::new(shape, &mut rng);
        let mut speed = vec![0f32; network.parameters.len()];
        let mut curve = Vec::new();
        for step in 1..=self.steps {
            let mut gradients = Vec::new();
            for _ in 0..self.workers {
                let drawn = (0..self.batch).map(|_| &learn[rng.below(learn.len() as u32) as usize]);
                gradients.push(network.gradient(&drawn.collect::<Vec<_>>()));
            }
            let gradient = bench.allreduce(gradients, ReduceOp::Avg)?;
            for ((parameter, speed), gradient) in network.parameters.iter_mut().zip(&mut speed).zip(gradient) {
                *speed = self.momentum * *speed + gradient;
                *parameter -= self.rate * *speed;
            }
            if step % self.test_every == 0 || step == self.steps {
                let (right, loss) = network.test(test);
                curve.push((step, 100.0 * right as f64 / test.len() as f64, loss));
            }
        }
        Ok(Trained { curve })
    }
}

/// All runs of characters of the text, each with the character that follows, and how many different characters there
/// are.
fn examples(context: usize) -> (Vec<Example>, usize) {
    let words: Vec<&str> = TEXT.split_whitespace().collect();
    let text = words.join(" ").to_lowercase();
    let mut alphabet: Vec<char> = text.chars().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let symbols: Vec<u8> = text.chars().map(|c| alphabet.binary_search(&c).expect("it is in the text") as u8).collect();
    let windows = symbols.windows(context + 1);
    let example = |window: &[u8]| Example { seen: window[..context].to_vec(), next: window[context] };
    (windows.map(example).collect(), alphabet.len())
}
