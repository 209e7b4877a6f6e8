//! SwitchML Figures 2 and 12: training with gradients that are summed in fixed point, compared with floats.
//!
//! A small network learns to guess the next character of a text, on several workers that average their gradients in
//! every step. It uses only additions and multiplications of binary32, so that a seed gives the same bits on every
//! machine.

use serde::Deserialize;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::TimerConfig;
use tributary_sim::rng::{Purpose, Rng};

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

// A network with one hidden layer that guesses the next of some symbols, and its gradient.

/// Symbols, and the symbol that follows them.
#[derive(Clone, Debug)]
pub struct Example {
    /// The symbols.
    pub seen: Vec<u8>,
    /// The following symbol, which must be guessed.
    pub next: u8,
}

/// Sizes of a network.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many symbols it sees.
    pub context: usize,
    /// How many different symbols there are.
    pub symbols: usize,
    /// Hidden units.
    pub hidden: usize,
}

impl Shape {
    /// The index of the hidden units' biases; before them, there is a weight for each unit, for each index and symbol.
    fn hidden_biases(self) -> usize {
        self.context * self.symbols * self.hidden
    }

    /// The index of the output's weights: a weight for each unit, for each symbol.
    fn outputs(self) -> usize {
        self.hidden_biases() + self.hidden
    }

    /// The index of the output's biases.
    fn output_biases(self) -> usize {
        self.outputs() + self.symbols * self.hidden
    }
}

/// The network: rectified linear units, and a score for each symbol.
pub struct Network {
    shape: Shape,
    /// All parameters in one vector, like gradients.
    pub parameters: Vec<f32>,
}

impl Network {
    /// Small random weights.
    pub fn new(shape: Shape, rng: &mut Rng) -> Network {
        let len = shape.output_biases() + shape.symbols;
        let parameters = (0..len).map(|_| 0.2 * (2.0 * rng.unit() as f32 - 1.0)).collect();
        Network { shape, parameters }
    }

    /// The index of the weights of a seen symbol.
    fn row(&self, index: usize, symbol: u8) -> usize {
        (index * self.shape.symbols + usize::from(symbol)) * self.shape.hidden
    }

    /// The hidden units.
    fn hidden(&self, example: &Example) -> Vec<f32> {
        let Shape { hidden, .. } = self.shape;
        let mut units = self.parameters[self.shape.hidden_biases()..][..hidden].to_vec();
        for (index, &symbol) in example.seen.iter().enumerate() {
            let weights = &self.parameters[self.row(index, symbol)..][..hidden];
            units.iter_mut().zip(weights).for_each(|(unit, weight)| *unit += weight);
        }
        units.iter_mut().for_each(|unit| *unit = unit.max(0.0));
        units
    }

    /// A score for each symbol.
    fn scores(&self, units: &[f32]) -> Vec<f32> {
        let Shape { symbols, hidden, .. } = self.shape;
        let biases = &self.parameters[self.shape.output_biases()..];
        let weights = self.parameters[self.shape.outputs()..].chunks_exact(hidden).take(symbols);
        let score = |(row, bias): (&[f32], &f32)| bias + row.iter().zip(units).map(|(w, u)| w * u).sum::<f32>();
        weights.zip(biases).map(score).collect()
    }

    /// The mean gradient of the squared hinge loss: `max(0, 1 - s)^2` for the right symbol's score, and `max(0, 1 +
    /// s)^2` for each other score.
    pub fn gradient(&self, examples: &[&Example]) -> Vec<f32> {
        let Shape { hidden, .. } = self.shape;
        let mut gradient = vec![0f32; self.parameters.len()];
        let share = 1.0 / examples.len() as f32;
        for example in examples {
            let units = self.hidden(example);
            let mut back = vec![0f32; hidden];
            for (symbol, score) in self.scores(&units).into_iter().enumerate() {
                let slope = 2.0 * share * lack(symbol, example, score) * sign(symbol, example);
                if slope == 0.0 {
                    continue;
                }
                gradient[self.shape.output_biases() + symbol] -= slope;
                let at = self.shape.outputs() + symbol * hidden;
                for unit in 0..hidden {
                    gradient[at + unit] -= slope * units[unit];
                    back[unit] -= slope * self.parameters[at + unit];
                }
            }
            back.iter_mut().zip(&units).filter(|(_, unit)| **unit == 0.0).for_each(|(back, _)| *back = 0.0);
            let rows = example.seen.iter().enumerate().map(|(index, &symbol)| self.row(index, symbol));
            for at in rows.chain([self.shape.hidden_biases()]) {
                gradient[at..at + hidden].iter_mut().zip(&back).for_each(|(gradient, back)| *gradient += back);
            }
        }
        gradient
    }

    /// How many examples it guesses right, and the mean loss.
    pub fn test(&self, examples: &[Example]) -> (usize, f64) {
        let (mut right, mut loss) = (0, 0.0);
        for example in examples {
            let scores = self.scores(&self.hidden(example));
            let best =
                (0..scores.len()).fold(0, |best, symbol| if scores[symbol] > scores[best] { symbol } else { best });
            right += usize::from(best == usize::from(example.next));
            let lacks = scores.iter().enumerate().map(|(symbol, &score)| f64::from(lack(symbol, example, score)));
            loss += lacks.map(|lack| lack * lack).sum::<f64>();
        }
        (right, loss / examples.len() as f64)
    }
}

fn sign(symbol: usize, example: &Example) -> f32 {
    if symbol == usize::from(example.next) { 1.0 } else { -1.0 }
}

/// How far a score is on the wrong side.
fn lack(symbol: usize, example: &Example, score: f32) -> f32 {
    (1.0 - sign(symbol, example) * score).max(0.0)
}

#[cfg(test)]
mod tests {
    use tributary_sim::rng::Purpose;

    use super::*;

    #[test]
    fn the_gradient_is_the_loss_slope() {
        let shape = Shape { context: 2, symbols: 3, hidden: 4 };
        let mut network = Network::new(shape, &mut Rng::new(1, Purpose::Numbers, 0));
        let examples = [Example { seen: vec![0, 2], next: 1 }, Example { seen: vec![1, 1], next: 0 }];
        let gradient = network.gradient(&examples.iter().collect::<Vec<_>>());
        let step = 1e-3f32;
        for (index, &gradient) in gradient.iter().enumerate() {
            let mut loss = |by: f32| {
                network.parameters[index] += by;
                let loss = network.test(&examples).1;
                network.parameters[index] -= by;
                loss
            };
            let slope = (loss(step) - loss(-step)) / f64::from(2.0 * step);
            assert!((slope - f64::from(gradient)).abs() < 1e-2, "{index}: {slope} and {}", gradient);
        }
    }
}
