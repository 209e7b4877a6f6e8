//! The self-test: it applies an operator to a thousand of its elements before the operator is used.
//!
//! Elements are drawn from the values at which operators go wrong (zeros of both signs, extremes, infinities, NaN) and
//! at random, with a fixed seed: a module gets the same verdict everywhere. A test finds faults and proves nothing:
//! that an operator is associative is its author's promise, as in MPI.

use tributary_proto::contract::operator::Needs;

use crate::element::{Element, Scalar};
use crate::error::OperatorError;
use crate::instance::{Fuel, why};
use crate::layout::VectorLayout;
use crate::limits::{MOST_FUEL, MOST_FUEL_PER_BYTE};
use crate::module::{Guest, Module};

/// How many elements a batch has, and how many batches there are: 10,000 triples.
const BATCH: usize = 100;
const BATCHES: u64 = 100;
/// The instructions that an operator may take for a call and for an element, until its own number is known.
const FUEL_TO_CHECK: Fuel = Fuel { call: 100_000, element: 100_000 };
/// How many times as many instructions as in the test a call with other data may take.
const RESERVE: u64 = 4;
/// The byte around vectors, which no operator may change.
const GUARD: u8 = 0xC5;

/// The result of the self-test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What results depend on.
    pub needs: Needs,
    /// For people: two elements that do not commute, or three that do not associate.
    pub examples: Vec<String>,
    /// The most instructions that a call took, without its elements.
    pub fuel_per_call: u64,
    /// The most instructions that an element took.
    pub fuel_per_element: u64,
    pub(crate) fuel: Fuel,
}

/// Tests a module.
pub(crate) fn check(module: &Module) -> Result<Verdict, OperatorError> {
    let mut trial = Trial::new(module)?;
    trial.is_pure()?;
    let fuel = trial.fuel()?;
    let (mut commutes, mut associates) = (None, None);
    for batch in 0..BATCHES {
        let [a, b, c] = [0, 1, 2].map(|operand| draw(&module.element, 3 * batch + operand, BATCH));
        let (ab, ba) = (trial.combine(&a, &b)?, trial.combine(&b, &a)?);
        commutes =
            commutes.or_else(|| trial.differs(&ab, &ba, |at| commute_example(&module.element, at, [&a, &b, &ab, &ba])));
        let (left, bc) = (trial.combine(&ab, &c)?, trial.combine(&b, &c)?);
        let right = trial.combine(&a, &bc)?;
        associates = associates.or_else(|| {
            trial.differs(&left, &right, |at| associate_example(&module.element, at, [&a, &b, &c, &left, &right]))
        });
    }
    if module.commutative == Some(true)
        && let Some(example) = commutes
    {
        return Err(OperatorError::Unfit(format!("claims to commute, and does not: {example}")));
    }
    let needs = match (&commutes, &associates) {
        _ if module.commutative == Some(false) => Needs::RankOrder,
        (Some(_), _) => Needs::RankOrder,
        (None, Some(_)) => Needs::Arrangement,
        (None, None) => Needs::Nothing,
    };
    Ok(Verdict {
        needs,
        examples: commutes.into_iter().chain(associates).collect(),
        fuel_per_call: fuel.call,
        fuel_per_element: fuel.element,
        fuel: Fuel { call: RESERVE * fuel.call + 1_000, element: RESERVE * fuel.element },
    })
}

fn commute_example(element: &Element, at: usize, [a, b, ab, ba]: [&Vec<u8>; 4]) -> String {
    let [a, b, ab, ba] = [a, b, ab, ba].map(|vector| element.show(slice(element, vector, at)));
    format!("combine({a}, {b}) is {ab}, and combine({b}, {a}) is {ba}")
}

fn associate_example(element: &Element, at: usize, [a, b, c, left, right]: [&Vec<u8>; 5]) -> String {
    let [a, b, c, left, right] = [a, b, c, left, right].map(|vector| element.show(slice(element, vector, at)));
    format!("combine(combine({a}, {b}), {c}) is {left}, and combine({a}, combine({b}, {c})) is {right}")
}

fn slice<'a>(element: &Element, vector: &'a [u8], at: usize) -> &'a [u8] {
    &vector[at * element.size()..][..element.size()]
}

/// Some elements; every third is a value at which operators go wrong.
pub(crate) fn draw(element: &Element, batch: u64, elements: usize) -> Vec<u8> {
    let mut random = batch.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut vector = Vec::with_capacity(elements * element.size());
    for _ in 0..elements {
        let is_special = next() % 3 == 0;
        for field in element.fields() {
            if let Scalar::Opaque(bytes) = field.scalar {
                vector.extend(
                    (0..bytes).map(|_| if is_special { [0, 0xff, 0x80, 1][next() as usize % 4] } else { next() as u8 }),
                );
                continue;
            }
            let specials = field.scalar.specials();
            let value =
                if is_special { specials[next() as usize % specials.len()] } else { field.scalar.usual(next()) };
            vector.extend(&value.to_le_bytes()[..field.scalar.size()]);
        }
    }
    vector
}

/// A module whose memory is watched.
struct Trial<'a> {
    module: &'a Module,
    guest: Guest,
    layout: VectorLayout,
}

