//! An operator at work: one call for each vector, in memory that was allocated with the instance. Accumulators lie in
//! the guest's memory, so that only the vector that has just come is copied.

use std::ops::Range;
use std::sync::Arc;

use tributary_proto::contract::operator::{Accumulators, Fault, Instance, Room};
use wasmtime::Trap;

use crate::error::OperatorError;
use crate::layout::VectorLayout;
use crate::module::{Guest, Module, one_line};

/// How many instructions a call may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fuel {
    pub call: u64,
    pub element: u64,
}

impl Fuel {
    pub fn of(self, elements: usize) -> u64 {
        self.call + self.element * elements as u64
    }
}

/// A length of vectors, and what follows from it.
#[derive(Clone, Copy)]
struct Length {
    bytes: usize,
    elements: usize,
    fuel: u64,
}

/// What the instances of one operator share.
pub(crate) struct Code {
    pub module: Module,
    pub fuel: Fuel,
}

impl Code {
    fn length(&self, bytes: usize) -> Length {
        let elements = bytes / self.module.element.size();
        Length { bytes, elements, fuel: self.fuel.of(elements) }
    }

    fn sentence(&self, why: &str) -> Fault {
        let Module { name, hash, .. } = &self.module;
        Fault(format!("the operator {name} (SHA-256 {}) {why}", hash.short()))
    }
}

/// An instance with its accumulators in the guest's memory, or the reason why it could not be made.
pub(crate) struct WasmInstance {
    code: Arc<Code>,
    room: Room,
    guest: Result<Guest, OperatorError>,
    /// Of the last call: most packets are as long as the one before.
    length: Length,
    /// Instructions since the last question.
    instructions: u64,
}

/// The index of the vector that has just arrived. The accumulators are behind it.
const ARRIVED: usize = 0;

/// Bytes of the guest's memory that a room takes.
pub(crate) fn host_bytes(room: Room) -> usize {
    VectorLayout::bytes(room.vector_bytes, 1 + room.accumulators)
}

impl WasmInstance {
    pub fn new(code: Arc<Code>, room: Room) -> WasmInstance {
        let guest = code.module.guest(host_bytes(room));
        WasmInstance { length: code.length(0), code, room, guest, instructions: 0 }
    }

    /// The guest, and the layout of its vectors.
    fn guest(&mut self) -> Result<(&Code, &mut Guest, VectorLayout), Fault> {
        let (code, guest) = (&*self.code, self.guest.as_mut());
        let guest = guest.map_err(|error| code.sentence(&format!("cannot be started: {error}")))?;
        let layout = VectorLayout::of(guest.free, self.room.vector_bytes);
        Ok((code, guest, layout))
    }

    /// Combines one vector with another; both are named by their places.
    fn call(&mut self, left: usize, right: usize, bytes: usize) -> Result<(), Fault> {
        if bytes != self.length.bytes {
            self.length = self.code.length(bytes);
        }
        let Length { elements, fuel, .. } = self.length;
        let (code, guest, layout) = self.guest()?;
        let called = guest.call(layout.vector(left), layout.vector(right), elements, fuel);
        let took = fuel.saturating_sub(guest.fuel_left());
        let called = called.map_err(|error| code.sentence(&why(&error, fuel, elements)));
        self.instructions += took;
        called
    }

    /// The range of the accumulators in the guest's memory, and the distance between them.
    fn all_accumulators(&self, guest: &Guest) -> (Range<usize>, usize) {
        let layout = VectorLayout::of(guest.free, self.room.vector_bytes);
        (layout.vector(1)..layout.vector(1 + self.room.accumulators), layout.stride())
    }

    fn put(&mut self, index: usize, vector: &[u8]) -> Result<(), Fault> {
        let Room { vector_bytes, accumulators } = self.room;
        assert!(vector.len() <= vector_bytes && index <= accumulators, "an instance has room for {:?}", self.room);
        let (_, guest, layout) = self.guest()?;
        guest.put(layout.vector(index), vector);
        Ok(())
    }
}

/// Why a call failed, as the rest of a sentence that begins with the operator's name.
pub(crate) fn why(error: &wasmtime::Error, fuel: u64, elements: usize) -> String {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => format!("did not end within {fuel} instructions for {elements} elements"),
        _ => format!("has trapped: {}", one_line(error)),
    }
}

impl Instance for WasmInstance {
    fn store(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault> {
        self.put(1 + accumulator, vector)
    }

    fn add(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault> {
        self.put(ARRIVED, vector)?;
        self.call(1 + accumulator, ARRIVED, vector.len())
    }

    fn add_left(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault> {
        self.put(ARRIVED, vector)?;
        self.call(ARRIVED, 1 + accumulator, vector.len())?;
        let (_, guest, layout) = self.guest()?;
        guest.copy(layout.vector(ARRIVED), layout.vector(1 + accumulator), vector.len());
        Ok(())
    }

    fn merge(&mut self, left: usize, right: usize, bytes: usize) -> Result<(), Fault> {
        self.call(1 + left, 1 + right, bytes)
    }

    fn lanes(&self, accumulator: usize, bytes: usize) -> &[u8] {
        assert!(bytes <= self.room.vector_bytes && accumulator < self.room.accumulators);
        let guest = self.guest.as_ref().expect("whoever stored a vector knows that there is a guest");
        &guest.data()[VectorLayout::of(guest.free, self.room.vector_bytes).vector(1 + accumulator)..][..bytes]
    }

    fn accumulators(&self) -> Option<Accumulators<&[u8]>> {
        let guest = self.guest.as_ref().ok()?;
        let (range, stride) = self.all_accumulators(guest);
        Some(Accumulators { bytes: &guest.data()[range], stride })
    }

    fn accumulators_mut(&mut self) -> Option<Accumulators<&mut [u8]>> {
        let (range, stride) = self.all_accumulators(self.guest.as_ref().ok()?);
        let guest = self.guest.as_mut().ok()?;
        Some(Accumulators { bytes: &mut guest.data_mut()[range], stride })
    }

    fn take_instructions(&mut self) -> u64 {
        std::mem::take(&mut self.instructions)
    }

    fn state(&self) -> &[u8] {
        self.guest.as_ref().map_or(&[], |guest| &guest.data()[guest.free..])
    }

    fn fork(&self) -> Box<dyn Instance> {
        let mut other = WasmInstance::new(self.code.clone(), self.room);
        if let Ok(guest) = &mut other.guest {
            guest.put(guest.free, self.state());
        }
        Box::new(other)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<WasmInstance>() + self.code.module.memory_bytes(host_bytes(self.room))
    }
}
