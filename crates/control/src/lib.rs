//! tributary-control