impl<'a> Trial<'a> {
    fn new(module: &'a Module) -> Result<Trial<'a>, OperatorError> {
        let bytes = BATCH * module.element.size();
        let guest = module.guest(VectorLayout::bytes(bytes, 2))?;
        let layout = VectorLayout::of(guest.free, bytes);
        Ok(Trial { module, guest, layout })
    }

    /// Combines a whole batch in one call, and checks that only the left operand has changed.
    fn combine(&mut self, left: &[u8], right: &[u8]) -> Result<Vec<u8>, OperatorError> {
        let (size, free) = (self.module.element.size(), self.guest.free);
        let [at, with] = [0, 1].map(|operand| self.layout.vector(operand));
        let elements = left.len() / size;
        let (before, between) = (at - free, with - at - left.len());
        let end = with + right.len();
        let after = self.guest.data().len() - end;
        for (from, len) in [(free, before), (at + left.len(), between), (end, after)] {
            self.guest.put(from, &vec![GUARD; len]);
        }
        self.guest.put(at, left);
        self.guest.put(with, right);
        let fuel = FUEL_TO_CHECK.of(elements);
        if let Err(error) = self.guest.call(at, with, elements, fuel) {
            return Err(OperatorError::Unfit(format!(
                "{} {}",
                why(&error, fuel, elements),
                self.with_what(left, right)
            )));
        }
        let data = self.guest.data();
        let kept = |from: usize, len: usize| data[from..from + len].iter().all(|&byte| byte == GUARD);
        if data[with..end] != *right {
            return Err(OperatorError::Unfit("writes to its right operand: only the left one is its to change".into()));
        }
        if !kept(free, before) || !kept(at + left.len(), between) || !kept(end, after) {
            return Err(OperatorError::Unfit(format!("writes beyond the {elements} elements of its left operand")));
        }
        Ok(data[at..at + left.len()].to_vec())
    }

    /// The elements of a call, if they are few.
    fn with_what(&self, left: &[u8], right: &[u8]) -> String {
        let (element, size) = (&self.module.element, self.module.element.size());
        match left.len() / size {
            0 => "of nothing".to_owned(),
            1 => format!("with {} and {}", element.show(left), element.show(right)),
            _ => "with random elements".to_owned(),
        }
    }

    /// Checks that the same elements give the same result: in another instance, after other calls, at another address,
    /// and alone.
    fn is_pure(&mut self) -> Result<(), OperatorError> {
        let size = self.module.element.size();
        let (a, b) = (draw(&self.module.element, 1_000, BATCH), draw(&self.module.element, 1_001, BATCH));
        let mut singles = Vec::new();
        for at in 0..BATCH {
            singles.extend(self.combine(&a[at * size..][..size], &b[at * size..][..size])?);
        }
        self.combine(&[], &[])?;
        let whole = self.combine(&a, &b)?;
        let reversed = |vector: &[u8]| vector.chunks(size).rev().flatten().copied().collect::<Vec<u8>>();
        let backwards = reversed(&self.combine(&reversed(&a), &reversed(&b))?);
        let odd = self.combine(&a[..(BATCH - 1) * size], &b[..(BATCH - 1) * size])?;
        let fresh = Trial::new(self.module)?.combine(&a, &b)?;
        for (other, when) in [
            (&singles, "one at a time or together"),
            (&backwards, "at one position of a vector or at another"),
            (&fresh, "in a fresh instance or after other calls"),
            (&odd, "in a vector of one length or of another"),
        ] {
            if let Some(at) =
                (0..other.len() / size).find(|at| other[at * size..][..size] != whole[at * size..][..size])
            {
                let [a, b, one, two] =
                    [&a, &b, &whole, other].map(|v| self.module.element.show(slice(&self.module.element, v, at)));
                return Err(OperatorError::Unfit(format!(
                    "keeps something from one element to the next: combine({a}, {b}) is {one} or {two}, {when}"
                )));
            }
        }
        Ok(())
    }

    /// Measures the fuel of a call and of an element.
    fn fuel(&mut self) -> Result<Fuel, OperatorError> {
        let size = self.module.element.size();
        let mut most = [0; 2];
        for batch in 0..10 {
            let (a, b) =
                (draw(&self.module.element, 2_000 + batch, BATCH), draw(&self.module.element, 3_000 + batch, BATCH));
            for (most, elements) in most.iter_mut().zip([0, BATCH]) {
                self.combine(&a[..elements * size], &b[..elements * size])?;
                *most = (*most).max(FUEL_TO_CHECK.of(elements) - self.guest.fuel_left());
            }
        }
        let [call, whole] = most;
        let element = whole.saturating_sub(call).div_ceil(BATCH as u64).max(1);
        let allowed = MOST_FUEL + MOST_FUEL_PER_BYTE * size as u64;
        if element > allowed {
            return Err(OperatorError::Unfit(format!(
                "takes {element} instructions for an element of {size} bytes: {allowed} are the most"
            )));
        }
        Ok(Fuel { call, element })
    }

    /// The first difference, as `example` describes it.
    fn differs(&self, one: &[u8], other: &[u8], example: impl Fn(usize) -> String) -> Option<String> {
        let size = self.module.element.size();
        (0..BATCH).find(|at| one[at * size..][..size] != other[at * size..][..size]).map(example)
    }
}
