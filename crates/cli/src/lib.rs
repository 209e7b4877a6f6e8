//! tributary-cli
