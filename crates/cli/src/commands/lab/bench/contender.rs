//! The contenders of a bench: a protocol with a type and a way to sum it, PyTorch with one word changed, or Gloo; and the
//! share of a tensor's elements that its ranks bring.

use std::fmt;

use tributary_numeric::DType;
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::protocol::Protocol;

use crate::commands::collective::{design, parse_density};

/// A share of the elements, in millionths: above 0, at most all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Density(u32);

impl Density {
    /// Reads a share.
    pub fn parse(text: &str) -> Result<Density, String> {
        let density = parse_density(text)?;
        match (density * 1e6).round() as u32 {
            0 => Err("it is a share of the elements of at least 0.000001".to_owned()),
            ppm => Ok(Density(ppm)),
        }
    }

    /// The share, above 0 and at most 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl fmt::Display for Density {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.share())
    }
}

/// A way to sum that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A protocol of ours.
    Ours(Ours),
    /// PyTorch with our backend, which chooses where to sum: over the workers' hosts, and what there is beside them.
    OneWord(Beside),
    /// PyTorch's Gloo, where hosts sum float32; with a density, sparse tensors.
    Gloo(Option<Density>),
}

/// Where PyTorch's ranks can sum beside their own hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nowhere.
    Nothing,
    /// At the switches of this many spare hosts.
    Spare(u16),
    /// At the switch in the middle of the star.
    Switch,
}

/// A protocol of ours, and the way in which it sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ours {
    /// The protocol.
    pub protocol: &'static Protocol,
    /// The elements' type.
    pub dtype: DType,
    /// In which numbers floats are summed, if the protocol leaves the choice.
    pub numbers: Option<&'static str>,
    /// The design in which the switch sums, if the protocol has several.
    pub design: Option<&'static str>,
    /// Threads of each worker, each with a socket.
    pub cores: u16,
    /// The share of the elements that ranks bring; `None` for dense tensors.
    pub density: Option<Density>,
}

