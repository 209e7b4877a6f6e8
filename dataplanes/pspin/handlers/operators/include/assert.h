/* wasm2c's assertions are about the order of its own calls. */
#define assert(x) ((void)(x))
