//! The handlers of `dataplanes/pspin`: what they compute, what each of their steps costs, and that they were built from their
//! sources.

mod bench;
mod cycles;
mod dense;
mod element;
mod mixture;
mod provenance;
mod sparse;