impl Contender {
    /// All contenders, in the order in which they take turns.
    pub fn all(
        protocols: &[&'static Protocol],
        dtypes: &[DType],
        numbers: &[&'static str],
        designs: &[&'static str],
        cores: &[u16],
    ) -> Vec<Contender> {
        let of = |words: &[&'static str], has_choice: bool| -> Vec<_> {
            if has_choice && !words.is_empty() { words.iter().copied().map(Some).collect() } else { vec![None] }
        };
        let mut all = Vec::new();
        for &protocol in protocols {
            let numbers = of(numbers, protocol.options.specs.contains(&Numbers::OPTION));
            let designs = of(designs, design::has_designs(protocol));
            let cores = if protocol.divides_slots_by_default() { cores } else { &[1] };
            for (&dtype, &design) in dtypes.iter().flat_map(|dtype| designs.iter().map(move |design| (dtype, design))) {
                for &numbers in &numbers {
                    let ours = |&cores| Ours { protocol, dtype, numbers, design, cores, density: None };
                    all.extend(cores.iter().map(ours).map(Contender::Ours));
                }
            }
        }
        all.push(Contender::Gloo(None));
        all
    }

    /// The contenders that sum sparse tensors: first with dense tensors, then with sparse ones of each density.
    pub fn sparse(protocols: &[&'static Protocol], densities: &[Density]) -> Vec<Contender> {
        let able = protocols.iter().copied().filter(|protocol| protocol.options.sparse.is_some());
        let (dtype, numbers, design, cores, density) = (DType::F32, None, None, 1, None);
        let ours = able.map(|protocol| Ours { protocol, dtype, numbers, design, cores, density });
        let dense: Vec<Contender> = ours.map(Contender::Ours).chain([Contender::Gloo(None)]).collect();
        dense.into_iter().flat_map(|who| [who].into_iter().chain(densities.iter().map(move |&at| who.at(at)))).collect()
    }

    /// The same contender with sparse tensors.
    fn at(self, density: Density) -> Contender {
        match self {
            Contender::Ours(ours) => Contender::Ours(Ours { density: Some(density), ..ours }),
            Contender::OneWord(_) => self,
            Contender::Gloo(_) => Contender::Gloo(Some(density)),
        }
    }

    /// The same contender with dense tensors.
    pub fn dense(self) -> Contender {
        match self {
            Contender::Ours(ours) => Contender::Ours(Ours { density: None, ..ours }),
            Contender::OneWord(_) => self,
            Contender::Gloo(_) => Contender::Gloo(None),
        }
    }

    /// The share of the elements that ranks bring; `None` for dense tensors.
    pub fn density(&self) -> Option<Density> {
        match *self {
            Contender::Ours(Ours { density, .. }) | Contender::Gloo(density) => density,
            Contender::OneWord(_) => None,
        }
    }

    /// True if PyTorch runs it.
    pub fn is_of_torch(&self) -> bool {
        matches!(self, Contender::OneWord(_) | Contender::Gloo(_))
    }

    /// True if it is Gloo.
    pub fn is_gloo(&self) -> bool {
        matches!(self, Contender::Gloo(_))
    }

    /// Gloo, with tensors of the same kind.
    pub fn gloo(&self) -> Contender {
        Contender::Gloo(self.density())
    }

    /// The name in tables, which leaves out defaults.
    pub fn name(&self) -> String {
        let sparse = self.density().map(|density| format!("sparse {density}"));
        let beside = match self {
            Contender::OneWord(Beside::Spare(spare)) => Some(format!("+{spare} spare")),
            Contender::OneWord(Beside::Switch) => Some("+switch".to_owned()),
            _ => None,
        };
        let cores = (self.cores() > 1).then(|| format!("{} cores", self.cores()));
        let words = match self {
            Contender::OneWord(_) => vec!["one word"],
            Contender::Gloo(_) => vec!["Gloo"],
            Contender::Ours(Ours { protocol, dtype, numbers, design, .. }) => {
                let dtype = (*dtype != DType::F32).then(|| dtype.name());
                let numbers = numbers.filter(|numbers| *numbers != Numbers::OPTION.default);
                [Some(protocol.name), dtype, numbers, *design].into_iter().flatten().collect()
            }
        };
        words
            .into_iter()
            .chain(cores.as_deref())
            .chain(beside.as_deref())
            .chain(sparse.as_deref())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The name of the protocol in JSON.
    pub fn protocol(&self) -> &'static str {
        match self {
            Contender::Ours(ours) => ours.protocol.name,
            Contender::OneWord(_) => "auto",
            Contender::Gloo(_) => "gloo",
        }
    }

    /// The elements' type.
    pub fn dtype(&self) -> DType {
        match self {
            Contender::Ours(ours) => ours.dtype,
            Contender::OneWord(_) | Contender::Gloo(_) => DType::F32,
        }
    }

    /// In which numbers floats are summed.
    pub fn numbers(&self) -> &'static str {
        match self {
            Contender::Ours(Ours { numbers: Some(numbers), .. }) => numbers,
            _ => Numbers::OPTION.default,
        }
    }

    /// The design in which the switch sums; `None` if the protocol chooses.
    pub fn design(&self) -> Option<&'static str> {
        match self {
            Contender::Ours(ours) => ours.design,
            Contender::OneWord(_) | Contender::Gloo(_) => None,
        }
    }

    /// Threads of each worker, each with a socket.
    pub fn cores(&self) -> u16 {
        match self {
            Contender::Ours(ours) => ours.cores,
            Contender::OneWord(_) | Contender::Gloo(_) => 1,
        }
    }

    /// The same protocol and numbers with float32.
    pub fn of_f32(&self) -> Contender {
        match *self {
            Contender::Ours(ours) => Contender::Ours(Ours { dtype: DType::F32, ..ours }),
            Contender::OneWord(_) | Contender::Gloo(_) => *self,
        }
    }

    /// The same protocol and type in fixed point, if the protocol leaves the choice.
    pub fn in_fixed_point(&self) -> Option<Contender> {
        match *self {
            Contender::Ours(ours @ Ours { numbers: Some(_), .. }) => {
                Some(Contender::Ours(Ours { numbers: Some("fixed"), ..ours }))
            }
            _ => None,
        }
    }
}

impl Ours {
    /// The flags of `tributary allreduce` for it.
    pub fn flags(&self) -> Vec<String> {
        let numbers =
            self.numbers.map(|numbers| ["--option".to_owned(), format!("{}={numbers}", Numbers::OPTION.name)]);
        let dtype = ["--dtype".to_owned(), self.dtype.name().to_owned()];
        let sparse = self.density.map(|density| ["--sparse".to_owned(), density.to_string()]);
        let design = self.design.map(|design| ["--design".to_owned(), design.to_owned()]);
        let cores = (self.cores > 1).then(|| ["--cores".to_owned(), self.cores.to_string()]);
        dtype.into_iter().chain([numbers, design, cores, sparse].into_iter().flatten().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_or_of_more_than_all_is_refused() {
        assert_eq!(Density::parse("0.01").map(Density::share), Ok(0.01));
        for wrong in ["0", "1.1", "-1", "NaN", "few", "1e-9"] {
            assert!(Density::parse(wrong).unwrap_err().contains("share of the elements"), "{wrong}");
        }
    }
}
