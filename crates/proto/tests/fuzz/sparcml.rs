//! SparCML.

use proptest::collection::vec;
use proptest::prelude::*;

use super::entries::sparcml as entries;
use super::{header, input};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn wire(header in header(), body in vec(any::<u8>(), 0..160), cut in 0..200usize) {
        let mut bytes = header;
        bytes.extend(body);
        bytes.truncate(cut);
        entries::wire(&bytes);
    }

    #[test]
    fn host(bytes in input(header())) {
        entries::host(&bytes);
    }
}
