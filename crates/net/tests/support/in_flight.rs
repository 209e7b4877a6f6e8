//! Sums that are under way over a test's own memory, which stays borrowed until they have ended.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Deref;

use super::PATIENCE;
use tributary_net::group::{Drive, Group, Pending, Submission};
use tributary_numeric::{Element, ReduceOp};

/// A sum that another thread drives. Dropping it waits.
pub struct InFlight<'a> {
    pending: Pending,
    _memory: PhantomData<&'a mut [u8]>,
}

/// Begins a sum of one buffer into another of the same length.
pub fn begin<'a, T: Element>(group: &Group, input: &'a [T], output: &'a mut [T]) -> InFlight<'a> {
    assert_eq!(input.len(), output.len());
    // SAFETY: both are borrowed until the value, which waits when it is dropped, is gone.
    unsafe { begin_at(group, input.as_ptr(), output.as_mut_ptr(), input.len()) }
}

/// Begins a sum in place.
pub fn begin_in_place<'a, T: Element>(group: &Group, data: &'a mut [T]) -> InFlight<'a> {
    let at = data.as_mut_ptr();
    // SAFETY: as above.
    unsafe { begin_at(group, at, at, data.len()) }
}

/// # Safety
///
/// The memory must stay valid, and untouched, until the collective has ended.
unsafe fn begin_at<'a, T: Element>(group: &Group, input: *const T, output: *mut T, elements: usize) -> InFlight<'a> {
    let (input, output, loss) = (input.cast(), output.cast(), std::ptr::null_mut());
    let (dtype, op, timeout, drive) = (T::DTYPE, ReduceOp::Sum, PATIENCE, Drive::Background);
    let submission = Submission { input, output, loss, elements, dtype, op, timeout, drive };
    // SAFETY: the caller promises it.
    let pending = unsafe { group.submit_allreduce(submission, 0..elements) }.unwrap();
    InFlight { pending, _memory: PhantomData }
}

impl Deref for InFlight<'_> {
    type Target = Pending;

    fn deref(&self) -> &Pending {
        &self.pending
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // Why it failed is for whoever has waited.
        let _ = self.pending.wait(None);
    }
}
