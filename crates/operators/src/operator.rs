//! A checked module as an operator that `proto` knows, and the reference computation on one machine.

use std::fmt;
use std::sync::Arc;

use tributary_proto::contract::operator::{Fault, Instance, Needs, Operator, OperatorHash, Room};
use tributary_proto::contract::sum_tree::SumTree;

use crate::check::{Verdict, check};
use crate::element::Element;
use crate::error::OperatorError;
use crate::instance::{Code, WasmInstance, host_bytes};
use crate::module::Module;

/// The most bytes that [`reduce`] combines in a call.
const CALL_BYTES: usize = 16 * 1024;

/// An operator that passed the self-test.
#[derive(Clone)]
pub struct UserOperator {
    code: Arc<Code>,
    verdict: Verdict,
}

impl UserOperator {
    pub(crate) fn checked(module: Module) -> Result<UserOperator, OperatorError> {
        let verdict = check(&module)?;
        Ok(UserOperator { code: Arc::new(Code { module, fuel: verdict.fuel }), verdict })
    }

    /// The kind of its elements.
    pub fn element(&self) -> &Element {
        &self.code.module.element
    }

    /// Elements to try it with; the same seed gives the same elements.
    pub fn sample(&self, seed: u64, elements: usize) -> Vec<u8> {
        crate::check::draw(self.element(), 1_000_000 + seed, elements)
    }

    /// The result of the self-test.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

impl fmt::Debug for UserOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserOperator({} {})", self.name(), self.hash().short())
    }
}

impl Operator for UserOperator {
    fn hash(&self) -> OperatorHash {
        self.code.module.hash
    }
    fn name(&self) -> &str {
        &self.code.module.name
    }
    fn element_size(&self) -> usize {
        self.code.module.element.size()
    }
    fn needs(&self) -> Needs {
        self.verdict.needs
    }
    fn module(&self) -> &[u8] {
        &self.code.module.bytes
    }
    fn memory_bytes(&self, room: Room) -> usize {
        size_of::<WasmInstance>() + self.code.module.memory_bytes(host_bytes(room))
    }
    fn instance(&self, room: Room) -> Box<dyn Instance> {
        Box::new(WasmInstance::new(self.code.clone(), room))
    }
}

/// What switches make of the vectors of all ranks, in the order of ranks, along a tree: computed on one machine by the
/// same module. `None` if the tree names a rank that does not exist.
pub fn reduce(operator: &dyn Operator, vectors: &[&[u8]], tree: &SumTree) -> Option<Result<Vec<u8>, Fault>> {
    let most = (CALL_BYTES / operator.element_size()).max(1) * operator.element_size();
    let mut home = Home { instance: operator.instance(Room { vector_bytes: most, accumulators: 1 }), most, vectors };
    tree.is_sound().then(|| home.value(tree).transpose()).flatten()
}

struct Home<'a> {
    instance: Box<dyn Instance>,
    most: usize,
    vectors: &'a [&'a [u8]],
}

impl Home<'_> {
    fn value(&mut self, tree: &SumTree) -> Result<Option<Vec<u8>>, Fault> {
        match tree {
            SumTree::Rank(rank) => Ok(self.vectors.get(usize::from(*rank)).map(|vector| vector.to_vec())),
            SumTree::Switch(children) => self.combined(children),
        }
    }

    /// A node of more than one position splits at the largest power of two below their number; the lower positions are on the
    /// left.
    fn combined(&mut self, children: &[SumTree]) -> Result<Option<Vec<u8>>, Fault> {
        if let [child] = children {
            return self.value(child);
        }
        let (left, right) = children.split_at(children.len().next_power_of_two() / 2);
        let (Some(mut left), Some(right)) = (self.combined(left)?, self.combined(right)?) else { return Ok(None) };
        for (left, right) in left.chunks_mut(self.most).zip(right.chunks(self.most)) {
            self.instance.store(0, left)?;
            self.instance.add(0, right)?;
            left.copy_from_slice(self.instance.lanes(0, left.len()));
        }
        Ok(Some(left))
    }
}
