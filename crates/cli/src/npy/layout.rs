//! Conversion between a file's order and C order. Elements are sent in C order, so that ranks whose files differ in
//! order still add corresponding elements.

use super::header::{Header, Order};

/// The elements' bytes in C order.
pub fn to_c_order(bytes: &[u8], header: &Header) -> Vec<u8> {
    if !is_transposed(header) {
        return bytes.to_vec();
    }
    let size = header.dtype.size();
    let mut ordered = Vec::with_capacity(bytes.len());
    for_each_fortran_offset(&header.shape, |offset| ordered.extend_from_slice(&bytes[offset * size..][..size]));
    ordered
}

/// The elements' bytes in the file's order.
pub fn from_c_order(bytes: &[u8], header: &Header) -> Vec<u8> {
    if !is_transposed(header) {
        return bytes.to_vec();
    }
    let size = header.dtype.size();
    let mut ordered = vec![0; bytes.len()];
    let mut elements = bytes.chunks_exact(size);
    for_each_fortran_offset(&header.shape, |offset| {
        let element = elements.next().expect("as many elements as offsets");
        ordered[offset * size..][..size].copy_from_slice(element);
    });
    ordered
}

fn is_transposed(header: &Header) -> bool {
    header.order == Order::Fortran && header.shape.len() > 1
}

/// Visits the elements in C order and tells where each lies in Fortran order.
fn for_each_fortran_offset(shape: &[usize], mut visit: impl FnMut(usize)) {
    if shape.contains(&0) {
        return;
    }
    let strides: Vec<usize> = shape
        .iter()
        .scan(1, |stride, &length| {
            let own = *stride;
            *stride *= length;
            Some(own)
        })
        .collect();
    let mut index = vec![0; shape.len()];
    let mut offset = 0;
    loop {
        visit(offset);
        // Count up like an odometer whose last wheel turns fastest.
        let mut wheel = shape.len();
        loop {
            if wheel == 0 {
                return;
            }
            wheel -= 1;
            index[wheel] += 1;
            offset += strides[wheel];
            if index[wheel] < shape[wheel] {
                break;
            }
            offset -= strides[wheel] * shape[wheel];
            index[wheel] = 0;
        }
    }
}
