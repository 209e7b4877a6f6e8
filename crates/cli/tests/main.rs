//! The program: one program of tests, so that it is linked once. `make test` runs those on networks of namespaces beside
//! the others.

mod binary;
mod manual;
mod namespaces;
mod plan;
mod replay;
mod shows;
