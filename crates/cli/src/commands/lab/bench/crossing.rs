//! The density at which two lines of a bench cross.

use std::fmt;

use serde::Serialize;

use super::contender::Contender;
use super::line::Line;

/// The density at which a contender's sparse sums are as fast as another line's.
#[derive(Debug, PartialEq, Serialize)]
pub struct Crossing {
    /// The contender with the sparse sums.
    pub contender: &'static str,
    /// The other line: of dense sums, or of sparse ones of the same densities.
    pub against: String,
    /// The density at which both take equally long, interpolated between two measured densities; `None` if they do not
    /// cross there.
    pub density: Option<f64>,
    /// Sparse sums are ahead at the lowest density that was measured.
    pub starts_ahead: bool,
}

impl Crossing {
    /// Each contender's sparse line against its own dense line, Gloo's lines of both kinds, and the sparse lines of the
    /// contenders after it.
    pub fn all(lines: &[Line]) -> Vec<Crossing> {
        let dense = |who: &Contender| who.density().is_none();
        let mut own: Vec<Contender> = lines.iter().map(|line| line.who).filter(|who| !who.is_gloo()).collect();
        own.retain(|who| dense(who) && lines.iter().any(|line| !dense(&line.who) && line.who.dense() == *who));
        let mut crossings = Vec::new();
        for (index, &who) in own.iter().enumerate() {
            let points = |of: Contender| -> Vec<(f64, f64)> {
                let lines = lines.iter().filter(|line| line.who.dense() == of);
                let points = lines.filter_map(|line| Some((line.who.density()?.share(), line.seconds)));
                points.collect()
            };
            let constant = |of: Contender| lines.iter().find(|line| line.who == of).map(|line| line.seconds);
            let sparse = points(who);
            let mut against = |name: String, other: Vec<(f64, f64)>| {
                crossings.extend(Crossing::between(who.protocol(), name, &sparse, &other));
            };
            for of in [who, Contender::Gloo(None)] {
                let level = constant(of).map(|seconds| sparse.iter().map(|&(at, _)| (at, seconds)).collect());
                against(format!("dense {}", of.name()), level.unwrap_or_default());
            }
            for &other in own[index + 1..].iter().chain([&Contender::Gloo(None)]) {
                against(format!("sparse {}", other.name()), points(other));
            }
        }
        crossings
    }

    /// The crossing of two lines of density and seconds; `None` if they have no density in common.
    fn between(
        contender: &'static str,
        against: String,
        sparse: &[(f64, f64)],
        other: &[(f64, f64)],
    ) -> Option<Crossing> {
        let of_other = |at: f64| other.iter().find(|(density, _)| *density == at).map(|(_, seconds)| *seconds);
        let mut leads: Vec<(f64, f64)> = sparse
            .iter()
            .filter_map(|&(density, seconds)| Some((density.ln(), (of_other(density)? / seconds).ln())))
            .collect();
        leads.sort_by(|a, b| a.0.total_cmp(&b.0));
        let starts_ahead = leads.first()?.1 > 0.0;
        let crosses = |pair: &&[(f64, f64)]| (pair[0].1 > 0.0) != (pair[1].1 > 0.0);
        let density = leads.windows(2).find(crosses).map(|pair| {
            let [(at, lead), (next_at, next_lead)] = [pair[0], pair[1]];
            (at + (next_at - at) * lead / (lead - next_lead)).exp()
        });
        Some(Crossing { contender, against, density, starts_ahead })
    }
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crossing { contender, against, density, starts_ahead } = self;
        let (speed, side) = if *starts_ahead { ("faster", "below") } else { ("slower", "above") };
        match density {
            Some(at) => {
                write!(f, "sparse {contender} is as fast as {against} at a density of {at:.3}, and faster {side}")
            }
            None => write!(f, "sparse {contender} is {speed} than {against} at each density"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crossing(sparse: &[(f64, f64)], other: &[(f64, f64)]) -> String {
        let crossing = Crossing::between("pigeon", "dense pigeon".to_owned(), sparse, other);
        crossing.map_or("nothing".to_owned(), |crossing| crossing.to_string())
    }

    #[test]
    fn lines_cross_where_both_take_as_long() {
        let level = [(0.01, 1.0), (0.1, 1.0), (0.4, 1.0)];
        // Ten times the elements take ten times as long, so that half the elements take half as long.
        let rising = [(0.4, 8.0), (0.01, 0.2), (0.1, 2.0)];
        let sentence = "sparse pigeon is as fast as dense pigeon at a density of 0.050, and faster below";
        assert_eq!(crossing(&rising, &level), sentence);
        let falling = [(0.01, 2.0), (0.1, 0.2)];
        let sentence = "sparse pigeon is as fast as dense pigeon at a density of 0.020, and faster above";
        assert_eq!(crossing(&falling, &level), sentence);
    }

    #[test]
    fn lines_that_do_not_cross_say_which_is_faster() {
        let level = [(0.01, 1.0), (0.1, 1.0)];
        assert_eq!(
            crossing(&[(0.01, 0.1), (0.1, 0.9)], &level),
            "sparse pigeon is faster than dense pigeon at each density"
        );
        assert_eq!(crossing(&[(0.1, 2.0)], &level), "sparse pigeon is slower than dense pigeon at each density");
        assert_eq!(crossing(&[(0.2, 2.0)], &level), "nothing");
    }
}
