//! Files as numpy writes them, and malformed files.

use super::header::Order;
use super::*;
use half::{bf16, f16};

/// A file with this dictionary and body, of version 1.0.
fn file(dictionary: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(dictionary.len() as u16).to_le_bytes());
    bytes.extend_from_slice(dictionary.as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn problem(dictionary: &str, body: &[u8]) -> String {
    Array::parse(&file(dictionary, body), None).unwrap_err()
}

#[test]
fn a_file_comes_back_byte_for_byte() {
    // numpy.save(f, numpy.array([[1, 2, 3], [4, 5, 6]], dtype='f2', order='F'))
    let halves = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0].map(f16::from_f32);
    let body: Vec<u8> = halves.iter().flat_map(|value| value.to_le_bytes()).collect();
    let text = "{'descr': '<f2', 'fortran_order': True, 'shape': (2, 3), }";
    let padded = format!("{text:<117}\n");
    let bytes = file(&padded, &body);
    let array = Array::parse(&bytes, None).unwrap();
    assert_eq!(array.data, Data::F16([1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(f16::from_f32).to_vec()));
    assert_eq!(array.to_bytes(), bytes);
}

#[test]
fn big_endian_files_stay_big_endian() {
    let text = "{'descr': '>i4', 'fortran_order': False, 'shape': (), }";
    let array = Array::parse(&file(text, &(-7i32).to_be_bytes()), None).unwrap();
    assert_eq!(array.data, Data::I32(vec![-7]));
    assert!(array.to_bytes().ends_with(&(-7i32).to_be_bytes()));
}

#[test]
fn every_order_of_three_dimensions_is_its_own_inverse() {
    let header = Header { dtype: DType::I32, big_endian: false, order: Order::Fortran, shape: vec![2, 3, 4] };
    let data = Data::I32((0..24).collect());
    let array = Array { header, data };
    let bytes = array.to_bytes();
    let body = &bytes[bytes.len() - 96..];
    // Element (1, 0, 0) is the second in Fortran order and the 13th in C order.
    assert_eq!(body[4..8], 12i32.to_le_bytes());
    assert_eq!(Array::parse(&bytes, None).unwrap(), array);
}

#[test]
fn floats_convert_to_the_type_that_is_requested_and_back() {
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
    let array = Array::parse(&file(text, &1.0f32.to_le_bytes()), Some(DType::BF16)).unwrap();
    assert_eq!(array.data, Data::BF16(vec![bf16::from_f32(1.0)]));
    assert!(array.to_bytes().ends_with(&1.0f32.to_le_bytes()));
}

/// The first bytes of what numpy writes for `numpy.array([3], dtype)`, and the element's own.
#[test]
fn every_type_has_numpys_name_and_comes_back_byte_for_byte() {
    let three: [(&str, Data, &[u8]); 9] = [
        ("<f4", Data::F32(vec![3.0]), &[0, 0, 0x40, 0x40]),
        ("<f2", Data::F16(vec![f16::from_f32(3.0)]), &[0, 0x42]),
        ("<V2", Data::BF16(vec![bf16::from_f32(3.0)]), &[0x40, 0x40]),
        ("<i4", Data::I32(vec![3]), &[3, 0, 0, 0]),
        ("<f8", Data::F64(vec![3.0]), &[0, 0, 0, 0, 0, 0, 8, 0x40]),
        ("|i1", Data::I8(vec![3]), &[3]),
        ("<i2", Data::I16(vec![3]), &[3, 0]),
        ("<i8", Data::I64(vec![3]), &[3, 0, 0, 0, 0, 0, 0, 0]),
        ("|u1", Data::U8(vec![3]), &[3]),
    ];
    for (descr, data, body) in three {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}");
        let bytes = file(&format!("{text:<117}\n"), body);
        let array = Array::parse(&bytes, None).unwrap();
        assert_eq!(array.data, data, "{descr}");
        assert_eq!(array.to_bytes(), bytes, "{descr}");
    }
}

#[test]
fn a_64_bit_float_becomes_a_16_bit_one_by_one_rounding() {
    // A little above the middle between 1 and the next binary16. Rounded to binary32 first, it would be the middle, a
    // tie.
    let value = 1.0 + f64::from(f16::EPSILON) / 2.0 + 2f64.powi(-40);
    let text = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }";
    let array = Array::parse(&file(text, &value.to_le_bytes()), Some(DType::F16)).unwrap();
    assert_eq!(array.data, Data::F16(vec![f16::from_f32(1.0) + f16::EPSILON]));
}

#[test]
fn integers_and_floats_do_not_mix() {
    let text = "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }";
    let problem = Array::parse(&file(text, &[0; 4]), Some(DType::F32)).unwrap_err();
    assert_eq!(problem, "holds i32 and --dtype asks for f32; only floats become other floats");
}

#[test]
fn wrong_files_are_refused_with_a_sentence() {
    assert!(Array::parse(b"", None).unwrap_err().contains("is no .npy file"));
    assert!(Array::parse(b"PK\x03\x04", None).unwrap_err().contains("is no .npy file"));
    assert!(Array::parse(b"\x93NUMPY", None).unwrap_err().contains("header is cut off"));
    assert!(Array::parse(b"\x93NUMPY\x01\x00\xff\xffxx", None).unwrap_err().contains("header is cut off"));
    assert!(Array::parse(b"\x93NUMPY\x02\x00\xff\xff\xff\xffxx", None).unwrap_err().contains("header is cut off"));
    assert!(Array::parse(b"\x93NUMPY\x09\x00\x00\x00", None).unwrap_err().contains("version 9"));
    assert!(problem("{}", &[]).contains("does not name 'descr'"));
    assert!(problem("{'descr': '<u4', 'fortran_order': False, 'shape': (1,), }", &[0; 4]).contains("type '<u4'"));
    assert!(problem("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", &[]).contains("records"));
    assert!(problem("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }", &[]).contains("fortran_order"));
    assert!(
        problem("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", &[]).contains("shape is not a tuple")
    );
    assert!(problem("{'descr': '<f4', 'fortran_order': False, 'shape': ((((", &[]).contains("shape is not a tuple"));
    let short = problem("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", &[0; 11]);
    assert!(short.contains("holds 11 bytes of elements where its shape (3 of f32) needs 12"), "{short}");
}

#[test]
fn a_shape_beyond_all_memory_is_refused_before_anything_is_allocated() {
    let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }";
    assert!(problem(huge, &[]).contains("no memory holds"));
    let wide = "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,), }";
    assert!(problem(wide, &[]).contains("no memory holds"));
}

#[test]
fn an_empty_array_of_any_shape_is_fine() {
    let text = "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 0, 2), }";
    let array = Array::parse(&file(text, &[]), None).unwrap();
    assert_eq!(array.data.len(), 0);
    assert_eq!(Array::parse(&array.to_bytes(), None).unwrap(), array);
}
