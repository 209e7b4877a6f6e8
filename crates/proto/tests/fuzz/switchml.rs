//! SwitchML.

use super::entries::switchml as entries;
use super::header;

targets!(entries, header(), pipeline);
