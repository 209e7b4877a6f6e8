/* The functions of C's own math.h that wasm2c's code calls. Those that are no instruction or two are in operator.c. */
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define isnan(x) __builtin_isnan(x)
#define signbit(x) __builtin_signbit(x)
#define fabsf __builtin_fabsf
#define fabs __builtin_fabs
#define sqrtf __builtin_sqrtf
#define copysignf __builtin_copysignf
#define copysign __builtin_copysign

float floorf(float x);
float ceilf(float x);
float truncf(float x);
float nearbyintf(float x);
double floor(double x);
double ceil(double x);
double trunc(double x);
double nearbyint(double x);
double sqrt(double x);
