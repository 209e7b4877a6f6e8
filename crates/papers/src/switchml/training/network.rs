//! A network with one hidden layer that guesses the next of some symbols, and its gradient.

use tributary_sim::rng::Rng;

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
    use super::*;
    use tributary_sim::rng::Purpose;

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
