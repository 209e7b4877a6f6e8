//! tributary-testbed
