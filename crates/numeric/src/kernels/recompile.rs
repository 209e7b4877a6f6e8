//! Macros that the tables of SIMD kernels share.

/// A plain function for a table, from one that needs instructions that not every processor has.
macro_rules! enter {
    ($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?) => {
        // SAFETY: the table is only handed out where the processor has the instructions (`available`).
        |$($argument: $type),*| $(-> $result)? { unsafe { $name($($argument),*) } }
    };
}

/// The portable loops that compilers vectorise well, compiled for the given instructions.
macro_rules! recompile_portable {
    ($features:literal) => {
        recompile_portable! { $features;
            fn store_be(lanes: &mut [u32], vector: &[u8]);
            fn add_be(lanes: &mut [u32], vector: &[u8]);
            fn load_be(lanes: &[u32], vector: &mut [u8]);
            fn max_abs_f32(input: &[f32]) -> u32;
            fn max_abs_f16(input: &[f16]) -> u32;
            fn max_abs_bf16(input: &[bf16]) -> u32;
            fn write_f32(input: &[f32], bytes: &mut [u8]);
            fn write_f16(input: &[f16], bytes: &mut [u8]);
            fn write_bf16(input: &[bf16], bytes: &mut [u8]);
            fn write_i32(input: &[i32], bytes: &mut [u8]);
            fn read_f32(bytes: &[u8], output: &mut [f32]);
            fn read_f16(bytes: &[u8], output: &mut [f16]);
            fn read_bf16(bytes: &[u8], output: &mut [bf16]);
            fn read_i32(bytes: &[u8], output: &mut [i32]);
            fn add_f32(input: &[f32], bytes: &[u8], output: &mut [f32]);
            fn add_i32(input: &[i32], bytes: &[u8], output: &mut [i32]);
            fn add_in_place_f32(data: &mut [f32], bytes: &[u8]);
            fn add_in_place_i32(data: &mut [i32], bytes: &[u8]);
            fn divide_f32(data: &mut [f32], divisor: f64);
            fn divide_i32(data: &mut [i32], divisor: f64);
        }
    };
    ($features:literal; $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(
            #[target_feature(enable = $features)]
            fn $name($($argument: $type),*) $(-> $result)? {
                portable::$name($($argument),*)
            }
        )*
    };
}
