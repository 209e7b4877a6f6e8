/* Included by what wasm2c makes, and not used. */
